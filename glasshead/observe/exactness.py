"""Check each recorded call: weights recomputed from q and k must give what the kernel returned."""

from itertools import pairwise

import torch
from torch import Tensor

from glasshead.attention.hooks import AttentionCall, Layer
from glasshead.errors import RecordingError
from glasshead.observe.trace_storage import masked_scores, to_float

__all__ = ["check_exactness"]

PART, PARTS = 1024, 64  # keys that are summed in the weights' dtype; such parts in one product


@torch.no_grad()
def check_exactness(layer: Layer, call: AttentionCall) -> None:
    """Raise unless exp(scores - lse) @ v equals the call's context in the last row, one in the
    middle and one of the first."""
    q, k, v, context = call.q, call.k, call.v, call.context
    (B, H, T, _), S = q.shape, k.shape[2]
    if k.shape[0] != B or H % k.shape[1] or context.shape != (B, H, T, v.shape[-1]):
        raise RecordingError(
            f"{layer} cannot be recorded: q {tuple(q.shape)} and k {tuple(k.shape)} gave a context "
            f"of {tuple(context.shape)}",
            hint="choose other layers with layers=[...]",
        )
    if not (B and H and T and S):
        return
    # The error that rounding may cause: in the context, and in scores before the exponential.
    of_context = 4 * torch.finfo(context.dtype).eps + 16 * torch.finfo(torch.float32).eps
    of_scores = 2 * torch.finfo(q.dtype if call.rounded_scores else torch.float32).eps
    largest_v = torch.maximum(v.amax((-2, -1)), -v.amin((-2, -1)))  # (B, H_kv); makes no copy of v
    largest_v = to_float(largest_v).repeat_interleave(H // v.shape[1], 1)
    flat = None if call.flat is None else call.flat()
    # All rows at once: each question about a tensor on a GPU waits for it.
    step = max(1, (T - 1) // 2)
    rows = slice((T - 1) % step, T, step)
    s = masked_scores(q, k, call.mask, call.scoring, rows, slice(0, S))  # (B, H, 3, S)
    row_lse = s.logsumexp(-1) if call.lse is None else call.lse[:, :, rows]
    empty = (row_lse == -torch.inf)[..., None]
    weights = (s - row_lse[..., None]).exp().masked_fill(empty, 0)
    if flat is not None:
        flat = flat.expand(*flat.shape[:2], T)[..., rows, None]  # (B | 1, H | 1, 3, 1)
        weights, empty = weights.masked_fill(flat, 1 / S), empty & ~flat
    largest = s.masked_fill(s == -torch.inf, 0).abs().amax(-1, keepdim=True)
    allowance = largest_v[..., None, None] * (of_context + of_scores * largest)
    off = (_weigh_values(weights, v) - to_float(context[:, :, rows])).abs().masked_fill(empty, 0)
    fits = off <= allowance  # written so that NaN fails too
    if call.weights is not None:
        # Weights that eager attention returns tell more than a context of 16 bits.
        theirs = to_float(call.weights[:, :, rows])
        of_weights = (
            2 * torch.finfo(theirs.dtype).eps * 32 + 2 * torch.finfo(call.weights.dtype).eps
        )
        relative = of_weights + torch.expm1(2 * of_scores * largest)
        near = (weights - theirs).abs() <= theirs * relative + torch.finfo(call.weights.dtype).tiny
        fits = fits & (near.all(-1, keepdim=True) | empty)
    if not bool(fits.all()):
        worst = off.nan_to_num(nan=torch.inf).amax((0, 1, 3))  # of each row
        row = rows.start + step * int(worst.argmax())
        raise RecordingError(
            f"{layer} cannot be recorded exactly: weights recomputed from its queries and keys "
            f"give a context that is off by {float(off.max()):.3g} in row {row}",
            hint="it does something besides softmax(q · k) over the keys that were seen",
        )


def _weigh_values(weights: Tensor, v: Tensor) -> Tensor:
    """Return weights @ v for a few rows, summed in parts: one sum over all keys of a long text
    would lose digits."""
    (B, H, R, S), H_kv = weights.shape, v.shape[1]
    weights = weights.unflatten(1, (H_kv, -1)).flatten(2, 3)  # (B, H_kv, rows, S)
    total = torch.zeros((), dtype=torch.float64, device=v.device)
    whole = S - S % PART
    for start, stop in pairwise(sorted({*range(0, whole, PARTS * PART), whole, S})):
        n = min(PART, stop - start)
        w = weights[..., start:stop].unflatten(-1, (-1, n)).movedim(-2, 2)  # (B, H_kv, parts, ...)
        part = v[:, :, start:stop].to(weights.dtype).unflatten(2, (-1, n))
        total = total + (w @ part).double().sum(2)
    return total.view(B, H, R, -1).to(weights.dtype)
