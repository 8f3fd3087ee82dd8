"""Activation patching: parts of the run on one text put into the run on another.

    heads      a head's output at every position
    positions  the residual stream before a block, at one position
    edges      what one key sends to one query through one head: weight x value

The measure is the logit of the answer minus that of the other answer. It is `before` in the run on
the other text, `after` in the run on the text, and a patch brings it from `before` towards `after`.
Every effect is estimated by one gradient, and measured exactly for those that matter most: the
model runs with the patch in place. The estimate's error is known where both are.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import AttentionCall, Layer
from glasshead.causes.carried import Pair, carried
from glasshead.causes.direct_path import stack_of_blocks
from glasshead.causes.question import Question
from glasshead.errors import InputError
from glasshead.observe.ablation import ChangeHook, attach_change_hooks
from glasshead.observe.layers import find_layers
from glasshead.observe.recording import observing
from glasshead.observe.trace import Trace
from glasshead.roles.subject import Subject

__all__ = ["PatchEffect", "Patched", "change_states", "estimate_error", "patch_texts"]

TOKENS = 4096  # of texts that run together
MEASURED = 2048  # heads or positions that are measured at most, all of them if there are fewer
ROWS = 64  # of a map of weights that edges are ranked in at a time


@dataclass(frozen=True)
class PatchEffect:
    """What one patch does to the measure."""

    place: tuple[int, ...]  # layer, head; block, position; or layer, head, query, key
    estimate: float  # by gradient
    exact: float | None = None  # measured, if it was


@dataclass(eq=False)
class Patched:
    """Effects on logit(answer) - logit(against), the largest first."""

    before: float  # in the run on the other text
    after: float  # in the run on the text
    heads: list[PatchEffect] = field(default_factory=list)
    positions: list[PatchEffect] = field(default_factory=list)
    edges: list[PatchEffect] = field(default_factory=list)

    def kinds(self) -> dict[str, list[PatchEffect]]:
        return {"heads": self.heads, "positions": self.positions, "edges": self.edges}

    def share(self, effect: float) -> float:
        """Return an effect as a share of the way from `before` to `after`."""
        return effect / (self.after - self.before)


def estimate_error(effects: Sequence[PatchEffect]) -> tuple[float, float]:
    """Return the largest and the mean difference between estimates and exact effects."""
    away = [abs(one.estimate - one.exact) for one in effects if one.exact is not None]
    return (max(away), sum(away) / len(away)) if away else (0.0, 0.0)


def patch_texts(subject: Subject, question: Question, other: Question, top: int = 10) -> Patched:
    """Put parts of the run on a question's text into the run on the other text.

    Both texts need as many tokens. The measure is taken at the row of the question.
    """
    if question.ids.shape != other.ids.shape:
        raise InputError(
            f"the texts have {question.ids.shape[1]} and {other.ids.shape[1]} tokens",
            hint="give two texts with the same number of tokens, such as with one word exchanged",
        )
    if question.against is None:
        raise InputError(
            "the two texts have the same answer, so there is nothing to bring back",
            hint="give a second text with another answer, or name one with --against",
        )
    runner = _Runner(subject, question, other)
    made = Patched(runner.before, runner.after)
    if abs(made.after - made.before) < 1e-9:
        raise InputError(
            "both texts give the same answer with the same logits", hint="give another second text"
        )
    made.heads = runner.rank_heads(top)
    made.positions = runner.rank_positions(top)
    made.edges = runner.rank_edges(top)
    return made


class _Runner:
    """Runs the model on the other text with patches in place."""

    def __init__(self, subject: Subject, question: Question, other: Question) -> None:
        self.subject, self.question, self.ids = subject, question, other.ids
        self.layers = find_layers(subject.model)
        self.blocks = stack_of_blocks(subject.model, [layer for layer, _ in self.layers])
        source = _Source(self.layers, self.blocks)
        with torch.no_grad(), source.attached():
            self.after = self.measure(question.ids)[0].item()
        self.source = source
        target = _Source(self.layers, self.blocks, gradients=True)
        with torch.enable_grad(), target.attached():
            value = self.measure(other.ids)[0]
        self.before = value.item()
        target.take_gradients(value)
        self.target = target

    def measure(self, ids: Tensor) -> Tensor:
        """Return logit(answer) - logit(against) of each text, (B,) float64."""
        logits = self.subject.logits_at(ids, self.question.at)
        answer, against = self.question.wanted
        return logits[:, answer].double() - logits[:, against].double()

    def rank_heads(self, top: int) -> list[PatchEffect]:
        estimates: dict[tuple[int, ...], float] = {}
        for layer, _ in self.layers:
            i = layer.index
            moved = self.source.contexts[i] - self.target.contexts[i]  # (1, H, T, D)
            each = (moved.double() * self.target.gradients[i].double()).sum((0, 2, 3))
            estimates |= {(i, h): x for h, x in enumerate(each.tolist())}

        def patch(rows: Sequence[tuple[int, ...]]) -> Any:
            return self._patch_heads(rows)

        return self._measured(estimates, top, patch)

    def rank_positions(self, top: int) -> list[PatchEffect]:
        estimates: dict[tuple[int, ...], float] = {}
        for n in range(len(self.blocks)):
            moved = self.source.states[n] - self.target.states[n]  # (1, T, C)
            each = (moved.double() * self.target.state_gradients[n].double()).sum((0, 2))
            estimates |= {(n, t): x for t, x in enumerate(each.tolist())}
        return self._measured(estimates, top, self._patch_positions)

    def rank_edges(self, top: int) -> list[PatchEffect]:
        """Rank every edge by its estimate, a band of rows at a time; measure the largest."""
        kept: list[tuple[float, tuple[int, ...], float]] = []
        traces = [self._record(ids) for ids in (self.question.ids, self.ids)]
        for layer, _ in self.layers:
            grads = self.target.gradients[layer.index][0].double().cpu()  # (H, T, D)
            one, two = (trace.layer_trace(layer.index) for trace in traces)
            assert one.v is not None
            assert two.v is not None
            H, T, S = one.shape[1:]
            group = H // one.v.shape[1]
            for h in range(H):
                for start in range(0, T, ROWS):
                    rows = slice(start, min(start + ROWS, T))
                    sent = [
                        x.tile(0, h, rows, slice(0, S)).double()
                        * (grads[h, rows] @ x.v[0, h // group].double().cpu().T)
                        for x in (one, two) if x.v is not None
                    ]  # fmt: skip
                    moved = sent[0] - sent[1]
                    order = moved.abs().flatten().topk(min(top, moved.numel())).indices.tolist()
                    for i in order:
                        x = moved.flatten()[i].item()
                        place = layer.index, h, start + i // S, i % S
                        heapq.heappush(kept, (abs(x), place, x))
                        if len(kept) > top:
                            heapq.heappop(kept)
        estimates = {place: x for _, place, x in kept}
        return self._measured(estimates, top, self._patch_edges)

    def _record(self, ids: Tensor) -> Trace:
        with torch.no_grad(), observing(self.subject.model, keep=["values"]) as trace:
            self.measure(ids)
        return trace

    def _measured(
        self, estimates: dict[tuple[int, ...], float], top: int,
        patch: Callable[[Sequence[tuple[int, ...]]], Any],
    ) -> list[PatchEffect]:  # fmt: skip
        """Measure the places with the largest estimates, all if they are few."""
        order = sorted(estimates, key=lambda place: -abs(estimates[place]))
        n = len(order) if len(order) <= MEASURED else max(top, MEASURED // 4)
        step = max(1, TOKENS // self.ids.shape[1])
        exact: dict[tuple[int, ...], float] = {}
        for start in range(0, n, step):
            rows = order[start : min(start + step, n)]
            with torch.no_grad(), patch(rows):
                values = self.measure(self.ids.expand(len(rows), -1)) - self.before
            exact |= dict(zip(rows, values.tolist(), strict=True))
        found = [PatchEffect(place, estimates[place], exact.get(place)) for place in order]
        return sorted(found, key=lambda one: -abs(one.estimate if one.exact is None else one.exact))

    def _patch_heads(self, rows: Sequence[tuple[int, ...]]) -> Any:
        hooks: dict[nn.Module, ChangeHook] = {}
        for layer, module in self.layers:
            plan = {n: row[1] for n, row in enumerate(rows) if row[0] == layer.index}
            if plan:
                hooks[module] = _HeadPatch(layer, plan, self.source.contexts[layer.index])
        return attach_change_hooks(hooks)

    def _patch_edges(self, rows: Sequence[tuple[int, ...]]) -> Any:
        hooks: dict[nn.Module, ChangeHook] = {}
        for layer, module in self.layers:
            plan = {
                n: (row[1], row[2], row[3]) for n, row in enumerate(rows) if row[0] == layer.index
            }
            if plan:
                sent = self.source.calls[layer.index]
                hooks[module] = _EdgePatch(layer, plan, carried(sent, 0, plan.values()))
        return attach_change_hooks(hooks)

    @contextmanager
    def _patch_positions(self, rows: Sequence[tuple[int, ...]]) -> Iterator[None]:
        def enter(n: int, x: Tensor) -> Tensor:
            chosen = [(b, row[1]) for b, row in enumerate(rows) if row[0] == n]
            if not chosen:
                return x
            x = x.clone()
            for b, position in chosen:
                x[b, position] = self.source.states[n][0, position]
            return x

        with change_states(self.blocks, enter):
            yield


@contextmanager
def change_states(
    blocks: Sequence[nn.Module], change: Callable[[int, Tensor], Tensor]
) -> Iterator[None]:
    """Replace what enters each block (B, T, C) by `change(n, x)` inside the `with`."""
    handles = []
    for n, block in enumerate(blocks):

        def enter(module: nn.Module, args: Any, options: dict[str, Any], n: int = n) -> Any:
            if args:
                return (change(n, args[0]), *args[1:]), options
            name = "hidden_states" if "hidden_states" in options else "x"
            return args, {**options, name: change(n, options[name])}

        handles.append(block.register_forward_pre_hook(enter, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Source:
    """What the parts of a run put out: contexts of heads, and what entered each block."""

    def __init__(
        self, layers: Sequence[tuple[Layer, nn.Module]], blocks: Sequence[nn.Module],
        gradients: bool = False,
    ) -> None:  # fmt: skip
        self.layers, self.blocks, self.wants_gradients = layers, blocks, gradients
        self.contexts: dict[int, Tensor] = {}  # by layer, (1, H, T, D)
        self.calls: dict[int, AttentionCall] = {}
        self.states: dict[int, Tensor] = {}  # by block, (1, T, C)
        self.gradients: dict[int, Tensor] = {}
        self.state_gradients: dict[int, Tensor] = {}
        self._zeros: dict[tuple[str, int], Tensor] = {}

    @contextmanager
    def attached(self) -> Iterator[None]:
        hooks = {module: _KeepHook(layer, self) for layer, module in self.layers}
        with attach_change_hooks(hooks), change_states(self.blocks, self.enter):
            yield

    def enter(self, n: int, x: Tensor) -> Tensor:
        self.states[n] = x.detach().clone()
        return self.with_gradient("block", n, x)

    def with_gradient(self, kind: str, n: int, x: Tensor) -> Tensor:
        """Return x plus zeros whose gradient is asked for later."""
        if not self.wants_gradients:
            return x
        zeros = self._zeros[kind, n] = torch.zeros_like(x, requires_grad=True)
        return x + zeros

    def take_gradients(self, value: Tensor) -> None:
        found = torch.autograd.grad(
            value, list(self._zeros.values()), allow_unused=True, materialize_grads=True
        )
        for (kind, n), grad in zip(self._zeros, found, strict=True):
            (self.state_gradients if kind == "block" else self.gradients)[n] = grad
        self._zeros.clear()


class _KeepHook(ChangeHook):
    """Keeps the context of a layer, and the call."""

    def __init__(self, layer: Layer, source: _Source) -> None:
        super().__init__(layer)
        self.source = source

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        context = super().after(call, context)
        self.source.contexts[self.layer.index] = context.detach().clone()
        self.source.calls[self.layer.index] = call
        return self.source.with_gradient("head", self.layer.index, context)


class _HeadPatch(ChangeHook):
    """Replaces a head's context in each sequence of a batch."""

    def __init__(self, layer: Layer, plan: dict[int, int], source: Tensor) -> None:
        super().__init__(layer)
        self.plan, self.source = plan, source

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        context = super().after(call, context).clone()
        for b, head in self.plan.items():
            context[b, head] = self.source[0, head]
        return context


class _EdgePatch(ChangeHook):
    """Replaces what an edge carries in each sequence of a batch."""

    def __init__(self, layer: Layer, plan: dict[int, Pair], sent: dict[Pair, Tensor]) -> None:
        super().__init__(layer)
        self.plan, self.sent = plan, sent

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        context = super().after(call, context).clone()
        for b, pair in self.plan.items():
            here = carried(call, b, [pair])[pair]
            context[b, pair[0], pair[1]] += (self.sent[pair] - here).to(context.dtype)
        return context
