"""Switch heads or edges off while a model runs: does the answer change without them?

    with ablating(model, heads=[(3, 0)]):                      # layer 3, head 0 outputs nothing
        model(ids)
    with ablating(model, edges=[Edge(query=17, key=5)]):       # 17 may not attend to 5, anywhere
        model(ids)

That a head attends to a token shows what it reads, not that the answer depends on it. Ablation
tests this. `observing` works outside or inside: it records the attention that took place. The map
of an ablated head is still recorded: its weights exist, but its context is replaced.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import AttentionCall, AttentionHook, Layer, PendingCall
from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.attention.scores import grouped_matmul
from glasshead.errors import AblationError, ConfigError, InputError, did_you_mean
from glasshead.observe.hooks import attach_hooks
from glasshead.observe.layers import choose_layers, find_layers
from glasshead.observe.trace_storage import masked_scores, to_float

__all__ = ["ChangeHook", "Edge", "ablating", "attach_change_hooks", "head_means"]

MODES = ("zero", "mean")
BAND = 2**22  # weights that are computed at a time


@dataclass(frozen=True)
class Edge:
    """From a query to a key: a pair that `ablating` hides.

    >>> import glasshead, torch
    >>> model = glasshead.GPT(glasshead.GPTConfig(vocab_size=7, n_layers=2, d_model=16))
    >>> edge = glasshead.Edge(query=4, key=1, layer=0)
    >>> with glasshead.ablating(model, edges=[edge]), glasshead.observing(model) as trace:
    ...     logits = model(torch.arange(5)[None])
    >>> trace.weights(layer=0)[0, :, 4, 1].tolist()  # of each head
    [0.0, 0.0, 0.0, 0.0]

    Args:
        key: the position that is attended to, or a slice of positions.
        query: the position that attends, or a slice of positions; every one when None.
        layer: by index or name, as in `trace.layers`; every one when None.
        head: every one when None.

    Positions count from the start of the text, cached ones included; negative ones from the end of
    the text at each call.
    """

    key: int | slice
    query: int | slice | None = None
    layer: int | str | None = None
    head: int | None = None


@contextmanager
def ablating(
    model: nn.Module,
    *,
    heads: Iterable[tuple[int | str, int]] = (),
    edges: Iterable[Edge] = (),
    mode: str = "zero",
    means: Mapping[int, Tensor] | None = None,
    renormalise: bool = True,
) -> Iterator[None]:
    """Run the model without these heads and edges inside the `with`.

    >>> import glasshead, torch
    >>> model = glasshead.GPT(glasshead.GPTConfig(vocab_size=7, n_layers=2, d_model=16))
    >>> ids = torch.arange(5)[None]
    >>> with glasshead.ablating(model, heads=[(1, 0)]):  # layer 1, head 0
    ...     without = model(ids)
    >>> torch.equal(without, model(ids))
    False

    Args:
        model: one of ours, or one of `transformers` (edges: on sdpa or eager, without a cache).
        heads: pairs (layer, head). The head's context is replaced before the projection.
        edges: pairs of positions that may not attend, in every sequence of the batch.
        mode: what replaces a head's context: "zero", or "mean", its mean over the positions of the
            call that are not padding.
        means: for mode "mean", the means over a reference text instead, from `head_means`.
        renormalise: True hides edges before the softmax, so that the row's other weights grow.
            False sets their weights to 0 after it (our models only).

    A query that has no key left gets context 0. Raises AblationError at the end if a layer did not
    run or an edge lay outside the text, so that no result is "without X" by mistake.
    """
    if mode not in MODES:
        raise ConfigError(f"unknown mode '{mode}'", hint=did_you_mean(mode, MODES))
    if means is not None and mode != "mean":
        raise ConfigError(f"means do not go with mode '{mode}'", hint='use mode="mean"')
    pairs, wanted_edges = [_check_pair(pair) for pair in heads], list(edges)
    found = find_layers(model)
    layers = [layer for layer, _ in found]
    of_heads: dict[int, list[int]] = defaultdict(list)
    of_edges: dict[int, list[Edge]] = defaultdict(list)
    for where, head in pairs:
        (index,) = choose_layers(layers, [where])
        of_heads[index].append(head)
    for edge in wanted_edges:
        if edge.layer is None:
            _check_one_stack(layers)
        for index in choose_layers(layers, None if edge.layer is None else [edge.layer]):
            of_edges[index].append(edge)
    hooks = {
        module: _AblationHook(
            layer,
            module,
            of_heads[layer.index],
            of_edges[layer.index],
            mode,
            renormalise,
            None if means is None else means.get(layer.index),
        )
        for layer, module in found
        if of_heads[layer.index] or of_edges[layer.index]
    }
    with attach_change_hooks(hooks):
        yield
    found_edges = [edge for hook in hooks.values() for edge in hook.found_edges]
    for edge in wanted_edges:
        if edge not in found_edges:
            longest = max(hook.longest for hook in hooks.values())
            raise AblationError(
                f"{edge} is outside the text: the last key was {longest - 1}",
                hint="positions count from 0; a query and a key both need to be in the text",
            )


class ChangeHook(AttentionHook):
    """A hook that changes the context of a layer, and counts the calls it saw."""

    calls = 0

    def __init__(self, layer: Layer) -> None:
        self.layer: Layer = layer

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        self.calls += 1
        H = call.q.shape[1]
        if context.dim() != 4 or context.shape[1] != H:
            raise AblationError(
                f"{self.layer} gives a context of {tuple(context.transpose(1, 2).shape)}, not one "
                f"vector for each of {H} heads",
                hint="choose other layers",
            )
        return context


@contextmanager
def attach_change_hooks(hooks: Mapping[nn.Module, ChangeHook]) -> Iterator[None]:
    """Attach hooks inside the `with`; raise at the end if one of the layers did not run."""
    with attach_hooks(hooks):
        yield
    for hook in hooks.values():
        if not hook.calls:
            raise AblationError(
                f"{hook.layer} did not run, so nothing was changed in it",
                hint="call the model inside the `with`; if you did, it does not use this layer",
            )


def head_means(model: nn.Module, run: Callable[[], object]) -> dict[int, Tensor]:
    """Return the mean context of each head while `run()` runs the model, {layer: (H, D)} float32.

    Means over all calls and all positions that are not padding; for `ablating(means=...)`.
    """
    hooks = {module: _MeanHook(layer) for layer, module in find_layers(model)}
    with torch.no_grad(), attach_change_hooks(hooks):
        run()
    return {hook.layer.index: hook.mean() for hook in hooks.values()}


class _MeanHook(ChangeHook):
    """Adds up the contexts of a layer over positions that are not padding."""

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer)
        self.totals: list[Tensor] = []
        self.n = 0

    def mean(self) -> Tensor:
        return (torch.stack(self.totals).sum(0) / max(self.n, 1)).float()

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        context = super().after(call, context)
        B, _, T, _ = context.shape
        real = call.real_queries()
        real = context.new_ones(B, T, dtype=torch.bool) if real is None else real.expand(B, T)
        self.totals.append((context.double() * real[:, None, :, None]).sum((0, 2)))
        self.n += int(real.sum())
        return context


class _AblationHook(ChangeHook):
    """Ablates heads and edges of one layer."""

    hides = True  # also checks the heads before the layer runs

    def __init__(
        self,
        layer: Layer,
        module: nn.Module,
        heads: list[int],
        edges: list[Edge],
        mode: str,
        renormalise: bool,
        means: Tensor | None = None,
    ) -> None:
        super().__init__(layer)
        self.module, self.heads, self.edges = module, heads, edges
        self.mode, self.renormalise, self.means = mode, renormalise, means
        self.found_edges: list[Edge] = []
        self.longest = 0
        self._hidden: Tensor | None = None  # after the softmax, of the call that runs
        n_heads = getattr(module, "n_heads", None)  # of transformers' it is known when they run
        if isinstance(n_heads, int):
            self._check_heads(n_heads)
        if edges and not renormalise and not isinstance(module, MultiHeadAttention):
            raise AblationError(
                f"edges of {layer} cannot be hidden after its softmax",
                hint="hide them before: renormalise=True",
            )

    def _check_heads(self, n_heads: int) -> None:
        for head in (*self.heads, *(e.head for e in self.edges if e.head is not None)):
            if not -n_heads <= head < n_heads:
                raise InputError(
                    f"{self.layer} has no head {head}",
                    hint=f"there are {n_heads}, counted from 0",
                )

    def hidden(self, call: PendingCall) -> Tensor | None:
        self._check_heads(call.H)
        cells = self._cells(call)
        self._hidden = None if self.renormalise else cells
        if self._hidden is None:
            return cells
        assert isinstance(self.module, MultiHeadAttention)
        if self.module.training and self.module.dropout:
            raise AblationError(
                f"{self.layer} drops weights at random (dropout {self.module.dropout})",
                hint="call model.eval(), or hide edges with renormalise=True",
            )
        return None

    def _cells(self, call: PendingCall) -> Tensor | None:
        """Return True at the pairs of the edges, (H | 1, T | 1, S)."""
        if not self.edges:
            return None
        self.longest = max(self.longest, call.S)
        H = 1 if all(edge.head is None for edge in self.edges) else call.H
        T = 1 if all(edge.query is None for edge in self.edges) else call.T
        cells = torch.zeros(H, T, call.S, dtype=torch.bool, device=call.device)
        for edge in self.edges:
            rows, cols = _rows(edge, call, self.layer), _positions(edge.key, call.S)
            if rows.numel() and cols.numel():
                self.found_edges.append(edge)
                of_heads = cells if edge.head is None else cells[edge.head][None]
                of_heads[:, rows[:T, None], cols] = True
        return cells

    def edit(self, call: AttentionCall) -> AttentionCall:
        return call if self._hidden is None else _zero_weights(call, self._hidden)

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        context = super().after(call, context)
        if not self.heads:
            return context
        ablated = torch.zeros(context.shape[1], 1, 1, dtype=torch.bool, device=context.device)
        ablated[self.heads] = True
        return torch.where(ablated, self._instead(call, context), context)

    def _instead(self, call: AttentionCall, context: Tensor) -> Tensor | int:
        if self.means is not None:
            return self._reference(context)
        return 0 if self.mode == "zero" else _mean(context, call.real_queries())

    def _reference(self, context: Tensor) -> Tensor:
        assert self.means is not None
        if self.means.shape != (context.shape[1], context.shape[3]):
            raise AblationError(
                f"the means of {self.layer} have shape {tuple(self.means.shape)}, its heads "
                f"{(context.shape[1], context.shape[3])}",
                hint="use head_means of the same model",
            )
        return self.means[:, None].to(context)


def _zero_weights(call: AttentionCall, hidden: Tensor) -> AttentionCall:
    """Return the call with the hidden weights set to 0 and the others as they were."""
    (B, H, T, _), S = call.q.shape, call.k.shape[2]
    assert call.lse is not None
    mask, scoring = call.mask & Mask(dense=~hidden), call.scoring
    changed = hidden.any(-1, keepdim=True).expand(-1, T, -1)  # (H | 1, T, 1)
    step = max(1, BAND // max(1, B * H * S))
    bands = []
    for start in range(0, T, step):
        rows = slice(start, min(start + step, T))
        s = masked_scores(call.q, call.k, mask, scoring, rows, slice(0, S))
        lse = call.lse[:, :, rows, None]
        # An empty row has scores of -inf only, and weights 0.
        weights = (s - lse.masked_fill(lse == -torch.inf, 0)).exp()
        context = grouped_matmul(weights, to_float(call.v)).to(call.context.dtype)
        bands.append(torch.where(changed[:, rows], context, call.context[:, :, rows]))
    context = torch.cat(bands, 2) if bands else call.context
    return replace(call, describe=lambda: (mask, scoring), context=context)


def _mean(context: Tensor, real: Tensor | None) -> Tensor:
    """Return the mean (H, 1, D) of a context (B, H, T, D) over positions that are not padding."""
    B, _, T, _ = context.shape
    if B * T == 1:
        raise AblationError(
            "the mean over one position is that position itself",
            hint='give more text at once, or use mode="zero"',
        )
    if real is None:
        return context.mean(dim=(0, 2))[:, None]
    counts = real.expand(B, T)[:, None, :, None].to(context.dtype)  # (B, 1, T, 1)
    return ((context * counts).sum(dim=(0, 2)) / counts.sum().clamp(min=1))[:, None]


def _rows(edge: Edge, call: PendingCall, layer: Layer) -> Tensor:
    """Return the rows of this call that an edge means."""
    if call.first is None and (edge.query is not None or not call.cross):
        raise AblationError(
            f"{edge} cannot be found in {layer}: with a cache the positions of its queries are not "
            "known",
            hint="give the whole text at once, without a cache"
            + ("; or leave query out" if call.cross else ""),
        )
    if edge.query is None:
        return torch.arange(call.T)
    assert call.first is not None
    rows = _positions(edge.query, call.first + call.T) - call.first
    return rows[rows >= 0]


def _positions(part: int | slice, size: int) -> Tensor:
    """Return the positions from 0 to size - 1 that are meant; none if a number lies outside.

    >>> _positions(-1, 7), _positions(7, 7), _positions(slice(5, 99), 7)
    (tensor([6]), tensor([], dtype=torch.int64), tensor([5, 6]))
    """
    if isinstance(part, slice):
        return torch.tensor(range(size)[part], dtype=torch.int64)
    return torch.tensor([part % size] if -size <= part < size else [], dtype=torch.int64)


def _check_pair(pair: object) -> tuple[int | str, int]:
    match pair:
        case (int() | str() as layer, int() as head):
            return layer, head
    raise ConfigError(f"{pair!r} in heads is not a pair", hint="use heads=[(layer, head)]")


def _check_one_stack(layers: list[Layer]) -> None:
    if len({(layer.part, layer.kind) for layer in layers}) > 1:
        raise ConfigError(
            "an edge without a layer is ambiguous: encoder, decoder and cross-attention have "
            "positions of their own",
            hint=f"name its layer: {', '.join(map(str, layers))}",
        )
