"""What a trace keeps of each layer: queries, keys and log-sum-exp, and any weight from them.

    weights = exp(scores - lse)

A layer's tensors grow while a model generates: each call adds its queries, and the keys that are
new. The calls are listed one by one, because each had its own mask and saw the keys up to its time.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from glasshead.attention.hooks import Layer
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring, scores
from glasshead.errors import RecordingError
from glasshead.observe.statistics import HeadStatistics, observe
from glasshead.observe.tile_operations import intersect, pick_head, shift

__all__ = ["LayerTrace", "RecordedCall", "masked_scores"]

Parts = TypeVar("Parts", Mask, Scoring, HeadStatistics)

BAND = 2**22  # pairs of masks that are compared at a time


@dataclass(frozen=True, eq=False)
class RecordedCall:
    """One call: rows `row` to `row + T` of the map attended to keys `key` to `key + S`."""

    row: int
    T: int
    key: int
    S: int
    mask: Mask
    scoring: Scoring
    flat: Tensor | None = None  # (B | 1, H | 1, T | 1) rows with equal weight on all keys

    def to(self, device: str) -> "RecordedCall":
        """Return the same with all tensors on a device."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        parts |= {"mask": _to(self.mask, device), "scoring": _to(self.scoring, device)}
        return RecordedCall(**parts | {"flat": None if self.flat is None else self.flat.to(device)})

    def flat_rows(self, batch: int, head: int, rows: slice, device: torch.device) -> Tensor | None:
        """Return which of these rows (n, 1), counted from the call's first, are flat."""
        if self.flat is None:
            return None
        flat = pick_head(self.flat[..., None], batch, head)[0, 0].expand(self.T, 1)[rows]
        return flat.to(device)

    def of_head(self, batch: int, head: int, device: torch.device) -> tuple[Mask, Scoring]:
        """Return the mask and the scoring of one sequence and one head, on a device."""
        mask, scoring = self.mask, self.scoring
        keys, documents = (
            None if x is None else x[batch : batch + 1] if len(x) > 1 else x
            for x in (mask.keys, mask.documents)
        )
        dense, bias = (
            None if x is None else pick_head(x, batch, head) for x in (mask.dense, scoring.bias)
        )
        slopes = None if scoring.slopes is None else scoring.slopes[head : head + 1]
        mask = replace(mask, keys=keys, documents=documents, dense=dense)
        scoring = replace(scoring, slopes=slopes, bias=bias)
        return _to(mask, device), _to(scoring, device)


