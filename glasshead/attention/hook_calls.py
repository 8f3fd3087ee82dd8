"""Run hooks, outside of compiled code.

Apart from `hooks.py` because `torch.compiler.disable` imports torch's compiler: it takes a second,
and a model without hooks does not need it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from glasshead.attention.hooks import AttentionCall, AttentionHook, PendingCall

__all__ = ["hidden_by", "run_hooks"]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def run_hooks(hooks: Sequence[AttentionHook], call: AttentionCall) -> Tensor:
    """Show a finished call to all hooks; return the context that goes on."""
    for hook in hooks:
        call = hook.edit(call)
    context = call.context
    for hook in hooks:
        context = hook.after(call, context)
    return context


@torch.compiler.disable  # type: ignore[untyped-decorator]
def hidden_by(hooks: Sequence[AttentionHook], call: PendingCall) -> Tensor | None:
    """The pairs that any of the hooks hides; None if there are none."""
    found = None
    for hook in hooks:
        one = hook.hidden(call)
        if one is not None:
            found = one if found is None else found | one
    return found
