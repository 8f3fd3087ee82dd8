"""What a model says, as it is and with some of its attention out of action.

A GPT is asked for the next token, a reader for the word that stands at a place, a translator for
the next word of its translation and for the whole of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glasshead.errors import AblationError, InputError
from glasshead.generation.beam import search
from glasshead.generation.rows import SpecialTokens
from glasshead.model.gpt import GPT
from glasshead.model.transformer import Reader, Transformer
from glasshead.observe.ablation import Edge, ablating
from glasshead.observe.words import characters, decode_tokens, visible
from glasshead.serve.library import Served

__all__ = ["Cut", "predicted"]

TOP = 6  # of what is likely before, and of what is likely after


@dataclass(frozen=True)
class Cut:
    """What is out of action: heads as (layer, head), edges as (layer, head, queries, keys)."""

    heads: tuple[tuple[int, int], ...] = ()
    edges: tuple[tuple[int, int | None, slice, slice], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.heads or self.edges)

    @contextmanager
    def made(self, model: torch.nn.Module) -> Iterator[None]:
        edges = [Edge(key, query, layer, head) for layer, head, query, key in self.edges]
        with ablating(model, heads=self.heads, edges=edges):
            yield


@torch.no_grad()
def predicted(served: Served, text: str, cut: Cut, at: int | None) -> dict[str, Any]:
    """What the model says at a place, before and after the cut; without one, only before."""
    loaded = served.loaded
    model = None if loaded is None else loaded.model
    if isinstance(model, Transformer):
        return _of_translator(served, model, text, cut, at)
    if not isinstance(model, GPT | Reader):
        raise InputError(
            f"{served.entry.name} has no words to say",
            hint="choose a GPT, a reader or a translator",
        )
    ids = torch.tensor([_encoded(served, text)], device=model.head.weight.device)
    T = ids.shape[1]
    if T > (served.entry.max_len or T):
        raise InputError(
            f"the text has {T:,} tokens, more than {served.entry.max_len:,}", hint="give less text"
        )
    place = _checked(T - 1 if at is None else at, T)

    def say() -> Tensor:
        if isinstance(model, GPT):
            return model.logits(model.features(ids)[0, place]).double().softmax(-1)
        return model(ids)[0, place].double().softmax(-1)

    before, after = _both(model, cut, say)
    kind = "next" if isinstance(model, GPT) else "answer"
    return {"kind": kind, "at": place, "words": _table(served, before, after)}


def _of_translator(
    served: Served, model: Transformer, text: str, cut: Cut, at: int | None
) -> dict[str, Any]:
    assert served.loaded is not None
    tokenizer = served.loaded.tokenizer
    source = _encoded(served, text.strip())
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

    def say() -> Tensor:
        features = model.features(target, model.encode(sources))
        return model.logits(features)[0].double().softmax(-1)  # (T, V)

    before, after = _both(model, cut, say)
    place = at
    if place is None:  # where most changes
        place = 0 if after is None else int((before - after).abs().sum(-1).argmax())
    place = _checked(place, len(before))
    changed = None
    if cut:
        try:
            with cut.made(model):
                # Without a cache each query knows where it stands.
                [[other]] = search(model, [source], marks, cached=not cut.edges)
            changed = tokenizer.decode(other.ids).strip()
        except AblationError:  # it is too short to have the edge
            changed = None
    return {
        "kind": "word",
        "at": place,
        "words": _table(served, before[place], None if after is None else after[place]),
        "translation": tokenizer.decode(found.ids).strip(),
        "changed": changed,
        "prefix": tokenizer.decode(said[1 : place + 1]).strip(),
    }


def _both(
    model: torch.nn.Module, cut: Cut, say: Callable[[], Tensor]
) -> tuple[Tensor, Tensor | None]:
    before = say()
    if not cut:
        return before, None
    with cut.made(model):
        return before, say()


def _table(served: Served, before: Tensor, after: Tensor | None) -> list[dict[str, Any]]:
    """The most likely words of both, the most likely before first."""
    assert served.loaded is not None
    k = min(TOP, len(before))
    ids = set(before.topk(k).indices.tolist())
    if after is not None:
        ids |= set(after.topk(k).indices.tolist())
    tokenizer = served.loaded.tokenizer
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


def _encoded(served: Served, text: str) -> list[int]:
    assert served.loaded is not None
    small = served.loaded.reads_small_letters
    ids = served.loaded.tokenizer.prompt_ids(text.lower() if small else text)
    if not ids:
        raise InputError("the text is empty", hint="give a text to look at")
    return list(ids)


def _checked(place: int, size: int) -> int:
    if not 0 <= place < size:
        raise InputError(f"there is no position {place}", hint=f"there are {size}, counted from 0")
    return place
