"""Scores and weights written out: the slow, obvious path, and the exact one for looking.

    scores  = q @ k^T * scale, soft-capped, plus biases      (B, H, T, S)
    lse     = log sum exp(scores) over the keys              (B, H, T)
    weights = exp(scores - lse)                              (B, H, T, S)

`explicit` is the formula in the dtype it is given; every fused kernel is measured against it.
`observed` recomputes weights and lse from q and k alone, in float32 or better, in bands of rows
that skip what the mask hides, so a model may run on any kernel and still be looked into. Where a
kernel has given its lse, that is taken, and on a GPU the weights are made from it in one pass.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from glasshead.attention.mask import Mask
from glasshead.machine import triton_works

__all__ = ["PLAIN", "Scoring", "explicit", "observed", "scores"]

# Scores made at a time: on CPU 8 MB, near the cache; on a GPU 1 GB, for few launches.
BAND = {"cpu": 2**21, "cuda": 2**28}
BANDS = 4  # at least, where the mask is causal, to skip most of what it hides


@dataclass(frozen=True, eq=False)
class Scoring:
    """How products of queries and keys become scores.

    Args:
        scale: what q @ k^T is multiplied with; 1/sqrt(D) when None.
        softcap: squash scores into (-softcap, softcap) by tanh, as Gemma 2 does.
        slopes: (H,) ALiBi slopes; slope * distance is subtracted.
        bias: anything that broadcasts to (B, H, T, S), added last.
    """

    scale: float | None = None
    softcap: float | None = None
    slopes: Tensor | None = None
    bias: Tensor | None = None

    def scale_for(self, D: int) -> float:
        return self.scale if self.scale is not None else 1 / math.sqrt(D)

    @property
    def is_plain(self) -> bool:
        """True when the scale says it all."""
        return self.softcap is None and self.slopes is None and self.bias is None

    def added(
        self, T: int, S: int, rows: slice = slice(None), cols: slice = slice(None)
    ) -> Tensor | None:
        """What is added to the scores of a rectangle; None when nothing is."""
        total: Tensor | None = None
        if self.slopes is not None:
            device = self.slopes.device
            i = torch.arange(T, device=device)[rows, None] + (S - T)
            j = torch.arange(S, device=device)[cols]
            total = -_exact(self.slopes)[:, None, None] * (i - j).abs()  # (H, T, S)
        if self.bias is not None:
            bias = self.bias.reshape((1,) * (4 - self.bias.dim()) + self.bias.shape)
            bias = bias if bias.shape[2] == 1 else bias[:, :, rows]
            bias = bias if bias.shape[3] == 1 else bias[..., cols]
            total = bias if total is None else total + bias
        return total


PLAIN = Scoring()


def scores(
    q: Tensor,
    k: Tensor,
    scoring: Scoring = PLAIN,
    rows: slice = slice(None),
    cols: slice = slice(None),
) -> Tensor:
    """Scores before the mask, of all pairs or of a rectangle of them.

    With grouped queries (k has fewer heads than q) the heads of a group share their keys.
    """
    T, S = q.shape[2], k.shape[2]
    q, k = q[:, :, rows], k[:, :, cols]
    s = per_group(q * scoring.scale_for(q.shape[-1]), k.mT)  # (B, H, T, S)
    if scoring.softcap is not None:
        s = scoring.softcap * torch.tanh(s / scoring.softcap)
    added = scoring.added(T, S, rows, cols)
    return s if added is None else (s + added).to(s.dtype)


def per_group(x: Tensor, y: Tensor) -> Tensor:
    """x @ y where y has fewer heads: each head of y serves a group of x's.

    (B, H, T, n) @ (B, H / g, n, m) -> (B, H, T, m); the group is folded into the rows, so that y
    is never copied.
    """
    B, H, T, n = x.shape
    if y.shape[1] == H:
        return x @ y
    group = H // y.shape[1]
    return (x.reshape(B, H // group, group * T, n) @ y).view(B, H, T, y.shape[-1])


def softmax(s: Tensor, allowed: Tensor | None, may_hide_all: bool) -> Tensor:
    """Softmax over the allowed keys. A row that is allowed nothing gives zeros, never NaN."""
    if allowed is None:
        return s.softmax(-1)
    if not may_hide_all:
        return s.masked_fill(~allowed, -math.inf).softmax(-1)
    empty = ~allowed.any(-1, keepdim=True)
    # An empty row is opened for the softmax and closed after it: no exp(-inf - -inf), forward
    # or backward.
    s = s.masked_fill(~(allowed | empty), -math.inf)
    return s.softmax(-1).masked_fill(empty, 0)


def explicit(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, scoring: Scoring, dropout: float
) -> tuple[Tensor, Tensor]:
    """The formula as the textbook has it. Returns the context and the weights before dropout."""
    T, S = q.shape[2], k.shape[2]
    allowed = mask.allowed(T, S, device=q.device)
    weights = softmax(scores(q, k, scoring), allowed, mask.may_hide_all(T, S))
    context = per_group(F.dropout(weights, dropout) if dropout else weights, v)
    return context, weights


def observed(
    q: Tensor,
    k: Tensor,
    mask: Mask,
    scoring: Scoring,
    *,
    weights: bool = False,
    lse: bool = False,
    known: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """Weights and lse, as asked, from q and k in float32 or better; differentiable.

    `known` is the lse (B, H, T) that a kernel has given, without a gradient, if one has.
    """
    found: tuple[Tensor | None, Tensor | None] = _Observed.apply(
        q, k, scoring.bias, scoring.slopes, known, mask, scoring, weights, lse
    )
    return found


class _Observed(torch.autograd.Function):
    """Tiles or bands forward; the dense formula backward, where someone asks for that at all."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        bias: Tensor | None,
        slopes: Tensor | None,
        known: Tensor | None,
        mask: Mask,
        scoring: Scoring,
        want_weights: bool,
        want_lse: bool,
    ) -> tuple[Tensor | None, Tensor | None]:
        ctx.save_for_backward(q, k, bias, slopes)
        ctx.mask, ctx.scoring = mask, scoring
        ctx.set_materialize_grads(False)
        lse = known.detach() if want_lse and known is not None else None
        want_lse = want_lse and known is None
        if not want_weights and not want_lse:
            return None, lse
        tiles = None if known is None else _tiles_for(q, mask, scoring)
        if tiles is not None:
            return tiles(q, k, known, scoring.scale_for(q.shape[-1]), mask.causal), lse
        with torch.autocast(q.device.type, enabled=False):
            weights, fresh = _in_bands(_exact(q), _exact(k), mask, scoring, want_weights, want_lse)
        return weights, fresh if lse is None else lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_weights: Tensor | None, d_lse: Tensor | None) -> tuple[Any, ...]:
        saved: list[Any] = [
            t if t is None else t.detach().requires_grad_() for t in ctx.saved_tensors
        ]
        q, k, bias, slopes = saved
        T, S = q.shape[2], k.shape[2]
        with torch.enable_grad(), torch.autocast(q.device.type, enabled=False):
            scoring = Scoring(ctx.scoring.scale, ctx.scoring.softcap, slopes, bias)
            s = scores(_exact(q), _exact(k), scoring)
            allowed = ctx.mask.allowed(T, S, device=q.device)
            total = s.new_zeros(())
            if d_weights is not None:
                w = softmax(s, allowed, ctx.mask.may_hide_all(T, S))
                total = total + (w * d_weights).sum()
            if d_lse is not None:
                lse = _logsumexp(s, allowed)
                total = total + (lse.masked_fill(lse == -math.inf, 0) * d_lse).sum()
        wanted = [t for t in saved if t is not None]
        found = iter(torch.autograd.grad(total, wanted, allow_unused=True))
        return (*(None if t is None else next(found) for t in saved), *[None] * 5)


