"""Attach hooks to the attention of a model, ours or one of `transformers`, for a while."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from torch import nn

from glasshead.attention.hooks import AttentionHook
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.observe.layers import calls_the_interface

__all__ = ["attach_hooks"]


@contextmanager
def attach_hooks(hooks: Mapping[nn.Module, AttentionHook]) -> Iterator[None]:
    """Attach one hook to each of these attention layers inside the `with`.

    Hooks that were there stay; `attention/hooks.py` says in which order they run.
    """
    ours = {m: hook for m, hook in hooks.items() if isinstance(m, MultiHeadAttention)}
    theirs = {m: hook for m, hook in hooks.items() if calls_the_interface(m)}
    others = {m: hook for m, hook in hooks.items() if m not in ours and m not in theirs}
    try:
        with ExitStack() as stack:
            for module, hook in ours.items():
                module.hooks = (*module.hooks, hook)
            if theirs:
                from glasshead.observe.transformers_hooks import attach_transformers_hooks

                stack.enter_context(attach_transformers_hooks(theirs))
            if others:
                from glasshead.observe.operation_hooks import attach_operation_hooks

                stack.enter_context(attach_operation_hooks(others))
            yield
    finally:
        for module, hook in ours.items():
            module.hooks = tuple(one for one in module.hooks if one is not hook)
