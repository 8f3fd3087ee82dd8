"""Attention as a function: any mask, any backend, and the weights on request.

>>> q, k, v = torch.eye(2).expand(3, 1, 1, 2, 2)
>>> attend(q, k, v, Mask(causal=True), weights=True).weights
tensor([[[[1.0000, 0.0000],
          [0.3302, 0.6698]]]])
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshead.attention.backends import BACKENDS, BackendCall, pick_backend
from glasshead.attention.mask import ALLOW_ALL, Mask
from glasshead.attention.scores import PLAIN, Scoring, recompute
from glasshead.errors import ConfigError, MaskError, NotFiniteError, ShapeError

__all__ = ["AttendResult", "allow_nan", "as_mask", "attend"]

_CHECK_FINITE: ContextVar[bool] = ContextVar("check for NaN", default=True)


@dataclass(frozen=True, eq=False)
class AttendResult:
    """What `attend` returns; `weights` and `lse` only if requested."""

    context: Tensor  # (B, H, T, D)
    weights: Tensor | None = None  # (B, H, T, S), before dropout: rows sum to 1
    lse: Tensor | None = None  # (B, H, T)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | Tensor | None = None,
    *,
    scoring: Scoring = PLAIN,
    dropout: float = 0.0,
    backend: str = "auto",
    weights: bool = False,
    lse: bool = False,
) -> AttendResult:
    """softmax(q @ k^T / sqrt(D)) @ v over the keys that the mask allows.

    Args:
        q: (B, H, T, D) queries.
        k: (B, H_kv, S, D) keys; H_kv divides H, each key head serves H / H_kv query heads.
        v: (B, H_kv, S, D_v) values.
        mask: a Mask, or a bool tensor that broadcasts to (B, H, T, S); True = may attend.
        scoring: scale, softcap and biases of the scores.
        dropout: probability of dropping a weight from the sum; 0 outside training.
        backend: "auto", "explicit", "sdpa" or "flex".
        weights: also return the weights before dropout. They are recomputed in float32 or
            better beside the kernel: requesting them changes no bit of the context.
        lse: also return the log-sum-exp of each row of scores.

    A row that may attend to nothing gives context 0, weights 0 and lse -inf.
    """
    _check_tensors(q, k, v)
    if not 0 <= dropout < 1:
        raise ConfigError(f"dropout ({dropout}) must be at least 0 and less than 1", hint="try 0.1")
    (B, H, T, _), S = q.shape, k.shape[2]
    mask = as_mask(mask)
    mask.check(B, H, T, S)
    call = BackendCall(q, k, v, mask.simplify(T, S), scoring, dropout)
    chosen = pick_backend(backend, call)
    # Some kernels divide by the size: empty tensors take the explicit path.
    result = (chosen if q.numel() and k.numel() else BACKENDS["explicit"]).run(call)
    if q.is_cpu and not torch.compiler.is_compiling() and _CHECK_FINITE.get():
        _check_finite(call, result.context)
    if not (weights or lse):
        return AttendResult(result.context)
    kernel_lse = None if result.lse is None else result.lse.view(B, H, T)
    need_weights = weights and result.weights is None
    # A kernel's own lse has no gradient.
    need_lse = lse and (kernel_lse is None or call.needs_grad)
    fresh_weights = fresh_lse = None
    if need_weights or need_lse:
        fresh_weights, fresh_lse = recompute(
            q, k, call.mask, scoring, weights=need_weights, lse=need_lse, known=kernel_lse
        )
    return AttendResult(
        result.context,
        (fresh_weights if need_weights else result.weights) if weights else None,
        (fresh_lse if need_lse else kernel_lse) if lse else None,
    )


@contextmanager
def allow_nan() -> Iterator[None]:
    """Let NaN pass through on a CPU, as it does on a GPU, instead of raising.

    For distributed training: if one process raised, the others would wait for it.
    """
    token = _CHECK_FINITE.set(False)
    try:
        yield
    finally:
        _CHECK_FINITE.reset(token)


def as_mask(mask: Mask | Tensor | None) -> Mask:
    """Return a Mask: None allows everything, a bool tensor becomes the dense part."""
    if mask is None:
        return ALLOW_ALL
    if isinstance(mask, Tensor):
        return Mask(dense=mask)
    if not isinstance(mask, Mask):
        raise MaskError(
            f"mask is a {type(mask).__name__}, but a Mask or a bool tensor is needed",
            hint="Mask(causal=True), or a tensor in which True means 'may attend'",
        )
    return mask


def _check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    q_shape, k_shape, v_shape = q.shape, k.shape, v.shape
    if (
        len(q_shape) == len(k_shape) == len(v_shape) == 4
        and q.dtype == k.dtype == v.dtype
        and q.is_floating_point()
    ):
        B, H, _, D = q_shape
        B_k, H_kv, S, D_k = k_shape
        B_v, H_v, S_v, _ = v_shape
        fits = B == B_k == B_v and D == D_k and H_kv == H_v and S == S_v
        if fits and H_kv and H % H_kv == 0:
            return
        if fits:
            raise ShapeError(
                f"n_heads ({H}) must be divisible by n_kv_heads ({H_kv})",
                hint="each key head serves a group of query heads of the same size",
            )
        raise ShapeError(
            f"q {tuple(q_shape)}, k {tuple(k_shape)}, v {tuple(v_shape)} do not fit together",
            hint="needed: q (B, H, T, D), k (B, H_kv, S, D), v (B, H_kv, S, D_v)",
        )
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not x.is_floating_point():
            raise ShapeError(
                f"{name} has dtype {x.dtype}, but attention needs floating-point numbers",
                hint=f"{name}.float()",
            )
        if x.dim() != 4:
            raise ShapeError(
                f"{name} has shape {tuple(x.shape)}, but (B, H, T, D) is needed",
                hint="MultiHeadAttention takes (B, T, C) and splits the heads itself",
            )
    raise ShapeError(
        f"q, k, v have dtypes {q.dtype}, {k.dtype}, {v.dtype}, but one is needed",
        hint="convert them to the same dtype",
    )


def _check_finite(call: BackendCall, context: Tensor) -> None:
    """Raise NotFiniteError if there is NaN; two cheap sums decide whether to search for it.

    The sum over q is needed because the flash kernel on CPU may treat a row of NaN as empty. On a
    GPU the check would synchronize, so NaN passes through there.
    """
    if not (call.q.detach().sum() + context.detach().sum()).isnan():
        return
    for name, x in (("q", call.q), ("k", call.k), ("v", call.v)):
        bad = x.detach().isnan()
        if bad.any():
            place = tuple(int(n) for n in bad.nonzero()[0])
            raise NotFiniteError(
                f"{name} holds NaN, first at (B, H, T, D) = {place}, {int(bad.sum())} in all",
                hint="check upstream: a learning rate too high, a division by zero, bad input data",
            )
