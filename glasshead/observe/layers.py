"""Find the layers of attention in a model, name them, and refuse what cannot be recorded."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from glasshead.attention.hooks import Layer
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.errors import ConfigError, RecordingError, did_you_mean

__all__ = ["choose_layers", "find_layers"]


def find_layers(model: nn.Module, partly: bool) -> list[tuple[Layer, nn.Module]]:
    """Every layer of attention that can be watched, in the order of the modules.

    Refuses a model that has none; unless `partly`, also one of whose layers some have none.
    """
    modules = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention) or _asks_the_interface(module)
    }
    _refuse_if_unseen(model, modules, partly)
    return [(_layer(i, *item), item[1]) for i, item in enumerate(modules.items())]


def _asks_the_interface(module: nn.Module) -> bool:
    """Whether the module's own code calls the attention interface of `transformers`."""
    return any(
        "ALL_ATTENTION_FUNCTIONS" in _names(function)
        for cls in type(module).__mro__
        # The base class of its models names the interface too, but does not call it.
        if not cls.__module__.startswith(("torch.", "transformers.modeling_utils"))
        for function in vars(cls).values()
    )


def _names(function: Any) -> tuple[str, ...]:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function.__code__.co_names if hasattr(function, "__code__") else ()


def _refuse_if_unseen(model: nn.Module, modules: dict[str, nn.Module], partly: bool) -> None:
    """Refuse a model with attention, or something in its place, that cannot be watched."""
    name = type(model).__name__
    if not modules:
        torchs = any(isinstance(m, nn.MultiheadAttention) for m in model.modules())
        raise RecordingError(
            f"{name} has no attention that can be recorded",
            hint="MultiHeadAttention.from_torch makes nn.MultiheadAttention one that can"
            if torchs
            else "needed: one of ours, or one that uses the attention interface of transformers",
        )
    if partly:
        return
    for stack_name, stack in model.named_modules():
        if not isinstance(stack, nn.ModuleList) or any(
            isinstance(model.get_submodule(stack_name.rsplit(".", n)[0]), nn.ModuleList)
            for n in range(1, stack_name.count(".") + 1)
        ):
            continue  # only the outermost lists are stacks of layers
        seen = [any(f"{stack_name}.{i}." in f"{m}." for m in modules) for i in range(len(stack))]
        if any(seen) and not all(seen):
            i = seen.index(False)
            raise RecordingError(
                f"{stack_name}.{i} ({type(stack[i]).__name__}) of {name} has no attention that can "
                "be recorded",
                hint="choose the layers that have with layers=[...]",
            )


def _layer(index: int, name: str, module: nn.Module) -> Layer:
    name = name.removeprefix("_orig_mod.")
    path = name.lower()
    cross = getattr(module, "is_cross_attention", False) or any(
        word in path for word in ("cross", "encoder_attn", "encdec")
    )
    part = next((p for p in path.split(".") if p in ("encoder", "decoder")), None)
    return Layer(index, name, "cross" if cross else "self", part)


def choose_layers(layers: list[Layer], wanted: Iterable[int | str] | None) -> set[int]:
    """The indices of the layers that are wanted by index or name; of all when None."""
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
                hint=f"there are {len(layers)} layers of attention, 0 to {len(layers) - 1}",
            )
    return chosen