@dataclass(eq=False)
class LayerTrace:
    """The recorded tensors of one layer, and its statistics once they are measured."""

    layer: Layer
    shape: tuple[int, int, int, int]  # (B, H, T, S)
    calls: list[RecordedCall] = field(default_factory=list)
    q: Tensor | None = None  # (B, H, T, D)
    k: Tensor | None = None  # (B, H_kv, S, D)
    lse: Tensor | None = None  # (B, H, T)
    v: Tensor | None = None  # (B, H_kv, S, D_v), where keep has "values"
    residual: Tensor | None = None  # (B, T, C) input of its block, where keep has "residual"
    statistics: HeadStatistics | None = None
    device: str = "cpu"  # where the model ran
    finish: Callable[[], None] | None = None  # adds calls that are still to be checked
    # Of a file: by "tensors" and "statistics", a function that raises InputError for damage. Each
    # is called once, when that part is first used.
    checks: dict[str, Callable[[], None]] = field(default_factory=dict)

    def tile(self, batch: int, head: int, rows: slice, cols: slice) -> Tensor:
        """Return the weights of one head in a rectangle, in float32 or better."""
        q, k, lse = self.tensors()
        device, group = q.device, q.shape[1] // k.shape[1]
        q, lse = q[batch : batch + 1, head : head + 1], lse[batch : batch + 1, head : head + 1]
        k = k[batch : batch + 1, head // group : head // group + 1]
        size = rows.stop - rows.start, cols.stop - cols.start
        out = torch.zeros(size, dtype=lse.dtype, device=device)
        for call in self.calls:
            r = intersect(rows, call.row, call.T)
            c = intersect(cols, call.key, call.S)
            if r.start >= r.stop or c.start >= c.stop:
                continue
            s = masked_scores(
                q[:, :, call.row : call.row + call.T],
                k[:, :, call.key : call.key + call.S],
                *call.of_head(batch, head, device),
                shift(r, -call.row),
                shift(c, -call.key),
            )[0, 0]
            row_lse = lse[0, 0, r, None]
            # A row that may attend to nothing has lse -inf and weights 0.
            w = (s - row_lse).exp_().masked_fill_(row_lse == -math.inf, 0)
            flat = call.flat_rows(batch, head, shift(r, -call.row), device)
            w = w if flat is None else w.masked_fill_(flat, 1 / call.S)
            out[shift(r, -rows.start), shift(c, -cols.start)] = w
        return out.cpu()

    def visible_keys(self, rows: slice) -> slice:
        """Return the range of keys that some of these rows can see, by causality and window."""
        self._finish()
        found = []
        for call in self.calls:
            r = intersect(rows, call.row, call.T)
            if r.start < r.stop:
                part = call.mask.reachable_cols(shift(r, -call.row), call.T, call.S)
                found.append(shift(part, call.key))
        if not found:
            return slice(0, 0)
        return slice(min(part.start for part in found), max(part.stop for part in found))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k and lse; raise if only statistics were kept, or if they are damaged."""
        self._finish()
        self._check("tensors")
        if self.q is None or self.k is None or self.lse is None:
            raise RecordingError(
                f"{self.layer} was recorded without its queries and keys",
                hint='record with observing(model, keep="tensors") to see its weights',
            )
        return self.q, self.k, self.lse

    @property
    def measured(self) -> HeadStatistics | None:
        """The statistics if they were measured; raise if they are damaged."""
        self._finish()
        self._check("statistics")
        return self.statistics

    def _check(self, part: str) -> None:
        if part in self.checks:
            self.checks[part]()
            self.checks.pop(part, None)  # another thread may have been faster

    def _finish(self) -> None:
        if self.finish is not None:
            self.finish()

    def forget_statistics(self) -> None:
        """Let the statistics be measured anew when they are asked for, if the tensors are kept."""
        if self.q is not None:
            self.statistics = None

    def mask_and_scoring(self) -> tuple[Mask, Scoring]:
        """Return one mask and one scoring for the whole map, joined from those of all calls."""
        self._finish()
        first = self.calls[0]
        if len(self.calls) == 1:
            return first.mask, first.scoring
        return replace(self, calls=[call.to("cpu") for call in self.calls])._join()

    def _join(self) -> tuple[Mask, Scoring]:
        seen = self._seen_keys()
        keys = None if bool(seen.all()) else seen
        # Keys are cached in order: rows that see all up to their own, but for padding, are causal.
        causal = self.layer.kind == "self"
        reaches = [c.mask.window or c.S - first_seen(c) for c in self.calls] if causal else []
        for window in (None, max(reaches, default=None)):
            rule = Mask(causal, window, keys)
            if all(self._follows(rule, call) for call in self.calls):
                joined = rule
                break
        else:
            joined = replace(self._join_masks(), keys=keys)
        return joined, self._join_scorings()

    def _seen_keys(self) -> Tensor:
        """(B, S) the keys that some row of some call may see: the others are padding."""
        B, _, _, S = self.shape
        seen = torch.zeros(B, S, dtype=torch.bool)
        for call in self.calls:
            reach = shift(call.mask.reachable_cols(slice(0, call.T), call.T, call.S), call.key)
            part = torch.zeros_like(seen)
            part[:, reach] = True
            for keys in (call.mask.keys, _any_row(call.mask.dense)):
                if keys is not None:
                    part[:, call.key : call.key + call.S] &= keys
            seen |= part
        return seen

    def _follows(self, rule: Mask, call: RecordedCall) -> bool:
        """Whether a rule for the whole map allows in the rows of a call what the call's does."""
        _, _, T, S = self.shape
        cols = slice(call.key, call.key + call.S)
        step = max(1, BAND // max(1, S))
        for start in range(0, call.T, step):
            rows = slice(start, min(start + step, call.T))
            ours = rule.to_tensor(T, S, shift(rows, call.row), cols)
            theirs = call.mask.to_tensor(call.T, call.S, rows)
            every = torch.ones(1, 1, rows.stop - start, call.S, dtype=torch.bool)
            if bool(
                ((every if ours is None else ours) != (every if theirs is None else theirs)).any()
            ):
                return False
        # Keys that a call never got, because a cache had dropped them, must be hidden too.
        hidden = rule.to_tensor(T, S, slice(call.row, call.row + call.T), slice(0, call.key))
        return not call.key or (hidden is not None and not bool(hidden.any()))

    def _join_masks(self) -> Mask:
        B, H, T, S = self.shape
        allowed = torch.zeros(B, 1, T, S, dtype=torch.bool)
        for call in self.calls:
            rows = slice(call.row, call.row + call.T)
            cols = slice(call.key, call.key + call.S)
            part = call.mask.to_tensor(call.T, call.S)
            if part is not None and part.dim() == 4 and part.shape[1] > 1 and allowed.shape[1] == 1:
                allowed = allowed.repeat(1, H, 1, 1)
            allowed[:, :, rows, cols] = True if part is None else part
        return Mask(dense=allowed)

    def _join_scorings(self) -> Scoring:
        scoring = self.calls[0].scoring
        if all(call.scoring.bias is None for call in self.calls):
            return scoring
        bias = torch.zeros(self.shape)
        for call in self.calls:
            if call.scoring.bias is not None:
                rows = slice(call.row, call.row + call.T)
                bias[:, :, rows, call.key : call.key + call.S] = call.scoring.bias
        return replace(scoring, bias=bias)


def first_seen(call: RecordedCall) -> int:
    """Return the first key that the only row of a call may see, in any sequence; 0 for others."""
    keys = call.mask.keys
    if call.T > 1 or keys is None or not bool(keys.any()):
        return 0
    return int(keys.byte().argmax(-1)[keys.any(-1)].min())


def _any_row(dense: Tensor | None) -> Tensor | None:
    """(B | 1, S | 1) the keys that a dense mask lets any row of any head see."""
    if dense is None:
        return None
    return dense.reshape((1,) * (4 - dense.dim()) + dense.shape).any(2).any(1)


def masked_scores(
    q: Tensor, k: Tensor, mask: Mask, scoring: Scoring, rows: slice, cols: slice
) -> Tensor:
    """Return the scores of a rectangle in float32 or better; -inf where the mask hides."""
    return row_scores(q[:, :, rows], k, mask, scoring, q.shape[2], rows, cols)


def row_scores(
    q: Tensor, k: Tensor, mask: Mask, scoring: Scoring, T: int, rows: slice, cols: slice
) -> Tensor:
    """Return the scores of a rectangle, where q holds `rows` of T queries only."""
    S = k.shape[2]
    plain = Scoring(scoring.scale_for(q.shape[-1]), scoring.softcap)
    with torch.autocast(q.device.type, enabled=False):
        s = scores(to_float(q), to_float(k[:, :, cols]), plain)
    added = scoring.additive_bias(T, S, rows, cols)
    s = s if added is None else s + added
    allowed = mask.to_tensor(T, S, rows, cols, q.device)
    return s if allowed is None else s.masked_fill(~allowed, -math.inf)


def to_float(x: Tensor) -> Tensor:
    """Return x in float32, or as it is if it is float64."""
    return x if x.dtype == torch.float64 else x.float()


def measure(
    layer: Layer,
    q: Tensor,
    k: Tensor,
    mask: Mask,
    scoring: Scoring,
    lse: Tensor | None,
    ids: Tensor | None,
    options: Mapping[str, Any],
) -> HeadStatistics:
    """Measure one layer. Padding is left out; ids are used if they are those of its keys."""
    (B, _, T, _), S = q.shape, k.shape[2]
    own = layer.kind == "self" and T <= S
    fits = own and ids is not None and tuple(ids.shape) == (B, S)
    queries = mask.keys[:, S - T :].expand(B, T) if own and mask.keys is not None else None
    ids = ids.to(q.device) if fits and ids is not None else None
    return observe(q, k, mask, scoring=scoring, lse=lse, ids=ids, queries=queries, **options)


def map_tensors(x: Parts, change: Callable[[Tensor], Tensor]) -> Parts:
    """Return x with every tensor changed; fields that shared one tensor share the new one."""
    parts = vars(x)
    if not any(isinstance(part, Tensor) for part in parts.values()):
        return x
    tensors = {id(part): change(part) for part in parts.values() if isinstance(part, Tensor)}
    return replace(x, **{name: tensors.get(id(part), part) for name, part in parts.items()})


def _to(x: Parts, device: torch.device | str) -> Parts:
    return map_tensors(x, lambda one: one.to(device))
