"""Hooks that tests attach to attention."""

from collections.abc import Callable

from torch import Tensor

from glasshead.attention.hooks import AttentionCall, AttentionHook


class Keep(AttentionHook):
    """Adds each call to a list, which several hooks may share."""

    def __init__(self, calls: list[AttentionCall]) -> None:
        self.calls = calls

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        self.calls.append(call)
        return context


class Replace(AttentionHook):
    """Replaces the context by what a function of the call gives."""

    def __init__(self, replacement: Callable[[AttentionCall], Tensor]) -> None:
        self.replacement = replacement

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        return self.replacement(call)
