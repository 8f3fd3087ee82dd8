"""The log-sum-exp that a fused kernel computes beside its output, and that torch drops.

`F.scaled_dot_product_attention` picks a kernel and returns the kernel's first output. While
`collect_lse` is active, the same kernel gets the same inputs, so that the output has the same bits,
and its log-sum-exp is kept too.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["collect_lse", "keep_lse"]

_aten = torch.ops.aten
# The operators that return (output, lse, ...), and which of their arguments asks for the lse.
_KERNELS: dict[Any, int | None] = {
    _aten._scaled_dot_product_flash_attention_for_cpu.default: None,
    _aten._scaled_dot_product_flash_attention.default: None,
    _aten._scaled_dot_product_cudnn_attention.default: 4,
    _aten._scaled_dot_product_efficient_attention.default: 4,
}
_torch_attention = F.scaled_dot_product_attention
_lock, _users = threading.Lock(), 0
_calls = threading.local()  # .lse: a list while a call is watched in this thread


@contextmanager
def collect_lse() -> Iterator[None]:
    """Let `keep_lse` work inside the `with`."""
    global _users
    with _lock:
        _users += 1
        F.scaled_dot_product_attention = _attention
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                F.scaled_dot_product_attention = _torch_attention


def keep_lse(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, Tensor | None]:
    """Call a function that runs attention once. Return its result, and the lse (B, H, T) if a fused
    kernel computed it; rows that see no key have an lse of the kernel's own choice."""
    found: list[Tensor | None] = []
    _calls.lse = found
    try:
        out = function(*args, **options)
    finally:
        _calls.lse = None
    return out, found[0] if len(found) == 1 else None


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Stand in for `F.scaled_dot_product_attention`."""
    options: dict[str, Any] = {"scale": scale, "enable_gqa": enable_gqa}
    if torch.compiler.is_compiling() or (found := getattr(_calls, "lse", None)) is None:
        return _torch_attention(query, key, value, attn_mask, dropout_p, is_causal, **options)
    device, width = query.device.type, query.shape[-1]
    if attn_mask is None and width % 8 == 0 and not torch.is_autocast_enabled(device):
        choice = torch._fused_sdp_choice(query, key, value, None, dropout_p, is_causal, **options)
        kernel = _DIRECT.get((choice, device))
        if kernel is not None:
            context, lse = kernel(query, key, value, dropout_p, is_causal, scale)
            found.append(_shape(lse, query))
            return context
    with _KeepLse() as kept:
        context = _torch_attention(query, key, value, attn_mask, dropout_p, is_causal, **options)
    found.append(None if kept.lse is None else _shape(kept.lse, query))
    return context


def _shape(lse: Tensor, q: Tensor) -> Tensor:
    """(B, H, T) from what the kernels give: one dim more, or rows up to a multiple of 32."""
    return lse.detach().reshape(*q.shape[:2], -1)[:, :, : q.shape[2]]


class _KeepLse(TorchDispatchMode):
    """Keeps the lse of the operator below `F.scaled_dot_product_attention`."""

    lse: Tensor | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _KERNELS:
            at = _KERNELS[func]
            args = args if at is None else (*args[:at], True, *args[at + 1 :])
            out = func(*args, **(kwargs or {}))
            self.lse = out[1]
            return out
        return func(*args, **(kwargs or {}))


# Called without the mode, which takes longer than a short attention.
def _flash_cpu(q: Tensor, k: Tensor, v: Tensor, p: float, causal: bool, scale: Any) -> Any:
    return torch._scaled_dot_product_flash_attention_for_cpu(q, k, v, p, causal, scale=scale)


def _flash(q: Tensor, k: Tensor, v: Tensor, p: float, causal: bool, scale: Any) -> Any:
    return torch._scaled_dot_product_flash_attention(q, k, v, p, causal, False, scale=scale)[:2]


def _cudnn(q: Tensor, k: Tensor, v: Tensor, p: float, causal: bool, scale: Any) -> Any:
    given = q, k, v, None, True, p, causal, False
    return torch._scaled_dot_product_cudnn_attention(*given, scale=scale)[:2]


_DIRECT: dict[tuple[int, str], Callable[..., Any]] = {
    (SDPBackend.FLASH_ATTENTION.value, "cpu"): _flash_cpu,
    (SDPBackend.FLASH_ATTENTION.value, "cuda"): _flash,
    (SDPBackend.CUDNN_ATTENTION.value, "cuda"): _cudnn,
}
