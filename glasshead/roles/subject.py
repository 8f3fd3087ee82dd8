"""A model to measure: one of ours or of `transformers`, with what turns text into its ids."""

import inspect
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.errors import InputError
from glasshead.model.gpt import GPT
from glasshead.model.transformer import Encoder, Reader, Transformer
from glasshead.observe.transformers_folder import decode_transformers_tokens
from glasshead.observe.words import Token, decode_tokens
from glasshead.text.tokenizer import Tokenizer

__all__ = ["Subject", "is_separator", "subject_of_run", "subject_of_transformers"]

LONGEST = 1024  # tokens that are read at a time if a model does not say how many it can read


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, and all that probes need to know of it."""

    name: str
    model: nn.Module
    encode: Callable[[str], list[int]]  # without special tokens
    decode: Callable[[Sequence[int]], list[Token]]
    output: Callable[[Tensor], Tensor]  # ids (B, T) -> logits (B, T, V), or features (B, T, C)
    predicts: bool  # whether output[:, t] are the logits of token t + 1
    before: tuple[int, ...]  # special tokens around a text
    after: tuple[int, ...]
    plain: tuple[int, ...]  # ids of tokens that texts are made of
    longest: int  # tokens of a sequence of a probe
    tokenizer: Any
    limit: int | None = None  # tokens that it can read at all, if that is known
    # ids (B, T) and a row -> logits (B, V); None if `logits` does that without computing others.
    output_at: Callable[[Tensor, int], Tensor] | None = None
    softcap: float | None = None  # of logits, behind the output layer
    factor: float = 1.0  # of logits, before that cap

    def logits(self, ids: Tensor, rows: Tensor) -> Tensor:
        """Return the logits (N, V) at rows (B, T) bool; if possible, compute no others."""
        if isinstance(self.model, GPT):
            return self.model.logits(self.model.features(ids)[rows])
        if isinstance(self.model, Reader):
            return self.model.head(self.model.encoder(ids)[rows])
        return self.output(ids)[rows]

    def logits_at(self, ids: Tensor, row: int) -> Tensor:
        """Return the logits (B, V) at one row of each text."""
        if self.output_at is not None:
            return self.output_at(ids, row)
        rows = torch.zeros_like(ids, dtype=torch.bool)
        rows[:, row] = True
        return self.logits(ids, rows)

    def finish_logits(self, logits: Tensor) -> Tensor:
        """Apply what the model does with the logits of its output layer."""
        cap, logits = self.softcap, logits * self.factor
        return logits if cap is None else cap * torch.tanh(logits / cap)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


def subject_of_run(name: str, model: nn.Module, tokenizer: Tokenizer) -> Subject:
    """Take one of our models."""
    if isinstance(model, Transformer):
        raise InputError(
            f"{name} translates: its heads cannot be named yet",
            hint="name a language model or an encoder; glasshead look shows a translator's heads",
        )
    if not isinstance(model, GPT | Encoder | Reader):
        raise InputError(f"{name} is no language model or encoder", hint="name another model")
    special = set(tokenizer.specials.values())
    before, after = tokenizer.marks
    settings: Any = model.config

    def features(ids: Tensor) -> Tensor:
        made: Tensor = (model.encoder if isinstance(model, Reader) else model)(ids)
        return made

    return Subject(
        name, model.eval(),
        encode=lambda text: tokenizer.encode_ids(text).tolist(),
        decode=lambda ids: decode_tokens(tokenizer, ids),
        output=model if isinstance(model, GPT) else features,
        predicts=isinstance(model, GPT), before=tuple(before), after=tuple(after),
        plain=tuple(i for i in range(tokenizer.vocab_size) if i not in special),
        longest=min(settings.max_len, LONGEST), tokenizer=tokenizer, limit=settings.max_len,
        softcap=getattr(settings, "logit_softcap", None),
    )  # fmt: skip


def subject_of_transformers(name: str, model: Any, tokenizer: Any) -> Subject:
    """Take a model of the transformers library, and its tokenizer."""
    config = model.config
    if getattr(config, "is_encoder_decoder", False):
        raise InputError(
            f"{name} has an encoder and a decoder: its heads cannot be named yet",
            hint="name a language model or an encoder",
        )
    options = {"use_cache": False} if hasattr(config, "use_cache") else {}
    predicts = model.can_generate()

    def output(ids: Tensor) -> Tensor:
        found = model(input_ids=ids, **options)
        made: Tensor = found.logits if predicts or "logits" in found else found.last_hidden_state
        return made

    keeps = predicts and "logits_to_keep" in inspect.signature(model.forward).parameters

    def output_at(ids: Tensor, row: int) -> Tensor:
        if not keeps:
            return output(ids)[:, row]
        rows = torch.tensor([row], device=ids.device)
        made: Tensor = model(input_ids=ids, logits_to_keep=rows, **options).logits[:, 0]
        return made

    whole = tokenizer("a")["input_ids"]
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    at = next(i for i in range(len(whole)) if whole[i : i + len(bare)] == bare)
    special = set(tokenizer.all_special_ids)
    sizes = (getattr(config, n, None) for n in ("max_position_embeddings", "n_positions"))
    limit = next((n for n in sizes if isinstance(n, int) and n > 0), None)
    return Subject(
        name, model.eval(),
        encode=lambda text: tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"],
        decode=lambda ids: decode_transformers_tokens(tokenizer, list(ids)),
        output=output, predicts=predicts,
        before=tuple(whole[:at]), after=tuple(whole[at + len(bare) :]),
        plain=tuple(i for i in range(len(tokenizer)) if i not in special),
        longest=min(limit or LONGEST, LONGEST), tokenizer=tokenizer, limit=limit,
        output_at=output_at, factor=_factor(config),
        softcap=getattr(config, "final_logit_softcapping", None),
    )  # fmt: skip


def _factor(config: Any) -> float:
    """Return what a model of transformers multiplies its logits with."""
    times, over = getattr(config, "logit_scale", None), getattr(config, "logits_scaling", None)
    return (times if isinstance(times, float) else 1.0) / (over or 1.0)


def is_separator(token: Token) -> bool:
    r"""Whether a token is punctuation or a line end.

    >>> [is_separator(x) for x in (",", " .", "\n", "。", " a", " ", b"\xe7")]
    [True, True, True, True, False, False, False]
    """
    if isinstance(token, bytes):
        return False
    bare = token.strip(" ")
    return bool(bare) and all(c in "\n\r" or unicodedata.category(c).startswith("P") for c in bare)
