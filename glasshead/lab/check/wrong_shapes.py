"""Wrong steps about heads and positions: split, mixed, rotated; `mistakes.py` names them."""

from typing import Any

import numpy as np

from glasshead.lab.check import pipeline as p
from glasshead.lab.check.pipeline import Array, Step, Work
from glasshead.lab.check.variants import rotate

# Heads


def sum_key_heads(w: Work) -> None:
    """Compare each query head with the sum of all key heads."""
    p.repeat(w)
    w.k = np.broadcast_to(w.k.sum(1, keepdims=True), w.k.shape)


def one_key_head(of: str) -> Step:
    """Use the first head of k, v or both for all query heads."""

    def step(w: Work) -> None:
        p.repeat(w)
        if "k" in of:
            w.k = np.broadcast_to(w.k[:, :1], w.k.shape)
        if "v" in of:
            w.v = np.broadcast_to(w.v[:, :1], w.v.shape)

    return step


def split_one_interleaved(of: str) -> Step:
    """Split the width of some of q, k and v into (D, H) and of the others into (H, D)."""

    def step(w: Work) -> None:
        for name in "qkv":
            n = w.params.n_heads if name == "q" else w.params.n_kv_heads
            x = getattr(w, name)
            if name in of:
                parts = x.reshape(*x.shape[:2], -1, n).transpose(0, 3, 1, 2)
            else:
                parts = p.split_heads(x, n)
            setattr(w, name, parts)

    return step


def swap_heads_and_positions(w: Work) -> None:
    """Read (B, T, H, D) as (B, H, T, D): each position compares its own heads."""
    w.q, w.k, w.v = (x.swapaxes(1, 2) for x in (w.q, w.k, w.v))


def mix_swapped(w: Work) -> None:
    w.context = (w.weights @ w.v).swapaxes(1, 2)


def split_without_swap(w: Work) -> None:
    """(B, T, C) -> (B, T, H, D), and attend as if it were (B, H, T, D)."""
    p.split(w)
    w.q, w.k, w.v = (x.swapaxes(1, 2) for x in (w.q, w.k, w.v))


def merge_without_swap(w: Work) -> None:
    w.context = w.context.reshape(*w.context.shape[:2], -1)


def split_fused(axes: str) -> Step:
    """View the fused (B, T, 3C) at once as `axes`, of 3, B, H, T, D, instead of by tokens."""

    def step(w: Work) -> None:
        fused = np.concatenate((w.q, w.k, w.v), -1)
        B, T, _ = w.q.shape
        sizes = {"3": 3, "B": B, "T": T, "H": w.params.n_heads}
        sizes["D"] = fused.size // (3 * B * T * sizes["H"])
        whole = fused.reshape([sizes[a] for a in axes])
        w.q, w.k, w.v = whole.transpose([axes.index(a) for a in "3BHTD"])

    return step


