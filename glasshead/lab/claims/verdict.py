"""The verdict on a claim."""

from collections.abc import Sequence
from enum import StrEnum

from glasshead.lab.texts import Words

__all__ = ["HOLDS_WHEN", "POSITIVE", "VERDICTS", "Verdict", "combine_verdicts", "judge_cases"]


class Verdict(StrEnum):
    HOLDS = "holds"
    HOLDS_WHEN = "holds only when"
    FAILS = "does not hold"
    UNCLEAR = "cannot tell"


POSITIVE = frozenset({Verdict.HOLDS, Verdict.HOLDS_WHEN})
VERDICTS = {
    Verdict.HOLDS: Words("holds", "成立"),
    Verdict.HOLDS_WHEN: Words("holds only when …", "仅在……时成立"),
    Verdict.FAILS: Words("does not hold", "不成立"),
    Verdict.UNCLEAR: Words("cannot tell", "无法判断"),
}

HOLDS_WHEN = Words("holds only when {when}", "仅在{when}时成立")


def judge_cases(holds: Sequence[bool], refuted: bool) -> Verdict:
    """Judge a claim by whether it holds in each case, or else is refuted.

    >>> judge_cases([True, False], refuted=False)
    <Verdict.HOLDS_WHEN: 'holds only when'>
    """
    if all(holds):
        return Verdict.HOLDS
    if any(holds):
        return Verdict.HOLDS_WHEN
    return Verdict.FAILS if refuted else Verdict.UNCLEAR


def combine_verdicts(verdicts: Sequence[Verdict]) -> Verdict:
    """Combine the verdicts of several tasks.

    >>> combine_verdicts([Verdict.HOLDS, Verdict.FAILS])
    <Verdict.HOLDS_WHEN: 'holds only when'>
    """
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return Verdict.UNCLEAR if POSITIVE.isdisjoint(verdicts) else Verdict.HOLDS_WHEN