def _tiles_for(q: Tensor, mask: Mask, scoring: Scoring) -> Callable[..., Tensor] | None:
    """The GPU's kernel for weights, where it serves."""
    # Products of half precision are exact in float32, so kernels agree on the lse.
    half = q.dtype in (torch.bfloat16, torch.float16)
    # Fewer rows are not worth a tile, wider heads do not fit every GPU's shared memory.
    if not (q.is_cuda and half and q.shape[2] >= 128 and q.shape[3] <= 128):
        return None
    if not (mask.is_plain and scoring.is_plain) or torch.compiler.is_compiling():
        return None
    return _tiles()


def _tiles() -> Callable[..., Tensor] | None:
    if not triton_works():
        return None
    from glasshead.attention.weights_kernel import weights_from_lse

    return weights_from_lse


def _in_bands(
    q: Tensor, k: Tensor, mask: Mask, scoring: Scoring, want_weights: bool, want_lse: bool
) -> tuple[Tensor | None, Tensor | None]:
    (B, H, T, _), S = q.shape, k.shape[2]
    q, k = q.contiguous(), k.contiguous()  # once, not in each band
    weights = q.new_empty(B, H, T, S) if want_weights else None
    lse = q.new_empty(B, H, T) if want_lse else None
    band = BAND.get(q.device.type, 2**21) // max(1, B * H * S)
    band = max(16, min(band, -(-T // BANDS)) if mask.causal else band)
    for start in range(0, T, band):
        rows = slice(start, min(start + band, T))
        cols = mask.cols_of(rows, T, S)
        s = scores(q, k, scoring, rows, cols)
        # Below the diagonal a plain causal mask hides nothing: only the border is filled.
        border = max(cols.start, rows.start + S - T + 1) if mask.is_plain else cols.start
        allowed = mask.allowed(T, S, rows, slice(border, cols.stop), q.device)
        if allowed is not None:
            s[..., border - cols.start :].masked_fill_(~allowed, -math.inf)
        if weights is None:
            row_lse = s.logsumexp(-1)
        else:
            w = s.softmax(-1)
            if want_lse or mask.may_hide_all(T, S):
                top = _largest(s)
                w.masked_fill_((top == -math.inf)[..., None], 0)
                # The largest weight is exp(top - lse), at least 1/S, so its logarithm is exact;
                # an empty row has top = -inf and keeps it.
                row_lse = top - _largest(w).clamp_(min=1 / max(1, S)).log()
            if w.shape == weights.shape:
                weights = w
            else:
                weights[:, :, rows, cols] = w
                weights[:, :, rows, : cols.start] = 0
                weights[:, :, rows, cols.stop :] = 0
        if lse is not None:
            lse[:, :, rows] = row_lse
    return weights, lse


def _logsumexp(s: Tensor, allowed: Tensor | None) -> Tensor:
    if allowed is None:
        return s.logsumexp(-1)
    empty = ~allowed.any(-1, keepdim=True)
    s = s.masked_fill(~(allowed | empty), -math.inf)
    return s.logsumexp(-1).masked_fill(empty.squeeze(-1), -math.inf)


def _largest(x: Tensor) -> Tensor:
    return x.amax(-1) if x.shape[-1] else x.new_full(x.shape[:-1], -math.inf)


def _exact(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
