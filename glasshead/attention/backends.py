"""Three ways to compute the same attention, and the choice between them.

    explicit   the formula, scores and weights in memory; serves everything
    sdpa       PyTorch's fused kernels: flash on CPU; cuDNN, flash or memory-efficient on CUDA
    flex       FlexAttention, compiled for the mask and the scoring at hand

`pick_backend("auto", call)` takes the fastest that supports the call. A backend chosen by name that
does not support it raises and says why: there is no silent fallback.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring, explicit_attention
from glasshead.errors import BackendError, did_you_mean
from glasshead.machine import find_compiler, triton_works

__all__ = [
    "BACKENDS",
    "Backend",
    "BackendCall",
    "BackendResult",
    "check_backend_name",
    "pick_backend",
]

DENSE = 2**22  # a dense mask of so many cells is cheap


@dataclass(eq=False)
class BackendCall:
    """The arguments of a backend. The mask has been checked and simplified."""

    q: Tensor  # (B, H, T, D)
    k: Tensor  # (B, H_kv, S, D)
    v: Tensor  # (B, H_kv, S, D_v)
    mask: Mask
    scoring: Scoring
    dropout: float = 0.0

    @property
    def T(self) -> int:
        return self.q.shape[2]

    @property
    def S(self) -> int:
        return self.k.shape[2]

    @property
    def is_grouped(self) -> bool:
        return self.q.shape[1] != self.k.shape[1]

    @property
    def scale(self) -> float:
        return self.scoring.scale_for(self.q.shape[-1])

    @property
    def needs_grad(self) -> bool:
        return torch.is_grad_enabled() and any(
            t is not None and t.requires_grad for t in (self.q, self.k, self.v, self.scoring.bias)
        )

    @cached_property
    def allowed_pairs(self) -> Tensor | None:
        return self.mask.to_tensor(self.T, self.S, device=self.q.device)

    @cached_property
    def empty_rows(self) -> Tensor | None:
        """(B, H, T, 1), True for rows that may attend to nothing; None if no row can be empty."""
        if not self.mask.may_have_empty_rows(self.T, self.S) or self.allowed_pairs is None:
            return None
        return ~self.allowed_pairs.any(-1, keepdim=True)

    @cached_property
    def score_bias(self) -> Tensor | None:
        """Mask and biases as one tensor to add to the scores, with empty rows unmasked; or None."""
        bias = self.scoring.additive_bias(self.T, self.S)
        # ALiBi over a long distance overflows half precision; CPU kernels accept float32.
        exact = bias is not None and self.q.is_cpu and self.q.dtype.itemsize == 2
        dtype = torch.float32 if exact else self.q.dtype
        bias = None if bias is None else bias.to(dtype)
        allowed = self.allowed_pairs
        if allowed is None:
            return bias
        if self.empty_rows is not None:
            allowed = allowed | self.empty_rows
        if bias is None:
            bias = torch.zeros((), dtype=dtype, device=self.q.device)
        return torch.where(allowed, bias, -math.inf)

    def clear_empty_rows(self, context: Tensor, lse: Tensor | None) -> "BackendResult":
        """Set the context of empty rows to 0 and their lse to -inf."""
        empty = self.empty_rows
        if empty is not None:
            context = context.masked_fill(empty, 0)
            lse = None if lse is None else lse.masked_fill(empty.squeeze(-1), -math.inf)
        return BackendResult(context, lse=lse)


class BackendResult(NamedTuple):
    """`weights` and `lse` only if the backend computes them anyway and they are exact."""

    context: Tensor
    weights: Tensor | None = None
    lse: Tensor | None = None  # (B, H, T), or (B, H, T, 1)


class Backend(Protocol):
    def why_not(self, call: BackendCall) -> str | None:
        """Return why this backend does not support the call, or None if it does."""

    def run(self, call: BackendCall) -> BackendResult: ...


class Explicit:
    def why_not(self, call: BackendCall) -> str | None:
        return None

    def run(self, call: BackendCall) -> BackendResult:
        inputs = (call.q, call.k, call.v, call.mask, call.scoring, call.dropout)
        context, weights = explicit_attention(*inputs)
        # In half precision these weights are rounded: `attend` recomputes them if requested.
        return BackendResult(context, weights if weights.dtype.itemsize >= 4 else None)


class SDPA:
    def why_not(self, call: BackendCall) -> str | None:
        if call.scoring.softcap is not None:
            return "it cannot cap scores (softcap)"
        if call.q.shape[-1] != call.v.shape[-1]:
            return f"queries are {call.q.shape[-1]} wide and values {call.v.shape[-1]}"
        bias = call.scoring.bias
        if bias is not None and bias.requires_grad and torch.is_grad_enabled():
            return "it gives no gradient for a bias"
        if call.dropout and call.q.is_cpu:
            return "it has no dropout on CPU"
        return None

    def run(self, call: BackendCall) -> BackendResult:
        mask = call.mask
        causal = mask.causal
        if mask.is_plain and call.scoring.is_plain and (not causal or call.T == call.S):
            return _run_without_bias(call, causal)
        kernel = _flash_cpu if call.q.is_cpu else _run_sdpa
        context, _, lse = kernel(call, call.score_bias, causal=False)
        return call.clear_empty_rows(context, lse)


def _run_without_bias(call: BackendCall, causal: bool) -> BackendResult:
    """Run the fastest kernel for a call without a dense mask."""
    q = call.q
    if q.is_cpu:
        return _flash_cpu(call, None, causal)
    kernel = None
    # torch.compile picks a kernel itself; calling one by name would break its graph.
    if q.is_cuda and not torch.compiler.is_compiling():
        cudnn = _worth_planning(call) and torch.backends.cuda.cudnn_sdp_enabled()
        kernel = _cuda_kernel(q.device, q.dtype, q.shape[-1], cudnn)
    return _run_sdpa(call, None, causal) if kernel is None else kernel(call, causal)


def _flash_cpu(call: BackendCall, added: Tensor | None, causal: bool) -> BackendResult:
    # The operator behind F.scaled_dot_product_attention; called directly, it also returns the lse.
    if added is not None:
        added = added.expand(*(1,) * (4 - added.dim()), *added.shape)
    context, lse = torch._scaled_dot_product_flash_attention_for_cpu(
        call.q, call.k, call.v, 0.0, causal, attn_mask=added, scale=call.scale
    )
    return BackendResult(context, lse=lse)


def _worth_planning(call: BackendCall) -> bool:
    """Whether cuDNN is worth its half second of planning for every new shape."""
    return call.T >= (512 if call.needs_grad else 4096)


@lru_cache
def _cuda_kernel(
    device: torch.device, dtype: torch.dtype, D: int, cudnn: bool
) -> Callable[[BackendCall, bool], BackendResult] | None:
    """Return the operator that gives context and lse without a dense mask, if one fits."""
    capability = torch.cuda.get_device_capability(device)
    half = dtype in (torch.float16, torch.bfloat16)
    if not half or D % 8 or D > 256 or capability < (8, 0):
        return None
    return _cudnn if cudnn and capability >= (9, 0) and D <= 128 else _flash_cuda


def _cudnn(call: BackendCall, causal: bool) -> BackendResult:
    k, v = _repeat_kv(call)
    context, lse, *_ = torch._scaled_dot_product_cudnn_attention(
        call.q, k, v, None, True, call.dropout, causal, False, scale=call.scale
    )
    return BackendResult(context, lse=lse)


def _flash_cuda(call: BackendCall, causal: bool) -> BackendResult:
    k, v = _repeat_kv(call)
    context, lse, *_ = torch._scaled_dot_product_flash_attention(
        call.q, k, v, call.dropout, causal, False, scale=call.scale
    )
    return BackendResult(context, lse=lse)


def _run_sdpa(call: BackendCall, added: Tensor | None, causal: bool) -> BackendResult:
    k, v = _repeat_kv(call)
    # With dense masks cuDNN can give NaN gradients (pytorch#196678).
    kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with nullcontext() if added is None else sdpa_kernel(kernels):
        context = F.scaled_dot_product_attention(
            call.q, k, v, attn_mask=added, dropout_p=call.dropout, is_causal=causal,
            scale=call.scale,
        )  # fmt: skip
    return BackendResult(context)


def _repeat_kv(call: BackendCall) -> tuple[Tensor, Tensor]:
    if not call.is_grouped:
        return call.k, call.v
    group = call.q.shape[1] // call.k.shape[1]
    return call.k.repeat_interleave(group, 1), call.v.repeat_interleave(group, 1)


class Flex:
    """FlexAttention. `fused=False` runs it uncompiled: slow, for tests."""

    def __init__(self, fused: bool = True) -> None:
        self.fused = fused

    def why_not(self, call: BackendCall) -> str | None:
        if call.dropout:
            return "it has no dropout"
        if call.q.is_cpu and call.needs_grad:
            return "it has no gradients on CPU"
        if self.fused and call.q.dtype == torch.float64:
            return "it has no float64"
        narrow = min(call.q.shape[-1], call.v.shape[-1]) < 16
        if self.fused and call.q.is_cuda and narrow:
            return "on a GPU it needs heads at least 16 wide"
        if self.fused and call.q.is_cpu and " " in torch.__file__:
            return "torch cannot link compiled code because its own path contains a space"
        if self.fused and call.q.is_cuda and not triton_works():
            return "it needs Triton and a C compiler"
        if self.fused and call.q.is_cpu and not find_compiler():
            return "it needs a C++ compiler"
        return None

    def run(self, call: BackendCall) -> BackendResult:
        if torch.compiler.is_compiling():  # torch.compile does not support the try
            return self._run(call)
        try:
            return self._run(call)
        except RuntimeError as error:
            from torch._dynamo.exc import BackendCompilerFailed

            if not isinstance(error, BackendCompilerFailed):
                raise
            raise BackendError(
                f"torch cannot compile FlexAttention for {tuple(call.q.shape)} on {call.q.device}",
                hint="use backend='sdpa' or backend='explicit', which need no compiler",
            ) from error

    def _run(self, call: BackendCall) -> BackendResult:
        attention: Any = _compiled_flex() if self.fused else flex_attention
        on_cpu = call.q.is_cpu
        context, aux = attention(
            call.q,
            call.k,
            call.v,
            score_mod=_score_rule(call),
            block_mask=_block_mask(call),
            scale=call.scale,
            enable_gqa=call.is_grouped,
            return_aux=AuxRequest(lse=not on_cpu),
            # AUTO takes a decoding kernel for short queries, which fails for some sizes.
            kernel_options=None if on_cpu else {"BACKEND": "TRITON"},
        )
        return call.clear_empty_rows(context, aux.lse)


@lru_cache
def _compiled_flex() -> Callable[..., Any]:
    return torch.compile(flex_attention)


def _block_mask(call: BackendCall) -> Any:
    mask, empty, dense = call.mask, call.empty_rows, call.mask.dense
    if mask.is_plain and not mask.causal:
        return None
    offset = _offset(call)

    def allows(b: Any, h: Any, i: Any, j: Any) -> Any:
        rule = mask.rule(b, i + offset, j)
        if dense is not None:
            pair = _gather(dense, b, h, i, j)
            rule = pair if rule is None else rule & pair
        return rule if empty is None else rule | _gather(empty, b, h, i, j)

    B, H = call.q.shape[:2]
    per_batch = any(p is not None for p in (mask.keys, mask.documents, dense, empty))
    return create_block_mask(
        allows,
        B if per_batch else None,
        H if dense is not None else None,
        call.T,
        call.S,
        device=str(call.q.device),
    )


def _score_rule(call: BackendCall) -> Callable[..., Any] | None:
    scoring = call.scoring
    if scoring.is_plain:
        return None
    softcap, slopes, bias = scoring.softcap, scoring.slopes, scoring.bias
    offset = _offset(call)

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        if softcap is not None:
            s = softcap * torch.tanh(s / softcap)
        if slopes is not None:
            s = s - slopes[h] * (i + offset - j).abs()
        if bias is not None:
            s = s + _gather(bias, b, h, i, j)
        return s

    return score


def _offset(call: BackendCall) -> Tensor:
    # Not torch.tensor, whose copy to a GPU synchronizes.
    return torch.full((), call.S - call.T, device=call.q.device)


def _gather(x: Tensor, b: Any, h: Any, i: Any, j: Any) -> Any:
    """Return x[b, h, i, j] where x broadcasts to (B, H, T, S)."""
    x = x.reshape((1,) * (4 - x.dim()) + x.shape)
    return x[tuple(n if size > 1 else n * 0 for n, size in zip((b, h, i, j), x.shape, strict=True))]


BACKENDS: dict[str, Backend] = {"explicit": Explicit(), "sdpa": SDPA(), "flex": Flex()}


def check_backend_name(name: str) -> None:
    known = ["auto", *BACKENDS]
    if name not in known:
        raise BackendError(f"unknown backend '{name}'", hint=did_you_mean(name, known))


def pick_backend(name: str, call: BackendCall) -> Backend:
    """Return the backend of that name, or for "auto" the fastest that supports the call."""
    check_backend_name(name)
    if name != "auto":
        reason = BACKENDS[name].why_not(call)
        if reason is not None:
            raise BackendError(
                f"backend '{name}' does not support this call: {reason}",
                hint="use backend='auto', which picks one that does",
            )
        return BACKENDS[name]
    for choice in _preference(call):
        if BACKENDS[choice].why_not(call) is None:
            return BACKENDS[choice]
    return BACKENDS["explicit"]


def _preference(call: BackendCall) -> tuple[str, ...]:
    q, mask = call.q, call.mask
    fused_mask = mask.is_plain and (not mask.causal or call.T == call.S)
    if q.is_cuda and not (fused_mask and call.scoring.is_plain) and call.T > 1:
        # FlexAttention compiles for every shape: too slow for padded prompts of a generation.
        padded = replace(mask, keys=None).is_plain and call.scoring.is_plain
        small = q.shape[0] * call.T * call.S <= DENSE
        return ("sdpa",) if padded and small and not call.needs_grad else ("flex", "sdpa")
    return ("sdpa",)
