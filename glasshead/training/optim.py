"""Muon for the matrices inside the blocks and AdamW for the rest, or AdamW for everything.

A step can be skipped by a tensor on the device, without a GPU sync: a gradient that is not finite
then costs one step and no more.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from glasshead.attention.multihead import MultiHeadAttention
from glasshead.errors import CheckpointError

if TYPE_CHECKING:
    from glasshead.training.config import TrainConfig

__all__ = ["OPTIMIZERS", "Muon", "Optimizers", "hidden_matrices", "orthogonalize"]


STEPS = 5  # with more, `_total_factor` would need more digits than float32 has
POLYNOMIAL = 3.4445, -4.7750, 2.0315  # Muon's own
# Width / height from which `_total_factor` is less work (at 4, half as much); too coarse in bf16.
WIDE = 2.0


def orthogonalize(matrices: Tensor) -> Tensor:
    """Return about U V^T for each matrix U S V^T of (n, rows, columns), by Newton-Schulz.

    The polynomial x -> ax + bx^3 + cx^5 drives all singular values towards 1: quickly, but only to
    somewhere between 0.7 and 1.2, which is as good for training.
    """
    # bf16 halves the time on matrix units; on a CPU it rarely does.
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    wide = x.mT if x.shape[1] > x.shape[2] else x
    wide = wide / (wide.norm(dim=(1, 2), keepdim=True) + 1e-7)
    if wide.shape[2] >= WIDE * wide.shape[1] and x.dtype == torch.float32:
        wide = _total_factor(wide @ wide.mT) @ wide
    else:
        for _ in range(STEPS):
            wide = torch.baddbmm(wide, _even_terms(wide @ wide.mT), wide, beta=POLYNOMIAL[0])
    return wide.mT if x.shape[1] > x.shape[2] else wide


def _even_terms(square: Tensor) -> Tensor:
    """Return b s + c s^2 of s = x x^T."""
    _, b, c = POLYNOMIAL
    return torch.baddbmm(square, square, square, beta=b, alpha=c)


def _total_factor(square: Tensor) -> Tensor:
    """Return the matrix that all steps together multiply x by, from x x^T alone.

    A step multiplies x by the factor f = a + b s + c s^2 of s = x x^T, and so s by f on both sides.
    """
    factor = total = _factor(square)
    for _ in range(STEPS - 1):
        square = factor @ (factor @ square)
        factor = _factor(square)
        total = factor @ total
    return total


def _factor(square: Tensor) -> Tensor:
    factor = _even_terms(square)
    factor.diagonal(dim1=1, dim2=2).add_(POLYNOMIAL[0])
    return factor


class _LightOptimizer(torch.optim.Optimizer):
    """An optimizer that does not import torch's compiler, which takes seconds.

    torch's own methods import it only to tell it not to compile them.
    """

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)


class _AdamW(_LightOptimizer, torch.optim.AdamW):
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


class Muon(_LightOptimizer):
    """Momentum with orthogonalized updates: every direction moves, not only the strongest.

    Unlike torch's Muon, it treats queries, keys and values that are stacked in one matrix as the
    three matrices they are (`rows` has their heights), and all matrices of one shape at once, which
    is faster.
    """

    found_inf: Tensor | None = None  # 1 skips the step, as in torch's fused optimizers

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.02,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        rows: Mapping[Tensor, list[int]] | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        self.rows = rows or {}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            pieces: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
            for p, update in self._momentum_updates(group):
                rows = self.rows.get(p, [p.shape[0]])
                for part, change in zip(p.split(rows), update.split(rows), strict=True):
                    pieces[part.shape].append((part, change))
            for shape, pairs in pieces.items():
                changes = orthogonalize(torch.stack([change for _, change in pairs]))
                changes = changes.to(pairs[0][0].dtype) * self._scale(group, *shape)
                torch._foreach_add_([part for part, _ in pairs], list(changes))

    def _momentum_updates(self, group: dict[str, Any]) -> Iterator[tuple[Tensor, Tensor]]:
        """Apply weight decay, and yield each parameter with its Nesterov momentum."""
        momentum, keep = group["momentum"], self._keep
        for p in group["params"]:
            if p.grad is None:
                continue
            if "momentum" not in self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
            past = self.state[p]["momentum"]
            grad = p.grad if self.found_inf is None else p.grad.where(keep > 0, 0.0)
            past.lerp_(grad, (1 - momentum) * keep)
            p.mul_(1 - group["lr"] * group["weight_decay"] * keep)
            yield p, grad.lerp(past, momentum)

    def _scale(self, group: dict[str, Any], rows: int, columns: int) -> float | Tensor:
        """Return the factor of an orthogonal matrix that makes it the change of a parameter."""
        return -group["lr"] * math.sqrt(max(1.0, rows / columns)) * self._keep

    @property
    def _keep(self) -> float | Tensor:
        """0 if the step is skipped, else 1."""
        return 1.0 if self.found_inf is None else 1.0 - self.found_inf


class Optimizers:
    """All optimizers of one model."""

    def __init__(self, model: nn.Module, *parts: torch.optim.Optimizer) -> None:
        self._parts = parts
        self._names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
        self._peaks = [(g, g["lr"]) for part in self._parts for g in part.param_groups]

    def make_capturable(self) -> None:
        """Keep learning rates on the device, so that a CUDA graph of a step reads the latest."""
        for group, peak in self._peaks:
            group["lr"] = torch.full((), peak, device=group["params"][0].device)
            if "capturable" in group:
                group["capturable"] = True

    def set_rate(self, share: float) -> None:
        """Set all learning rates to a share of their peaks."""
        for group, peak in self._peaks:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(peak * share)
            else:
                group["lr"] = peak * share

    def step(self, skip: Tensor) -> None:
        """Take one step unless `skip` is true, without a GPU sync; then clear the gradients."""
        on_cpu = skip.device.type == "cpu"
        for part in self._parts:
            if not on_cpu:
                part.found_inf = skip.float()  # type: ignore[attr-defined]
            if not (on_cpu and skip):
                part.step()
        for part in self._parts:
            part.zero_grad()

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by name, for `load`."""
        return {
            f"{self._names[p]}/{key}": value
            for part in self._parts
            for p, state in part.state.items()
            for key, value in state.items()
        }

    def load(self, tensors: dict[str, Tensor], file: Path) -> None:
        """Restore the state that `tensors` returned."""
        params = {name: p for p, name in self._names.items()}
        found: dict[Tensor, dict[str, Tensor]] = defaultdict(dict)
        for name, tensor in tensors.items():
            owner, _, key = name.rpartition("/")
            if owner not in params or tensor.shape not in (params[owner].shape, torch.Size([])):
                raise CheckpointError(
                    f"{file} has optimizer state '{name}' of shape {tuple(tensor.shape)}, "
                    "which fits no parameter",
                    hint="config.json and this file are of different runs; put back the right one",
                )
            found[params[owner]][key] = tensor.to(params[owner].device)
        for part in self._parts:
            part.state.clear()
            for group in part.param_groups:
                part.state.update({p: found[p] for p in group["params"] if p in found})


