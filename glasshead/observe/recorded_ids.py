"""The token ids of a recording, taken from what the model's token embedding gets."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.observe.trace import Trace

__all__ = ["finds_ids", "record_ids"]


def finds_ids(model: nn.Module) -> bool:
    """Whether the ids that the model gets are those of the only text it reads."""
    return _token_embedding(model) is not None


@contextmanager
def record_ids(model: nn.Module, trace: Trace) -> Iterator[None]:
    """Set `trace.ids` to the ids that the token embedding gets, if they are not known."""
    embedding = _token_embedding(model)
    if trace.ids is not None or embedding is None:
        yield
        return
    known: list[Tensor] = []

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def add(module: nn.Module, args: tuple[Any, ...]) -> None:
        new = args[0] if args else None
        if not isinstance(new, Tensor) or new.dim() != 2 or new.is_floating_point():
            return
        new = new.detach().clone()
        n = sum(x.shape[1] for x in known)
        if known and new.shape[1] > n and new.shape[0] == len(known[0]):
            known.clear()  # without a cache the whole text is read again
        known.append(new)
        fits = len({len(x) for x in known}) == 1
        trace.ids = torch.cat(known, 1) if fits else None

    handle = embedding.register_forward_pre_hook(add)
    try:
        yield
    finally:
        handle.remove()


def _token_embedding(model: nn.Module) -> nn.Module | None:
    """Return the embedding of the only text that a model reads."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return None
    find = getattr(model, "get_input_embeddings", lambda: getattr(model, "embedding", None))
    try:
        found = find()
    except NotImplementedError:
        return None
    return found if isinstance(found, nn.Embedding) else None
