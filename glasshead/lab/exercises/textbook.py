"""Numbers that the documents print, and the layers that they print them for."""

import torch
from torch import Tensor

__all__ = ["CAUSAL", "JOURNEY", "MULTI_HEAD", "SELF_ATTENTION", "multi_head_layers", "projections"]

# "Your journey starts with one step", document 002.
JOURNEY = (
    (0.43, 0.15, 0.89), (0.55, 0.87, 0.66), (0.57, 0.85, 0.64),
    (0.22, 0.58, 0.33), (0.77, 0.25, 0.10), (0.05, 0.80, 0.55),
)  # fmt: skip
SELF_ATTENTION = (  # seed 789
    (-0.0739, 0.0713), (-0.0748, 0.0703), (-0.0749, 0.0702),
    (-0.0760, 0.0685), (-0.0763, 0.0679), (-0.0754, 0.0693),
)  # fmt: skip
CAUSAL = (  # seed 123
    (-0.4519, 0.2216), (-0.5874, 0.0058), (-0.6300, -0.0632),
    (-0.5675, -0.0843), (-0.5526, -0.0981), (-0.5299, -0.1081),
)  # fmt: skip
MULTI_HEAD = (  # seed 123, two heads
    (0.3190, 0.4858), (0.2943, 0.3897), (0.2856, 0.3593),
    (0.2693, 0.3873), (0.2639, 0.3928), (0.2575, 0.4028),
)  # fmt: skip


def multi_head_layers() -> tuple[list[Tensor], Tensor, Tensor]:
    """Return the matrices of q, k, v, then that of the output and its bias (seed 123)."""
    layers = projections(123)
    with torch.random.fork_rng([]):
        torch.manual_seed(123)
        for _ in range(3):
            torch.nn.Linear(3, 2, bias=False, dtype=torch.float32)
        out = torch.nn.Linear(2, 2, dtype=torch.float32)
    return layers, out.weight.detach().double(), out.bias.detach().double()


def projections(seed: int) -> list[Tensor]:
    """Return the matrices of q, k and v, (2, 3), that torch draws with a seed."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        layers = [torch.nn.Linear(3, 2, bias=False, dtype=torch.float32) for _ in range(3)]
    return [layer.weight.detach().double() for layer in layers]
