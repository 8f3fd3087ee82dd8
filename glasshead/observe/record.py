"""What one layer of attention did: its queries, keys and log-sum-exp, and any weight from them.

    weights = exp(scores - lse)

A record grows while a model writes: each call adds its queries, and the keys that are new. The
calls are kept apart as spans, because each had a mask of its own and saw the keys up to its time.
"""

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from glasshead.attention.hooks import Layer
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring, scores
from glasshead.errors import RecordingError
from glasshead.observe.statistics import HeadStatistics, observe

__all__ = [
    "Growing", "Record", "Room", "Span", "common", "masked_scores", "of_head", "of_one",
    "shifted",
]  # fmt: skip

Parts = TypeVar("Parts", Mask, Scoring, HeadStatistics)


@dataclass(frozen=True, eq=False)
class Span:
    """One call: rows `row` to `row + T` of the map looked at keys `key` to `key + S`."""

    row: int
    T: int
    key: int
    S: int
    mask: Mask
    scoring: Scoring


def masked_scores(
    q: Tensor, k: Tensor, mask: Mask, scoring: Scoring, rows: slice, cols: slice
) -> Tensor:
    """Scores of a rectangle in float32 or better; -inf where the mask hides."""
    T, S = q.shape[2], k.shape[2]
    plain = Scoring(scoring.scale_for(q.shape[-1]), scoring.softcap)
    with torch.autocast(q.device.type, enabled=False):
        s = scores(exact(q[:, :, rows]), exact(k[:, :, cols]), plain)
    added = scoring.added(T, S, rows, cols)
    s = s if added is None else s + added
    allowed = mask.allowed(T, S, rows, cols, q.device)
    return s if allowed is None else s.masked_fill(~allowed, -math.inf)


