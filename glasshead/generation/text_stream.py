"""Turn ids into text as they arrive: whole characters, and nothing of a stop string."""

from collections.abc import Sequence

from glasshead.errors import ConfigError
from glasshead.text.tokenizer import StreamDecoder, Tokenizer

__all__ = ["TextStream"]


class TextStream:
    """The text of ids as they arrive, up to the first stop string that is complete.

    What might be the start of a stop string is held back until it is clear that it is not.

    >>> from glasshead.text.tokenizer import ByteTokenizer
    >>> text = TextStream(ByteTokenizer(), stop=["END"])
    >>> [text.push(token) for token in b"the ENd, EN"]
    ['t', 'h', 'e', ' ', '', '', 'ENd', ',', ' ', '', '']
    >>> text.push(ord("D")), text.done
    ('', True)
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        if "" in stop:
            raise ConfigError("a stop string is empty", hint="leave it out to never stop")
        self.done = False  # whether a stop string is complete
        self.piece = ""  # what the last id decoded to, held back or not
        self.released = 0  # characters returned so far
        self.stop = tuple(stop)
        self._decoder = StreamDecoder(tokenizer)
        self._held = ""

    def push(self, token: int) -> str:
        """Add an id; return the text that is certain now."""
        self.piece = self._decoder.push(token)
        return self._release(self.piece)

    def flush(self) -> str:
        """Return what was held back, when no more ids come; half a character is dropped."""
        self.released += len(self._held)
        text, self._held = self._held, ""
        return text

    def _release(self, new: str) -> str:
        if self.done:
            return ""
        if self.stop:
            new = self._hold_back(self._held + new)
        self.released += len(new)
        return new

    def _hold_back(self, text: str) -> str:
        """Return the start of the text that is certain, and hold back the rest."""
        self._held = ""
        found = [(text.find(stop) + len(stop), stop) for stop in self.stop if stop in text]
        if found:
            # The first to be complete, however the text came in parts; of two, the longer.
            end = min(end for end, _ in found)
            longest = max(len(stop) for at, stop in found if at == end)
            self.done = True
            return text[: end - longest]
        keep = max(_overlap(text, stop) for stop in self.stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Count how many last characters of the text could be the first of the stop string."""
    most = min(len(text), len(stop) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(stop[:n])), 0)
