"""Find the attention layers of a model."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from torch import nn

from glasshead.attention.hooks import Layer
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.errors import ConfigError, RecordingError, did_you_mean

__all__ = [
    "calls_the_interface", "choose_found", "choose_layers", "find_layers", "is_named_for_attention",
    "layers_without_attention", "select_layers", "unhookable_modules",
]  # fmt: skip

NAMED = re.compile("attention|attn|mha", re.IGNORECASE)
# What code that computes attention calls.
CALLS = frozenset({
    "softmax", "Softmax", "scaled_dot_product_attention", "multi_head_attention_forward",
    "_flash_attention_forward", "flex_attention", "ALL_ATTENTION_FUNCTIONS",
})  # fmt: skip
PRODUCTS = frozenset({"matmul", "bmm", "einsum", "baddbmm"})
Modules = Mapping[str, nn.Module]  # by name, as `named_modules` gives them


def find_layers(model: nn.Module, modules: Modules | None = None) -> list[tuple[Layer, nn.Module]]:
    """Return every attention layer that hooks can be attached to, in the order of the modules,
    which are those of the model. Raises if there is none.
    """
    modules = dict(model.named_modules()) if modules is None else modules
    found = {name: module for name, module in modules.items() if _has_attention(module)}
    for name in unhookable_modules(modules):
        found.pop(name, None)
    if not found:
        of_torch = any(isinstance(m, nn.MultiheadAttention) for m in modules.values())
        raise RecordingError(
            f"{type(model).__name__} has no attention that can be recorded",
            hint="convert nn.MultiheadAttention with MultiHeadAttention.from_torch"
            if of_torch
            else "use one of our models, or one of transformers",
        )
    return [(_layer(i, *item), item[1]) for i, item in enumerate(found.items())]


def _has_attention(module: nn.Module) -> bool:
    cls: Any = type(module)
    known: bool = _is_attention(cls)
    return known


@cache
def _is_attention(cls: type) -> bool:
    return (
        issubclass(cls, MultiHeadAttention) or _calls_the_interface(cls) or _computes_attention(cls)
    )


def calls_the_interface(module: nn.Module) -> bool:
    """Whether the module's own code calls the attention interface of `transformers`."""
    return _calls_the_interface(type(module))


def _calls_the_interface(cls: type) -> bool:
    wanted = {"ALL_ATTENTION_FUNCTIONS", "get_interface"}
    return wanted <= _used_names(cls) and not issubclass(cls, MultiHeadAttention)


def _computes_attention(cls: Any) -> bool:
    """Whether the module's own code computes a softmax, and it is named for attention or computes a
    product of matrices too."""
    if issubclass(cls, nn.MultiheadAttention):
        return True
    names = _used_names(cls)
    if NAMED.search(cls.__name__):
        return not CALLS.isdisjoint(names) or any("softmax" in name for name in names)
    return not PRODUCTS.isdisjoint(names) and not CALLS.isdisjoint(names)


def is_named_for_attention(module: nn.Module) -> bool:
    return bool(NAMED.search(type(module).__name__))


def unhookable_modules(modules: Modules) -> dict[str, str]:
    """Return attention that hooks would change: by its name, the reason."""
    reason = "hooks would switch off the fast path of torch's TransformerEncoderLayer"
    return {
        f"{name}.self_attn".removeprefix("."): reason
        for name, module in modules.items()
        if isinstance(module, nn.TransformerEncoderLayer)
    }


@cache
def _used_names(cls: type) -> frozenset[str]:
    """Return all names that the code of a class and of its bases uses."""
    found = {
        name
        for one in cls.__mro__
        # The base class of models of transformers names the interface too, but does not call it.
        if not one.__module__.startswith(("torch.", "transformers.modeling_utils"))
        for function in vars(one).values()
        for name in called_names(function)
    }
    return frozenset(found)


def called_names(function: Any) -> tuple[str, ...]:
    """Return the names that the code of a function uses, besides its own variables."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function.__code__.co_names if hasattr(function, "__code__") else ()


def layers_without_attention(modules: Modules, layers: Iterable[Layer]) -> list[str]:
    """Return the layers of the model's stacks that have no attention, where others have."""
    names = [f"{layer.name}." for layer in layers]
    missing = []
    stacks = {name: m for name, m in modules.items() if isinstance(m, nn.ModuleList)}
    for stack, parts in stacks.items():
        if any(stack.startswith(f"{other}.") for other in stacks):
            continue  # only the outermost lists are stacks of layers
        items = [f"{stack}.{i}" for i in range(len(parts))]
        has = [any(name.startswith(f"{item}.") for name in names) for item in items]
        if any(has):
            missing += [item for item, its in zip(items, has, strict=True) if not its]
    return missing


def _layer(index: int, name: str, module: nn.Module) -> Layer:
    name = name.removeprefix("_orig_mod.")
    path = name.lower()
    cross = getattr(module, "is_cross_attention", False) or any(
        word in path for word in ("cross", "encoder_attn", "encdec", "encoder_decoder")
    )
    part = next((p for p in path.split(".") if p in ("encoder", "decoder")), None)
    return Layer(index, name, "cross" if cross else "self", part)


def select_layers(
    model: nn.Module, wanted: Iterable[int | str] | None
) -> list[tuple[Layer, nn.Module]]:
    """Return the attention layers that are wanted by index or name; all when None."""
    return choose_found(find_layers(model), wanted)


def choose_found(
    found: list[tuple[Layer, nn.Module]], wanted: Iterable[int | str] | None
) -> list[tuple[Layer, nn.Module]]:
    """Return those of the layers found that are wanted by index or name; all when None."""
    chosen = choose_layers([layer for layer, _ in found], wanted)
    return [(layer, module) for layer, module in found if layer.index in chosen]


def choose_layers(layers: list[Layer], wanted: Iterable[int | str] | None) -> set[int]:
    """Return the indices of layers given by index or name; of all when None."""
    if wanted is None:
        return {layer.index for layer in layers}
    by_name = {layer.name: layer.index for layer in layers}
    chosen = set()
    for one in wanted:
        if isinstance(one, str):
            if one not in by_name:
                raise ConfigError(f"unknown layer '{one}'", hint=did_you_mean(one, by_name))
            chosen.add(by_name[one])
        elif -len(layers) <= one < len(layers):
            chosen.add(one % len(layers))
        else:
            raise ConfigError(
                f"layer {one} does not exist",
                hint=f"there are {len(layers)} attention layers, 0 to {len(layers) - 1}",
            )
    return chosen
