"""Run hooks outside of compiled code.

Separate from `hooks.py` because `torch.compiler.disable` imports torch's compiler, which takes a
second and is not needed by a model without hooks.
"""

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from glasshead.attention.hooks import AttentionCall, AttentionHook, PendingCall

__all__ = ["hidden_pairs", "run_hooks"]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def run_hooks(hooks: Sequence[AttentionHook], call: AttentionCall) -> Tensor:
    """Call all hooks with a finished call; return the context to continue with."""
    for hook in hooks:
        call = hook.edit(call)
    context = call.context
    for hook in hooks:
        context = hook.after(call, context)
    return context


@torch.compiler.disable  # type: ignore[untyped-decorator]
def hidden_pairs(hooks: Sequence[AttentionHook], call: PendingCall) -> Tensor | None:
    """Return the pairs that any of the hooks hides; None if no hook hides any."""
    masks = [mask for hook in hooks if (mask := hook.hidden(call)) is not None]
    return reduce(torch.logical_or, masks) if masks else None
