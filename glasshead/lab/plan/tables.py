"""A plan for a terminal, in Chinese or English."""

from collections.abc import Iterator
from dataclasses import asdict

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from glasshead.lab.plan.measuring import Compared
from glasshead.lab.plan.plans import Plan, Wanted, what_fits
from glasshead.lab.plan.words import MESSAGES, TEXTS, Language
from glasshead.model.layers import ff_width

__all__ = ["amount", "duration", "measured", "tables"]


def tables(plan: Plan, lang: Language = "en") -> Iterator[RenderableType]:
    text = TEXTS[lang]
    if plan.device.name == "cpu":
        text = {name: words.replace("GPU", "CPU") for name, words in text.items()}
    yield _title(text["model"])
    yield _model(plan, text)
    yield _title(text["train"].format(optimizer=plan.wanted.optimizer))
    yield _training(plan, text)
    if plan.training.collectives:
        yield Text()
        yield _collectives(plan, text, lang)
    yield from _fit(plan, plan.training.memory.peak, text, advise=True)
    yield _title(text["generate"].format(texts=plan.generating.texts))
    yield _generating(plan, text)
    yield from _fit(plan, plan.generating.peak, text)
    yield _title(text["observe"].format(tokens=plan.observing.tokens))
    yield _observing(plan, text)
    yield from _fit(plan, plan.observing.peak, text)


def measured(found: list[Compared], device: str, lang: Language = "en") -> Iterator[RenderableType]:
    """What was expected beside what was measured."""
    text = TEXTS[lang]
    yield _title(text["here"].format(device=device))
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column(text["what"])
    for name in ("measured", "expected", "ratio"):
        table.add_column(text[name], justify="right")
    for one in found:
        values = one.measured, one.probed
        shown = [duration(v) if one.unit == "s" else amount(v, "B") for v in values]
        table.add_row(text[f"{one.what} {one.unit}"], *shown, f"{one.ratio:.2f}")
    yield table
    yield Text(text["how"], style="dim")


