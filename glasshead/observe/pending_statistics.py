"""Statistics of layers that wait to be measured, those of a short text in one call."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.observe.statistics import cell_side
from glasshead.observe.trace import Trace
from glasshead.observe.trace_storage import LayerTrace, map_tensors, measure

__all__ = ["Measurement", "PendingStatistics"]

# Limits of what is measured in one call: pairs of query and key by kind of device, bytes of queries
# and keys, cells of overviews.
PAIRS, BYTES, CELLS = {"cuda": 2**33}, 2**28, 2**28


@dataclass(frozen=True, eq=False)
class Measurement:
    """One layer whose statistics are still to be measured."""

    layer_trace: LayerTrace
    q: Tensor
    k: Tensor
    mask: Mask
    scoring: Scoring
    lse: Tensor | None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for layers that one call can measure."""
        rules = (*vars(self.mask).values(), *vars(self.scoring).values())
        return (
            self.layer_trace.layer.kind, self.q.shape, self.k.shape, self.q.dtype, self.q.device,
            self.lse is None, *(id(x) if isinstance(x, Tensor) else x for x in rules),
        )  # fmt: skip

    def fits(self, n: int) -> bool:
        """Whether n such layers are small enough to be measured in one call."""
        if self.mask.dense is not None or self.scoring.bias is not None:
            return False
        (B, H, T, _), S = self.q.shape, self.k.shape[2]
        heads, cells = n * B * H, -(-T // cell_side(T)) * -(-S // cell_side(S))
        return (
            heads * T * S <= PAIRS.get(self.q.device.type, 0)
            and n * (self.q.nbytes + self.k.nbytes) <= BYTES
            and heads * cells <= CELLS
        )


class PendingStatistics:
    """Layers of a short text, to be measured in one call: on a GPU each call takes longer than the
    measuring itself. They are measured when the next layer does not fit with them, when recording
    ends, or when one of them is asked for."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._layers: list[Measurement] = []

    def add(self, new: Measurement) -> None:
        layers = self._layers
        if layers and not (new.key == layers[0].key and new.fits(len(layers) + 1)):
            self.measure()
        new.layer_trace.measure_pending = self.measure
        if not new.fits(1):
            self._layers = [new]
            self.measure()
            return
        # Copies: what the model runs next may overwrite the originals.
        lse = None if new.lse is None else new.lse.clone()
        self._layers.append(replace(new, q=new.q.clone(), k=new.k.clone(), lse=lse))

    def measure(self) -> None:
        """Measure all pending layers as one batch."""
        layers, self._layers = self._layers, []
        if not layers:
            return
        first, n, B = layers[0], len(layers), len(layers[0].q)
        q, k, lse, mask, ids = first.q, first.k, first.lse, first.mask, self.trace.ids
        if n > 1:

            def repeat(x: Tensor) -> Tensor:
                return x if len(x) != B else x.repeat(n, 1)

            q, k = torch.cat([x.q for x in layers]), torch.cat([x.k for x in layers])
            lse = None if lse is None else torch.cat([x.lse for x in layers if x.lse is not None])
            mask, ids = map_tensors(mask, repeat), None if ids is None else repeat(ids)
        layer = first.layer_trace.layer
        with torch.autocast(q.device.type, enabled=False):
            found = measure(layer, q, k, mask, first.scoring, lse, ids, self.trace.top_k)
        for i, x in enumerate(layers):
            x.layer_trace.statistics = found if n == 1 else map_tensors(found, partial(_part, i, n))
            x.layer_trace.measure_pending = None


def _part(i: int, n: int, x: Tensor) -> Tensor:
    """Return part i of a batch of n equal parts. What has no batch (`lag_starts`), or 1 for all
    sequences, stays as it is."""
    return x.chunk(n)[i] if x.dim() > 1 and len(x) % n == 0 else x
