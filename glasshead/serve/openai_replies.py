"""Replies in the format of the OpenAI API: in one piece, or in chunks."""

import itertools
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from glasshead.serve.library import ServedModel
from glasshead.serve.token_buffer import Token
from glasshead.text.tokenizer import Tokenizer

__all__ = ["ChatReply", "CompletionReply", "Echo", "Reply"]

LEAST = -9999.0  # stands for log(0), which JSON cannot represent

Json = dict[str, Any]


class Echo(NamedTuple):
    """A prompt that is repeated before its answer."""

    text: str = ""
    tokens: Sequence[Token] = ()  # if their log-probabilities are asked for


NO_ECHO = Echo()


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
            self._choice(
                index,
                self._message(index, "".join(token.text for token in tokens)),
                [*self.echo(index).tokens, *tokens],
                0,
            )
            for index, tokens in enumerate(answers)
        ]
        return {**self._head, "object": self.kind, "choices": choices, "usage": usage}

    def opening(self, index: int) -> Json | None:
        """Return the chunk before the first token of an answer, if there is one."""
        delta = self._first_delta(index)
        if delta is None:
            return None
        return self._chunk(self._choice(index, delta, self.echo(index).tokens, 0))

    def echo(self, index: int) -> Echo:
        return NO_ECHO

    def chunk(self, index: int, token: Token, start: int) -> Json:
        """Return the chunk of a token, whose text begins at `start` of the echo and the answer."""
        return self._chunk(self._choice(index, self._delta(token), [token], start))

    def usage(self, usage: Json) -> Json:
        """Return the chunk with the numbers of tokens."""
        return {**self._chunk(), "usage": usage}

    def _chunk(self, *choices: Json) -> Json:
        return {**self._head, "object": self.chunk_kind, "choices": list(choices)}

    def _choice(self, index: int, text: Json, tokens: Sequence[Token], start: int) -> Json:
        shown = [token for token in tokens if self._is_shown(token)]
        return {
            "index": index,
            **text,
            "logprobs": self._log_probs(shown, start) if self._logprobs and shown else None,
            "finish_reason": tokens[-1].finish if tokens else None,
        }

    def _is_shown(self, token: Token) -> bool:
        """Whether a token is listed with its log-probability."""
        return token.id is not None

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

    def __init__(self, served: ServedModel, logprobs: bool, echoes: Sequence[Echo]) -> None:
        super().__init__(served, logprobs)
        self._echoes = echoes  # one for each answer

    def echo(self, index: int) -> Echo:
        return self._echoes[index]

    def _is_shown(self, token: Token) -> bool:
        # With the end id: what follows the prompt has one entry at least.
        return token.id is not None or token.end_id is not None

    def _message(self, index: int, text: str) -> Json:
        return {"text": self.echo(index).text + text}

    def _first_delta(self, index: int) -> Json | None:
        text, tokens = self.echo(index)
        return {"text": text} if text or tokens else None

    def _delta(self, token: Token) -> Json:
        return {"text": token.text}

    def _log_probs(self, tokens: Sequence[Token], start: int) -> Json:
        lengths = (len(token.text) for token in tokens[:-1])
        return {
            "tokens": [self._name(t.end_id if t.id is None else t.id) for t in tokens],
            "token_logprobs": [None if t.logprob is None else _finite(t.logprob) for t in tokens],
            "top_logprobs": [
                None
                if token.logprob is None
                else {self._name(number): _finite(p) for number, _, p in token.alternatives}
                for token in tokens
            ],
            "text_offset": list(itertools.accumulate(lengths, initial=start)),
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
            assert token.logprob is not None
            content.append({**self._entry(token.id, token.logprob), "top_logprobs": others})
        return {"content": content, "refusal": None}

    def _entry(self, number: int, logprob: float) -> Json:
        data = self._bytes(number)
        text = data.decode("utf-8", "replace")
        return {"token": text, "logprob": _finite(logprob), "bytes": list(data)}


def _finite(logprob: float) -> float:
    return max(logprob, LEAST)
