"""What `observing` keeps: the names that `keep=` takes, and the residual stream."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import Layer
from glasshead.errors import ConfigError, did_you_mean

__all__ = ["parse_keep", "watch_residual"]

KEEPS = ("tensors", "statistics", "both", "values", "residual")


def parse_keep(keep: str | Iterable[str]) -> frozenset[str]:
    """Return what to keep; values and the residual stream come with the tensors.

    >>> sorted(parse_keep("both")), sorted(parse_keep(["values"]))
    (['both', 'statistics', 'tensors'], ['tensors', 'values'])
    """
    kept = {keep} if isinstance(keep, str) else set(keep)
    for unknown in kept.difference(KEEPS):
        raise ConfigError(f"unknown keep '{unknown}'", hint=did_you_mean(unknown, KEEPS))
    if kept != {"statistics"}:
        kept.add("tensors")
    return frozenset(kept | ({"statistics"} if "both" in kept else set()))


@contextmanager
def watch_residual(
    model: nn.Module, layers: Mapping[str, Layer], note: Callable[[Layer, Tensor], None]
) -> Iterator[None]:
    """Call `note` with the input (B, T, C) of the block of each attention layer, as it runs.

    A block is an item of the model's outermost lists of modules. Layers in none have no block.
    """

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def call(layer: Layer, module: nn.Module, args: Any, options: dict[str, Any]) -> None:
        x = args[0] if args else options.get("hidden_states", options.get("x"))
        if isinstance(x, Tensor) and x.dim() == 3:
            note(layer, x)

    handles = []
    try:
        for name, layer in layers.items():
            block = _block_of(model, name)
            if block is not None:
                hook = partial(call, layer)
                handles.append(block.register_forward_pre_hook(hook, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _block_of(model: nn.Module, name: str) -> nn.Module | None:
    """Return the item of the outermost list of modules on the way to a module."""
    inside = model
    for part in name.split("."):
        parent, inside = inside, getattr(inside, part)
        if isinstance(parent, nn.ModuleList):
            return inside
    return None
