"""How much a loss depends on each head: (H,) for each layer, by name.

    by gradient   |d loss / d gate|, where each head's context is multiplied with a gate of 1. One
                  forward and one backward for all heads: how much the loss changes when a head is
                  scaled down a little (Michel, Levy and Neubig 2019, "Are Sixteen Heads Really
                  Better than One?").
    by ablation   loss without the head, minus loss with it. One forward for each head. Below 0 if
                  the loss falls without it.

`loss` is any function without arguments that runs the model and returns a number:

    head_gradients(model, lambda: F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()))

Call `model.eval()` first, or dropout adds noise. Heads that matter little one by one may matter
much together: one can replace another.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import AttentionCall, Layer
from glasshead.errors import InputError
from glasshead.observe.ablation import ChangeHook, ablating, attach_change_hooks
from glasshead.observe.layers import select_layers

__all__ = ["head_ablations", "head_gradients"]


def head_gradients(
    model: nn.Module,
    loss: Callable[[], Tensor],
    *,
    layers: Iterable[int | str] | None = None,
) -> dict[str, Tensor]:
    """Return |d loss / d gate| of each head, {layer's name: (H,)}.

    Each sequence of a batch has a gate of its own, and their absolute values are added, so that a
    head that helps one sequence and harms another does not cancel out. For a loss that is the mean
    over sequences this is the mean over sequences, as in the paper. Parameters get no gradients.
    """
    gates = {module: _GateHook(layer) for layer, module in select_layers(model, layers)}
    with torch.enable_grad(), attach_change_hooks(gates):
        value = loss()
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        raise InputError(
            "the loss is not one number with a gradient",
            hint="return a tensor such as cross_entropy gives, not .item(), and without no_grad",
        )
    factors = [factor for gate in gates.values() for factor in gate.factors]
    grads = iter(torch.autograd.grad(value, factors, allow_unused=True, materialize_grads=True))
    return {
        gate.layer.name: sum(
            (next(grads).abs().sum(0) for _ in gate.factors),
            start=torch.zeros((), device=value.device),
        )
        for gate in gates.values()
    }


def head_ablations(
    model: nn.Module,
    loss: Callable[[], Tensor | float],
    *,
    layers: Iterable[int | str] | None = None,
    mode: str = "zero",
) -> dict[str, Tensor]:
    """Return the loss without each head minus the loss with all, {layer's name: (H,)}; modes as in
    `ablating`."""
    counts = {module: _CountHook(layer) for layer, module in select_layers(model, layers)}
    with torch.no_grad():
        with attach_change_hooks(counts):
            whole = float(loss())
        changes = {}
        for count in counts.values():
            lost = []
            for head in range(count.n_heads):
                with ablating(model, heads=[(count.layer.index, head)], mode=mode):
                    lost.append(float(loss()) - whole)
            changes[count.layer.name] = torch.tensor(lost)
    return changes


class _GateHook(ChangeHook):
    """Multiplies each head of each sequence with a 1 that has a gradient."""

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        self.factors: list[Tensor] = []

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        context = super().after(call, context)
        ones = torch.ones(context.shape[:2], device=context.device, requires_grad=True)  # (B, H)
        self.factors.append(ones)
        return context * ones[:, :, None, None].to(context.dtype)


class _CountHook(ChangeHook):
    """Counts the heads of a layer."""

    n_heads = 0

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        self.n_heads = call.q.shape[1]
        return super().after(call, context)
