"""What an object keeps between calls: the arguments of a cache, and reading token by token."""

import re
from collections.abc import Mapping
from typing import Any

from glasshead.lab.check.roles import words_of
from glasshead.lab.check.target import CheckTarget

__all__ = ["CallError", "cache_flags", "can_reset", "pieces", "reads_by_token", "reset",
           "returned_cache"]  # fmt: skip

RESETS = ("reset", "reset_cache", "clear_cache", "reset_state", "clear")


class CallError(Exception):
    """The target cannot be called so: `cause` is its own error, or None if the result is odd."""

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.cause = cause


def can_reset(target: CheckTarget) -> bool:
    return any(callable(getattr(target.owner, name, None)) for name in RESETS)


def reset(target: CheckTarget) -> None:
    """Empty what an object keeps, if it has a method for that."""
    for name in RESETS:
        if callable(method := getattr(target.owner, name, None)):
            method()


def reads_by_token(target: CheckTarget) -> bool:
    """Say whether an object may be one that reads a token a call and keeps keys and values."""
    roles = {each.role for each in target.parameters}
    if target.owner is None or roles & {"cache", "uses_cache", "k", "memory"}:
        return False
    return bool(re.search(r"cache|past|decod|step|state", target.text, re.I))


def cache_flags(target: CheckTarget, past: int) -> dict[str, Any]:
    """Return the arguments that turn a cache on, and where the new tokens stand."""
    out: dict[str, Any] = {}
    for each in target.parameters:
        if each.role == "uses_cache":
            out[each.name] = True
        elif words_of(each.name) in ("startpos", "offset", "inputpos"):
            out[each.name] = past
    return out


def pieces(past: int) -> list[tuple[int, int]]:
    """Return where to cut what is read before: a cache must also grow."""
    return [(0, past)] if past < 2 else [(0, past - 1), (past - 1, past)]


def returned_cache(target: CheckTarget, raw: Any) -> dict[str, Any]:
    """Return the arguments for the next call, found in what a call returned."""
    names = [each.name for each in target.parameters if each.role == "cache"]
    if not names:
        return {}
    if isinstance(raw, Mapping):
        rest = [value for name, value in raw.items() if words_of(name) in map(words_of, names)]
    else:
        rest = [each for each in raw[1:] if each is not None] if isinstance(raw, tuple) else []
    whole = [each for each in rest if not hasattr(each, "shape")]
    values = rest[-len(names) :] if len(names) > 1 else whole[-1:] or [tuple(rest)][: len(rest)]
    if len(values) != len(names):
        raise CallError("it returns no cache")
    return dict(zip(names, values, strict=True))
