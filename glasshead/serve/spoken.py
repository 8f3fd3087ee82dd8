"""Ids become tokens with their text, once it is certain that they are part of the answer.

With stop strings, a token waits while its text may be the start of one: nothing of a stop string is
ever told, neither its text nor its ids. The texts of all tokens together are the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from glasshead.generation.stream import TextStream
from glasshead.text.tokenizer import StreamDecoder, Tokenizer

__all__ = ["Spoken", "Token"]


@dataclass(frozen=True)
class Token:
    """One token of an answer. The last has no id: it tells how the answer ended."""

    id: int | None
    text: str = ""  # what it adds: whole characters, so nothing while one is not complete
    logprob: float = 0.0  # by the model as it is, however it was sampled
    alternatives: tuple[tuple[int, str, float], ...] = ()  # id, text, logprob; the best first
    finish: Literal["stop", "length"] | None = None


class Spoken:
    """
    >>> from glasshead.text.tokenizer import ByteTokenizer
    >>> spoken = Spoken(ByteTokenizer(), stop=["END"])
    >>> [[token.text for token in spoken.push(Token(byte))] for byte in b"a ENd"]
    [['a'], [' '], [], [], ['E', 'N', 'd']]
    >>> [spoken.push(Token(byte)) for byte in b"END"], spoken.done
    ([[], [], []], True)
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._text, self._decoder = TextStream(tokenizer, stop), StreamDecoder(tokenizer)
        self._wary = bool(stop)
        self._held: list[tuple[Token, int]] = []  # with where their texts end
        self._decoded = self._certain = 0  # characters

    @property
    def done(self) -> bool:
        """Whether a stop string is complete."""
        return self._text.done

    def push(self, token: Token) -> list[Token]:
        """The tokens that are certain now."""
        assert token.id is not None
        piece = self._decoder.push(token.id)
        self._certain += len(self._text.push(token.id))
        self._decoded += len(piece)
        self._held.append((replace(token, text=piece), self._decoded))
        return self._cut() if self.done else self._released()

    def end(self) -> tuple[list[Token], str]:
        """All that is left when no more ids come, and what then stands for half a character."""
        self._certain += len(self._text.flush())
        rest = self._decoder.flush()
        if self.done:
            return self._cut(), ""
        held, self._held = self._held, []
        return [token for token, _ in held], rest

    def _released(self) -> list[Token]:
        free = 0
        for number, (token, end) in enumerate(self._held, 1):
            # Half a character may be the start of a stop string too.
            if end <= self._certain and (token.text or not self._wary):
                free = number
        free_now, self._held = self._held[:free], self._held[free:]
        return [token for token, _ in free_now]

    def _cut(self) -> list[Token]:
        """Those before the stop string, the last perhaps shortened."""
        kept = []
        for token, end in self._held:
            start = end - len(token.text)
            if start < self._certain:
                kept.append(replace(token, text=token.text[: self._certain - start]))
        self._held = []
        return kept
