"""Compare two models, or one before and after it was trained on: which heads changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from glasshead.errors import InputError
from glasshead.observe.wording import Language
from glasshead.roles.naming import HeadRoles
from glasshead.roles.proof import Head
from glasshead.roles.tables import borderless, name_of
from glasshead.roles.wording import NAMES, TEXTS

__all__ = ["Change", "change_lines", "changes", "changes_as_json"]


@dataclass(frozen=True)
class Change:
    """A role that a head has in one of the models, and not in the other."""

    head: Head
    role: str
    before: float  # scores
    after: float
    appeared: bool  # else it vanished


def changes(before: HeadRoles, after: HeadRoles) -> list[Change]:
    """Return the changes, the largest first."""
    if before.shape != after.shape or before.measured.layers != after.measured.layers:
        raise InputError(
            f"{before.name} has {before.shape[0]} x {before.shape[1]} heads, {after.name} "
            f"{after.shape[0]} x {after.shape[1]}",
            hint="compare two models of one shape, such as before and after fine-tuning",
        )
    found = []
    for role in before.measured.roles:
        if role not in after.measured.roles:
            continue
        was, now = set(before.heads(role)), set(after.heads(role))
        for head in sorted(was ^ now):
            scores = before.role(role, head).score, after.role(role, head).score
            found.append(Change(head, role, *scores, head in now))
    return sorted(found, key=lambda one: -abs(one.after - one.before))


def changes_as_json(before: HeadRoles, after: HeadRoles) -> dict[str, Any]:
    return {
        "before": before.name,
        "after": after.name,
        "changes": [
            {"head": list(one.head), "role": one.role, "before": one.before, "after": one.after,
             "appeared": one.appeared}
            for one in changes(before, after)
        ],
    }  # fmt: skip


def change_lines(before: HeadRoles, after: HeadRoles, lang: Language) -> Iterator[RenderableType]:
    words, found = TEXTS[lang], changes(before, after)
    yield Text(f"{before.name} → {after.name}")
    yield ""
    if not found:
        yield Text(words["same"])
        return
    yield Text(words["changed"], style="bold")
    table = borderless(words["layer × head"], words["role"], words["score"], "", right=(2,))
    for one in found:
        table.add_row(
            name_of(one.head), NAMES[lang][one.role], f"{one.before:.2f} → {one.after:.2f}",
            words["appeared" if one.appeared else "vanished"],
        )  # fmt: skip
    yield table
