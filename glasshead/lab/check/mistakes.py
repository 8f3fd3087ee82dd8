"""Each named mistake: which steps of the reference it replaces, and where in a source it shows.

To add one: a line in `MISTAKES`, and its texts in `mistakes.toml`. A name may have several lines,
for the several ways to make the same mistake.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from glasshead.lab.check import pipeline as p
from glasshead.lab.check.pipeline import Array, Step, Work

__all__ = ["MISTAKES", "Mistake", "merge_interleaved", "pairs", "split_interleaved"]


@dataclass(frozen=True)
class Mistake:
    name: str
    steps: Mapping[str, Step]
    needs: str = ""  # "causal": shows only if the target is meant to be causal

    def __add__(self, other: "Mistake") -> "Mistake":
        both = {**self.steps, **other.steps}
        return Mistake(f"{self.name}+{other.name}", both, self.needs or other.needs)


# Scale


def _scaled(factor: Callable[[Work], float]) -> Step:
    def step(w: Work) -> None:
        w.scores = w.scores * factor(w)

    return step


def _scale_after(w: Work) -> None:
    w.weights = p.softmax(w.scores) * w.q.shape[-1] ** -0.5


def _nothing(w: Work) -> None:
    pass


# Which keys


def _allowing(rule: Callable[[Work], Array]) -> Step:
    def step(w: Work) -> None:
        p.set_allowed(w, rule(w))

    return step


def _starts_aligned(w: Work, shift: int = 0) -> Array:
    _, T, S = w.case.sizes
    return np.arange(T)[:, None] + shift >= np.arange(S)


def _causal_as(rule: Callable[[Work], Array]) -> Step:
    """Replace the causal part of the mask, where the case is causal at all."""
    return _allowing(lambda w: p.caller_mask(w) & (rule(w) if w.case.causal else True))


def _caller_as(rule: Callable[[Work], Array]) -> Step:
    return _allowing(lambda w: rule(w) & p.causal_mask(w))


def _inverted(w: Work) -> Array:
    given = w.case.allowed is not None or w.case.keys is not None
    return ~p.caller_mask(w) if given else p.caller_mask(w)


def _transposed(w: Work) -> Array:
    allowed = p.caller_mask(w)
    return allowed.swapaxes(-1, -2) if allowed.shape[-1] == allowed.shape[-2] else allowed


def _queries_padded(w: Work) -> Array:
    _, T, S = w.case.sizes
    if w.case.keys is None or T != S:
        return p.caller_mask(w)
    return np.broadcast_to(w.case.keys[:, None, :, None], w.scores.shape)


def _window_wider(w: Work) -> Array:
    _, T, S = w.case.sizes
    allowed = p.caller_mask(w) & p.causal_mask(w)
    width = w.case.options.get("window")
    return allowed if width is None else allowed & (p.distance(T, S) <= width)


def _window_narrower(w: Work) -> Array:
    _, T, S = w.case.sizes
    allowed = p.caller_mask(w) & p.causal_mask(w)
    width = w.case.options.get("window")
    return allowed if width is None else allowed & (p.distance(T, S) < width - 1)


# How keys are hidden


def _mask_after(w: Work) -> None:
    w.weights = p.softmax(w.scores) * w.allowed


def _mask_multiplied(w: Work) -> None:
    w.scores = np.where(w.allowed, w.scores, 0.0)
    w.unsure = None


def _mask_added(w: Work) -> None:
    if w.case.causal or w.case.allowed is not None or w.case.keys is not None:
        w.scores = w.scores + w.allowed
    w.unsure = None


def _mask_added_float(w: Work) -> None:
    if w.case.causal or w.case.allowed is not None or w.case.keys is not None:
        w.scores = w.scores + ~w.allowed
    w.unsure = None


def _filled(value: float, adds: bool = False) -> Step:
    def step(w: Work) -> None:
        w.scores = np.where(w.allowed, w.scores, value + w.scores * adds)
        w.unsure = None

    return step


# Softmax


def _softmax_over(*axes: int) -> Step:
    def step(w: Work) -> None:
        w.weights = p.softmax(w.scores, axes if len(axes) > 1 else axes[0])
        if axes != (-1,):
            w.unsure = None

    return step


def _softmax_missing(w: Work) -> None:
    w.weights = np.where(w.allowed, w.scores, 0.0)


def _ratio(w: Work) -> None:
    scores = np.where(w.allowed, w.scores, 0.0)
    w.weights = scores / scores.sum(-1, keepdims=True)


def _softmax_twice(w: Work) -> None:
    w.weights = p.softmax(p.softmax(w.scores))


def _sum_missing(w: Work) -> None:
    w.weights = np.where(w.allowed, np.exp(w.scores), 0.0)


# Heads


def _view(x: Array, n_heads: int) -> Array:
    return x.reshape(x.shape[0], n_heads, x.shape[1], -1)


def _split_by_view(w: Work) -> None:
    h, kv = w.params.n_heads, w.params.n_kv_heads
    w.q, w.k, w.v = _view(w.q, h), _view(w.k, kv), _view(w.v, kv)


def _merge_by_view(w: Work) -> None:
    B, H, T, D = w.context.shape
    w.context = w.context.reshape(B, T, H * D)


def split_interleaved(w: Work) -> None:
    """Split the width into (D, H): the numbers of a head lie H apart."""
    h, kv = w.params.n_heads, w.params.n_kv_heads
    w.q, w.k, w.v = (
        x.reshape(*x.shape[:2], -1, n).transpose(0, 3, 1, 2)
        for x, n in ((w.q, h), (w.k, kv), (w.v, kv))
    )


def merge_interleaved(w: Work) -> None:
    B, _, T, _ = w.context.shape
    w.context = w.context.transpose(0, 2, 3, 1).reshape(B, T, -1)


def _merge_batch_last(w: Work) -> None:
    """Read (B * H, T, D) as (H, B, T, D)."""
    B, H, T, D = w.context.shape
    w.context = w.context.reshape(H, B, T, D).transpose(1, 2, 0, 3).reshape(B, T, H * D)


def _merge_heads_first(w: Work) -> None:
    """Read (H * B, T, D) as (B, H, T, D)."""
    B, H, T, D = w.context.shape
    stacked = w.context.swapaxes(0, 1).reshape(B, H, T, D)
    w.context = stacked.swapaxes(1, 2).reshape(B, T, H * D)


def _attend_across_batch(w: Work) -> None:
    """Take the batch for the sequence: (B, T, C) is read as (T, B, C)."""
    w.q, w.k, w.v = (
        p.split_heads(x.swapaxes(0, 1), n)
        for x, n in (
            (w.q, w.params.n_heads), (w.k, w.params.n_kv_heads), (w.v, w.params.n_kv_heads)
        )
    )  # fmt: skip


def _merge_across_batch(w: Work) -> None:
    w.context = p.merge_heads(w.context).swapaxes(0, 1)


def _average_heads(w: Work) -> None:
    w.context = w.context.mean(1)


def _sum_heads(w: Work) -> None:
    w.context = w.context.sum(1)


def _tile(w: Work) -> None:
    groups = w.q.shape[1] // w.k.shape[1]
    w.k, w.v = np.tile(w.k, (1, groups, 1, 1)), np.tile(w.v, (1, groups, 1, 1))


def _tile_keys(w: Work) -> None:
    groups = w.q.shape[1] // w.k.shape[1]
    w.k, w.v = np.tile(w.k, (1, groups, 1, 1)), np.repeat(w.v, groups, axis=1)


def _tile_values(w: Work) -> None:
    groups = w.q.shape[1] // w.k.shape[1]
    w.k, w.v = np.repeat(w.k, groups, axis=1), np.tile(w.v, (1, groups, 1, 1))


# Roles


def _swapped(w: Work) -> None:
    w.scores = w.k @ w.q.swapaxes(-1, -2)


def _key_viewed(w: Work) -> None:
    B, H, S, D = w.k.shape
    w.scores = w.q @ w.k.reshape(B, H, D, S)


def _features(w: Work) -> None:
    """Compare the features, (D, D), instead of the positions."""
    w.scores = w.q.swapaxes(-1, -2) @ w.k
    w.allowed = np.ones(w.scores.shape, bool)


def _mix_features(w: Work) -> None:
    w.context = w.v @ w.weights


def _mix_transposed(w: Work) -> None:
    w.context = w.weights.swapaxes(-1, -2) @ w.v


def _values(of: str) -> Step:
    def step(w: Work) -> None:
        w.context = w.weights @ (w.k if of == "k" else w.q)

    return step


def _projected(q: str = "qq", k: str = "kk", v: str = "vv") -> Step:
    """Make q, k and v from a stream by a matrix: "vk" is v's stream by k's matrix, "v" bare."""

    def take(w: Work, how: str) -> Array:
        stream = getattr(w.case, how[0])
        if len(how) == 1:
            return stream
        matrix, bias = getattr(w.params, how[1]), getattr(w.params, how[1] + "_bias")
        return p.apply_matrix(stream, matrix, bias)

    def step(w: Work) -> None:
        w.q, w.k, w.v = take(w, q), take(w, k), take(w, v)

    return step


def _cross(k: str, v: str) -> Step:
    """Take k or v from x although there is a memory."""
    return _projected(k=k, v=v)


def _given_width(w: Work) -> bool:
    return w.case.q.ndim == 3


def _cross_heads(k: bool, v: bool) -> Step:
    """The same where q, k and v come with heads: `position` runs before anything is compared."""

    def step(w: Work) -> None:
        if not _given_width(w):
            w.k = w.q if k else w.k
            w.v = w.q if v else w.v

    return step



MISTAKES: list[Mistake] = [
    Mistake("scale-missing", {"scale": _nothing}),
    Mistake("scale-doubled", {"scale": _scaled(lambda w: 1 / w.q.shape[-1])}),
    Mistake("scale-multiplied", {"scale": _scaled(lambda w: w.q.shape[-1] ** 0.5)}),
    Mistake("scale-model-width", {"scale": _scaled(lambda w: w.width**-0.5)}),
    Mistake("scale-model-width", {"scale": _scaled(lambda w: w.case.q.shape[-1] ** -0.5)}),
    Mistake("scale-length", {"scale": _scaled(lambda w: w.case.sizes[2] ** -0.5)}),
    Mistake("scale-length", {"scale": _scaled(lambda w: w.case.sizes[1] ** -0.5)}),
    Mistake("scale-wrong", {"scale": _scaled(lambda w: w.q.shape[1] ** -0.5)}),
    Mistake("scale-wrong", {"scale": _scaled(lambda w: w.q.shape[-1] ** -2.0)}),
    Mistake("scale-wrong", {"scale": _scaled(lambda w: 1 / w.width)}),
    Mistake("scale-wrong", {"scale": _scaled(lambda w: float(w.q.shape[-1]))}),
    Mistake("scale-after-softmax", {"scale": _nothing, "normalize": _scale_after}),
    Mistake("scale-after-softmax", {"normalize": _scale_after}),
    Mistake("causal-missing", {"allow": _causal_as(lambda w: np.array(True))}, "causal"),
    Mistake("causal-start-aligned", {"allow": _causal_as(_starts_aligned)}, "causal"),
    Mistake("causal-strict", {"allow": _causal_as(lambda w: p.causal_mask(w, -1))}, "causal"),
    Mistake("causal-strict", {"allow": _causal_as(lambda w: _starts_aligned(w, -1))}, "causal"),
    Mistake("causal-leaks-next", {"allow": _causal_as(lambda w: p.causal_mask(w, 1))}, "causal"),
    Mistake("causal-leaks-next", {"allow": _causal_as(lambda w: _starts_aligned(w, 1))}, "causal"),
    Mistake("causal-inverted", {"allow": _causal_as(lambda w: ~p.causal_mask(w))}, "causal"),
    Mistake("causal-inverted", {"allow": _causal_as(lambda w: ~p.causal_mask(w, -1))}, "causal"),
    Mistake("causal-inverted", {"allow": _causal_as(lambda w: ~_starts_aligned(w))}, "causal"),
    Mistake("causal-inverted", {"allow": _causal_as(lambda w: ~_starts_aligned(w, -1))}, "causal"),
    Mistake("mask-ignored", {"allow": _caller_as(lambda w: np.array(True))}),
    Mistake("mask-inverted", {"allow": _caller_as(_inverted)}),
    Mistake("mask-transposed", {"allow": _caller_as(_transposed)}),
    Mistake("padding-on-queries", {"allow": _caller_as(_queries_padded)}),
    Mistake("window-off-by-one", {"allow": _allowing(_window_wider)}),
    Mistake("window-off-by-one", {"allow": _allowing(_window_narrower)}),
    Mistake("mask-after-softmax", {"mask": _nothing, "normalize": _mask_after}),
    Mistake("mask-multiplied", {"mask": _mask_multiplied}),
    Mistake("mask-fill-weak", {"mask": _filled(-1.0)}),
    Mistake("mask-fill-weak", {"mask": _filled(-1.0, adds=True)}),
    Mistake("mask-fill-weak", {"mask": _filled(-5.0)}),
    Mistake("mask-fill-weak", {"mask": _filled(-10.0)}),
    Mistake("mask-fill-weak", {"mask": _filled(-10.0, adds=True)}),
    Mistake("mask-fill-weak", {"mask": _filled(1.0)}),
    Mistake("mask-added", {"mask": _mask_added}),
    Mistake("mask-added", {"mask": _mask_added_float}),
    Mistake("mask-inverted", {"mask": _filled(1e9)}),
    Mistake("mask-inverted", {"mask": _filled(1e9, adds=True)}),
    Mistake("softmax-over-queries", {"normalize": _softmax_over(-2)}),
    Mistake("softmax-over-heads", {"normalize": _softmax_over(1)}),
    Mistake("softmax-over-batch", {"normalize": _softmax_over(0)}),
    Mistake("softmax-over-all", {"normalize": _softmax_over(-2, -1)}),
    Mistake("softmax-missing", {"normalize": _softmax_missing}),
    Mistake("softmax-missing", {"normalize": _ratio}),
    Mistake("softmax-missing", {"normalize": _sum_missing}),
    Mistake("softmax-twice", {"normalize": _softmax_twice}),
    Mistake("heads-split", {"split": _split_by_view}),
    Mistake("heads-split", {"split": _split_by_view, "merge": _merge_by_view}),
    Mistake("heads-merge", {"merge": _merge_by_view}),
    Mistake("heads-merge-order", {"merge": merge_interleaved}),
    Mistake("heads-merge-order", {"split": split_interleaved}),
    Mistake("heads-batch-mixed", {"merge": _merge_batch_last}),
    Mistake("heads-batch-mixed", {"merge": _merge_heads_first}),
    Mistake("heads-batch-mixed", {"split": _attend_across_batch, "merge": _merge_across_batch}),
    Mistake("heads-averaged", {"merge": _average_heads}),
    Mistake("heads-averaged", {"merge": _sum_heads}),
    Mistake("gqa-order", {"repeat": _tile}),
    Mistake("gqa-order", {"repeat": _tile_keys}),
    Mistake("gqa-order", {"repeat": _tile_values}),
    Mistake("qk-swapped", {"compare": _swapped}),
    Mistake("k-not-transposed", {"compare": _key_viewed}),
    Mistake("k-not-transposed", {"compare": _features, "allow": _nothing, "mix": _mix_features}),
    Mistake("weights-transposed", {"mix": _mix_transposed}),
    Mistake("values-from-keys", {"mix": _values("k")}),
    Mistake("values-from-keys", {"mix": _values("q")}),
    Mistake("values-from-keys", {"project": _projected(v="vk")}),
    Mistake("values-from-keys", {"project": _projected(v="vq")}),
    Mistake("keys-from-queries", {"project": _projected(k="kq")}),
    Mistake("keys-from-queries", {"project": _projected(q="qk")}),
    Mistake("values-not-projected", {"project": _projected(v="v")}),
    Mistake("keys-not-projected", {"project": _projected(k="k")}),
    Mistake("queries-not-projected", {"project": _projected(q="q")}),
    Mistake("output-not-projected", {"project_out": _nothing}),
    Mistake("cross-from-x", {"project": _cross("qk", "qv"), "position": _cross_heads(True, True)}),
    Mistake("cross-from-x", {"project": _cross("qk", "vv"), "position": _cross_heads(True, False)}),
    Mistake("cross-from-x", {"project": _cross("kk", "qv"), "position": _cross_heads(False, True)}),
]  # fmt: skip


def pairs(mistakes: list[Mistake]) -> Iterator[Mistake]:
    """Yield each two mistakes that replace different steps."""
    for n, one in enumerate(mistakes):
        for other in mistakes[n + 1 :]:
            if not (one.steps.keys() & other.steps.keys()):
                yield one + other
