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
        turn = rotate_mixed if "mixed" in style else rotate
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


def cap_before_scale(w: Work) -> None:
    if cap := w.case.options.get("softcap"):
        w.scores = np.tanh(w.scores / cap) * cap
    p.scale(w)
