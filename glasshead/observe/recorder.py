"""What is done with each call that is caught: check it, keep it, join it to those before.

The check: for a few rows exp(scores - lse) @ v must be the context that the kernel gave. It fails
for attention that does more than softmax(q · k), and such a model is refused.
"""

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from glasshead.attention.hooks import AttentionCall, Layer
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring, observed
from glasshead.errors import RecordingError
from glasshead.observe.atlas import Trace
from glasshead.observe.record import (
    Growing,
    Record,
    Room,
    Span,
    exact,
    masked_scores,
)
from glasshead.observe.together import JointMeasurement, Waiting

__all__ = ["Recorder", "check"]

PART = 1024  # keys whose values are added up in the dtype of the weights
TOGETHER = 64  # of such parts, in one product


class Recorder:
    """Takes what each call of each layer saw, checks it, and adds it to the layer's record."""

    def __init__(self, seen: Trace, keep: str, room: Room) -> None:
        self.seen, self.keep, self.room = seen, keep, room
        self.calls = 0
        self.together = JointMeasurement(seen)
        self._growing: dict[int, tuple[Growing, Growing, Growing]] = {}
        self._copies: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def take(self, index: int, call: AttentionCall) -> None:
        """Check one call of layer `index` and add it to the layer's record."""
        q, k, v, context = (x.detach() for x in (call.q, call.k, call.v, call.context))
        mask, scoring, lse = call.mask, call.scoring, call.lse
        layer = self._layer(index, call.cross)
        mask = mask.simplified(q.shape[2], k.shape[2])
        with torch.autocast(q.device.type, enabled=False):
            check(layer, q, k, v, mask, scoring, context, lse, call.rounded_scores)
            record = self._record(layer, q, k, mask, scoring)
            if lse is None and self.keep != "statistics":
                lse = observed(q, k, mask, scoring, weights=False, lse=True)[1]
            if self.keep != "tensors":
                self.together.add(Waiting(record, q, k, mask, scoring, lse))
            if self.keep != "statistics" and lse is not None:
                self._append(record, q, k, lse.detach())
        self.calls += 1

    def _layer(self, index: int, cross: bool) -> Layer:
        layer = self.seen.layer(index)
        kind = "cross" if cross else "self"
        if kind != layer.kind:
            layer = replace(layer, kind=kind)
            self.seen.rename(layer)
        return layer

    def _record(self, layer: Layer, q: Tensor, k: Tensor, mask: Mask, scoring: Scoring) -> Record:
        """The layer's record, made or prepared for what this call adds."""
        (B, H, T, _), S = q.shape, k.shape[2]
        record = self.seen.records.get(layer.index)
        row = key = 0
        if record is None:
            record = Record(layer, (B, H, T, S), device=str(q.device))
            self.seen.records[layer.index] = record
        else:
            if self.keep != "tensors":
                raise RecordingError(
                    f"layer {layer.index} ({layer.name}) was called twice, but of one call only "
                    "are statistics kept",
                    hint='a text that grows call by call is recorded with keep="tensors"; '
                    "another text needs another observing()",
                )
            row = record.shape[2]
            key = _where_keys_go_on(record, k, T)
            record.shape = (B, H, row + T, key + S)
        if self.keep != "statistics":
            span = Span(row, T, key, S, self._kept_mask(mask), self._kept_scoring(scoring))
            record.spans.append(span)
        return record

    def _append(self, record: Record, q: Tensor, k: Tensor, lse: Tensor) -> None:
        rooms = self._growing.setdefault(
            record.layer.index, (Growing(self.room), Growing(self.room), Growing(self.room))
        )
        n_new = record.shape[3] - rooms[1].length
        for growing, x in zip(rooms, (q, k[:, :, k.shape[2] - n_new :], lse), strict=True):
            growing.append(x)
        record.q, record.k, record.lse = (growing.value for growing in rooms)

    def _kept_mask(self, mask: Mask) -> Mask:
        return replace(
            mask,
            keys=self._copy(mask.keys),
            documents=self._copy(mask.documents),
            dense=self._copy(mask.dense),
        )

    def _kept_scoring(self, scoring: Scoring) -> Scoring:
        return replace(scoring, slopes=self._copy(scoring.slopes), bias=self._copy(scoring.bias))

    def _copy(self, x: Tensor | None) -> Tensor | None:
        """A copy to keep; layers that were given the same tensor share it."""
        if x is None:
            return None
        for original, copy in self._copies:
            if original is x:
                return copy
        copy = x.detach().to("cpu", copy=True)
        self._copies = [*self._copies[-7:], (x, copy)]
        return copy


