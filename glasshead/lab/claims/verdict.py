"""The verdict on a claim."""

from collections.abc import Sequence
from enum import StrEnum

from glasshead.lab.texts import Words

__all__ = [
    "CANNOT_TELL",
    "HOLDS_WHEN",
    "POSITIVE",
    "UNSURE",
    "VERDICTS",
    "Verdict",
    "combine_verdicts",
    "judge_cases",
    "not_learned",
]


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
CANNOT_TELL = Words("cannot tell: {why}", "无法判断：{why}")
UNSURE = Words("the intervals contain a threshold", "区间跨过门槛")
NOT_LEARNED = Words("{side} did not learn its own task", "{side}没有学会自己的任务")


def not_learned(side: Words) -> Words:
    """Return the reason why one cannot tell where a side learned nothing to compare.

    >>> not_learned(Words("the LSTM", "LSTM ")).en
    'the LSTM did not learn its own task'
    """
    return NOT_LEARNED.format(side=side)


def judge_cases(holds: Sequence[bool | None], refuted: bool = False) -> Verdict:
    """Judge a claim by whether it holds in each case: None where one cannot tell.

    It holds only in some cases if it clearly does not hold in another one. Where no case is
    positive and `refuted` says more than the cases do, the claim fails.

    >>> judge_cases([True, None, False]), judge_cases([True, None])
    (<Verdict.HOLDS_WHEN: 'holds only when'>, <Verdict.UNCLEAR: 'cannot tell'>)
    """
    if all(holds):
        return Verdict.HOLDS
    if any(holds):
        return Verdict.HOLDS_WHEN if False in holds else Verdict.UNCLEAR
    return Verdict.FAILS if refuted or None not in holds else Verdict.UNCLEAR


def combine_verdicts(verdicts: Sequence[Verdict]) -> Verdict:
    """Combine the verdicts of several tasks.

    >>> combine_verdicts([Verdict.HOLDS, Verdict.FAILS])
    <Verdict.HOLDS_WHEN: 'holds only when'>
    """
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return Verdict.UNCLEAR if POSITIVE.isdisjoint(verdicts) else Verdict.HOLDS_WHEN
