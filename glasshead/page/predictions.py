"""What a model predicts, with all of its attention and with some of it cut.

A GPT predicts the next token, a reader the word that stands at a position, a translator the next
word of its translation and the whole translation.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glasshead.checkpoint import Run
from glasshead.errors import AblationError, InputError
from glasshead.generation.beam import search
from glasshead.generation.translation_rows import SpecialTokens
from glasshead.model.gpt import GPT
from glasshead.model.transformer import Reader, Transformer
from glasshead.observe.ablation import Edge, ablating
from glasshead.observe.words import characters, decode_tokens, visible

__all__ = ["NOTHING", "Cut", "predict"]

TOP = 6  # words, of the most likely before the cut and of the most likely after it


@dataclass(frozen=True)
class Cut:
    """Heads as (layer, head) and edges as (layer, head, queries, keys) that have no effect."""

    heads: tuple[tuple[int, int], ...] = ()
    edges: tuple[tuple[int, int | None, slice, slice], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.heads or self.edges)

    @contextmanager
    def apply_to(self, model: torch.nn.Module) -> Iterator[None]:
        edges = [Edge(key, query, layer, head) for layer, head, query, key in self.edges]
        with ablating(model, heads=self.heads, edges=edges):
            yield


NOTHING = Cut()


@torch.no_grad()
def predict(run: Run, text: str, cut: Cut, at: int | None) -> dict[str, Any]:
    """Return the most likely words at position `at`, before and after the cut.

    Without a cut there is only the former. `at` is a position in the text, of a translator in its
    translation; None is the last one, of a translator the one where the cut changes most.
    """
    model = run.model
    if isinstance(model, Transformer):
        return _predict_translation(run, model, text, cut, at)
    if not isinstance(model, GPT | Reader):
        raise InputError(
            f"{run.path.name} makes no predictions", hint="choose a GPT, a reader or a translator"
        )
    ids = torch.tensor([_encode(run, text)], device=model.head.weight.device)
    T, longest = ids.shape[1], model.config.max_len
    if T > longest:
        raise InputError(f"the text has {T:,} tokens, more than {longest:,}", hint="give less text")
    place = _check_position(T - 1 if at is None else at, T)

    def probabilities() -> Tensor:
        if isinstance(model, GPT):
            return model.logits(model.features(ids)[0, place]).double().softmax(-1)
        return model(ids)[0, place].double().softmax(-1)

    before, after = _before_and_after(model, cut, probabilities)
    kind = "next" if isinstance(model, GPT) else "answer"
    return {"kind": kind, "at": place, "words": _likely_words(run, before, after)}


def _predict_translation(
    run: Run, model: Transformer, text: str, cut: Cut, at: int | None
) -> dict[str, Any]:
    tokenizer = run.tokenizer
    source = _encode(run, text.strip())
    if not source or len(source) > model.config.max_len:
        raise InputError(
            f"the text has {len(source):,} tokens, but 1 to {model.config.max_len:,} can be read",
            hint="give one sentence",
        )
    marks = SpecialTokens.of(tokenizer, model)
    [[found]] = search(model, [source], marks)
    said = [marks.bos, *found.ids, *[marks.eos] * found.ended]
    target = torch.tensor([said[:-1]], device=model.head.weight.device)
    sources = torch.tensor([source], device=target.device)

    def probabilities() -> Tensor:
        features = model.features(target, model.encode(sources))
        return model.logits(features)[0].double().softmax(-1)  # (T, V)

    before, after = _before_and_after(model, cut, probabilities)
    place = at
    if place is None:
        place = 0 if after is None else int((before - after).abs().sum(-1).argmax())
    place = _check_position(place, len(before))
    changed = None
    if cut:
        try:
            with cut.apply_to(model):
                # An edge names positions, which a step with a cache does not know.
                [[other]] = search(model, [source], marks, cached=not cut.edges)
            changed = tokenizer.decode(other.ids).strip()
        except AblationError:  # the new translation is too short for the edge
            changed = None
    return {
        "kind": "word",
        "at": place,
        "words": _likely_words(run, before[place], None if after is None else after[place]),
        "translation": tokenizer.decode(found.ids).strip(),
        "changed": changed,
        "prefix": tokenizer.decode(said[1 : place + 1]).strip(),
    }


def _before_and_after(
    model: torch.nn.Module, cut: Cut, probabilities: Callable[[], Tensor]
) -> tuple[Tensor, Tensor | None]:
    before = probabilities()
    if not cut:
        return before, None
    with cut.apply_to(model):
        return before, probabilities()


def _likely_words(run: Run, before: Tensor, after: Tensor | None) -> list[dict[str, Any]]:
    """The most likely words of both, in the order of how likely they are before the cut."""
    k = min(TOP, len(before))
    ids = set(before.topk(k).indices.tolist())
    if after is not None:
        ids |= set(after.topk(k).indices.tolist())
    tokenizer = run.tokenizer
    known = sorted((i for i in ids if i < tokenizer.vocab_size), key=lambda i: -float(before[i]))
    return [
        {
            "id": i,
            "text": visible(characters(decode_tokens(tokenizer, [i]))[0].text),
            "before": float(before[i]),
            "after": None if after is None else float(after[i]),
        }
        for i in known
    ]


def _encode(run: Run, text: str) -> list[int]:
    ids = run.tokenizer.prompt_ids(text.lower() if run.config.lowercase else text)
    if not ids:
        raise InputError("the text is empty", hint="give a text to look at")
    return list(ids)


def _check_position(place: int, size: int) -> int:
    if not 0 <= place < size:
        raise InputError(f"there is no position {place}", hint=f"there are {size}, counted from 0")
    return place
