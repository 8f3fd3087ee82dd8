"""How close translations come to those of people: BLEU and chrF, by sacrebleu.

A figure means something only with its signature, which says how it was computed. Chinese is
compared character by character, other languages by the words of the 13a tokenizer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from glasshead.errors import InputError
from glasshead.text.pairs import bleu_words

__all__ = ["Measure", "measures"]


@dataclass(frozen=True)
class Measure:
    name: str
    score: float  # of 100
    signature: str


def measures(said: Sequence[str], wanted: Sequence[str]) -> list[Measure]:
    """BLEU as it is written, BLEU in small letters, and chrF.

    >>> [(one.name, round(one.score)) for one in measures(["the dog is here"], ["The dog is here"])]
    [('BLEU', 59), ('BLEU lowercased', 100), ('chrF', 89)]
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if len(said) != len(wanted) or not said:
        raise InputError(
            f"{len(said)} translations cannot be compared with {len(wanted)}",
            hint="give as many of one as of the other, and at least one",
        )
    tokenize = bleu_words(wanted)
    found = []
    for name, metric in (
        ("BLEU", BLEU(tokenize=tokenize)),
        ("BLEU lowercased", BLEU(tokenize=tokenize, lowercase=True)),
        ("chrF", CHRF()),
    ):
        score = metric.corpus_score(list(said), [list(wanted)]).score
        found.append(Measure(name, float(score), str(metric.get_signature())))
    return found
