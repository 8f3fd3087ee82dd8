"""Every softmax attention that a model runs, seen from outside: the reference of `tools.coverage`.

A torch function mode watches all calls. A softmax counts as attention if a product of matrices
takes its result, through dropout, casts and views if need be. It shares nothing with what
`observing` does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

__all__ = ["Seen", "watch_softmax"]

SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}
PRODUCTS = {
    torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.einsum,
    torch.baddbmm, Tensor.baddbmm,
}  # fmt: skip


@dataclass
class Seen:
    """One softmax that weighs values, or one call of a fused kernel."""

    module: str  # the innermost module that was running
    weights: Tensor | None
    attends: bool = False


class _Mode(TorchFunctionMode):
    def __init__(self, found: list[Seen], stack: list[str]) -> None:
        super().__init__()
        self.found, self.stack = found, stack
        self.tagged: dict[int, tuple[Tensor, Seen]] = {}  # by address; tensors are kept alive

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        where = self.stack[-1] if self.stack else ""
        if func is F.scaled_dot_product_attention:
            self.found.append(Seen(where, _explicit(*args, **(kwargs or {})), attends=True))
            return out
        if func is F.multi_head_attention_forward:
            more = (kwargs or {}) | {"need_weights": True, "average_attn_weights": False}
            self.found.append(Seen(where, func(*args, **more)[1], attends=True))
            return out
        if not isinstance(out, Tensor) or not out.is_floating_point():
            return out
        if func in SOFTMAX:
            dim = (kwargs or {}).get("dim", args[1] if len(args) > 1 else None)
            if dim not in (-1, out.dim() - 1) or out.dim() < 2:
                return out
            seen = Seen(where, out.detach().clone())
            self.found.append(seen)
            self.tagged[out.data_ptr()] = out, seen
            return out
        tensors = [x for x in _flatten(args) if isinstance(x, Tensor) and x.numel()]
        for x in tensors:
            known = self.tagged.get(x.data_ptr())
            if known is None or known[0].numel() < x.numel():
                continue
            if func in PRODUCTS:
                known[1].attends = True
            elif out.numel() and out.numel() * 2 > x.numel():
                self.tagged.setdefault(out.data_ptr(), (out, known[1]))
        return out


def _explicit(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """Return the weights of the fused kernel by its formula, in float64."""
    k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3) if q.dim() > 3 else k
    scores = q.double() @ k.double().mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1).nan_to_num()


def _flatten(args: Any) -> Iterator[Any]:
    for one in args:
        if isinstance(one, list | tuple):
            yield from _flatten(one)
        else:
            yield one


@contextmanager
def watch_softmax(model: nn.Module) -> Iterator[list[Seen]]:
    """Yield a list that is, afterwards, of every attention that ran inside the `with`."""
    found: list[Seen] = []
    stack: list[str] = []

    def enter(name: str, *_: Any) -> None:
        stack.append(name)

    def leave(*_: Any) -> None:
        stack.pop()

    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(partial(enter, name)))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        with _Mode(found, stack):
            yield found
    finally:
        for handle in handles:
            handle.remove()
        found[:] = [seen for seen in found if seen.attends]
