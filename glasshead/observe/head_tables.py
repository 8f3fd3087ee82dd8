"""Statistics of all heads of a model as tables: layers x heads."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from glasshead.attention.hooks import Layer
from glasshead.errors import InputError, did_you_mean
from glasshead.observe.statistics import HeadStatistics

__all__ = ["OF_CROSS", "find_table", "mean_tables"]

# Other statistics depend on the query's own position, which cross-attention does not have.
OF_CROSS = (
    "entropy", "relative_entropy", "effective_keys", "first_weight", "vertical", "largest_score",
)  # fmt: skip
OF_TOKENS = ("duplicate", "induction")


def mean_tables(measured: Iterable[tuple[Layer, HeadStatistics]], batch: int) -> dict[str, Tensor]:
    """Return (L, H) of each statistic; NaN where a layer has fewer heads, or has no such number."""
    rows = []
    for layer, found in measured:
        each = found.means() | {"largest_score": found.largest_score}
        known = OF_CROSS if layer.kind == "cross" else tuple(each)
        rows.append({name: each[name][batch].cpu() for name in known if name in each})
    H = max((len(x) for row in rows for x in row.values()), default=0)
    tables: dict[str, Tensor] = {}
    for i, row in enumerate(rows):
        for name, x in row.items():
            new = x.new_full((len(rows), H), torch.nan)
            tables.setdefault(name, new)[i, : len(x)] = x
    return tables


def find_table(tables: Mapping[str, Tensor], name: str) -> Tensor:
    """Return the table of a statistic; raise if there is none of that name."""
    if name in tables:
        return tables[name]
    hint = did_you_mean(name, tables)
    if name in OF_TOKENS:
        hint = "it compares tokens: set trace.ids to the token ids, (B, T)"
    raise InputError(f"there is no statistic '{name}'", hint=hint)
