"""Muon for the matrices inside the blocks, AdamW for everything else; or AdamW alone.

A step can be called off by a number on the device, without the host waiting for it: that is how
a gradient that is not finite costs one step and no more.
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

__all__ = ["OPTIMIZERS", "Muon", "Optimizers", "hidden_matrices", "orthogonal"]


STEPS = 5  # with more, `_factor` would need more digits than float32 has
POLYNOMIAL = 3.4445, -4.7750, 2.0315  # Muon's own
# Times as wide as high, from where `_factor` is less work (at four, half); too coarse in bf16.
WIDE = 2.0


def orthogonal(matrices: Tensor) -> Tensor:
    """Close to U V^T for each matrix U S V^T of (n, rows, columns), by Newton-Schulz.

    The polynomial x -> ax + bx^3 + cx^5 drives all singular values towards 1: fast from below,
    and then to somewhere between 0.7 and 1.2, which is as good for training.
    """
    # bf16 halves the time where matrix units are; on a CPU it rarely does.
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    wide = x.mT if x.shape[1] > x.shape[2] else x
    wide = wide / (wide.norm(dim=(1, 2), keepdim=True) + 1e-7)
    if wide.shape[2] >= WIDE * wide.shape[1] and x.dtype == torch.float32:
        wide = _factor(wide @ wide.mT) @ wide
    else:
        for _ in range(STEPS):
            wide = torch.baddbmm(wide, _bent(wide @ wide.mT), wide, beta=POLYNOMIAL[0])
    return wide.mT if x.shape[1] > x.shape[2] else wide


def _factor(square: Tensor) -> Tensor:
    """What all steps together multiply x with, by x x^T alone: it tells that of the next x, too."""
    factor = whole = _plus(_bent(square))
    for _ in range(STEPS - 1):
        square = factor @ (factor @ square)
        factor = _plus(_bent(square))
        whole = factor @ whole
    return whole


def _bent(square: Tensor) -> Tensor:
    """b x x^T + c (x x^T)^2."""
    _, b, c = POLYNOMIAL
    return torch.baddbmm(square, square, square, beta=b, alpha=c)


def _plus(bent: Tensor) -> Tensor:
    bent.diagonal(dim1=1, dim2=2).add_(POLYNOMIAL[0])
    return bent


class _Light(torch.optim.Optimizer):
    """Starts without torch's compiler, which takes seconds to import.

    torch's own methods import it to be left alone by it; nobody compiles ours.
    """

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)


class _AdamW(_Light, torch.optim.AdamW):
    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


class Muon(_Light):
    """Momentum whose matrices are made orthogonal: every direction moves, not the loudest alone.

    torch has a Muon; this one treats the queries, keys and values stacked in one matrix as the
    three matrices they are, and all matrices of one shape at once, which is quicker.
    """

    found_inf: Tensor | None = None  # 1 calls the step off, as in torch's fused optimizers

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
            for p, ahead in self._ahead(group):
                rows = self.rows.get(p, [p.shape[0]])
                for part, change in zip(p.split(rows), ahead.split(rows), strict=True):
                    pieces[part.shape].append((part, change))
            for shape, pairs in pieces.items():
                changes = orthogonal(torch.stack([change for _, change in pairs]))
                changes = changes.to(pairs[0][0].dtype) * self._size(group, *shape)
                torch._foreach_add_([part for part, _ in pairs], list(changes))

    def _ahead(self, group: dict[str, Any]) -> Iterator[tuple[Tensor, Tensor]]:
        """Each parameter, decayed, and where its momentum will be after one more such gradient."""
        momentum, keep = group["momentum"], self._keep()
        for p in group["params"]:
            if p.grad is None:
                continue
            if "momentum" not in self.state[p]:
                self.state[p]["momentum"] = torch.zeros_like(p)
            past = self.state[p]["momentum"]
            grad = p.grad if self.found_inf is None else p.grad.where(keep > 0, 0.0)
            past.lerp_(grad, (1 - momentum) * keep)
            p.mul_(1 - group["lr"] * group["weight_decay"] * keep)
            yield p, grad.lerp(past, momentum)  # Nesterov's

    def _size(self, group: dict[str, Any], rows: int, columns: int) -> float | Tensor:
        """Of a change, by which its orthogonal matrix is multiplied."""
        return -group["lr"] * math.sqrt(max(1.0, rows / columns)) * self._keep()

    def _keep(self) -> float | Tensor:
        return 1.0 if self.found_inf is None else 1.0 - self.found_inf


class Optimizers:
    """The optimizers of one model as one."""

    def __init__(self, model: nn.Module, *parts: torch.optim.Optimizer) -> None:
        self._parts = parts
        self._names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
        self._peaks = [(g, g["lr"]) for part in self._parts for g in part.param_groups]

    def make_recordable(self) -> None:
        """From now on a CUDA graph may hold a step: rates lie where it can read them."""
        for group, peak in self._peaks:
            group["lr"] = torch.full((), peak, device=group["params"][0].device)
            if "capturable" in group:
                group["capturable"] = True

    def set_rate(self, share: float) -> None:
        """All learning rates, as a share of their peaks."""
        for group, peak in self._peaks:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(peak * share)
            else:
                group["lr"] = peak * share

    def step(self, bad: Tensor) -> None:
        """One step, unless bad is true. On a GPU nobody waits to see."""
        if bad.device.type == "cpu":
            if bad:
                return
        else:
            for part in self._parts:
                part.found_inf = bad.float()  # type: ignore[attr-defined]
        for part in self._parts:
            part.step()

    def zero_grad(self) -> None:
        for part in self._parts:
            part.zero_grad()

    def tensors(self) -> dict[str, Tensor]:
        """All that a later `load` needs."""
        return {
            f"{self._names[p]}/{key}": value
            for part in self._parts
            for p, state in part.state.items()
            for key, value in state.items()
        }

    def load(self, tensors: dict[str, Tensor], file: Path) -> None:
        """Go on with the state that `tensors` returned."""
        params = {name: p for p, name in self._names.items()}
        found: dict[Tensor, dict[str, Tensor]] = defaultdict(dict)
        for name, tensor in tensors.items():
            owner, _, key = name.rpartition("/")
            if owner not in params or tensor.shape not in (params[owner].shape, torch.Size([])):
                raise CheckpointError(
                    f"{file} has optimizer state '{name}' of shape {tuple(tensor.shape)}, "
                    "which fits no parameter",
                    hint="config.json and this file are not of one run",
                )
            found[params[owner]][key] = tensor.to(params[owner].device)
        for part in self._parts:
            part.state.clear()
            for group in part.param_groups:
                part.state.update({p: found[p] for p in group["params"] if p in found})


def adamw_alone(model: nn.Module, config: "TrainConfig") -> Optimizers:
    return Optimizers(model, _adamw(model.parameters(), config))


def muon_and_adamw(model: nn.Module, config: "TrainConfig") -> Optimizers:
    """Muon for the matrices inside the blocks; embeddings, head, norms and biases by AdamW."""
    hidden = hidden_matrices(model)
    adamw = _adamw([p for p in model.parameters() if p not in hidden], config)
    if not hidden:
        return Optimizers(model, adamw)
    c, made = config, Muon
    if hasattr(next(iter(hidden)), "full_tensor"):  # processes have parts of it
        from glasshead.training.sharded_muon import ShardedMuon as made
    muon = made(hidden, c.muon_lr, c.weight_decay, c.momentum, rows=_stacked_rows(model))
    return Optimizers(model, muon, adamw)


OPTIMIZERS: dict[str, Callable[[nn.Module, "TrainConfig"], Optimizers]] = {
    "muon": muon_and_adamw,
    "adamw": adamw_alone,
}


def _adamw(params: Iterable[Tensor], config: "TrainConfig") -> torch.optim.AdamW:
    """Weight decay pulls on matrices only: a norm or a bias has nothing to be kept small for."""
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
    """Weights of linear layers inside a list of blocks, in order."""
    return {
        module.weight: None
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and any(part.isdigit() for part in name.split("."))
    }


def _stacked_rows(model: nn.Module) -> dict[Tensor, list[int]]:
    return {
        m.qkv.weight: [n * m.d_head for n in (m.n_heads, m.n_kv_heads, m.n_kv_heads)]
        for m in model.modules()
        if isinstance(m, MultiHeadAttention)
    }