def split_as(axes: str) -> Step:
    """View (B, T, C) as `axes`, of H, T and D, and move them to (B, H, T, D)."""

    def one(x: Array, n: int) -> Array:
        B, T, C = x.shape
        sizes = {"H": n, "T": T, "D": C // n}
        viewed = x.reshape(B, *(sizes[a] for a in axes))
        return viewed.transpose(0, *(1 + axes.index(a) for a in "HTD"))

    def step(w: Work) -> None:
        h, kv = w.params.n_heads, w.params.n_kv_heads
        w.q, w.k, w.v = one(w.q, h), one(w.k, kv), one(w.v, kv)

    return step


def merge_as(axes: str) -> Step:
    """Lay (B, H, T, D) out as `axes`, of B, H, T and D, and view that as (B, T, C)."""

    def step(w: Work) -> None:
        B, H, T, D = w.context.shape
        laid = w.context.transpose(["BHTD".index(a) for a in axes])
        w.context = laid.reshape(B, T, H * D)

    return step


def merge_time_first(axes: str) -> Step:
    """Lay (B, H, T, D) out as `axes` and view that as (T, B, C)."""

    def step(w: Work) -> None:
        B, H, T, D = w.context.shape
        laid = w.context.transpose(["BHTD".index(a) for a in axes])
        w.context = laid.reshape(T, B, H * D).swapaxes(0, 1)

    return step


def first_head_only(w: Work) -> None:
    w.context = np.broadcast_to(w.context[:, :1], w.context.shape)
    if w.case.q.ndim == 3:
        p.merge(w)


def sum_scores_of_heads(w: Work) -> None:
    p.compare(w)
    w.scores = np.broadcast_to(w.scores.sum(1, keepdims=True), w.scores.shape)


def keep_whole_blocks(block: int) -> Any:
    """Leave out the keys after the last whole block."""

    def rule(w: Work) -> Array:
        S = w.case.sizes[2]
        allowed = p.caller_mask(w) & p.causal_mask(w)
        return allowed & (np.arange(S) < max(S // block, 1) * block)

    return rule


def bias_from(**of: str) -> Step:
    """Add another projection's bias, or none: v="q" adds q's bias to the values."""

    def step(w: Work) -> None:
        for name in "qkv":
            source = of.get(name, name)
            bias = getattr(w.params, source + "_bias") if source else 0.0
            setattr(w, name, p.apply_matrix(getattr(w, name), getattr(w.params, name), bias))

    return step


def relative_backwards(w: Work) -> None:
    """Look learned biases up by i - j instead of j - i."""
    _, T, S = w.case.sizes
    table = w.case.options.get("relative")
    if table is not None:
        w.scores = w.scores + p.by_distance(table, p.distance(T, S))


def normalize_positions(w: Work) -> None:
    """Give each feature unit length along the positions, instead of each position's features."""
    w.q, w.k = (x / np.sqrt((x * x).sum(-2, keepdims=True)) for x in (w.q, w.k))


# Positions


def rotate_by(
    q: str,
    k: str,
    v: str = "",
    sign: float = 1.0,
    offset: bool = True,
    along_heads: bool = False,
) -> Step:
    """Rotate q, k and v each in a style: "halves", "pairs", "mixed", or "" for not at all.

    Args:
        sign: -1.0 rotates keys the other way.
        offset: whether queries stand after the keys of a cache.
        along_heads: rotate by the number of the head instead of the position.
    """

    def turned(x: Array, style: str, positions: Array) -> Array:
        if not style:
            return x
        if along_heads:
            return rotate(x.swapaxes(1, 2), np.arange(x.shape[1]), style).swapaxes(1, 2)
        turn = rotate_mixed if "mixed" in style else rotate_plus if "plus" in style else rotate
        return turn(x, positions, style)

    def step(w: Work) -> None:
        T, S = w.q.shape[2], w.k.shape[2]
        w.q = turned(w.q, q, np.arange(T) + (S - T if offset else 0))
        w.k = turned(w.k, k, sign * np.arange(S))
        w.v = turned(w.v, v, np.arange(S))

    return step


def rotate_from_zero(style: str, of: str) -> Step:
    """Rotate what is new after a cache as if it stood at the beginning: queries, keys or both."""

    def step(w: Work) -> None:
        T, S = w.q.shape[2], w.k.shape[2]
        w.q = rotate(w.q, np.arange(T) + (0 if "q" in of else S - T), style)
        old = np.arange(S - T)
        if w.case.past > 1:
            old[-1] = 0  # the last of them was a piece of its own
        w.k = rotate(w.k, np.concatenate((old, np.arange(T))), style)

    return step


def rotate_mixed(x: Array, positions: Array, style: str) -> Array:
    """Lay the angles out for one style and rotate in the other, which is no rotation."""
    D = x.shape[-1]
    angles = positions[:, None] * 10_000.0 ** (-np.arange(0, D, 2) / D)
    a, b = x[..., : D // 2], x[..., D // 2 :]
    halves = np.concatenate((-b, a), -1)
    pairs = np.stack((-x[..., 1::2], x[..., ::2]), -1).reshape(x.shape)
    if style == "mixed":  # angles of pairs, rotation of halves
        wide = np.repeat(angles, 2, -1)
        return x * np.cos(wide) + halves * np.sin(wide)
    wide = np.concatenate((angles, angles), -1)
    return x * np.cos(wide) + pairs * np.sin(wide)


def rotate_plus(x: Array, positions: Array, style: str) -> Array:
    """Rotate without the minus: x cos + swapped(x) sin."""
    D = x.shape[-1]
    angles = positions[:, None] * 10_000.0 ** (-np.arange(0, D, 2) / D)
    if "pairs" in style:
        swapped = np.stack((x[..., 1::2], x[..., ::2]), -1).reshape(x.shape)
        wide = np.repeat(angles, 2, -1)
    else:
        swapped = np.concatenate((x[..., D // 2 :], x[..., : D // 2]), -1)
        wide = np.concatenate((angles, angles), -1)
    return x * np.cos(wide) + swapped * np.sin(wide)


def rotate_again(style: str) -> Step:
    """Rotate all cached keys with the new ones, though they were rotated when they came."""

    def step(w: Work) -> None:
        T, S = w.q.shape[2], w.k.shape[2]
        w.q = rotate(w.q, np.arange(S - T, S), style)
        w.k = rotate(w.k, np.arange(S) * times_read(w.case.past, S), style)

    return step


def times_read(past: int, S: int) -> Array:
    """Return how often each key has been handed over: the cache is read in two pieces."""
    first = max(past - 1, 0)
    place = np.arange(S)
    return 1 + (place < first).astype(int) + (place < past).astype(int)


def forget_earlier_pieces(w: Work) -> None:
    """Keep only the piece that was read last before the new tokens."""
    S, past = w.case.sizes[2], w.case.past
    p.set_allowed(w, p.causal_mask(w) & (np.arange(S) >= max(past - 1, 0)))


def alibi_with(slopes: Any) -> Step:
    def step(w: Work) -> None:
        _, T, S = w.case.sizes
        H = w.q.shape[1]
        w.scores = w.scores - slopes(np.arange(H), H)[:, None, None] * np.abs(p.distance(T, S))

    return step


def alibi_gains(w: Work) -> None:
    """Add the distance instead of subtracting it: far keys gain."""
    H = w.q.shape[1]
    slopes: Any = w.case.options.get("slopes")
    if slopes is None:
        slopes = 2.0 ** (-8.0 * np.arange(1, H + 1) / H)
    _, T, S = w.case.sizes
    w.scores = w.scores + slopes[:, None, None] * np.abs(p.distance(T, S))


# A cache


def new_keys_first(w: Work) -> None:
    """Put the new keys before the cached ones, and mask them as if they stood behind."""
    _, T, S = w.case.sizes
    place = (np.arange(S) + T) % S  # where each key stands: the new ones are the last T
    if (past := w.case.past) > 1:  # read in two pieces, of which the second came first
        place[past - 1] = T
        place[: past - 1] = T + 1 + np.arange(past - 1)
    p.set_allowed(w, p.caller_mask(w) & p.causal_mask(w)[..., place])


def forget_cached_keys(w: Work) -> None:
    _, T, S = w.case.sizes
    p.set_allowed(w, p.causal_mask(w) & (np.arange(S) >= S - T))


# Softcap


def cap_after_mask(w: Work) -> None:
    """Squash after the mask: -inf becomes -softcap, and hidden keys are seen."""
    w.scores = np.where(w.allowed, w.scores, -np.inf)
    if cap := w.case.options.get("softcap"):
        w.scores = np.tanh(w.scores / cap) * cap
    w.unsure = None


def cap_as(rule: Any) -> Step:
    def step(w: Work) -> None:
        if cap := w.case.options.get("softcap"):
            w.scores = rule(w.scores, cap)

    return step


def cap_before_scale(w: Work) -> None:
    if cap := w.case.options.get("softcap"):
        w.scores = np.tanh(w.scores / cap) * cap
    p.scale(w)
