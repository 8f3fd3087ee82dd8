"""Replies in the format of the OpenAI API: in one piece, or in chunks."""

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from glasshead.serve.library import ServedModel
from glasshead.serve.token_buffer import Token
from glasshead.text.tokenizer import Tokenizer

__all__ = ["ChatReply", "CompletionReply", "Reply"]

LEAST = -9999.0  # stands for log(0), which JSON cannot represent

Json = dict[str, Any]


class Reply(ABC):
    """One answer or several, each with its index."""

    name: ClassVar[str]  # the prefix of its id
    kind: ClassVar[str]
    chunk_kind: ClassVar[str]

    def __init__(self, served: ServedModel, logprobs: bool) -> None:
        assert served.run is not None
        self.tokenizer: Tokenizer = served.run.tokenizer
        self._logprobs = logprobs
        self._head = {
            "id": f"{self.name}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": served.entry.id,
            "system_fingerprint": f"fp_{served.stamp}",
        }

    def whole(self, answers: Sequence[Sequence[Token]], usage: Json) -> Json:
        choices = [
            self._choice(index, self._message(index, "".join(t.text for t in tokens)), tokens, 0)
            for index, tokens in enumerate(answers)
        ]
        return {**self._head, "object": self.kind, "choices": choices, "usage": usage}

    def opening(self, index: int) -> Json | None:
        """Return the chunk before the first token of an answer, if there is one."""
        delta = self._first_delta(index)
        return None if delta is None else self._chunk(self._choice(index, delta, [], 0))

    def chunk(self, index: int, token: Token, start: int) -> Json:
        """Return the chunk of a token, whose text begins at `start` of its answer."""
        return self._chunk(self._choice(index, self._delta(token), [token], start))

    def usage(self, usage: Json) -> Json:
        """Return the chunk with the numbers of tokens."""
        return {**self._chunk(), "usage": usage}

    def _chunk(self, *choices: Json) -> Json:
        return {**self._head, "object": self.chunk_kind, "choices": list(choices)}

    def _choice(self, index: int, text: Json, tokens: Sequence[Token], start: int) -> Json:
        real = [token for token in tokens if token.id is not None]
        return {
            "index": index,
            **text,
            "logprobs": self._log_probs(real, start) if self._logprobs and real else None,
            "finish_reason": tokens[-1].finish if tokens else None,
        }

    @abstractmethod
    def _message(self, index: int, text: str) -> Json: ...

    @abstractmethod
    def _first_delta(self, index: int) -> Json | None: ...

    @abstractmethod
    def _delta(self, token: Token) -> Json: ...

    @abstractmethod
    def _log_probs(self, tokens: Sequence[Token], start: int) -> Json: ...

    def _bytes(self, number: int) -> bytes:
        """Return the bytes of a token; of a special token, its name."""
        names = [name for name, special in self.tokenizer.specials.items() if special == number]
        if names:
            return names[0].encode()
        return self.tokenizer.token_bytes(number) if number < self.tokenizer.vocab_size else b""


class CompletionReply(Reply):
    name, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, served: ServedModel, logprobs: bool, echo: Sequence[str]) -> None:
        super().__init__(served, logprobs)
        self._echo = echo  # the prompt of each answer, or an empty text

    def _message(self, index: int, text: str) -> Json:
        return {"text": self._echo[index] + text}

    def _first_delta(self, index: int) -> Json | None:
        return {"text": self._echo[index]} if self._echo[index] else None

    def _delta(self, token: Token) -> Json:
        return {"text": token.text}

    def _log_probs(self, tokens: Sequence[Token], start: int) -> Json:
        offsets = [start]
        for token in tokens[:-1]:
            offsets.append(offsets[-1] + len(token.text))
        return {
            "tokens": [self._name(token.id) for token in tokens],
            "token_logprobs": [_finite(token.logprob) for token in tokens],
            "top_logprobs": [
                {self._name(number): _finite(p) for number, _, p in token.alternatives}
                for token in tokens
            ],
            "text_offset": offsets,
        }

    def _name(self, number: int | None) -> str:
        """Return the text of a token; part of a character as bytes, so that names differ."""
        assert number is not None
        data = self._bytes(number)
        try:
            return data.decode() or f"<{number}>"
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


class ChatReply(Reply):
    name, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def _message(self, index: int, text: str) -> Json:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def _first_delta(self, index: int) -> Json | None:
        return {"delta": {"role": "assistant", "content": ""}}

    def _delta(self, token: Token) -> Json:
        return {"delta": {"content": token.text} if token.text or token.id is not None else {}}

    def _log_probs(self, tokens: Sequence[Token], start: int) -> Json:
        content = []
        for token in tokens:
            others = [self._entry(number, p) for number, _, p in token.alternatives]
            assert token.id is not None
            content.append({**self._entry(token.id, token.logprob), "top_logprobs": others})
        return {"content": content, "refusal": None}

    def _entry(self, number: int, logprob: float) -> Json:
        data = self._bytes(number)
        text = data.decode("utf-8", "replace")
        return {"token": text, "logprob": _finite(logprob), "bytes": list(data)}


def _finite(logprob: float) -> float:
    return max(logprob, LEAST)