def exact(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


class Room:
    """Where tensors are kept: in memory up to `in_memory` bytes in all, then in files.

    The files have no name any more once they are open, so they go when the tensors go.
    """

    def __init__(self, in_memory: int = 2**30, folder: Path | None = None) -> None:
        self.in_memory, self.folder = in_memory, folder
        self.used = 0

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        count = math.prod(shape)
        if self.used + count * dtype.itemsize <= self.in_memory or not count:
            self.used += count * dtype.itemsize
            return torch.empty(*shape, dtype=dtype)
        handle, name = tempfile.mkstemp(suffix=".glasshead", dir=self.folder)
        try:
            # Reserved now, so that a full disk is an error here and not a crash at some write.
            reserve = getattr(os, "posix_fallocate", lambda file, _, size: os.truncate(file, size))
            reserve(handle, 0, count * dtype.itemsize)
            return torch.from_file(name, shared=True, size=count, dtype=dtype).view(*shape)
        except OSError as error:
            raise RecordingError(
                f"{count * dtype.itemsize:,} bytes do not fit in {os.path.dirname(name)}: "
                f"{error.strerror}",
                hint="record fewer layers, give a folder with room, or keep statistics only",
            ) from None
        finally:
            os.close(handle)
            os.unlink(name)


class Growing:
    """A tensor (B, H, n, ...) that grows along n, doubling its room."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.length = 0
        self._buffer: Tensor | None = None

    @property
    def value(self) -> Tensor:
        assert self._buffer is not None
        return self._buffer[:, :, : self.length]

    def append(self, x: Tensor) -> None:
        needed = self.length + x.shape[2]
        old = self._buffer
        if old is None or needed > old.shape[2]:
            room = needed if old is None else max(needed, 2 * old.shape[2])
            self._buffer = self.room.empty((*x.shape[:2], room, *x.shape[3:]), x.dtype)
            if old is not None:
                self._buffer[:, :, : self.length] = old[:, :, : self.length]
        assert self._buffer is not None
        self._buffer[:, :, self.length : needed] = x
        self.length = needed


@dataclass(eq=False)
class Record:
    """One layer: what it looked with, and what was measured of it."""

    layer: Layer
    shape: tuple[int, int, int, int]  # (B, H, T, S)
    spans: list[Span] = field(default_factory=list)
    q: Tensor | None = None  # (B, H, T, D)
    k: Tensor | None = None  # (B, H_kv, S, D)
    lse: Tensor | None = None  # (B, H, T)
    statistics: HeadStatistics | None = None
    device: str = "cpu"  # where the model ran
    waits: Callable[[], None] | None = None  # to be measured with others: do it now

    def tile(self, batch: int, head: int, rows: slice, cols: slice) -> Tensor:
        """The weights of one head in a rectangle, float32 or better."""
        q, k, lse = self.tensors()
        group = q.shape[1] // k.shape[1]
        q, lse = q[batch : batch + 1, head : head + 1], lse[batch : batch + 1, head : head + 1]
        k = k[batch : batch + 1, head // group : head // group + 1]
        out = torch.zeros(rows.stop - rows.start, cols.stop - cols.start, dtype=lse.dtype)
        for span in self.spans:
            r = common(rows, span.row, span.T)
            c = common(cols, span.key, span.S)
            if r.start >= r.stop or c.start >= c.stop:
                continue
            s = masked_scores(
                q[:, :, span.row : span.row + span.T],
                k[:, :, span.key : span.key + span.S],
                of_one(span.mask, batch, head),
                of_head(span.scoring, batch, head),
                shifted(r, -span.row),
                shifted(c, -span.key),
            )[0, 0]
            row_lse = lse[0, 0, r, None]
            # A row that may attend to nothing has lse -inf and weights 0.
            w = (s - row_lse).exp_().masked_fill_(row_lse == -math.inf, 0)
            out[shifted(r, -rows.start), shifted(c, -cols.start)] = w
        return out

    def reach(self, rows: slice) -> slice:
        """The span of keys that some of these rows can see, by causality and window."""
        ends = []
        for span in self.spans:
            r = common(rows, span.row, span.T)
            if r.start < r.stop:
                c = span.mask.cols_of(shifted(r, -span.row), span.T, span.S)
                ends.append((c.start + span.key, c.stop + span.key))
        if not ends:
            return slice(0, 0)
        return slice(min(start for start, _ in ends), max(stop for _, stop in ends))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        if self.q is None or self.k is None or self.lse is None:
            raise RecordingError(
                f"of layer {self.layer.index} ({self.layer.name}) only statistics were kept",
                hint='record with observing(model, keep="tensors") to see its weights',
            )
        return self.q, self.k, self.lse

    def measured(self, ids: Tensor | None, top_k: int) -> HeadStatistics:
        """The statistics: those that were kept, or else computed now, where the model ran."""
        if self.waits is not None:
            self.waits()
        if self.statistics is None:
            q, k, lse = (x.to(self.device) for x in self.tensors())
            mask, scoring = self.merged()
            mask, scoring = moved(mask, self.device), moved(scoring, self.device)
            found = measure(self.layer, q, k, mask, scoring, lse, ids, top_k)
            self.statistics = moved(found, "cpu")
        return self.statistics

    def merged(self) -> tuple[Mask, Scoring]:
        """One mask and one scoring that say of the whole map what the spans say of their rows."""
        first, last = self.spans[0], self.spans[-1]
        if len(self.spans) == 1:
            return first.mask, first.scoring
        # Keys are cached in order: rows that see all up to their own, but for padding, are causal.
        causal = self.layer.kind == "self"
        rule = Mask(causal=causal, keys=last.mask.keys)
        simple = first.scoring.bias is None and all(
            (s.mask.causal or s.T == 1 if causal else not s.mask.causal)
            and s.key == 0
            and s.mask.window is None
            and s.mask.documents is None
            and s.mask.dense is None
            and _starts(rule.keys, s.mask.keys)
            for s in self.spans
        )
        return (rule, first.scoring) if simple else self._densely_merged()

    def _densely_merged(self) -> tuple[Mask, Scoring]:
        B, H, T, S = self.shape
        scoring = self.spans[0].scoring
        allowed = torch.zeros(B, 1, T, S, dtype=torch.bool)
        bias = None if scoring.bias is None else torch.zeros(B, H, T, S)
        for s in self.spans:
            rows, cols = slice(s.row, s.row + s.T), slice(s.key, s.key + s.S)
            part = s.mask.allowed(s.T, s.S)
            if part is not None and part.dim() == 4 and part.shape[1] > 1 and allowed.shape[1] == 1:
                allowed = allowed.repeat(1, H, 1, 1)
            allowed[:, :, rows, cols] = True if part is None else part
            if bias is not None and s.scoring.bias is not None:
                bias[:, :, rows, cols] = s.scoring.bias
        return Mask(dense=allowed), replace(scoring, bias=bias)


def measure(
    layer: Layer,
    q: Tensor,
    k: Tensor,
    mask: Mask,
    scoring: Scoring,
    lse: Tensor | None,
    ids: Tensor | None,
    top_k: int,
) -> HeadStatistics:
    """Statistics of one layer, given the ids if they are those of its keys; padding is no query."""
    (B, _, T, _), S = q.shape, k.shape[2]
    own = layer.kind == "self" and T <= S
    fits = own and ids is not None and tuple(ids.shape) == (B, S)
    queries = mask.keys[:, S - T :].expand(B, T) if own and mask.keys is not None else None
    ids = ids.to(q.device) if fits and ids is not None else None
    return observe(q, k, mask, scoring=scoring, lse=lse, ids=ids, queries=queries, top_k=top_k)


def changed(x: Parts, change: Callable[[Tensor], Tensor]) -> Parts:
    """The same with every tensor changed; what was one tensor stays one."""
    parts = {f.name: getattr(x, f.name) for f in fields(x)}
    tensors = {id(part): change(part) for part in parts.values() if isinstance(part, Tensor)}
    return replace(x, **{name: tensors.get(id(part), part) for name, part in parts.items()})


def moved(x: Parts, device: str) -> Parts:
    return changed(x, lambda part: part.to(device))


def _starts(whole: Tensor | None, part: Tensor | None) -> bool:
    """Whether the keys of an earlier call are the first of those of the last one."""
    if whole is None or part is None:
        return whole is part
    return torch.equal(whole[:, : part.shape[1]], part)


def common(part: slice, start: int, size: int) -> slice:
    """What lies in both; it may end before it starts."""
    return slice(max(part.start, start), min(part.stop, start + size))


def shifted(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)


def of_one(mask: Mask, batch: int, head: int) -> Mask:
    """The mask of one sequence and one head."""
    return replace(
        mask,
        keys=None if mask.keys is None else _pick(mask.keys, batch),
        documents=None if mask.documents is None else _pick(mask.documents, batch),
        dense=None if mask.dense is None else _pick4(mask.dense, batch, head),
    )


def of_head(scoring: Scoring, batch: int, head: int) -> Scoring:
    """The scoring of one sequence and one head."""
    slopes, bias = scoring.slopes, scoring.bias
    return replace(
        scoring,
        slopes=None if slopes is None else slopes[head : head + 1],
        bias=None if bias is None else _pick4(bias, batch, head),
    )


def _pick(x: Tensor, batch: int) -> Tensor:
    return x if x.shape[0] == 1 else x[batch : batch + 1]


def _pick4(x: Tensor, batch: int, head: int) -> Tensor:
    x = _pick(x.reshape((1,) * (4 - x.dim()) + x.shape), batch)
    return x if x.shape[1] == 1 else x[:, head : head + 1]
