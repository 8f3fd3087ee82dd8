"""A smallest set of edges that keeps the answer.

The model runs with the weights of all edges but those of the set at 0, after the softmax: a head
then puts out what the edges of the set carry, and nothing else. Edges are ranked by a gradient,
twice as many are tried each time until the answer is kept, and the set is then thinned until none
of its edges can be left out. The smallest of all sets cannot be found without trying all; this one
is a set in which every edge is needed.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import AttentionCall, Layer
from glasshead.causes.carried import Pair, carried
from glasshead.causes.question import Question, answer_logits, token_text
from glasshead.errors import InputError
from glasshead.observe.ablation import ChangeHook, attach_change_hooks
from glasshead.observe.layers import find_layers
from glasshead.observe.recording import observing
from glasshead.roles.subject import Subject

__all__ = ["EdgeSet", "keep_edges", "smallest_edges"]

MOST = 2048  # edges that are tried at most
SCALES = (0.25, 0.5, 0.75, 1.0)  # of all contexts, at which gradients are taken
ROWS = 64  # of a map of weights that edges are ranked in at a time

Edge = tuple[int, int, int, int]  # layer, head, query, key


@dataclass(frozen=True)
class EdgeSet:
    """Edges that suffice for the answer, the most important first."""

    edges: tuple[Edge, ...]
    keeps: bool  # False: not even the largest set that was tried keeps the answer
    probability: float  # of the answer with these edges alone
    of: int  # edges of the whole text
    runs: int  # of the model, until it was found


def smallest_edges(
    subject: Subject, question: Question, share: float = 0.5, most: int = MOST
) -> EdgeSet:
    """Return a set of edges that keeps the answer, none of which can be left out.

    An answer is kept if no other token is more probable, and its probability is at least `share` of
    that in the whole model. With `question.against`, the difference of their logits must be.
    """
    search = _Search(subject, question, share)
    ranked = search.rank(most)
    size = 0  # no edge at all may be enough: embedding and feed-forwards run on
    while not search.keeps(ranked[:size]):
        if size >= len(ranked):
            return search.result(ranked, False)
        size = min(max(1, 2 * size), len(ranked))
    low, high = size // 2, size  # low is known to be too few, unless it is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if search.keeps(ranked[:middle]) else (middle, high)
    return search.result(search.thin(ranked[:high] if size else []), True)


def keep_edges(subject: Subject, question: Question, edges: Sequence[Edge]) -> Tensor:
    """Return the logits (V,) at the question's row when only these edges carry anything."""
    hooks: dict[nn.Module, ChangeHook] = {
        module: _KeepEdges(layer, [edge[1:] for edge in edges if edge[0] == layer.index])
        for layer, module in find_layers(subject.model)
    }
    with torch.no_grad(), attach_change_hooks(hooks):
        return subject.logits_at(question.ids, question.at)[0]


class _KeepEdges(ChangeHook):
    """Lets a layer put out what some edges carry, and nothing else."""

    def __init__(self, layer: Layer, pairs: Sequence[Pair]) -> None:
        super().__init__(layer)
        self.pairs = pairs

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        made = torch.zeros_like(super().after(call, context))
        for (head, query, _), x in carried(call, 0, self.pairs).items():
            made[0, head, query] += x.to(made.dtype)
        return made


class _Scaled(ChangeHook):
    """Scales a layer's contexts and asks for their gradient."""

    def __init__(self, layer: Layer, scale: float) -> None:
        super().__init__(layer)
        self.scale = scale
        self.zeros: Tensor | None = None

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        context = super().after(call, context)
        self.zeros = torch.zeros_like(context, requires_grad=True)
        return context * self.scale + self.zeros


