"""Measure the score of every head in every role, with controls and intervals.

Each probe is read once, on the model's own kernels. Scores come from the recorded attention, one
layer at a time.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import AttentionCall, AttentionHook
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.model.gpt import GPT
from glasshead.observe.hooks import attach_hooks
from glasshead.observe.recording import observing
from glasshead.observe.trace import Trace
from glasshead.roles.catalogue import ROLES
from glasshead.roles.probes import Probe
from glasshead.roles.scores import (
    best_lag,
    role_scores,
    scores_by_chance,
    streaming_share,
    weight_by_chance,
    weight_by_place,
    weight_on,
)
from glasshead.roles.subject import Subject

__all__ = ["Measured", "RoleScores", "interval", "measure", "record_probe"]

Z95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)  # of t, 1 to 10 degrees
SAMPLED = 24, 997  # positions and tokens by which copying is measured
TOP = 0.01  # share of the vocabulary: a copied token is among so many


@dataclass(frozen=True, eq=False)
class RoleScores:
    """One role of all heads."""

    score: Tensor  # (L, H) mean over sequences
    low: Tensor  # (L, H) ends of its 95 % interval
    high: Tensor
    controls: dict[str, Tensor]  # (L, H) each: what a head without the role gets
    named: Tensor  # (L, H) bool


@dataclass(frozen=True, eq=False)
class Measured:
    """What the probes showed of all heads; layers in their order."""

    layers: tuple[int, ...]  # indices among the model's attention layers
    roles: dict[str, RoleScores]
    lags: Tensor  # (L, H) the distance of role "lag"
    means: dict[str, Tensor]  # (L, H) statistics on the text
    streaming: Tensor  # (L, H) share of weight on the first key and the 128 last ones
    n_kv_heads: int  # heads of keys, which query heads share in groups


def interval(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ends of the 95 % interval of the mean over the first dimension.

    >>> low, high = interval(torch.tensor([1.0, 2.0, 3.0]))
    >>> round(low.item(), 2), round(high.item(), 2)
    (-0.48, 4.48)
    """
    n = len(values)
    if n < 2:
        return values[0], values[0]
    t = Z95[n - 2] if n - 2 < len(Z95) else 1.96
    half = t * values.std(0) / math.sqrt(n)
    return values.mean(0) - half, values.mean(0) + half


@torch.no_grad()
def measure(subject: Subject, probes: Mapping[str, Probe]) -> Measured:
    """Read each probe once and score all heads."""
    scores: dict[str, list[Tensor]] = {}  # role -> (B, H) of each layer
    controls: dict[str, dict[str, list[Tensor]]] = {}
    lags, streaming = [], []
    found: Trace | None = None

    def add(role: str, score: Tensor, **others: Tensor) -> None:
        scores.setdefault(role, []).append(score.double().cpu())
        for name, value in others.items():
            kept = controls.setdefault(role, {}).setdefault(name, [])
            kept.append(value.double().cpu().expand(score.shape))

    for probe in {id(p): p for p in probes.values()}.values():
        trace = record_probe(subject, probe)
        visible = _visible(subject, probe)
        for index in trace.layer_traces:
            if probe is probes["text"]:
                statistics = trace.statistics(index)
                even = scores_by_chance(statistics)
                for role, score in role_scores(statistics).items():
                    if ROLES[role].measured_on == "text":
                        by = {"uniform": even[role]} if role in even else {}
                        add(role, score, **by)
                lags.append(best_lag(statistics)[1].float().cpu().median(0).values)
                streaming.append(streaming_share(statistics).mean(0).cpu())
            weights = trace.weights(index) if probe.targets else None
            for role, targets in probe.targets.items():
                if weights is None or ROLES[role].measured_on != probe.name:
                    continue
                w = _hits(weights) if role == "retrieval" else weights
                moved = _shuffled(targets, probe.rows.shape[1])
                add(
                    role, weight_on(w, targets),
                    uniform=weight_by_chance(visible, targets),
                    place=weight_by_place(w, visible, targets),
                    shuffled=weight_on(w, moved & visible),
                )  # fmt: skip
        if probe is probes["text"]:
            found = trace
        if "repeat" in probes and probe is probes["repeat"] and isinstance(subject.model, GPT):
            for score, shuffled in _copying(subject.model, probe):
                chance = torch.tensor(TOP)
                add("copying", score, uniform=chance, shuffled=shuffled)
    assert found is not None
    means = {name: found.means(0)[name] for name in found.means(0)}
    roles = {
        role: _summary(role, torch.stack(each), controls.get(role, {}))
        for role, each in scores.items()
    }
    for role, one in roles.items():
        for exact in ROLES[role].within:
            if exact in roles:
                one.named.logical_and_(~roles[exact].named)
    keys = next(iter(found.layer_traces.values())).k
    assert keys is not None
    return Measured(
        tuple(found.layer_traces), roles, torch.stack(lags), means, torch.stack(streaming),
        keys.shape[1],
    )  # fmt: skip