def _model(plan: Plan, text: dict[str, str]) -> Table:
    w, c, n = plan.wanted, plan.wanted.config, plan.counts
    table = _pairs()
    parts = {name: amount(getattr(n, name)) for name in ("embedding", "positions", "blocks")}
    table.add_row(text["parameters"], f"{n.total:,}")
    table.add_row("", text["of which"].format(**parts, head=amount(n.head)))
    shape = asdict(c) | {"n_kv": c.n_kv_heads or c.n_heads, "d_ff": ff_width(c)}
    table.add_row(text["shape"], text["shape is"].format(**shape))
    layout = w.layout
    ways = f" ({layout.parallel} {layout.data}" if layout.gpus > 1 else ""
    for name in ("tensor", "context"):
        if getattr(layout, name) > 1:
            ways += f" x {name} {getattr(layout, name)}"
    ways += ")" if ways else ""
    table.add_row(text["setting"], text["setting is"].format(
        gpus=layout.gpus, gpu=w.gpu, ways=ways, precision="bf16" if w.itemsize == 2 else "float32",
        compiled=text["compiled"] if w.is_compiled else "",
    ))  # fmt: skip
    table.add_row(text["batch"], text["batch is"].format(
        sequences=w.batch_size * w.accumulate, max_len=c.max_len,
        each=-(-w.batch_size // layout.data),
    ))  # fmt: skip
    return table


def _training(plan: Plan, text: dict[str, str]) -> Table:
    t = plan.training
    memory = asdict(t.memory)
    peak = memory.pop("peak")
    left = [(text[name], amount(size, "B")) for name, size in memory.items() if size]
    left.append((text["peak"], amount(peak, "B")))
    right = [
        (text["update" if name == "optimizer" else name], duration(seconds))
        for name, seconds in t.seconds.items()
        if seconds
    ]
    right.append((text["step"], duration(t.step)))
    table = _side_by_side(text["memory"], left, text["time"], right)
    about = _pairs()
    about.add_row(text["flops"], text["flops are"].format(
        token=amount(t.flops / t.tokens, "FLOP"), step=amount(t.flops, "FLOP")
    ))  # fmt: skip
    about.add_row(text["speed"], text["speed is"].format(
        speed=amount(t.tokens_per_s), each=amount(t.tokens_per_s / plan.wanted.layout.gpus),
        share=t.share,
    ))  # fmt: skip
    return _stacked(table, about)


def _collectives(plan: Plan, text: dict[str, str], lang: Language) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column(text["collective"])
    table.add_column("")
    for name in ("count", "group", "sent", "took"):
        table.add_column(text[name], justify="right")
    for c in plan.training.collectives:
        what = MESSAGES[c.what] if lang == "zh" else c.what
        table.add_row(
            c.name, what, f"{c.count:,}", str(c.group), amount(c.bytes, "B"), duration(c.seconds)
        )
    return table


def _generating(plan: Plan, text: dict[str, str]) -> Table:
    g, table = plan.generating, _pairs()
    table.add_row(text["memory"], _kinds(g.memory, g.peak, text))
    table.add_row(text["prefill"], text["prefill is"].format(
        prompt=g.prompt, seconds=duration(g.prefill), flops=amount(g.prefill_flops, "FLOP")
    ))  # fmt: skip
    table.add_row(text["decode"], text["decode is"].format(
        seconds=duration(g.decode), bytes=amount(g.decode_bytes, "B"), limit=duration(g.limit)
    ))  # fmt: skip
    table.add_row(text["speed"], text["decode speed"].format(speed=amount(g.tokens_per_s)))
    return table


def _observing(plan: Plan, text: dict[str, str]) -> Table:
    o, table = plan.observing, _pairs()
    table.add_row(text["memory"], _kinds(o.memory, o.peak, text))
    table.add_row(text["look"], text["look is"].format(
        pairs=amount(o.pairs), look=duration(o.look), forward=duration(o.forward)
    ))  # fmt: skip
    table.add_row(text["weights"], amount(o.weights, "B"))
    return table


def _kinds(memory: dict[str, float], peak: float, text: dict[str, str]) -> str:
    kinds = (
        f"{text['params half' if name == 'params' else name]} {amount(size, 'B')}"
        for name, size in memory.items()
    )
    return f"{amount(peak, 'B')} = {' + '.join(kinds)}"


def _fit(
    plan: Plan, peak: float, text: dict[str, str], advise: bool = False
) -> Iterator[RenderableType]:
    if plan.fits(peak):
        return
    sizes = {"peak": amount(peak, "B"), "usable": amount(plan.device.usable, "B")}
    yield Text(text["no fit"].format(**sizes), style="bold red")
    if advise:
        better = what_fits(plan)
        yield Text(text["hint"].format(flags=_flags(better)) if better else text["no hint"])


def _flags(w: Wanted) -> str:
    flags = [f"--gpus {w.layout.gpus} --parallel {w.layout.parallel}"]
    for name in ("tensor", "context"):
        if getattr(w.layout, name) > 1:
            flags.append(f"--{name} {getattr(w.layout, name)}")
    return " ".join([*flags, f"--batch-size {w.batch_size} --accumulate {w.accumulate}"])


def amount(number: float, unit: str = "") -> str:
    """Three digits and a prefix of thousands.

    >>> amount(8_030_261_248), amount(1_234, "B"), amount(97), amount(0, "B")
    ('8.03G', '1.23 KB', '97', '0 B')
    """
    prefixes = ["", "K", "M", "G", "T", "P", "E", "Z"]
    power = 0
    while abs(number) >= 999.5 and power < len(prefixes) - 1:
        number, power = number / 1000, power + 1
    digits = f"{number:.0f}" if number >= 99.5 or number == int(number) else f"{number:.3g}"
    return f"{digits}{' ' if unit else ''}{prefixes[power]}{unit}"


def duration(seconds: float) -> str:
    """
    >>> duration(0.1221), duration(3e-6), duration(75)
    ('122 ms', '3 us', '75 s')
    """
    for size, unit in ((1, "s"), (1e-3, "ms")):
        if seconds >= 0.9995 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def _title(words: str) -> Text:
    return Text(f"\n{words}", style="bold cyan")


def _pairs() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _side_by_side(
    name: str, left: list[tuple[str, str]], other: str, right: list[tuple[str, str]]
) -> Table:
    """Two columns of sums, their totals in one line."""
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    for heading in (name, "", other, ""):
        table.add_column(heading, justify="left" if heading else "right", no_wrap=True)
    n = max(len(left), len(right))
    blank = ("", "")
    for column in (left, right):
        column[-1:-1] = [blank] * (n - len(column))
    for a, b in zip(left, right, strict=True):
        table.add_row(*a, *b)
    return table


def _stacked(*parts: RenderableType) -> Table:
    table = Table.grid()
    for part in parts:
        table.add_row(part)
    return table
