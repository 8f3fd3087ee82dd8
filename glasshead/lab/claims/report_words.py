"""What the page and claims.md say around the claims, in both languages."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from glasshead.lab.claims.claim import VERDICTS, Words
from glasshead.lab.claims.store import Stored
from glasshead.lab.ladder_figure import ADDS

if TYPE_CHECKING:
    from glasshead.lab.claims.report import Ladder

__all__ = ["ABOUT", "counted", "ladder_rows", "ladder_text", "measured"]

ABOUT: dict[str, Words] = {
    "title": Words("What is claimed of attention, measured", "关于注意力的论断，逐一测量"),
    "lead": Words(
        "Five documents that teach attention claim some twenty things about it. Here each is an "
        "experiment that could have come out either way: what counts for and against was written "
        "down before it ran. Of {total} claims: {counts}.",
        "五篇讲解注意力的文档提出了约二十条论断。这里每一条都是一个结果可正可反的实验：什么算支"
        "持、什么算反对，在运行之前就已写定。{total} 条论断中：{counts}。",
    ),
    "intervals": Words(
        "Numbers in brackets are 95 % bootstrap intervals over seeds (10,000 resamples). With "
        "three to five seeds they are about the range of what was seen and cover less than they "
        "promise, so verdicts ask for effects of a size fixed beforehand, not for differences "
        "from zero.",
        "方括号中是对随机种子做自助法（重采样一万次）得到的 95% 区间。种子只有三到五个，区间大致"
        "就是所见的范围，覆盖率低于名义值；所以结论要求效应达到事先定好的大小，而不只是“不为零”。",
    ),
    "claim": Words("claim", "论断"),
    "verdict": Words("verdict", "结论"),
    "source": Words("source: {source}", "出处：{source}"),
    "found": Words("What came out", "结果"),
    "how": Words("How", "做法"),
    "for": Words("Counts for it", "算支持"),
    "against": Words("Counts against it", "算反对"),
    "tried": Words("Tried before", "此前的尝试"),
    "correction": Words("A correction", "更正"),
    "numbers": Words("All numbers", "全部数字"),
    "method": Words("How it was measured", "如何测量"),
    "figure": Words("Figure of claim {number}", "论断 {number} 的图"),
    "missing": Words("Not yet measured: {which}.", "尚未测量：{which}。"),
    "stale": Words("The code has changed since this was measured.", "此次测量之后代码有改动。"),
    "ladder": Words("The ladder", "阶梯"),
    "ladder lead": Words(
        "From a bigram table to a GPT, one part at a time, all rungs on the same batches. {text}",
        "从二元模型到 GPT，每次只加一个部件，各级使用同样的批次。{text}",
    ),
    "ladder text": Words(
        "Text: {name}, {characters:,} characters, {vocabulary:,} distinct. Seeds: "
        "{seeds}. Losses in nats a character, ± one standard deviation over seeds.",
        "文本：{name}，{characters:,} 个字符，{vocabulary:,} 种。种子数：{seeds}。损失单"
        "位 nat/字符，± 为各种子间的标准差。",
    ),
    "rung": Words("rung", "级"),
    "adds": Words("adds", "增加"),
    "parameters": Words("parameters", "参数"),
    "training": Words("training", "训练"),
    "validation": Words("validation", "验证"),
    "change": Words("change", "变化"),
    "errata": Words("Where the documents err", "文档中的错误"),
    "errata lead": Words(
        "The documents are good teachers, and everything above began with them. In a few places "
        "they say something that is not so.",
        "这些文档是很好的老师，以上一切都从它们开始。只是有几处所说与事实不符。",
    ),
    "again": Words("To see it on your machine", "在自己的机器上看一看"),
    "run": Words(
        "`glasshead claims --quick` measures all of it coarsely, `glasshead claims all` fully, "
        "`glasshead claims 5` one of them; `glasshead claims report` makes this page.",
        "`glasshead claims --quick` 粗测全部，`glasshead claims all` 完整测量，`glasshead claims "
        "5` 只测一条；`glasshead claims report` 生成本页。",
    ),
}


def counted(claims: Mapping[int, Stored]) -> Words:
    """
    "9 hold, 7 hold only when …", by verdict.
    """
    found = [stored.finding.verdict for stored in claims.values()]
    there = [(found.count(verdict), name) for verdict, name in VERDICTS.items() if verdict in found]
    return Words(
        ", ".join(f"{n} × “{name.en}”" for n, name in there),
        "，".join(f"{n} 条“{name.zh}”" for n, name in there),
    )


def measured(stored: Stored) -> Words:
    v, m = stored.versions, stored.machine
    kind = Words("quick", "快速") if stored.quick else Words("full", "完整")
    seeds = " ".join(map(str, stored.seeds))
    software = f"glasshead {v['glasshead']}, torch {v['torch']}, Python {v['python']}"
    return Words(
        f"{kind.en}; seeds {seeds}; {stored.seconds:.0f} s; {stored.when} UTC; {software}; "
        f"{m['system']} {m['processor']}, {m['cores']} cores, {m['threads']} threads",
        f"{kind.zh}；种子 {seeds}；{stored.seconds:.0f} 秒；{stored.when} UTC；{software}；"
        f"{m['system']} {m['processor']}，{m['cores']} 核，{m['threads']} 线程",
    )


def ladder_text(ladder: "Ladder") -> Words:
    seeds = max(len(row.climbs) for row in ladder.rows)
    words = ABOUT["ladder text"]
    text = {lang: words[lang].format(**ladder.text, seeds=seeds) for lang in ("en", "zh")}
    lead = ABOUT["ladder lead"]
    return Words(lead.en.format(text=text["en"]), lead.zh.format(text=text["zh"]))


def ladder_rows(ladder: "Ladder") -> Sequence[tuple[Words, ...]]:
    """Rung, what it adds, parameters, losses, and the change of validation loss it makes."""

    def loss(value: float, sd: float | None) -> Words:
        shown = f"{value:.3f}" + ("" if sd is None else f" ± {sd:.3f}")
        return Words(shown, shown)

    rows, below = [], None
    for row in ladder.rows:
        follows = below is not None and row.rung == below.rung + 1
        change = f"{row.val - below.val:+.3f}".replace("-", "−") if follows and below else ""
        number, size = str(row.rung), f"{row.parameters:,}"
        adds = Words(ADDS["en"][row.rung - 1], ADDS["zh"][row.rung - 1])
        rows.append(
            (
                Words(number, number),
                adds,
                Words(size, size),
                loss(row.train, row.train_sd),
                loss(row.val, row.val_sd),
                Words(change, change),
            )
        )
        below = row
    return rows
