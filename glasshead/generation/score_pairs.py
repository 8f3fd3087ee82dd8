"""Compare translations with reference translations: BLEU and chrF, by sacrebleu.

A score means something only with its signature, which says how it was computed. Chinese is
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
    score: float  # 0 to 100
    signature: str


def measures(translations: Sequence[str], references: Sequence[str]) -> list[Measure]:
    """Return BLEU, BLEU of lowercased texts, and chrF.

    >>> [(one.name, round(one.score)) for one in measures(["the dog is here"], ["The dog is here"])]
    [('BLEU', 59), ('BLEU lowercased', 100), ('chrF', 89)]
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if len(translations) != len(references) or not translations:
        raise InputError(
            f"there are {len(translations)} translations and {len(references)} references",
            hint="give one reference for each translation, and at least one",
        )
    tokenize = bleu_words(references)
    found = []
    for name, metric in (
        ("BLEU", BLEU(tokenize=tokenize)),
        ("BLEU lowercased", BLEU(tokenize=tokenize, lowercase=True)),
        ("chrF", CHRF()),
    ):
        score = metric.corpus_score(list(translations), [list(references)]).score
        found.append(Measure(name, float(score), str(metric.get_signature())))
    return found