def adamw_alone(model: nn.Module, config: "TrainConfig") -> Optimizers:
    return Optimizers(model, _adamw(model.parameters(), config))


def muon_and_adamw(model: nn.Module, config: "TrainConfig") -> Optimizers:
    """Use Muon for the matrices inside the blocks, AdamW for embeddings, head, norms and biases."""
    hidden = hidden_matrices(model)
    adamw = _adamw([p for p in model.parameters() if p not in hidden], config)
    if not hidden:
        return Optimizers(model, adamw)
    rows = {
        m.qkv.weight: [n * m.d_head for n in (m.n_heads, m.n_kv_heads, m.n_kv_heads)]
        for m in model.modules()
        if isinstance(m, MultiHeadAttention)
    }
    c, muon_class = config, Muon
    if hasattr(next(iter(hidden)), "full_tensor"):  # each process has a shard of it
        from glasshead.training.sharded_muon import ShardedMuon as muon_class
    muon = muon_class(hidden, c.muon_lr, c.weight_decay, c.momentum, rows)
    return Optimizers(model, muon, adamw)


OPTIMIZERS: dict[str, Callable[[nn.Module, "TrainConfig"], Optimizers]] = {
    "muon": muon_and_adamw,
    "adamw": adamw_alone,
}


def _adamw(params: Iterable[Tensor], config: "TrainConfig") -> torch.optim.AdamW:
    """Make AdamW with weight decay for matrices only, not for norms and biases."""
    by_decay: dict[bool, list[Tensor]] = {True: [], False: []}
    for p in params:
        by_decay[p.dim() >= 2].append(p)
    groups = [
        {"params": some, "weight_decay": config.weight_decay if decayed else 0.0}
        for decayed, some in by_decay.items()
        if some
    ]
    return _AdamW(groups, config.lr, (config.beta1, config.beta2), fused=True)


def hidden_matrices(model: nn.Module) -> dict[Tensor, None]:
    """Return the weights of the linear layers inside the blocks, in order, as keys."""
    return {
        module.weight: None
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and any(part.isdigit() for part in name.split("."))
    }
