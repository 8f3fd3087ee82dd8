"""Show a plan in a terminal, in Chinese or English."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import zip_longest
from typing import TypeAlias

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from glasshead.lab.plan.measuring import Comparison
from glasshead.lab.plan.plans import Plan, find_fitting
from glasshead.lab.plan.scenario import Scenario
from glasshead.lab.texts import Language, read_texts, texts_in
from glasshead.model.layers import ff_width

__all__ = ["amount", "duration", "measurement_table", "plan_tables"]

Texts: TypeAlias = dict[str, str]

TEXTS = read_texts(__file__)


def plan_tables(plan: Plan, language: Language = "en") -> Iterator[RenderableType]:
    words, g = texts_in(language, TEXTS), plan.generating
    if plan.device.name == "cpu":
        words = {name: text.replace("GPU", "CPU") for name, text in words.items()}
    yield _title(words["model"])
    yield _model(plan, words)
    yield _title(words["train"].format(optimizer=plan.scenario.optimizer))
    yield _training(plan, words)
    yield from _fit(plan, plan.training.memory.peak, words, advise=True)
    yield _title(words["generate"].format(texts=g.texts))
    yield _pairs(
        (words["memory"], _by_kind(g.memory, g.peak, words)),
        (words["prefill"], words["prefill_is"].format(
            prompt=g.prompt, seconds=duration(g.prefill), flops=amount(g.prefill_flops, "FLOP"))),
        (words["decode"], words["decode_is"].format(
            seconds=duration(g.decode), bytes=amount(g.decode_bytes, "B"),
            limit=duration(g.limit))),
        (words["speed"], words["decode_speed"].format(speed=amount(g.tokens_per_s))),
    )  # fmt: skip
    yield from _fit(plan, g.peak, words)
    o = plan.observing
    yield _title(words["observe"].format(tokens=o.tokens))
    yield _pairs(
        (words["memory"], _by_kind(o.memory, o.peak, words)),
        (words["look"], words["look_is"].format(
            pairs=amount(o.pairs), look=duration(o.look), forward=duration(o.forward))),
        (words["weights"], amount(o.weights, "B")),
    )  # fmt: skip
    yield from _fit(plan, o.peak, words)


def measurement_table(
    found: list[Comparison], device: str, language: Language = "en"
) -> Iterator[RenderableType]:
    """Show what was expected beside what was measured."""
    words = texts_in(language, TEXTS)
    yield _title(words["here"].format(device=device))
    table = _columns(words["what"], *(words[name] for name in ("measured", "expected", "ratio")))
    for one in found:
        values = one.measured, one.probed
        shown = [duration(v) if one.unit == "s" else amount(v, "B") for v in values]
        table.add_row(words[f"{one.what}_{one.unit}"], *shown, f"{one.ratio:.2f}")
    yield table
    yield Text(words["how"], style="dim")


def _model(plan: Plan, words: Texts) -> Table:
    s, c, n, layout = plan.scenario, plan.scenario.config, plan.counts, plan.scenario.layout
    parts = {name: amount(getattr(n, name)) for name in ("embedding", "positions", "blocks")}
    shape = asdict(c) | {"n_kv": c.n_kv_heads or c.n_heads, "d_ff": ff_width(c)}
    degrees = {layout.parallel: layout.data, "tensor": layout.tensor, "context": layout.context}
    ways = [f"{name} {n}" for name, n in degrees.items() if n > 1 or name == layout.parallel]
    return _pairs(
        (words["parameters"], f"{n.total:,}"),
        ("", words["of_which"].format(**parts, head=amount(n.head))),
        (words["shape"], words["shape_is"].format(**shape)),
        (words["setting"], words["setting_is"].format(
            gpus=layout.gpus, gpu=s.gpu, ways=f" ({' x '.join(ways)})" if layout.gpus > 1 else "",
            precision="bf16" if s.itemsize == 2 else "float32",
            compiled=words["compiled"] if s.is_compiled else "")),
        (words["batch"], words["batch_is"].format(
            sequences=s.batch_size * s.accumulate, max_len=c.max_len,
            each=-(-s.batch_size // layout.data))),
    )  # fmt: skip


def _training(plan: Plan, words: Texts) -> RenderableType:
    t = plan.training
    memory = asdict(t.memory)
    peak = memory.pop("peak")
    left = [(words[name], amount(size, "B")) for name, size in memory.items() if size]
    right = [
        (words["update" if kind == "optimizer" else kind], duration(seconds))
        for kind, seconds in t.seconds.items()
        if seconds
    ]
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    for heading in (words["memory"], "", words["time"], ""):
        table.add_column(heading, justify="left" if heading else "right", no_wrap=True)
    for a, b in zip_longest(left, right, fillvalue=("", "")):
        table.add_row(*a, *b)
    table.add_row(words["peak"], amount(peak, "B"), words["step"], duration(t.step))
    about = _pairs(
        (words["flops"], words["flops_are"].format(
            token=amount(t.flops / t.tokens, "FLOP"), step=amount(t.flops, "FLOP"))),
        (words["speed"], words["speed_is"].format(
            speed=amount(t.tokens_per_s), share=t.share,
            each=amount(t.tokens_per_s / plan.scenario.layout.gpus))),
    )  # fmt: skip
    if not t.collectives:
        return Group(table, about)
    names = ("count", "group", "sent", "took")
    messages = _columns(words["collective"], "", *(words[name] for name in names))
    messages.columns[1].justify = "left"
    for c in t.collectives:
        sizes = f"{c.count:,}", str(c.group), amount(c.bytes, "B"), duration(c.seconds)
        messages.add_row(c.name, words[f"message.{c.what}"], *sizes)
    return Group(table, about, Text(), messages)


def _by_kind(memory: dict[str, float], peak: float, words: Texts) -> str:
    kinds = (
        f"{words['parameters' if name == 'params' else name]} {amount(size, 'B')}"
        for name, size in memory.items()
    )
    return f"{amount(peak, 'B')} = {' + '.join(kinds)}"


def _fit(plan: Plan, peak: float, words: Texts, advise: bool = False) -> Iterator[RenderableType]:
    if plan.fits(peak):
        return
    sizes = {"peak": amount(peak, "B"), "usable": amount(plan.device.usable, "B")}
    yield Text(words["no_fit"].format(**sizes), style="bold red")
    if advise:
        better = find_fitting(plan)
        yield Text(words["hint"].format(flags=_flags(better)) if better else words["no_hint"])


def _flags(s: Scenario) -> str:
    flags = [f"--gpus {s.layout.gpus} --parallel {s.layout.parallel}"]
    for name in ("tensor", "context"):
        if getattr(s.layout, name) > 1:
            flags.append(f"--{name} {getattr(s.layout, name)}")
    return " ".join([*flags, f"--batch-size {s.batch_size} --accumulate {s.accumulate}"])


def amount(number: float, unit: str = "") -> str:
    """Write a number with three digits and a prefix of thousands.

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


def _pairs(*rows: tuple[str, str]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _columns(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table
