"""Hold back the tokens of an answer until it is certain that they are part of it.

With stop strings, a token waits while its text may be the start of one: neither the text nor the
ids of a stop string reach the client. The texts of all tokens together are the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from glasshead.generation.text_state import Finish
from glasshead.generation.text_stream import TextStream
from glasshead.text.tokenizer import Tokenizer

__all__ = ["Token", "TokenBuffer"]


@dataclass(slots=True)
class Token:
    """One token of an answer. The last has no id: it says how the answer ended."""

    id: int | None
    text: str = ""  # what it adds: whole characters, so nothing while one is not complete
    logprob: float | None = 0.0  # by the model as it is, however it was sampled
    alternatives: tuple[tuple[int, str, float], ...] = ()  # id, text, logprob; the best first
    finish: Finish | None = None
    end_id: int | None = None  # the end id that ended the answer; it adds no text


class TokenBuffer:
    """The tokens that are not certain yet.

    `stream` decodes the ids: give it each id, or the end, before the buffer.

    >>> from glasshead.text.tokenizer import ByteTokenizer
    >>> buffer = TokenBuffer(ByteTokenizer(), stop=["END"])
    >>> def push(byte):
    ...     buffer.stream.push(byte)
    ...     return [token.text for token in buffer.push(Token(byte))]
    >>> [push(byte) for byte in b"a ENd"]
    [['a'], [' '], [], [], ['E', 'N', 'd']]
    >>> [push(byte) for byte in b"END"], buffer.stream.done
    ([[], [], []], True)
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self.stream = TextStream(tokenizer, stop)
        self._held: list[tuple[Token, int]] = []  # with where their texts end
        self._decoded = 0  # characters

    def push(self, token: Token) -> list[Token]:
        """Add the token that the stream decoded last. Return the tokens that are certain now."""
        token.text = self.stream.piece
        if not self.stream.stop:
            return [token]
        self._decoded += len(token.text)
        self._held.append((token, self._decoded))
        if self.stream.done:
            return self._cut()
        certain = 0
        for number, (held, end) in enumerate(self._held, 1):
            # Part of a character may be the start of a stop string, too.
            if end <= self.stream.released and held.text:
                certain = number
        released, self._held = self._held[:certain], self._held[certain:]
        return [token for token, _ in released]

    def end(self, finish: Finish) -> list[Token]:
        """Return all that is left when no more ids come."""
        if self.stream.done:
            return [*self._cut(), Token(None, finish=finish)]
        held, self._held = self._held, []
        return [*(token for token, _ in held), Token(None, finish=finish)]

    def _cut(self) -> list[Token]:
        """Return the tokens before the stop string, the last perhaps shortened."""
        tokens = []
        for token, end in self._held:
            start = end - len(token.text)
            if start < self.stream.released:
                tokens.append(replace(token, text=token.text[: self.stream.released - start]))
        self._held = []
        return tokens
