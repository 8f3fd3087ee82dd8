"""What every head and every edge adds to a logit.

    logit = embedding + sum of heads + sum of feed-forwards + biases
    head  = sum over keys of weight * (value of the key through the head, along the logit)

An edge leads from the row that is asked about to a key. What other rows contribute goes through
the values of the keys and is not told apart here: `patching.py` and `smallest.py` do that.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshead.causes.direct_path import DirectPath, Written, find_writers, read_path
from glasshead.causes.question import Question
from glasshead.errors import InputError
from glasshead.observe.recording import observing
from glasshead.observe.trace import Trace
from glasshead.observe.trace_storage import LayerTrace
from glasshead.roles.subject import Subject

__all__ = ["Attribution", "EdgePart", "attribute"]

Head = tuple[int, int]  # layer and head
KEYS = 2**14  # whose values are looked at together
CLOSE = 0.05  # how far what a projection got may be from the context, as a share of it
ALLOWED = 1e-3  # of the sum of all parts' sizes: what the sum may be away from the logit
ALLOWED_HALF = 5e-2  # the same of models in 16 bits


@dataclass(frozen=True)
class EdgePart:
    """What one key's value adds to the logit through one head."""

    layer: int
    head: int
    query: int
    key: int
    weight: float
    adds: float


@dataclass(frozen=True, eq=False)
class Attribution:
    """A logit as a sum; `heads[n, h]` belongs to layer `layers[n]`."""

    logit: float  # of the answer, minus that of `against`
    embedding: float
    heads: Tensor  # (L, H) float64; NaN where a layer's heads cannot be told apart
    layers: tuple[int, ...]
    feed_forwards: dict[str, float]  # and all else that writes into the residual stream, by module
    biases: float  # of projections, norms and the output layer
    edges: list[EdgePart]  # the largest, by what they add or take away
    edge_sums: Tensor  # (L, H) float64: the sum over all edges of a head
    trace: Trace

    @property
    def total(self) -> float:
        heads = self.heads.nan_to_num().sum().item()
        return self.embedding + heads + sum(self.feed_forwards.values()) + self.biases

    @property
    def error(self) -> float:
        """How far the sum is from the logit that the model computed."""
        return self.total - self.logit

    def strongest(self, k: int) -> list[tuple[Head, float]]:
        """Return the heads that add or take away most."""
        H = self.heads.shape[1]
        order = self.heads.nan_to_num().abs().flatten().argsort(descending=True)[:k].tolist()
        return [((self.layers[i // H], i % H), self.heads.flatten()[i].item()) for i in order]


def attribute(
    subject: Subject, question: Question, top: int = 10
) -> tuple[Attribution, DirectPath]:
    """Split a logit into what each part of the model adds to it; return the path, too.

    Args:
        top: how many edges are kept; all are summed.
    """
    writers = find_writers(subject, question)
    with observing(subject.model, keep=["values"]) as trace:
        path = read_path(subject, question, writers)
    trace.tokens = [list(question.tokens)]
    shape = len(trace.layer_traces), max(one.shape[1] for one in trace.layer_traces.values())
    heads, sums = torch.full((2, *shape), torch.nan, dtype=torch.double)
    left, biases = list(path.written), path.norm_biases + path.head_bias
    largest = _Largest(top)
    for n, (index, stored) in enumerate(trace.layer_traces.items()):
        weights = _weights(stored, question.at)  # (H, S)
        found = _projection_after(_context(stored, weights), left)
        if found is None:
            continue
        left.remove(found)
        H = len(weights)
        context, along = found.given.double().cpu().view(H, -1), _along(found).view(H, -1)
        heads[n, :H] = (context * along).sum(-1)
        biases += found.adds - heads[n, :H].sum().item()  # its own bias
        adds = weights * _values_along(stored, along)  # (H, S)
        sums[n, :H] = adds.sum(-1)
        largest.add(index, question.at, weights, adds)
    parts = {one.name: one.adds for one in left}
    made = Attribution(path.logit, path.embedding.adds, heads, tuple(trace.layer_traces), parts,
                       biases, largest.sorted(), sums, trace)  # fmt: skip
    _check(subject, made)
    return made, path


class _Largest:
    """Keeps the edges that add or take away most."""

    def __init__(self, k: int) -> None:
        self.k = k
        self._kept: list[tuple[float, int, EdgePart]] = []
        self._count = 0

    def add(self, layer: int, query: int, weights: Tensor, adds: Tensor) -> None:
        S = adds.shape[1]
        order = adds.abs().flatten().topk(min(self.k, adds.numel())).indices.tolist()
        for i in order:
            h, key = divmod(i, S)
            part = EdgePart(layer, h, query, key, weights[h, key].item(), adds[h, key].item())
            self._count += 1
            entry = abs(part.adds), -self._count, part
            if len(self._kept) < self.k:
                heapq.heappush(self._kept, entry)
            else:
                heapq.heappushpop(self._kept, entry)

    def sorted(self) -> list[EdgePart]:
        return [part for *_, part in sorted(self._kept, reverse=True)]


def _weights(stored: LayerTrace, row: int) -> Tensor:
    """Return one row's weights in all heads, (H, S) float64."""
    _, H, _, S = stored.shape
    rows = [stored.tile(0, h, slice(row, row + 1), slice(0, S)) for h in range(H)]
    return torch.cat(rows).double()


def _blocks_of_values(stored: LayerTrace) -> Iterator[tuple[slice, Tensor]]:
    """Yield the values of some keys at a time, (H_kv, n, D) float64."""
    if stored.v is None:
        raise InputError(f"{stored.layer} has no values", hint='record with keep=["values"]')
    for start in range(0, stored.shape[3], KEYS):
        part = slice(start, min(start + KEYS, stored.shape[3]))
        yield part, stored.v[0, :, part].double().cpu()


def _context(stored: LayerTrace, weights: Tensor) -> Tensor:
    """Return the merged context of a row, (H x D), from its weights (H, S)."""
    total: Tensor | float = 0.0
    for part, values in _blocks_of_values(stored):
        group = len(weights) // len(values)
        total = total + weights[:, None, part] @ values.repeat_interleave(group, 0)
    assert isinstance(total, Tensor)
    return total.flatten()


def _values_along(stored: LayerTrace, along: Tensor) -> Tensor:
    """Return each key's value along each head's direction (H, D): (H, S)."""
    found = []
    for _, values in _blocks_of_values(stored):
        grouped = along.view(len(values), -1, along.shape[1])  # (H_kv, H / H_kv, D)
        found.append((grouped @ values.mT).flatten(0, 1))
    return torch.cat(found, 1)


def _projection_after(context: Tensor, written: list[Written]) -> Written | None:
    """Return the module that was given this context; None if there is none."""
    best, least = None, CLOSE * (context.norm().item() + 1e-9)
    for one in written:
        if one.given.numel() == context.numel():
            away = (one.given.double().cpu() - context).norm().item()
            if away < least:
                best, least = one, away
    return best


def _along(found: Written) -> Tensor:
    """Return the direction in a projection's input that adds to the logit, (H x D) float64."""
    gradient, weight = found.gradient.double().cpu(), getattr(found.module, "weight", None)
    if not isinstance(weight, Tensor):
        return gradient  # heads are not projected
    matrix = weight.detach().double().cpu()
    transposed = not isinstance(found.module, nn.Linear)  # Conv1D of transformers
    return matrix @ gradient if transposed else gradient @ matrix


def _check(subject: Subject, made: Attribution) -> None:
    """Raise if the parts do not add up to the logit, or the edges not to their heads."""
    half = next(subject.model.parameters()).dtype.itemsize < 4
    sizes = made.heads.nan_to_num().abs().sum().item() + abs(made.embedding) + abs(made.biases)
    sizes += sum(map(abs, made.feed_forwards.values()))
    allowed = (ALLOWED_HALF if half else ALLOWED) * (1 + sizes)
    edges = (made.edge_sums - made.heads).nan_to_num().abs().max().item()
    if abs(made.error) > allowed or edges > allowed:
        raise InputError(
            f"the parts of {subject.name} add up to {made.total:.4f}, but its logit is "
            f"{made.logit:.4f}: it does more than add them",
            hint="choose a model whose blocks add to a residual stream",
        )
