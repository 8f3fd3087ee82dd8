"""What is asked: why a model gives this token there."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glasshead.errors import InputError
from glasshead.model.transformer import Reader
from glasshead.observe.words import single_tokens, visible
from glasshead.roles.subject import Subject

__all__ = ["Question", "answer_logits", "make_question", "token_text"]

PRONOUNS = ("它", "他", "她", "it", "he", "she", "er", "sie", "es")  # of the embedded world


@dataclass(frozen=True, eq=False)
class Question:
    """A text, a row of its logits, and the token that is asked about."""

    ids: Tensor  # (1, T)
    at: int  # the row: for a language model the token before the answer
    answer: int  # id
    against: int | None  # id of the answer that it is compared with
    tokens: tuple[str, ...]  # as they are shown

    @property
    def wanted(self) -> tuple[int, ...]:
        return (self.answer,) if self.against is None else (self.answer, self.against)


def make_question(
    subject: Subject,
    text: str,
    answer: str | None = None,
    against: str | None = None,
    at: int | str | None = None,
) -> Question:
    """Read a text and find out what is asked.

    Args:
        answer: the token that is explained, the first one of a longer text; what the model
            finds most probable when None.
        against: the token that it is compared with: then differences of logits are explained.
        at: the row, as a number or as the token that is there (its last place); when None the last
            row, or the last pronoun that a reader reads.
    """
    ids = [*subject.before, *subject.encode(text), *subject.after]
    if not ids:
        raise InputError("there is no text to explain", hint="give at least one word")
    if subject.limit is not None and len(ids) > subject.limit:
        raise InputError(
            f"the text has {len(ids)} tokens, but {subject.name} reads {subject.limit}",
            hint="give a shorter text",
        )
    names = tuple(visible(word.text) for word in single_tokens(subject.decode(ids)))
    row = _find_row(names, _last_pronoun(subject, names) if at is None else at)
    made = Question(torch.tensor([ids], device=subject.device), row, 0, None, names)
    with torch.no_grad():
        best = int(answer_logits(subject, made).argmax())
    chosen = best if answer is None else _first_token(subject, answer)
    other = None if against is None else _first_token(subject, against)
    if other == chosen:
        raise InputError(
            f"both answers begin with the token {token_text(subject, chosen)!r}",
            hint="give --answer and --against that differ in their first token",
        )
    return replace(made, answer=chosen, against=other)


def answer_logits(subject: Subject, question: Question) -> Tensor:
    """Return the logits of all tokens at the row that is asked about, (V,)."""
    return subject.logits_at(question.ids, question.at)[0]


def token_text(subject: Subject, token: int) -> str:
    return visible(single_tokens(subject.decode([token]))[0].text)


def _first_token(subject: Subject, text: str) -> int:
    """Return the first token of an answer, as it would stand inside of a text."""
    ids = subject.encode(text)
    if not ids:
        raise InputError(f"the answer {text!r} has no token", hint="name a word")
    return ids[0]


def _last_pronoun(subject: Subject, names: tuple[str, ...]) -> int | None:
    """Return where a reader answers; None for other models."""
    if not isinstance(subject.model, Reader):
        return None
    return max(
        (i for i, name in enumerate(names) if name.strip().lower() in PRONOUNS), default=None
    )


def _find_row(names: tuple[str, ...], at: int | str | None) -> int:
    if at is None:
        return len(names) - 1
    if isinstance(at, str) and not at.lstrip("-").isdecimal():
        found = [i for i, name in enumerate(names) if name.strip() == at.strip()]
        if not found:
            raise InputError(f"{at!r} is no token of the text", hint=f"it has {len(names)} tokens")
        return found[-1]
    number = int(at)
    if not -len(names) <= number < len(names):
        raise InputError(
            f"the text has no token {number}", hint=f"tokens are 0 to {len(names) - 1}"
        )
    return number % len(names)
