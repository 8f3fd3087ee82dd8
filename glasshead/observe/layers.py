"""Find the attention layers of a model, and raise for models that cannot be recorded."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from glasshead.attention.hooks import Layer
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.errors import ConfigError, RecordingError, did_you_mean

__all__ = ["called_names", "choose_layers", "find_layers", "select_layers"]


def find_layers(model: nn.Module, partly: bool) -> list[tuple[Layer, nn.Module]]:
    """Return every attention layer that hooks can be attached to, in the order of the modules.

    Raises if there is none; unless `partly`, also if only some layers of a stack have one.
    """
    modules = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention) or _calls_the_interface(module)
    }
    _check_coverage(model, modules, partly)
    return [(_layer(i, *item), item[1]) for i, item in enumerate(modules.items())]


def _calls_the_interface(module: nn.Module) -> bool:
    """Whether the module's own code calls the attention interface of `transformers`."""
    return any(
        "ALL_ATTENTION_FUNCTIONS" in called_names(function)
        for cls in type(module).__mro__
        # The base class of its models names the interface too, but does not call it.
        if not cls.__module__.startswith(("torch.", "transformers.modeling_utils"))
        for function in vars(cls).values()
    )


def called_names(function: Any) -> tuple[str, ...]:
    """Return the names that the code of a function uses, besides its own variables."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function.__code__.co_names if hasattr(function, "__code__") else ()


def _check_coverage(model: nn.Module, modules: dict[str, nn.Module], partly: bool) -> None:
    """Raise if hooks cannot see the attention of the model, or of some of its layers."""
    name = type(model).__name__
    if not modules:
        of_torch = any(isinstance(m, nn.MultiheadAttention) for m in model.modules())
        raise RecordingError(
            f"{name} has no attention that can be recorded",
            hint="convert nn.MultiheadAttention with MultiHeadAttention.from_torch"
            if of_torch
            else "use one of our models, or one that calls the attention interface of transformers",
        )
    if partly:
        return
    for stack_name, stack in model.named_modules():
        if not isinstance(stack, nn.ModuleList) or any(
            isinstance(model.get_submodule(stack_name.rsplit(".", n)[0]), nn.ModuleList)
            for n in range(1, stack_name.count(".") + 1)
        ):
            continue  # only the outermost lists are stacks of layers
        has = [any(f"{stack_name}.{i}." in f"{m}." for m in modules) for i in range(len(stack))]
        if any(has) and not all(has):
            i = has.index(False)
            raise RecordingError(
                f"{stack_name}.{i} ({type(stack[i]).__name__}) of {name} has no attention that can "
                "be recorded",
                hint="choose layers that can be recorded with layers=[...]",
            )


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
    found = find_layers(model, partly=wanted is not None)
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
