"""Attention that a model runs and that hooks cannot see."""

import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from glasshead.observe.layers import called_names

__all__ = ["watch_unseen"]

NAMED = re.compile("attention|attn|mha", re.IGNORECASE)
# What code that computes attention calls.
CALLS = frozenset({
    "softmax", "scaled_dot_product_attention", "multi_head_attention_forward",
    "_flash_attention_forward", "flex_attention",
})  # fmt: skip


@contextmanager
def watch_unseen(model: nn.Module, seen: Container[nn.Module]) -> Iterator[list[str]]:
    """Yield a list that names each attention module that runs inside the `with`, besides `seen`.

    A module counts if its class is named for attention and its own code computes a softmax.
    """
    ran: dict[str, None] = {}

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def note(name: str, *_: Any) -> None:
        ran[name] = None

    names: list[str] = []
    handles = [
        module.register_forward_pre_hook(partial(note, name))
        for name, module in model.named_modules()
        if module not in seen and _computes_attention(module)
    ]
    try:
        yield names
    finally:
        for handle in handles:
            handle.remove()
        names += ran


def _computes_attention(module: nn.Module) -> bool:
    if isinstance(module, nn.MultiheadAttention):
        return True
    return bool(NAMED.search(type(module).__name__)) and any(
        not CALLS.isdisjoint(called_names(function))
        for cls in type(module).__mro__
        if not cls.__module__.startswith("torch.")
        for function in vars(cls).values()
    )
