"""The roles that heads are named for.

To add a role: a `Role` here, its score in `measure.py` (a pure function of `scores.py`), and its
words in `wording.py`. Thresholds were fixed before any model of docs/results.md was measured.
"""

from dataclasses import dataclass

__all__ = ["PROBES", "ROLES", "Role"]

PROBES = ("text", "repeat", "list", "needle", "story")  # the texts of probes.py


@dataclass(frozen=True)
class Role:
    """What a head may be called, and what that takes.

    A head is named if its score reaches `least` and lies above each control, with the whole
    interval over sequences. The name is proved if the model gets worse on a probe without the named
    heads than without as many others. What a model needs a previous token for may be repeats only.
    """

    name: str
    measured_on: str  # the probe on which the score is measured
    proved_on: tuple[str, ...]  # probes: the loss on one of them must rise without the heads
    least: float  # the lowest score that is named
    within: tuple[str, ...] = ()  # more exact roles: a head that has one of them is not named
    common: bool = False  # heads of untrained models look like this: named only with a proof


NEARER = ("previous", "self", "lag", "sink")

ROLES = {
    role.name: role
    for role in (
        Role("sink", "text", ("text",), 0.5),
        Role("previous", "text", ("text", "repeat"), 0.4),
        Role("self", "text", ("text",), 0.4),
        Role("lag", "text", ("text",), 0.25),
        Role("local", "text", ("text",), 0.6, NEARER, common=True),  # of ALiBi, for one
        Role("separator", "text", ("text",), 0.3),
        Role("broad", "text", ("text",), 0.8, common=True),
        Role("duplicate", "list", ("list", "repeat"), 0.2),
        Role("induction", "repeat", ("repeat",), 0.2),
        Role("copying", "repeat", ("list", "repeat"), 0.5),
        Role("retrieval", "needle", ("needle",), 0.2),
        Role("query", "needle", ("needle",), 0.2),
        Role("referent", "story", ("story",), 0.2),
    )
}
