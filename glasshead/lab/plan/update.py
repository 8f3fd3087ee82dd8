"""What the optimizer costs: the arithmetic of Muon, and the bytes of both."""

from collections import Counter

from glasshead.lab.plan.devices import Rates
from glasshead.lab.plan.layout import Layout
from glasshead.lab.plan.shapes import Counts
from glasshead.model.gpt import GPTConfig
from glasshead.model.layers import ff_width
from glasshead.training.optim import STEPS, WIDE

__all__ = ["matrices", "most_matrices", "muon_flops", "update_seconds"]

CLIP, ADAMW, MUON = 12, 28, 80  # bytes read and written for a parameter
# Calls of torch, or what takes Python as long: to clip, to update and to forget gradients it goes
# through all tensors; Muon looks ahead for each of its matrices.
CALLS, CALLS_A_TENSOR, CALLS_OF_MUON, CALLS_A_MATRIX = 30, 1.5, 100, 8


def update_seconds(
    config: GPTConfig, counts: Counts, layout: Layout, optimizer: str, rates: Rates, on_cpu: bool
) -> tuple[float, float]:
    """How long a GPU is busy with it, and the calls of torch that it takes."""
    local = counts.on_each(layout.tensor) / layout.shards
    moved, work, calls = (CLIP + ADAMW) * local, 0.0, CALLS + CALLS_A_TENSOR * counts.tensors
    if optimizer == "muon":
        hidden = counts.hidden / layout.tensor / layout.shards
        moved += (MUON - ADAMW) * hidden
        work = muon_flops(config, layout.shards, on_cpu) / layout.tensor  # who has most
        calls += CALLS_OF_MUON + CALLS_A_MATRIX * counts.hidden_tensors
    return moved / rates.stream + work / rates.matmul, calls


def muon_flops(config: GPTConfig, shards: int = 1, on_cpu: bool = False) -> float:
    """Newton-Schulz on each matrix: two products of (r, c) with (c, r) and one of (r, r).

    On a CPU, wide matrices take (r, c) once before and once after, and all else is of (r, r).

    >>> from glasshead.lab.plan.shapes import find_shape
    >>> [round(muon_flops(find_shape("gpt2", {}), shards) / 1e9) for shards in (1, 4)]
    [1631, 408]
    """
    total = 0.0
    for shape, n in most_matrices(config, shards).items():
        rows, columns = min(shape), max(shape)
        products, rounds = 4.0 * rows * rows * columns, STEPS * 2.0 * rows**3
        if on_cpu and columns >= WIDE * rows:
            total += n * (products + rounds + (STEPS - 1) * 6.0 * rows**3)
        else:
            total += n * (STEPS * products + rounds)
    return total


def most_matrices(config: GPTConfig, shards: int = 1) -> dict[tuple[int, int], int]:
    """Of each shape, how many are made orthogonal by the GPU that has most of them.

    >>> from glasshead.lab.plan.shapes import find_shape
    >>> most_matrices(find_shape("gpt2", {}), 16)  # of 48, 12 and 12
    {(768, 768): 3, (3072, 768): 1, (768, 3072): 1}
    """
    return {
        shape: -(-n * config.n_layers // shards) for shape, n in Counter(matrices(config)).items()
    }


def matrices(config: GPTConfig) -> list[tuple[int, int]]:
    """Rows and columns of the matrices of a block: q, k, v, out, and the feed-forward's."""
    c = config
    C, D, H_kv, F = c.d_model, c.d_head or c.d_model // c.n_heads, c.n_kv_heads, ff_width(c)
    shapes = [(c.n_heads * D, C), *[((H_kv or c.n_heads) * D, C)] * 2]
    if c.project:
        shapes.append((C, c.n_heads * D))
    match c.feed_forward:
        case "none":
            return shapes
        case "linear-relu":
            return [*shapes, (C, C)]
        case "swiglu":
            return [*shapes, (F, C), (F, C), (C, F)]
    return [*shapes, (F, C), (C, F)]
