"""Attach hooks to the attention of a model, ours or one of `transformers`, for a while."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import nn

from glasshead.attention.hooks import AttentionHook
from glasshead.attention.multihead import MultiHeadAttention

__all__ = ["attach_hooks"]


@contextmanager
def attach_hooks(hooks: Mapping[nn.Module, AttentionHook]) -> Iterator[None]:
    """Attach one hook to each of these attention layers inside the `with`.

    Hooks that were there stay; `attention/hooks.py` says in which order they run.
    """
    ours = {m: hook for m, hook in hooks.items() if isinstance(m, MultiHeadAttention)}
    theirs = {m: hook for m, hook in hooks.items() if not isinstance(m, MultiHeadAttention)}
    try:
        for module, hook in ours.items():
            module.hooks = (*module.hooks, hook)
        if theirs:
            from glasshead.observe.transformers_hooks import attach_transformers_hooks

            with attach_transformers_hooks(theirs):
                yield
        else:
            yield
    finally:
        for module, hook in ours.items():
            module.hooks = tuple(one for one in module.hooks if one is not hook)