def check(
    layer: Layer,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    scoring: Scoring,
    context: Tensor,
    lse: Tensor | None = None,
    rounded_scores: bool = False,
) -> None:
    """Raise unless exp(scores - lse) @ v is the context that came out, for the last row, one in the
    middle and one of the first."""
    (B, H, T, _), S = q.shape, k.shape[2]
    where = f"layer {layer.index} ({layer.name})"
    if k.shape[0] != B or H % k.shape[1] or context.shape != (B, H, T, v.shape[-1]):
        raise RecordingError(
            f"{where} cannot be recorded: q {tuple(q.shape)} and k {tuple(k.shape)} gave a context "
            f"of {tuple(context.shape)}",
            hint="choose other layers with layers=[...]",
        )
    if not (B and H and T and S):
        return
    # What rounding may do: to the context, and to scores before they are exponents.
    of_context = 4 * torch.finfo(context.dtype).eps + 16 * torch.finfo(torch.float32).eps
    of_scores = 2 * torch.finfo(q.dtype if rounded_scores else torch.float32).eps
    largest_v = torch.maximum(v.amax((-2, -1)), -v.amin((-2, -1)))  # (B, H_kv); makes no copy of v
    largest_v = exact(largest_v).repeat_interleave(H // v.shape[1], 1)
    # All at once: on a GPU each question about them is a wait.
    step = max(1, (T - 1) // 2)
    rows = slice((T - 1) % step, T, step)
    s = masked_scores(q, k, mask, scoring, rows, slice(0, S))  # (B, H, 3, S)
    row_lse = s.logsumexp(-1) if lse is None else lse[:, :, rows]
    empty = (row_lse == -torch.inf)[..., None]
    weights = (s - row_lse[..., None]).exp().masked_fill(empty, 0)
    largest = s.masked_fill(s == -torch.inf, 0).abs().amax(-1, keepdim=True)
    allowance = largest_v[..., None, None] * (of_context + of_scores * largest)
    off = (_summed(weights, v) - exact(context[:, :, rows])).abs().masked_fill(empty, 0)
    # Written so that NaN is off too.
    if not bool((off <= allowance).all()):
        worst = off.nan_to_num(nan=torch.inf).amax((0, 1, 3))  # of each row
        row = rows.start + step * int(worst.argmax())
        raise RecordingError(
            f"{where} cannot be recorded exactly: weights recomputed from its queries and keys "
            f"give a context that is off by {float(off.max()):.3g} in row {row}",
            hint="it does something besides softmax(q · k) over the keys that were seen",
        )


def _summed(weights: Tensor, v: Tensor) -> Tensor:
    """weights @ v of a few rows. One sum over all keys of a long text would be the least exact."""
    (B, H, R, S), H_kv = weights.shape, v.shape[1]
    weights = weights.unflatten(1, (H_kv, -1)).flatten(2, 3)  # (B, H_kv, rows, S)
    total = torch.zeros((), dtype=torch.float64, device=v.device)
    whole = S - S % PART
    for start, stop in pairwise(sorted({*range(0, whole, TOGETHER * PART), whole, S})):
        n = min(PART, stop - start)
        w = weights[..., start:stop].unflatten(-1, (-1, n)).movedim(-2, 2)  # (B, H_kv, parts, ...)
        part = v[:, :, start:stop].to(weights.dtype).unflatten(2, (-1, n))
        total = total + (w @ part).double().sum(2)
    return total.view(B, H, R, -1).to(weights.dtype)


def _where_keys_go_on(record: Record, k: Tensor, T: int) -> int:
    """At which key of the record the keys of a further call start; they must be the same."""
    assert record.k is not None
    known, S = record.shape[3], k.shape[2]
    cross = record.layer.kind == "cross"
    start = 0 if cross else known + T - S
    again = known - start  # how many of the keys are not new
    if 0 <= start < known and k.shape[:2] == record.k.shape[:2] and (again == S if cross else True):
        old = record.k[:, :, start:]
        if torch.equal(old, k[:, :, :again].to(old)):
            return start
    raise RecordingError(
        f"layer {record.layer.index} ({record.layer.name}) was called again, with keys that do not "
        f"go on from those it had ({known} before, {S} now)",
        hint="another text needs another observing(); a cache that is reordered (beams) or filled "
        "in place (static) and a layer that is used several times cannot be recorded",
    )
