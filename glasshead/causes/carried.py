"""What an edge carries: weight x value, for chosen pairs of a call, without a map of T x S."""

from collections.abc import Iterable

import torch
from torch import Tensor

from glasshead.attention.hooks import AttentionCall
from glasshead.errors import AblationError
from glasshead.observe.trace_storage import masked_scores, to_float

__all__ = ["Pair", "carried"]

Pair = tuple[int, int, int]  # head, query, key


def carried(call: AttentionCall, batch: int, pairs: Iterable[Pair]) -> dict[Pair, Tensor]:
    """Return weight x value (D,) of each pair, for one sequence of a call."""
    if call.sinks is not None:
        raise AblationError(
            "edges beside an attention sink without a key cannot be changed one by one",
            hint="change heads or positions instead",
        )
    by_row: dict[int, list[Pair]] = {}
    for pair in pairs:
        by_row.setdefault(pair[1], []).append(pair)
    S = call.k.shape[2]
    one = slice(batch, batch + 1)
    q, k, v = call.q[one], call.k[one], to_float(call.v[one])
    group = q.shape[1] // v.shape[1]
    mask, scoring = call.mask, call.scoring
    found = {}
    for row, wanted in by_row.items():
        s = masked_scores(q, k, mask, scoring, slice(row, row + 1), slice(0, S))
        weights = s[0, :, 0].softmax(-1)  # (H, S)
        for pair in wanted:
            head, _, key = pair
            found[pair] = torch.nan_to_num(weights[head, key]) * v[0, head // group, key]
    return found
