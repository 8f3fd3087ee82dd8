"""Generated ids become text as they arrive: whole characters, and nothing of a stop string.

prompts = [tokenizer.encode_ids("春江").tolist()]
for piece in stream(model, tokenizer, prompts, max_tokens=100, stop=["。"]):
    print(piece.text, end="", flush=True)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from glasshead.errors import ConfigError
from glasshead.generation.decode import PlainDecoder, check_max_tokens
from glasshead.generation.graphed import new_decoder
from glasshead.generation.sampling import PLAIN, SamplingConfig
from glasshead.model.gpt import GPT
from glasshead.text.tokenizer import StreamDecoder, Tokenizer

__all__ = ["TextPiece", "TextStream", "start_ids", "stream"]


@dataclass(frozen=True)
class TextPiece:
    """What one new id adds to one text; often nothing yet."""

    row: int
    text: str
    finish: Literal["stop", "length"] | None = None  # set on the last piece of a text


def stream(
    model: GPT,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    config: SamplingConfig = PLAIN,
    *,
    max_tokens: int,
    stop: Sequence[str] = (),
    seed: int = 0,
) -> Iterator[TextPiece]:
    """The continuations of all prompts, a piece for each text and step.

    A text ends after `max_tokens` ids ("length"), before a stop string, or at an id that stands
    for no text: a special such as <eos>, or one beyond the tokenizer's vocabulary ("stop").
    """
    check_max_tokens(max_tokens)
    silent = {*tokenizer.specials.values()}
    silent.update(range(tokenizer.vocab_size, model.config.vocab_size))
    decoder = new_decoder(model, prompts, config, max_tokens=max_tokens, stop_ids=silent, seed=seed)
    return _pieces(decoder, [TextStream(tokenizer, stop) for _ in prompts], max_tokens)


def _pieces(
    decoder: PlainDecoder, texts: list["TextStream"], max_tokens: int
) -> Iterator[TextPiece]:
    for count in range(1, max_tokens + 1):
        live = tuple(decoder.live)
        if not live:
            return
        step = decoder.step()
        for row in live:
            token, text = step[row], texts[row]
            new = text.flush() if token is None else text.push(token)
            if token is None:
                yield TextPiece(row, new, "stop")
            elif text.done:
                decoder.finish(row)
                yield TextPiece(row, new, "stop")
            elif count == max_tokens:
                new += text.flush()
                yield TextPiece(row, new, "stop" if text.done else "length")
            else:
                yield TextPiece(row, new)


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
        self.done = False
        self._decoder = StreamDecoder(tokenizer)
        self._stop = tuple(stop)
        self._held = ""

    def push(self, token: int) -> str:
        """The text that is certain now."""
        return self._add(self._decoder.push(token))

    def flush(self) -> str:
        """What is left when no more ids come."""
        text = self._add(self._decoder.flush())
        rest, self._held = self._held, ""
        return text + rest

    def _add(self, new: str) -> str:
        text, self._held = self._held + new, ""
        if self.done:
            return ""
        found = [(text.find(stop) + len(stop), stop) for stop in self._stop if stop in text]
        if found:
            # The first to be complete, however the text came in parts; of two, the longer.
            end = min(end for end, _ in found)
            longest = max(len(stop) for at, stop in found if at == end)
            self.done = True
            return text[: end - longest]
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """How many last characters of the text could be the first of the stop string."""
    most = min(len(text), len(stop) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(stop[:n])), 0)


def start_ids(tokenizer: Tokenizer) -> list[int]:
    """What an empty prompt starts from.

    <bos>, <eos> or <|endoftext|>, whichever the tokenizer has; else a line end; else its first id.
    """
    for name in ("<bos>", "<eos>", "<|endoftext|>"):
        if name in tokenizer.specials:
            return [tokenizer.specials[name]]
    newline = (i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == b"\n")
    return [next(newline, 0)]
