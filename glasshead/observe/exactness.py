"""Check recorded calls: weights recomputed from q and k must give what the kernel returned."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from glasshead.attention.hooks import AttentionCall, Layer
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.errors import RecordingError
from glasshead.observe.trace_storage import row_scores, to_float

__all__ = ["CheckedRows", "Checks", "check_exactness", "check_shapes", "checked_rows"]

PART, PARTS = 1024, 64  # keys that are summed in the weights' dtype; such parts in one product


def checked_rows(T: int) -> slice:
    """Return the rows that are checked: the last, one in the middle and one of the first."""
    step = max(1, (T - 1) // 2)
    return slice((T - 1) % step if T else 0, T, step)


@dataclass(frozen=True, eq=False)
class CheckedRows:
    """What the check needs of one call; of tensors with T rows only those of `checked_rows`."""

    T: int
    q: Tensor
    k: Tensor  # (B, H_kv, S, D)
    v: Tensor
    context: Tensor
    weights: Tensor | None  # those that the kernel returned
    rounded_scores: bool
    lse: Tensor | None = None
    flat: Tensor | None = None  # (B | 1, H | 1, T | 1), of all rows


def check_shapes(layer: Layer, call: AttentionCall) -> None:
    """Raise if the sizes of a call are not those of attention."""
    (B, H, T, _), k, v = call.q.shape, call.k, call.v
    if k.shape[0] != B or H % k.shape[1] or call.context.shape != (B, H, T, v.shape[-1]):
        raise RecordingError(
            f"{layer} cannot be recorded: q {tuple(call.q.shape)} and k {tuple(k.shape)} gave a "
            f"context of {tuple(call.context.shape)}",
            hint="choose other layers with layers=[...]",
        )


@torch.no_grad()
def check_exactness(layer: Layer, call: AttentionCall) -> None:
    """Raise unless exp(scores - lse) @ v equals the call's context in the checked rows."""
    check_shapes(layer, call)
    rows = checked_rows(call.q.shape[2])
    flat = None if call.flat is None else call.flat()
    given = CheckedRows(
        T=call.q.shape[2], q=call.q[:, :, rows], k=call.k, v=call.v,
        context=call.context[:, :, rows], lse=None if call.lse is None else call.lse[:, :, rows],
        flat=flat, weights=None if call.weights is None else call.weights[:, :, rows],
        rounded_scores=call.rounded_scores,
    )  # fmt: skip
    checks = Checks()
    checks.add([layer], given, call.mask, call.scoring)
    checks.raise_failed()


class Checks:
    """Results of checks, which stay on their device until they are read together."""

    def __init__(self) -> None:
        self._found: list[tuple[Sequence[Layer], int, Tensor, Tensor]] = []
        self._keys: list[tuple[Layer, int, int, Tensor]] = []

    def add(
        self, layers: Sequence[Layer], given: CheckedRows, mask: Mask, scoring: Scoring
    ) -> None:
        """Check calls of several layers, whose tensors follow one another in the batch."""
        if not (given.q.numel() and given.k.numel()):
            return
        fits, off = _compare(given, mask, scoring)
        n = len(layers)
        off = off.nan_to_num(nan=torch.inf).amax((1, 3)).unflatten(0, (n, -1)).amax(1)  # (n, rows)
        self._found.append((layers, given.T, fits.flatten(1).unflatten(0, (n, -1)), off))

    def add_keys(self, layer: Layer, known: int, S: int, same: Tensor) -> None:
        """Note whether the S keys of a further call continue the known ones: a bool tensor."""
        self._keys.append((layer, known, S, same))

    def raise_failed(self) -> None:
        """Read all results, which waits for the device once; raise for the first that failed."""
        found, self._found = self._found, []
        keys, self._keys = self._keys, []
        results = [x[2].all() for x in found] + [x[3] for x in keys]
        if not results:
            return
        by_device: dict[torch.device, list[Tensor]] = {}
        for x in results:
            by_device.setdefault(x.device, []).append(x)
        if all(bool(torch.stack(some).all()) for some in by_device.values()):
            return
        for layer, known, S, same in keys:
            if not bool(same):
                raise RecordingError(
                    f"{layer} was called again, with keys that do not continue those of earlier "
                    f"calls ({known} before, {S} now)",
                    hint="another text needs another observing(); a cache that is reordered "
                    "(beams) or filled in place (static) and a layer that is used several times "
                    "cannot be recorded",
                )
        for layers, T, fits, off in found:
            for layer, fit, worst in zip(layers, fits, off, strict=True):
                if not bool(fit.all()):
                    rows = checked_rows(T)
                    row = rows.start + rows.step * int(worst.argmax())
                    raise RecordingError(
                        f"{layer} cannot be recorded exactly: weights recomputed from its queries "
                        f"and keys give a context that is off by {float(worst.max()):.3g} in row "
                        f"{row}",
                        hint="it does something besides softmax(q · k) over the keys that were "
                        "seen",
                    )


def _compare(given: CheckedRows, mask: Mask, scoring: Scoring) -> tuple[Tensor, Tensor]:
    """Return where the contexts fit, and how far they are off: (B, H, rows, D | 1) each."""
    q, k, v, context, T = given.q, given.k, given.v, given.context, given.T
    H, S, rows = q.shape[1], k.shape[2], checked_rows(T)
    # The error that rounding may cause: in the context, and in scores before the exponential.
    # Equal products all round the same way: kernels sum at most 512 keys at a time.
    of_sums = (16 + min(S, 512) / 8) * torch.finfo(torch.float32).eps
    of_context = 4 * torch.finfo(context.dtype).eps + of_sums
    of_scores = 2 * torch.finfo(q.dtype if given.rounded_scores else torch.float32).eps
    largest_v = torch.maximum(v.amax((-2, -1)), -v.amin((-2, -1)))  # (B, H_kv); makes no copy of v
    largest_v = to_float(largest_v).repeat_interleave(H // v.shape[1], 1)
    s = row_scores(q, k, mask, scoring, T, rows, slice(0, S))  # (B, H, rows, S)
    row_lse = s.logsumexp(-1) if given.lse is None else given.lse
    empty = (row_lse == -torch.inf)[..., None]
    weights = (s - row_lse[..., None]).exp_().masked_fill_(empty, 0)
    if given.flat is not None:
        flat = given.flat.expand(*given.flat.shape[:2], T)[..., rows, None]
        weights, empty = weights.masked_fill_(flat, 1 / S), empty & ~flat
    # Hidden pairs have a score of -inf, which counts as 0 here.
    largest = s.masked_fill_(s == -torch.inf, 0).abs_().amax(-1, keepdim=True)
    allowance = largest_v[..., None, None] * (of_context + of_scores * largest)
    off = (_weigh_values(weights, v) - to_float(context)).abs_().masked_fill_(empty, 0)
    fits = off <= allowance  # written so that NaN fails too
    if given.weights is not None:
        # Weights that eager attention returns tell more than a context of 16 bits.
        theirs = to_float(given.weights)
        of_weights = (
            2 * torch.finfo(theirs.dtype).eps * 32 + 2 * torch.finfo(given.weights.dtype).eps
        )
        relative = of_weights + torch.expm1(2 * of_scores * largest)
        near = (weights - theirs).abs() <= theirs * relative + torch.finfo(given.weights.dtype).tiny
        fits = fits & (near.all(-1, keepdim=True) | empty)
    return fits, off


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