def _summary(role: str, score: Tensor, controls: dict[str, list[Tensor]]) -> RoleScores:
    """Average over sequences; name the heads that stand out.

    `score` is (L, B, H).
    """
    score = score.transpose(0, 1)  # (B, L, H)
    each = {name: torch.stack(one).transpose(0, 1) for name, one in controls.items()}
    low, high = interval(score)
    named = score.mean(0) >= ROLES[role].least
    for control in each.values():
        named &= interval(score - control)[0] > 0
    return RoleScores(score.mean(0), low, high, {n: x.mean(0) for n, x in each.items()}, named)


def record_probe(subject: Subject, probe: Probe) -> Trace:
    """Record the attention of every layer while the model reads a probe."""
    with observing(subject.model, ids=probe.ids.cpu()) as trace:
        if isinstance(subject.model, GPT):
            subject.model.features(probe.ids)
        else:
            subject.output(probe.ids)
    trace.tokens = [subject.decode(row) for row in probe.ids.tolist()]
    return trace


def _visible(subject: Subject, probe: Probe) -> Tensor:
    T = probe.ids.shape[1]
    every = torch.ones(1, T, T, dtype=torch.bool)
    return every.tril() if subject.predicts else every


def _hits(weights: Tensor) -> Tensor:
    """Return 1 at the key with most weight of each row, and 0 elsewhere."""
    return torch.zeros_like(weights).scatter_(-1, weights.argmax(-1, keepdim=True), 1)


def _shuffled(targets: Tensor, T: int) -> Tensor:
    """Return the targets of a text whose keys are in another order, the first one apart."""
    order = torch.randperm(T - 1, generator=torch.Generator().manual_seed(0)) + 1
    return targets.cpu()[:, :, torch.cat([torch.tensor([0]), order])]


class _ValueHook(AttentionHook):
    """Keeps the values of a layer."""

    v: Tensor

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        self.v = call.v
        return context


def _copying(model: GPT, probe: Probe) -> list[tuple[Tensor, Tensor]]:
    """Return how often a head's value raises its own token more than 99 % of others, (B, H) of each
    layer; and how often it raises another token of the text so."""
    layers = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    hooks: dict[nn.Module, _ValueHook] = {layer: _ValueHook() for layer in layers}
    with attach_hooks(hooks):
        model.features(probe.ids)
    generator = torch.Generator().manual_seed(0)
    n, m = min(SAMPLED[0], probe.ids.shape[1] - 1), min(SAMPLED[1], model.config.vocab_size)
    at = torch.randperm(probe.ids.shape[1] - 1, generator=generator)[:n] + 1
    others = torch.randperm(model.config.vocab_size, generator=generator)[:m].to(probe.ids.device)
    own = probe.ids[:, at]  # (B, n)
    table = model.head.weight
    found = []
    for layer in layers:
        v = hooks[layer].v[:, :, at]  # (B, H_kv, n, D)
        H, D = layer.n_heads, v.shape[-1]
        v = v.repeat_interleave(H // v.shape[1], 1)
        out = _projection(layer).view(-1, H, D)  # (C, H, D)
        added = torch.einsum("bhnd,chd->bhnc", v, out)
        x = model.norm(added) - model.norm(torch.zeros_like(added[:1, :1, :1]))
        logits = x @ table[others].T  # (B, H, n, m)
        rivals = logits.quantile(1 - TOP, -1)  # (B, H, n)
        mine = torch.einsum("bhnc,bnc->bhn", x, table[own])
        moved = torch.einsum("bhnc,bnc->bhn", x, table[own.roll(1, 1)])
        found.append(tuple((one > rivals).double().mean(-1) for one in (mine, moved)))
    return found


def _projection(layer: MultiHeadAttention) -> Tensor:
    """Return the matrix (C, H x D) from the merged heads to the residual stream."""
    if isinstance(layer.out, nn.Linear):
        return layer.out.weight
    return torch.eye(layer.d_model, device=layer.qkv.weight.device)  # heads are not projected
