"""What `glasshead look --json` prints."""

from collections.abc import Sequence
from typing import Any

from glasshead.observe.ranking import standout_heads, strongest_keys
from glasshead.observe.view import Head, Map, View
from glasshead.observe.words import Word

__all__ = ["look_as_json"]


def look_as_json(
    view: View,
    heads: Sequence[Head],
    wanted: str | Word | None,
    statistic: str | None,
    layer: str | None,
    head: int | None,
    k: int,
) -> dict[str, Any]:
    """Return the statistic, the looks of a word, the maps or, if none is asked for, all of it.

    `k` is how many looks of the word `wanted` are listed.
    """
    if statistic is not None:
        found = view.statistic(statistic)
        return {"statistic": found.name, "layers": found.rows, "values": _numbers(found)}
    if wanted is not None:
        looks = [
            {**_where(view, one.head), "word": one.word, "place": one.place, "weight": one.weight}
            for one in strongest_keys(view, heads, wanted, k)
        ]
        if isinstance(wanted, Word):
            return {"query": wanted.start, "token": wanted.text, "looks": looks}
        return {"from": wanted, "looks": looks}
    if layer is not None or head is not None:
        maps = [(one, view.head(one)) for one in heads]
        return {"maps": [{**_where(view, one), **_map(shown)} for one, shown in maps]}
    assert view.trace.tokens is not None
    return {
        "model": view.trace.about.get("name") or view.trace.model,
        "tokens": len(view.trace.tokens[0]),
        "about": view.trace.about,
        "layers": [
            {
                "layer": view.names[one.index],
                "index": one.index,
                "module": one.name,
                "kind": one.kind,
                "heads": view.trace.shape(one.index)[1],
                "statistics": {n: x.tolist() for n, x in view.statistics[one.index].items()},
            }
            for one in view.layers
        ],
        "telling": [
            {"role": one.role, **_where(view, one.head), "value": one.value, "uniform": one.uniform}
            for one in standout_heads(view)
        ],
    }


def _where(view: View, head: Head) -> dict[str, Any]:
    return {"layer": view.names[head[0]], "head": head[1]}


def _map(shown: Map) -> dict[str, Any]:
    names = {"rows": shown.rows, "cols": shown.cols} if shown.rows else {"cell": shown.cell}
    return {**names, "weights": _numbers(shown)}


def _numbers(shown: Map) -> list[list[float | None]]:
    """NaN becomes null: JSON has no NaN."""
    return [[None if x != x else x for x in row] for row in shown.values.tolist()]
