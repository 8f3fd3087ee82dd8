"""Layers of a short text are measured in one call, where a call takes longer than they take a GPU.

They wait for one another for as long as they are alike and few; the last of a model are measured
when the recording ends, and any of them when somebody asks.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.observe.atlas import Trace
from glasshead.observe.record import Record, changed, measure
from glasshead.observe.statistics import HeadStatistics, cell_side

__all__ = ["JointMeasurement"]

PAIRS = {"cuda": 2**33}  # of query and key that may wait, by the kind of device
BYTES, CELLS = 2**28, 2**28  # of queries and keys that may wait, and of their overviews


@dataclass(frozen=True, eq=False)
class Waiting:
    """What is to be measured of one layer."""

    record: Record
    q: Tensor
    k: Tensor
    mask: Mask
    scoring: Scoring
    lse: Tensor | None

    def alike(self, other: "Waiting") -> bool:
        """Whether one call can measure both."""
        a, b = ((x.record.layer.kind, x.q.shape, x.k.shape, x.q.dtype, x.q.device, x.lse is None)
                for x in (self, other))  # fmt: skip
        rules = ((*vars(x.mask).values(), *vars(x.scoring).values()) for x in (self, other))
        return a == b and all(
            x is y if isinstance(x, Tensor) or isinstance(y, Tensor) else x == y
            for x, y in zip(*rules, strict=True)
        )

    def few(self, n: int) -> bool:
        """Whether n such layers may wait."""
        if self.mask.dense is not None or self.scoring.bias is not None:
            return False
        (B, H, T, _), S = self.q.shape, self.k.shape[2]
        heads, cells = n * B * H, -(-T // cell_side(T)) * -(-S // cell_side(S))
        return (
            heads * T * S <= PAIRS.get(self.q.device.type, 0)
            and n * (self.q.nbytes + self.k.nbytes) <= BYTES
            and heads * cells <= CELLS
        )


class JointMeasurement:
    """The layers that wait."""

    def __init__(self, seen: Trace) -> None:
        self.seen = seen
        self._waiting: list[Waiting] = []

    def add(self, new: Waiting) -> None:
        before = self._waiting
        if before and not (new.alike(before[0]) and new.few(len(before) + 1)):
            self.measure()
        new.record.waits = self.measure
        if not new.few(1):
            self._waiting = [new]
            self.measure()
            return
        # What runs after may write where these lie.
        lse = None if new.lse is None else new.lse.clone()
        self._waiting.append(replace(new, q=new.q.clone(), k=new.k.clone(), lse=lse))

    def measure(self) -> None:
        """Measure all that wait."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        first, n = waiting[0], len(waiting)
        B = len(first.q)

        def each(x: Tensor | None) -> Tensor | None:
            """For each sequence of each layer what was said for each sequence."""
            return x if x is None or len(x) != B else x.repeat(n, 1)

        def of_all(parts: list[Tensor]) -> Tensor:
            return parts[0] if n == 1 else torch.cat(parts)

        mask, ids = first.mask, self.seen.ids
        if n > 1:
            mask = replace(mask, keys=each(mask.keys), documents=each(mask.documents))
            ids = each(ids)
        q, k = of_all([x.q for x in waiting]), of_all([x.k for x in waiting])
        given = [x.lse for x in waiting if x.lse is not None]
        lse = of_all(given) if given else None
        with torch.autocast(q.device.type, enabled=False):
            found = measure(
                first.record.layer, q, k, mask, first.scoring, lse, ids, self.seen.top_k
            )
        for i, x in enumerate(waiting):
            x.record.statistics = found if n == 1 else _of_rows(found, i * B, (i + 1) * B, n * B)
            x.record.waits = None


def _of_rows(found: HeadStatistics, start: int, stop: int, of: int) -> HeadStatistics:
    """A part of a batch of size `of`. What has no batch (starts of lags) or 1 for all stays."""
    return changed(found, lambda x: x[start:stop] if x.dim() > 1 and len(x) == of else x)
