"""Hooks on attention that computes itself, outside the attention interface of `transformers`.

While such a module runs, a function mode watches its torch calls and lets each of them pass. Where
a softmax is followed by a product with its result, that is attention: the softmax's input are the
scores, and the product of matrices that led to them has the queries and keys. What the scores are
besides scale * q @ k^T becomes the mask and a bias:

    nothing else, or a mask     q and k are kept: O(T), as everywhere
    a bias for each key         (ALiBi of Bloom and MPT) O(T) too
    any other bias, or no q, k  (relative positions of DeBERTa, XLNet) the scores are kept: O(T S)

The weights that follow are compared with the softmax that the model computed.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from glasshead.attention.hooks import AttentionCall, AttentionHook
from glasshead.errors import AblationError
from glasshead.observe.layers import is_named_for_attention
from glasshead.observe.scores_of_products import (
    Product,
    SoftmaxCall,
    describe_fused,
    describe_softmax,
    describe_torch_module,
    find_heads,
)

__all__ = ["attach_operation_hooks"]

SOFTMAX = {F.softmax, torch.softmax, Tensor.softmax}
PRODUCTS = {
    torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.einsum,
    torch.baddbmm, Tensor.baddbmm,
}  # fmt: skip
FUSED = torch._C._nn.scaled_dot_product_attention  # what `F` names so

_running: list["_Watch"] = []  # the innermost one watches


@contextmanager
def attach_operation_hooks(hooks: Mapping[nn.Module, AttentionHook]) -> Iterator[None]:
    """Attach one hook to each of these modules inside the `with`; they may only look."""
    handles = []
    try:
        for module, hook in hooks.items():
            if not hook.reads_only:
                raise AblationError(
                    f"{hook.layer or type(module).__name__} computes its attention itself: it can "
                    "be recorded, not changed",
                    hint="choose layers that call the attention interface of transformers",
                )
            if isinstance(module, nn.MultiheadAttention):
                after = partial(_after_torch_module, hook)
                handles.append(module.register_forward_hook(after, with_kwargs=True))
            else:
                running: list[ExitStack] = []
                enter, leave = partial(_enter, hook, running), partial(_leave, running)
                handles.append(module.register_forward_pre_hook(enter))
                handles.append(module.register_forward_hook(leave, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _enter(hook: AttentionHook, running: list[ExitStack], module: nn.Module, _: Any) -> None:
    stack = ExitStack()
    watch = _Watch(hook, find_heads(module))
    stack.callback(partial(watch.report, is_named_for_attention(module)))
    stack.enter_context(watch)
    _running.append(watch)
    stack.callback(_running.pop)
    running.append(stack)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _leave(running: list[ExitStack], *_: Any) -> None:
    running.pop().close()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _after_torch_module(
    hook: AttentionHook, module: nn.Module, args: tuple[Any, ...], options: dict[str, Any], out: Any
) -> None:
    found = describe_torch_module(module, args, options, out)
    if isinstance(found, str):
        hook.missed(found)
    else:
        _report(hook, found)


def _report(hook: AttentionHook, call: AttentionCall) -> None:
    cross = call.cross or (hook.layer is not None and hook.layer.kind == "cross")
    hook.after(replace(call, cross=cross), call.context)


class _Watch(TorchFunctionMode):
    """Follows tensors from products to softmax, and from there to the next product."""

    def __init__(self, hook: AttentionHook, heads: int | None) -> None:
        super().__init__()
        self.hook, self.heads = hook, heads
        self.products = WeakTensorKeyDictionary()  # scores, and the product they come from
        self.softmaxes = WeakTensorKeyDictionary()  # weights, and their softmax
        self.found: list[AttentionCall] = []
        self.problem: str | None = None

    def report(self, attends: bool) -> None:
        """Give the hook what the module computed; tell it of what could not be recorded."""
        if len({call.q.shape[2:] + call.k.shape[2:] for call in self.found}) > 1:
            self.problem = "it computes its map in parts of several sizes"
            self.found.clear()
        for call in self.found:
            _report(self.hook, call)
        if self.problem or (attends and not self.found):
            self.hook.missed(self.problem or "no softmax in it is followed by a product")

    def __torch_function__(
        self, func: Any, kinds: Any, args: tuple[Any, ...] = (), options: Any = None
    ) -> Any:
        options = options or {}
        out = func(*args, **options)
        if _running and _running[-1] is self:
            if func is FUSED:
                self._finish(describe_fused(args, options, out, self.heads))
            elif isinstance(out, Tensor) and out.is_floating_point():
                self._follow(func, args, options, out)
        return out

    def _follow(self, func: Any, args: tuple[Any, ...], options: Any, out: Tensor) -> None:
        given = [x for x in _flatten((args, tuple(options.values()))) if isinstance(x, Tensor)]
        weighs = next((x for x in given if x in self.softmaxes), None)
        if func in SOFTMAX:
            dim = options.get("dim", args[1] if len(args) > 1 else None)
            scores = args[0] if args else options["input"]
            if dim in (-1, out.dim() - 1):
                self.softmaxes[out] = SoftmaxCall(scores, out, self.products.get(scores))
        elif func in PRODUCTS:
            if weighs is not None:
                call = self.softmaxes[weighs]
                if not call.used:
                    call.used = True
                    self._finish(describe_softmax(call, weighs, self.heads))
            else:
                self.products[out] = Product(func, args, options)
        elif weighs is not None:
            if 2 * out.numel() > weighs.numel():
                self.softmaxes[out] = self.softmaxes[weighs]
        else:
            product = next((self.products[x] for x in given if x in self.products), None)
            if product is not None:
                self.products[out] = product

    def _finish(self, found: AttentionCall | str) -> None:
        if isinstance(found, str):
            self.problem = found
            return
        self.found.append(found)


def _flatten(args: Any) -> Iterator[Any]:
    for one in args:
        if isinstance(one, list | tuple):
            yield from _flatten(one)
        else:
            yield one
