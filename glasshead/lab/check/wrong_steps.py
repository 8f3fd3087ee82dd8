"""Steps as people get them wrong; `mistakes.py` names them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from glasshead.lab.check import pipeline as p
from glasshead.lab.check.pipeline import Array, Step, Work

# Scale


def scale_by(factor: Callable[[Work], float]) -> Step:
    def step(w: Work) -> None:
        w.scores = w.scores * factor(w)

    return step


def scale_after(w: Work) -> None:
    w.weights = p.softmax(w.scores) * w.q.shape[-1] ** -0.5


def do_nothing(w: Work) -> None:
    pass


# Which keys


def allow_by(rule: Callable[[Work], Array]) -> Step:
    def step(w: Work) -> None:
        p.set_allowed(w, rule(w))

    return step


def align_to_start(w: Work, shift: int = 0) -> Array:
    _, T, S = w.case.sizes
    return np.arange(T)[:, None] + shift >= np.arange(S)


def causal_as(rule: Callable[[Work], Array]) -> Step:
    """Replace the causal part of the mask, where the case is causal at all."""
    return allow_by(
        lambda w: p.caller_mask(w) & p.window_mask(w) & (rule(w) if w.case.causal else True)
    )


def caller_as(rule: Callable[[Work], Array]) -> Step:
    return allow_by(lambda w: rule(w) & p.causal_mask(w) & p.window_mask(w))


def invert_mask(w: Work) -> Array:
    given = w.case.allowed is not None or w.case.keys is not None
    return ~p.caller_mask(w) if given else p.caller_mask(w)


def transpose_mask(w: Work) -> Array:
    allowed = p.caller_mask(w)
    square = w.case.allowed is not None and allowed.shape[-1] == allowed.shape[-2]
    return allowed.swapaxes(-1, -2) if square else allowed


def hide_padded_queries(w: Work) -> Array:
    _, T, S = w.case.sizes
    if w.case.keys is None or T != S:
        return p.caller_mask(w)
    return np.broadcast_to(w.case.keys[:, None, :, None], w.scores.shape)


def widen_window(w: Work) -> Array:
    _, T, S = w.case.sizes
    allowed = p.caller_mask(w) & p.causal_mask(w)
    width = w.case.options.get("window")
    return allowed if width is None else allowed & (p.distance(T, S) <= width)


def narrow_window(w: Work) -> Array:
    _, T, S = w.case.sizes
    allowed = p.caller_mask(w) & p.causal_mask(w)
    width = w.case.options.get("window")
    return allowed if width is None else allowed & (p.distance(T, S) < width - 1)


# How keys are hidden


PARTS = ("both", "caller", "causal")  # which mask is applied wrongly; the other one is right


def _parts(w: Work, part: str) -> tuple[Array, Array]:
    """Return what the wrong mask allows, and what the right one does."""
    caller, causal = p.caller_mask(w), np.broadcast_to(p.causal_mask(w), w.scores.shape)
    everything = np.ones(w.scores.shape, bool)
    return {
        "both": (w.allowed, everything),
        "caller": (caller, causal),
        "causal": (causal, caller),
    }[part]


def mask_by(change: Callable[[Array, Array], Array], part: str) -> Step:
    """Hide keys by changing scores, given what is allowed, instead of setting them to -inf."""

    def step(w: Work) -> None:
        soft, hard = _parts(w, part)
        changed = w.scores if soft.all() else change(w.scores, soft)
        w.scores = np.where(hard, changed, -np.inf)
        w.unsure = np.any(~np.any(hard, axis=-1), axis=1)

    return step


def mask_after(part: str) -> Step:
    def step(w: Work) -> None:
        soft, hard = _parts(w, part)
        w.weights = p.softmax(np.where(hard, w.scores, -np.inf)) * soft
        w.unsure = np.any(~np.any(hard, axis=-1), axis=1)

    return step


def multiply(scores: Array, allowed: Array) -> Array:
    return scores * allowed


def add(scores: Array, allowed: Array) -> Array:
    return scores + allowed


def add_inverted(scores: Array, allowed: Array) -> Array:
    return scores + ~allowed


def fill(value: float) -> Callable[[Array, Array], Array]:
    return lambda scores, allowed: np.where(allowed, scores, value)


def lower(value: float) -> Callable[[Array, Array], Array]:
    return lambda scores, allowed: np.where(allowed, scores, scores + value)


def nan_mask(part: str) -> Step:
    """Multiply a mask of ones and zeros by -inf: 0 * -inf is NaN where a key should be seen."""

    def step(w: Work) -> None:
        soft, hard = _parts(w, part)
        given = w.case.allowed is not None or w.case.keys is not None
        applied = {"both": given or w.case.causal, "caller": given, "causal": w.case.causal}[part]
        changed = w.scores + ~soft * -np.inf if applied else w.scores
        w.scores = np.where(hard, changed, -np.inf)
        w.unsure = np.any(~np.any(hard, axis=-1), axis=1)

    return step


def repeat_mask_by_batch(w: Work) -> Array:
    """Repeat the mask for heads as (H, B), while q is (B, H)."""
    given, (B, H) = p.caller_mask(w), w.q.shape[:2]
    place = np.arange(B * H).reshape(B, H) % B
    return given[place, 0]


def skip_key(place: int) -> Callable[[Work], Array]:
    def rule(w: Work) -> Array:
        allowed = p.caller_mask(w) & p.causal_mask(w)
        if w.case.sizes[2] > 1:
            allowed = allowed.copy()
            allowed[..., place] = False
        return allowed

    return rule


# Softmax


def softmax_over(*axes: int) -> Step:
    """Normalize over other axes than the keys. What is hidden everywhere there may be NaN."""

    def step(w: Work) -> None:
        axis = axes if len(axes) > 1 else axes[0]
        empty = np.isneginf(w.scores).all(axis=axes, keepdims=True)
        w.weights = p.softmax(w.scores, axis)
        w.unsure = np.any(np.broadcast_to(empty, w.scores.shape), axis=(1, 3))

    return step


def divide_by_sum_over(axis: int) -> Step:
    """Subtract the maximum of the keys, but divide by the sum over another axis."""

    def step(w: Work) -> None:
        powers = np.exp(w.scores - w.scores.max(-1, keepdims=True))
        w.weights = powers / powers.sum(axis, keepdims=True)
        w.unsure = np.any(np.isnan(w.weights), axis=(1, 3))

    return step


def softmax_missing(w: Work) -> None:
    w.weights = np.where(w.allowed, w.scores, 0.0)


def ratio(w: Work) -> None:
    scores = np.where(w.allowed, w.scores, 0.0)
    w.weights = scores / scores.sum(-1, keepdims=True)


def softmax_twice(w: Work) -> None:
    w.weights = p.softmax(p.softmax(w.scores))


def sum_missing(w: Work) -> None:
    w.weights = np.where(w.allowed, np.exp(w.scores), 0.0)


# Heads


def view_heads(x: Array, n_heads: int) -> Array:
    return x.reshape(x.shape[0], n_heads, x.shape[1], -1)


def split_by_view(w: Work) -> None:
    h, kv = w.params.n_heads, w.params.n_kv_heads
    w.q, w.k, w.v = view_heads(w.q, h), view_heads(w.k, kv), view_heads(w.v, kv)


def merge_by_view(w: Work) -> None:
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


def merge_batch_last(w: Work) -> None:
    """Read (B * H, T, D) as (H, B, T, D)."""
    B, H, T, D = w.context.shape
    w.context = w.context.reshape(H, B, T, D).transpose(1, 2, 0, 3).reshape(B, T, H * D)


def merge_heads_first(w: Work) -> None:
    """Read (H * B, T, D) as (B, H, T, D)."""
    B, H, T, D = w.context.shape
    stacked = w.context.swapaxes(0, 1).reshape(B, H, T, D)
    w.context = stacked.swapaxes(1, 2).reshape(B, T, H * D)


def attend_across_batch(w: Work) -> None:
    """Take the batch for the sequence: (B, T, C) is read as (T, B, C)."""
    w.q, w.k, w.v = (
        p.split_heads(x.swapaxes(0, 1), n)
        for x, n in (
            (w.q, w.params.n_heads), (w.k, w.params.n_kv_heads), (w.v, w.params.n_kv_heads)
        )
    )  # fmt: skip


def allow_all(w: Work) -> None:
    p.set_allowed(w, np.array(True))


def merge_across_batch(w: Work) -> None:
    w.context = p.merge_heads(w.context).swapaxes(0, 1)


def compare_with_all_sequences(w: Work) -> None:
    """Sum the keys over the batch: two letters of an einsum for the sequences."""
    w.scores = w.q @ w.k.sum(0).swapaxes(-1, -2)


def mix_all_sequences(w: Work) -> None:
    w.context = w.weights @ w.v.sum(0)


def average_weights(w: Work) -> None:
    w.weights = np.broadcast_to(p.softmax(w.scores).mean(1, keepdims=True), w.scores.shape)


def average_heads(w: Work) -> None:
    w.context = w.context.mean(1)


def sum_heads(w: Work) -> None:
    w.context = w.context.sum(1)


def tile(w: Work) -> None:
    groups = w.q.shape[1] // w.k.shape[1]
    w.k, w.v = np.tile(w.k, (1, groups, 1, 1)), np.tile(w.v, (1, groups, 1, 1))


def tile_keys(w: Work) -> None:
    groups = w.q.shape[1] // w.k.shape[1]
    w.k, w.v = np.tile(w.k, (1, groups, 1, 1)), np.repeat(w.v, groups, axis=1)


def tile_values(w: Work) -> None:
    groups = w.q.shape[1] // w.k.shape[1]
    w.k, w.v = np.repeat(w.k, groups, axis=1), np.tile(w.v, (1, groups, 1, 1))


# Roles


def swap_queries_and_keys(w: Work) -> None:
    w.scores = w.k @ w.q.swapaxes(-1, -2)


def view_key(w: Work) -> None:
    B, H, S, D = w.k.shape
    w.scores = w.q @ w.k.reshape(B, H, D, S)


def features(w: Work) -> None:
    """Compare the features, (D, D), instead of the positions."""
    w.scores = w.q.swapaxes(-1, -2) @ w.k
    w.allowed = np.ones(w.scores.shape, bool)


def mix_features(w: Work) -> None:
    w.context = w.v @ w.weights


def mix_transposed(w: Work) -> None:
    w.context = w.weights.swapaxes(-1, -2) @ w.v


def mix_transposed_if_square(w: Work) -> None:
    square = w.weights.shape[-1] == w.weights.shape[-2]
    w.context = (w.weights.swapaxes(-1, -2) if square else w.weights) @ w.v


def sum_values(w: Work) -> None:
    """Sum the values without the weights: two letters of an einsum for the keys."""
    w.context = w.weights.sum(-1, keepdims=True) * w.v.sum(-2, keepdims=True)


def values(of: str) -> Step:
    def step(w: Work) -> None:
        w.context = w.weights @ (w.k if of == "k" else w.q)

    return step


def project_as(q: str = "qq", k: str = "kk", v: str = "vv") -> Step:
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


def cross_from_x(k: bool, v: bool) -> dict[str, Step]:
    """Take k or v from x although there is a memory, before or after heads are split."""

    def shorten(w: Work) -> None:
        if k and v:
            w.case = replace(w.case, k=w.case.q, v=w.case.q)

    def project(w: Work) -> None:
        shorten(w)
        project_as(k="qk" if k else "kk", v="qv" if v else "vv")(w)

    def position(w: Work) -> None:
        if w.case.q.ndim == 4:
            shorten(w)
            w.k, w.v = w.q if k else w.k, w.q if v else w.v

    return {"project": project, "position": position}


def swap_keys_and_values(w: Work) -> None:
    w.k, w.v = w.v, w.k
    p.repeat(w)
