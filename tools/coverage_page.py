"""Write docs/coverage.md and docs/coverage.zh.md from what `tools.coverage` found."""

# ruff: noqa: E501
# (Chinese letters count as two columns.)
from collections import Counter
from pathlib import Path
from typing import Any

__all__ = ["summarize", "write_pages"]

DOCS = Path(__file__).resolve().parents[1] / "docs"
CHECKS = ("forward", "padded", "generate", "beams")
WORST = ("wrong", "silent", "refused", "partial", "right", "none", "unbuilt")
MARKS = {
    "right": "✓", "partial": "◐", "refused": "✗", "wrong": "wrong", "silent": "silent", "none": "",
    "unbuilt": "",
}  # fmt: skip

TEXT = {
    "en": {
        "title": "Coverage",
        "intro": "What `observing` records of each family of the transformers library. Every family "
        "whose tiny model the library's own tests build here was run with transformers "
        "{transformers} and torch {torch} on a CPU: on a text alone, on a padded batch, while it "
        "writes with a cache and left padding, and with three beams. Recorded weights are compared "
        "with every softmax of its eager attention that weighs values (within 1e-5, or a rounding of the largest score; sinks and rows "
        "of padding apart), and all outputs with those of the model alone, bit by bit. Rows of "
        "beams are checked to sum to 1; `tests/observe/test_generating.py` compares them.",
        "how": "Made by `python -m tools.coverage --tests CHECKOUT`, where CHECKOUT holds the tests of "
        "the transformers library.",
        "legend": "✓ right and complete · ◐ a part is left out, and named by `trace.unseen` · "
        "✗ refused with the reason · empty: does not apply, or cannot run here",
        "counts": ("families with softmax attention that run here", "right and complete in all "
        "checks", "right in the forward", "a part is left out, and named", "refused in some check, "
        "with the reason", "wrong, or incomplete without a word", "without softmax attention",
        "cannot be built here"),
        "all": "All families", "head": ("family", "forward", "padded", "writing", "beams", "why"),
        "unbuilt": "Not built here",
        "unbuilt_text": "No test of the library builds them, or a package that they need (timm, "
        "torchvision, natten, ...) is not installed:",
    },
    "zh": {
        "title": "覆盖范围",
        "intro": "`observing` 能记录 transformers 库每个模型家族的多少。凡是该库自己的测试能在这里搭建的家族，"
        "都用 transformers {transformers} 和 torch {torch} 在 CPU 上运行过：单独一段文本、带填充的一批、带缓存和左填充的"
        "生成，以及三束的集束搜索。记录的权重与其 eager 注意力中每个加权取值的 softmax 比较（误差不超过 1e-5，或最大分数的一次舍入；汇点与填充行"
        "除外），所有输出与模型单独运行时逐位比较。集束的各行检查其和为 1；`tests/observe/test_generating.py` 逐个比较。",
        "how": "由 `python -m tools.coverage --tests CHECKOUT` 生成，CHECKOUT 是 transformers 库的测试所在的目录。",
        "legend": "✓ 正确且完整 · ◐ 有一部分没有记录，由 `trace.unseen` 指明 · ✗ 拒绝并说明原因 · 空白：不适用，或不能在这里运行",
        "counts": ("能在这里运行的、有 softmax 注意力的家族", "所有检查都正确且完整", "前向正确", "有一部分没有记录，已指明",
        "某项检查被拒绝，并说明原因", "错误，或不声不响地不完整", "没有 softmax 注意力", "不能在这里搭建"),
        "all": "所有家族", "head": ("家族", "前向", "填充", "生成", "集束", "原因"),
        "unbuilt": "没有在这里搭建的",
        "unbuilt_text": "该库没有搭建它们的测试，或缺少它们需要的包（timm、torchvision、natten 等）：",
    },
}  # fmt: skip


def summarize(family: dict[str, Any]) -> tuple[dict[str, str], str]:
    """Return the worst status of each check over a family's models, and the first reason."""
    found, why = {}, ""
    for check in CHECKS:
        cases = [case[check] for case in family.values() if check in case]
        states = [one["status"] for one in cases] or ["none"]
        found[check] = min(states, key=WORST.index)
        bad = next((one for one in cases if one["status"] in WORST[:4]), None)
        why = why or ("" if bad is None else _short(bad["why"]))
        if any("note" in one for one in cases):
            why = why or "its eager attention differs from that of the kernel it runs on"
    return found, why


def _short(why: str) -> str:
    if "called again" in why:
        why = f"{why.split(' was', 1)[0]}: keys that do not go on from those before"
    return why.replace("|", "/").replace("<", "&lt;")[:130]


def write_pages(data: dict[str, Any]) -> None:
    """Write the page in both languages."""
    for language in TEXT:
        name = "coverage.md" if language == "en" else "coverage.zh.md"
        (DOCS / name).write_text(_page(data, TEXT[language]), encoding="utf-8")


def _page(data: dict[str, Any], text: dict[str, Any]) -> str:
    families = {name: summarize(family) for name, family in data["families"].items()}
    unbuilt = [name for name, (found, _) in families.items() if found["forward"] == "unbuilt"]
    without = [name for name, (found, _) in families.items() if found["forward"] == "none"]
    rest = {n: x for n, x in families.items() if n not in unbuilt and n not in without}
    worst = Counter(min(found.values(), key=WORST.index) for found, _ in rest.values())
    forward = sum(found["forward"] == "right" for found, _ in rest.values())
    numbers = [
        len(rest), worst["right"], forward, worst["partial"], worst["refused"],
        worst["wrong"] + worst["silent"], len(without), len(unbuilt),
    ]  # fmt: skip
    lines = [
        f"# {text['title']}",
        "",
        text["intro"].format(**data["versions"]),
        "",
        text["how"],
        "",
    ]
    lines += ["| | | |", "|---|--:|--:|"]
    for name, number in zip(text["counts"], numbers, strict=True):
        share = f"{100 * number / len(rest):.1f} %" if number and number < len(rest) else ""
        share = "" if name in text["counts"][6:] else share
        lines.append(f"| {name} | {number} | {share} |")
    lines += ["", f"## {text['all']}", "", text["legend"], ""]
    lines += ["| " + " | ".join(text["head"]) + " |", "|---|:-:|:-:|:-:|:-:|---|"]
    for name, (found, why) in rest.items():
        marks = " | ".join(MARKS[found[check]] for check in CHECKS)
        lines.append(f"| {name} | {marks} | {why} |")
    lines += [
        "",
        f"## {text['unbuilt']}",
        "",
        text["unbuilt_text"],
        "",
        ", ".join(unbuilt) + ".",
        "",
    ]
    return "\n".join(lines)
