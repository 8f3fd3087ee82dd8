"""Scores and weights: the explicit formula, and exact weights recomputed from q and k.

    scores  = q @ k^T * scale, soft-capped, plus biases      (B, H, T, S)
    lse     = log sum exp(scores) over the keys              (B, H, T)
    weights = exp(scores - lse)                              (B, H, T, S)

`explicit_attention` is the formula in the dtype of its inputs; every fused kernel is tested against
it. `recompute` computes weights and lse from q and k alone, in float32 or better, in bands of rows
that skip what the mask hides, so attention can be recorded whichever kernel the model runs on. If
the kernel returned its lse, that is used, and on a GPU the weights are then made in one pass.
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

__all__ = ["PLAIN", "Scoring", "explicit_attention", "recompute", "scores"]

# Scores computed at a time: on CPU 8 MB, to stay near the cache; on a GPU 1 GB, for few launches.
BAND = {"cpu": 2**21, "cuda": 2**28}
BANDS = 4  # the fewest for a causal mask, so that most of what it hides is skipped


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
        """Whether scores are only scaled."""
        return self.softcap is None and self.slopes is None and self.bias is None

    def additive_bias(
        self, T: int, S: int, rows: slice = slice(None), cols: slice = slice(None)
    ) -> Tensor | None:
        """Return what is added to the scores of a rectangle; None if nothing is."""
        total: Tensor | None = None
        if self.slopes is not None:
            device = self.slopes.device
            i = torch.arange(T, device=device)[rows, None] + (S - T)
            j = torch.arange(S, device=device)[cols]
            total = -_to_float32(self.slopes)[:, None, None] * (i - j).abs()  # (H, T, S)
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
    """Return the scores before the mask, of all pairs or of a rectangle of them.

    With grouped queries (k has fewer heads than q) the heads of a group share their keys.
    """
    T, S = q.shape[2], k.shape[2]
    q, k = q[:, :, rows], k[:, :, cols]
    s = grouped_matmul(q * scoring.scale_for(q.shape[-1]), k.mT)  # (B, H, T, S)
    if scoring.softcap is not None:
        s = scoring.softcap * torch.tanh(s / scoring.softcap)
    added = scoring.additive_bias(T, S, rows, cols)
    return s if added is None else (s + added).to(s.dtype)


def grouped_matmul(x: Tensor, y: Tensor) -> Tensor:
    """Return x @ y where y may have fewer heads: each head of y serves a group of x's.

    (B, H, T, n) @ (B, H / g, n, m) -> (B, H, T, m); the group is folded into the rows, so that y
    is never copied.
    """
    B, H, T, n = x.shape
    if y.shape[1] == H:
        return x @ y
    group = H // y.shape[1]
    return (x.reshape(B, H // group, group * T, n) @ y).view(B, H, T, y.shape[-1])


def softmax(s: Tensor, allowed: Tensor | None, may_have_empty_rows: bool) -> Tensor:
    """Softmax over the allowed keys. A row that is allowed nothing gives zeros, not NaN."""
    if allowed is None:
        return s.softmax(-1)
    if not may_have_empty_rows:
        return s.masked_fill(~allowed, -math.inf).softmax(-1)
    empty = ~allowed.any(-1, keepdim=True)
    # Empty rows are unmasked for the softmax and zeroed after it, so that neither pass computes
    # exp(-inf - -inf).
    s = s.masked_fill(~(allowed | empty), -math.inf)
    return s.softmax(-1).masked_fill(empty, 0)


def explicit_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, scoring: Scoring, dropout: float
) -> tuple[Tensor, Tensor]:
    """Compute the textbook formula; return the context and the weights before dropout."""
    T, S = q.shape[2], k.shape[2]
    allowed = mask.to_tensor(T, S, device=q.device)
    weights = softmax(scores(q, k, scoring), allowed, mask.may_have_empty_rows(T, S))
    context = grouped_matmul(F.dropout(weights, dropout) if dropout else weights, v)
    return context, weights


def recompute(
    q: Tensor,
    k: Tensor,
    mask: Mask,
    scoring: Scoring,
    *,
    weights: bool = False,
    lse: bool = False,
    known: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """Return (weights, lse), each if requested, from q and k in float32 or better; differentiable.

    `known` is the lse (B, H, T) that the kernel returned, which has no gradient.
    """
    inputs = (q, k, scoring.bias, scoring.slopes, known, mask, scoring, weights, lse)
    result: tuple[Tensor | None, Tensor | None] = _Recompute.apply(*inputs)
    return result


class _Recompute(torch.autograd.Function):
    """Tiles or bands forward; the dense formula backward."""

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
            weights, fresh = _recompute_in_bands(
                _to_float32(q), _to_float32(k), mask, scoring, want_weights, want_lse
            )
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
            s = scores(_to_float32(q), _to_float32(k), scoring)
            allowed = ctx.mask.to_tensor(T, S, device=q.device)
            total = s.new_zeros(())
            if d_weights is not None:
                w = softmax(s, allowed, ctx.mask.may_have_empty_rows(T, S))
                total = total + (w * d_weights).sum()
            if d_lse is not None:
                lse = _logsumexp(s, allowed)
                total = total + (lse.masked_fill(lse == -math.inf, 0) * d_lse).sum()
        wanted = [t for t in saved if t is not None]
        found = iter(torch.autograd.grad(total, wanted, allow_unused=True))
        return (*(None if t is None else next(found) for t in saved), *[None] * 5)


def _tiles_for(q: Tensor, mask: Mask, scoring: Scoring) -> Callable[..., Tensor] | None:
    """Return the GPU kernel for weights if it supports the call."""
    # Products of half precision are exact in float32, so kernels agree on the lse.
    half = q.dtype in (torch.bfloat16, torch.float16)
    # Fewer rows are not worth a tile, wider heads do not fit every GPU's shared memory.
    if not (q.is_cuda and half and q.shape[2] >= 128 and q.shape[3] <= 128):
        return None
    if not (mask.is_plain and scoring.is_plain) or torch.compiler.is_compiling():
        return None
    if not triton_works():
        return None
    from glasshead.attention.weights_kernel import weights_from_lse

    return weights_from_lse


def _recompute_in_bands(
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
        cols = mask.reachable_cols(rows, T, S)
        s = scores(q, k, scoring, rows, cols)
        # Below the diagonal a plain causal mask hides nothing: only the border is filled.
        border = max(cols.start, rows.start + S - T + 1) if mask.is_plain else cols.start
        allowed = mask.to_tensor(T, S, rows, slice(border, cols.stop), q.device)
        if allowed is not None:
            s[..., border - cols.start :].masked_fill_(~allowed, -math.inf)
        if weights is None:
            row_lse = s.logsumexp(-1)
        else:
            w = s.softmax(-1)
            if want_lse or mask.may_have_empty_rows(T, S):
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


def _to_float32(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()
