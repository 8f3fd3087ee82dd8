"""The tables that `glasshead why` prints."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from glasshead.causes.explain import Explained
from glasshead.causes.patching import PatchEffect, estimate_error
from glasshead.causes.wording import TEXTS
from glasshead.observe.wording import Language
from glasshead.roles.tables import borderless

__all__ = ["why_lines"]

LENS_ROWS = 12  # of a deep model: so many blocks, evenly spread


def why_lines(found: Explained, lang: Language, top: int = 10) -> Iterator[RenderableType]:
    """Tables of all parts: the sum, heads, edges, the lens, patches and the smallest set."""
    words, question = TEXTS[lang], found.question
    last = found.lens[-1]
    asked = "asked" if question.at == len(question.tokens) - 1 else "asked word"
    place = question.tokens[question.at]
    says = {"place": _quote(place), "model": found.name, "answer": _quote(found.answer)}
    yield Text(words[asked].format(**says, p=f"{last.probability:.1%}"))
    if found.against is not None:
        yield Text(words["compared"].format(against=_quote(found.against)))
    yield ""
    yield from _sum(found, lang)
    yield ""
    yield from _heads(found, lang, top)
    yield ""
    yield from _edges(found, lang, top)
    yield ""
    yield from _lens(found, lang)
    if found.patched is not None:
        yield from _patches(found, lang, top)
    if found.smallest is not None:
        yield from _smallest(found, lang)


def _sum(found: Explained, lang: Language) -> Iterator[RenderableType]:
    words, part = TEXTS[lang], found.attribution
    yield Text(words["sum"], style="bold")
    yield Text(words["frozen"], style="dim")
    table = borderless(words["part"], words["adds"], right=(1,))
    for name, value in (
        ("embedding", part.embedding), ("heads", part.heads.nan_to_num().sum().item()),
        ("others", sum(part.feed_forwards.values())), ("biases", part.biases),
        ("total", part.total), ("logit", part.logit),
    ):  # fmt: skip
        table.add_row(words[name], f"{value:+.4f}")
    yield table
    unknown = [n for n, row in zip(part.layers, part.heads, strict=True) if row.isnan().all()]
    if unknown:
        yield Text(words["unknown"].format(layers=", ".join(map(str, unknown))), style="dim")


def _heads(found: Explained, lang: Language, top: int) -> Iterator[RenderableType]:
    words, part = TEXTS[lang], found.attribution
    yield Text(words["strongest"], style="bold")
    table = borderless(words["head"], words["adds"], words["most of it"], right=(1,))
    for head, adds in part.strongest(top):
        edge = next((one for one in part.edges if (one.layer, one.head) == head), None)
        shown = "" if edge is None else f"{_token(found, edge.key)} {edge.adds:+.3f}"
        table.add_row(f"{head[0]}:{head[1]}", f"{adds:+.3f}", shown)
    yield table


def _edges(found: Explained, lang: Language, top: int) -> Iterator[RenderableType]:
    words = TEXTS[lang]
    yield Text(words["edges"], style="bold")
    table = borderless(words["head"], words["from"], words["weight"], words["adds"], right=(2, 3))
    for one in found.attribution.edges[:top]:
        table.add_row(
            f"{one.layer}:{one.head}", _token(found, one.key), f"{one.weight:.3f}",
            f"{one.adds:+.3f}",
        )  # fmt: skip
    yield table


def _lens(found: Explained, lang: Language) -> Iterator[RenderableType]:
    words, rows = TEXTS[lang], found.lens
    yield Text(words["lens"], style="bold")
    title = words["answer p"].format(answer=found.answer)
    table = borderless(words["block"], words["says"], "p", title, words["rank"], right=(0, 2, 3, 4))
    n = min(len(rows), LENS_ROWS)
    chosen = sorted({round(i * (len(rows) - 1) / max(1, n - 1)) for i in range(n)})
    for row in (rows[i] for i in chosen):
        table.add_row(
            str(row.before), _quote(row.top), f"{row.top_probability:.3f}",
            f"{row.probability:.3f}", str(row.rank),
        )  # fmt: skip
    yield table


def _patches(found: Explained, lang: Language, top: int) -> Iterator[RenderableType]:
    words, patched = TEXTS[lang], found.patched
    assert patched is not None
    yield ""
    yield Text(
        words["patch"].format(
            answer=found.answer,
            against=found.against,
            before=f"{patched.before:+.3f}",
            after=f"{patched.after:+.3f}",
        )
    )
    for kind, effects in patched.kinds().items():
        yield ""
        yield Text(words[f"patched {kind}"], style="bold")
        yield _effects(found, kind, effects[:top], lang)
        most, mean = estimate_error(effects)
        n = sum(one.exact is not None for one in effects)
        yield Text(words["estimates"].format(most=f"{most:.3f}", mean=f"{mean:.3f}", n=n),
                   style="dim")  # fmt: skip


def _effects(found: Explained, kind: str, effects: Sequence[PatchEffect], lang: Language) -> Table:
    words, patched = TEXTS[lang], found.patched
    assert patched is not None
    first = {"heads": ("head",), "positions": ("before block", "token"), "edges": ("head", "token")}
    names = [words[name] for name in first[kind]]
    n = len(names)
    table = borderless(
        *names, words["effect"], words["share"], words["estimate"], right=(n, n + 1, n + 2)
    )
    for one in effects:
        place = one.place
        if kind == "heads":
            shown = [f"{place[0]}:{place[1]}"]
        elif kind == "positions":
            shown = [str(place[0]), _token(found, place[1])]
        else:
            shown = [f"{place[0]}:{place[1]}", _arc(found, place)]
        exact = one.estimate if one.exact is None else one.exact
        measured = "–" if one.exact is None else f"{one.exact:+.3f}"
        table.add_row(*shown, measured, f"{patched.share(exact):.0%}", f"{one.estimate:+.3f}")
    return table


def _smallest(found: Explained, lang: Language) -> Iterator[RenderableType]:
    words, kept = TEXTS[lang], found.smallest
    assert kept is not None
    yield ""
    numbers = {"n": len(kept.edges), "of": f"{kept.of:,}", "p": f"{kept.probability:.3f}"}
    which = "smallest" if found.against is None else "smallest against"
    yield Text(words[which if kept.keeps else "not kept"].format(**numbers), style="bold")
    if not kept.keeps:
        return
    if not kept.edges:
        yield Text(words["no edge"])
        return
    table = borderless(words["head"], words["token"])
    for edge in kept.edges[:40]:
        table.add_row(f"{edge[0]}:{edge[1]}", _arc(found, edge))
    yield table


def _arc(found: Explained, place: Sequence[int]) -> str:
    return f"{_token(found, place[2])} ← {_token(found, place[3])}"


def _token(found: Explained, position: int) -> str:
    return f"{_quote(found.question.tokens[position])}#{position}"


def _quote(token: str) -> str:
    return f"'{token}'"