class _Search:
    def __init__(self, subject: Subject, question: Question, share: float) -> None:
        self.subject, self.question = subject, question
        self.runs, self.total = 0, 0
        with torch.no_grad():
            whole = answer_logits(subject, question).double()
        best = whole.argmax() == question.answer
        if share <= 0 or not (self._worth(whole) > 0 and (best or question.against is not None)):
            raise InputError(
                f"{token_text(subject, question.answer)!r} is not the answer of {subject.name}",
                hint="leave --answer out, or name a less probable token with --against",
            )
        self.least = share * self._worth(whole)

    def _worth(self, logits: Tensor) -> float:
        """Return the answer's probability; or its logit beyond that of the other answer."""
        answer, against = self.question.answer, self.question.against
        if against is None:
            return logits.double().softmax(-1)[answer].item()
        return (logits[answer].double() - logits[against].double()).item()

    def keeps(self, edges: Sequence[Edge]) -> bool:
        self.runs += 1
        logits = keep_edges(self.subject, self.question, edges)
        best = self.question.against is not None or int(logits.argmax()) == self.question.answer
        return best and self._worth(logits) >= self.least

    def result(self, edges: Sequence[Edge], kept: bool) -> EdgeSet:
        logits = keep_edges(self.subject, self.question, edges)
        p = logits.double().softmax(-1)[self.question.answer].item()
        return EdgeSet(tuple(edges), kept, p, self.total, self.runs)

    def rank(self, most: int) -> list[Edge]:
        """Return the edges by what they are worth by gradient, the most important first."""
        model, at = self.subject.model, self.question.at
        with torch.no_grad(), observing(model, keep=["values"]) as trace:
            self.subject.logits_at(self.question.ids, at)
        gradients = self._gradients()
        best: list[tuple[float, Edge]] = []
        for index, stored in trace.layer_traces.items():
            assert stored.v is not None
            _, H, T, S = stored.shape
            group = H // stored.v.shape[1]
            for h in range(H):
                values = stored.v[0, h // group].double().cpu()  # (S, D)
                for start in range(0, T, ROWS):
                    rows = slice(start, min(start + ROWS, T))
                    weights = stored.tile(0, h, rows, slice(0, S)).double()
                    self.total += int((weights > 0).sum())
                    along = gradients[index][h, rows] @ values.T
                    worth = (weights * along).abs().flatten()
                    for i in worth.topk(min(most, worth.numel())).indices.tolist():
                        if worth[i] > 0:
                            edge = index, h, start + i // S, i % S
                            heapq.heappush(best, (worth[i].item(), edge))
                            if len(best) > most:
                                heapq.heappop(best)
        return [edge for _, edge in sorted(best, reverse=True)]

    def _gradients(self) -> dict[int, Tensor]:
        """Return the gradient of the answer at each context, (H, T, D), over several scales."""
        total: dict[int, Tensor] = {}
        for scale in SCALES:
            hooks = {m: _Scaled(layer, scale) for layer, m in find_layers(self.subject.model)}
            with torch.enable_grad(), attach_change_hooks(hooks):
                logits = self.subject.logits_at(self.question.ids, self.question.at)[0]
            answer, against = self.question.answer, self.question.against
            if against is None:
                rivals = logits.detach().clone()
                rivals[answer] = -torch.inf
                against = int(rivals.argmax())
            zeros = [hook.zeros for hook in hooks.values() if hook.zeros is not None]
            found = torch.autograd.grad(
                logits[answer].double() - logits[against].double(), zeros, allow_unused=True,
                materialize_grads=True,
            )  # fmt: skip
            for hook, grad in zip(hooks.values(), found, strict=True):
                one = grad[0].double().cpu()
                index = hook.layer.index
                total[index] = total.get(index, torch.zeros_like(one)) + one / len(SCALES)
        return total

    def thin(self, edges: list[Edge]) -> list[Edge]:
        """Leave edges out, many at a time and then one by one, as long as the answer is kept."""
        size = max(1, len(edges) // 2)
        while edges:
            removed = False
            start = len(edges)
            while start > 0:
                cut = max(0, start - size)
                shorter = edges[:cut] + edges[start:]
                if self.keeps(shorter):
                    edges, removed = shorter, True
                start = cut
            if size == 1 and not removed:
                break
            size = size if size == 1 else max(1, size // 2)
        return edges
