"""Legitimate variants of attention, as replaced steps: head order, rotary positions, ALiBi."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from glasshead.lab.check import wrong_steps
from glasshead.lab.check.pipeline import Array, Case, Step, Work, distance
from glasshead.lab.check.roles import Parameter, role_of

__all__ = ["CONVENTIONS", "defaults_of", "expects_cache", "feature_readings", "rotary"]

# The width can be cut into (H, D) or (D, H), as long as the heads are merged in the same way.
CONVENTIONS: list[dict[str, Step]] = [
    {},
    {"split": wrong_steps.split_interleaved, "merge": wrong_steps.merge_interleaved},
]


def rotate(x: Array, positions: Array, style: str, base: float = 10_000.0) -> Array:
    """Rotate (B, H, T, D) by each position: halves pair d with d + D/2, pairs d with d + 1."""
    D = x.shape[-1]
    angles = positions[:, None] * base ** (-np.arange(0, D, 2) / D)  # (T, D / 2)
    cos, sin = np.cos(angles), np.sin(angles)
    out = np.empty_like(x)
    if style == "halves":
        a, b = x[..., : D // 2], x[..., D // 2 :]
        out[..., : D // 2], out[..., D // 2 :] = a * cos - b * sin, b * cos + a * sin
    else:
        a, b = x[..., ::2], x[..., 1::2]
        out[..., ::2], out[..., 1::2] = a * cos - b * sin, b * cos + a * sin
    return out


def rotary(style: str, base: float = 10_000.0, offset: bool = True) -> Step:
    """Rotate q and k; `offset` if queries stand at the end of the keys."""

    def step(w: Work) -> None:
        T, S = w.q.shape[2], w.k.shape[2]
        w.q = rotate(w.q, np.arange(T) + (S - T if offset else 0), style, base)
        w.k = rotate(w.k, np.arange(S), style, base)

    return step


def alibi(slopes: Array, sign: float = -1.0) -> Step:
    def step(w: Work) -> None:
        _, T, S = w.case.sizes
        w.scores = w.scores + sign * slopes[:, None, None] * np.abs(distance(T, S))

    return step


def geometric_slopes(n_heads: int) -> Array:
    return 2.0 ** (-8.0 * np.arange(1, n_heads + 1) / n_heads)


def normalize_heads(kind: str) -> Step:
    """Normalize each query and key, without learned factors."""

    def step(w: Work) -> None:
        for name in "qk":
            x = getattr(w, name)
            x = x - x.mean(-1, keepdims=True) if kind == "layer" else x
            square = (x * x).sum(-1, keepdims=True)
            setattr(w, name, x / np.sqrt(square / (1 if kind == "length" else x.shape[-1])))

    return step


def softmax_with_sink(w: Work) -> None:
    """Let a score of 0 take part that has no value, so that the weights may sum to less than 1."""
    top = np.maximum(w.scores.max(-1, keepdims=True), 0.0)
    powers = np.exp(w.scores - top)
    w.weights = powers / (powers.sum(-1, keepdims=True) + np.exp(-top))


def defaults_of(listed: Sequence[Parameter]) -> dict[str, Any]:
    """Return the defaults of a call, which hold where nothing else is given."""
    return {each.name: each.default for each in listed if each.default is not None}


def feature_readings(
    text: str, case: Case, made_with: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Step], dict[str, Any]]]:
    """Yield the variants that a target's text suggests, as steps and options; first none."""
    yield {}, {}
    if re.search(r"rotary|rope|rotate|freqs|inv_freq", text, re.I):
        for base in _bases(text, made_with):
            for style in ("halves", "pairs"):
                yield {"position": rotary(style, base)}, {}
                if not expects_cache(text):  # then unequal lengths mean nothing
                    yield {"position": rotary(style, base, offset=False)}, {}
    if re.search(r"alibi|slope", text, re.I):
        H = case.q.shape[1] if case.q.ndim == 4 else 4
        yield {"bias": alibi(geometric_slopes(H))}, {}
    if re.search(r"rms_?norm|layer_?norm|l2_?norm|qk_?norm|F\.normalize|\.norm\(", text, re.I):
        for kind in ("rms", "layer", "length"):
            for options in ({}, *_scales(made_with)):
                yield {"position": normalize_heads(kind)}, options
    if re.search(r"sink|softmax.?(1|one|plus.?one)\b|off by one", text, re.I):
        yield {"normalize": softmax_with_sink}, {}
    for name, value in made_with.items():
        role = role_of(name, calling=False)
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        if role in ("window", "softcap") and number:
            yield {}, {role: value}
        if role == "lookback" and number:  # so many tokens before the query's own
            yield {}, {"window": value + 1}


def expects_cache(text: str) -> bool:
    """Say whether the text speaks of keys that are more than the queries, or uses their number."""
    if re.search(r"cache|past|longer|\bS >= T|last T\b|start_pos|offset", text, re.I):
        return True
    width = r"(?!\s*[\[(]\s*(-1|3)\s*[\])])"
    return bool(
        re.search(rf"\bk(ey|eys)?\.(shape|size){width}", text)
        or re.search(rf"\b(scores?|s|att|attn|logits|sim|dots|wei)\.(shape|size){width}", text)
    )


def _bases(text: str, made_with: Mapping[str, Any]) -> list[float]:
    """Return the bases of rotary angles: the usual one, and what the target's text names."""
    out = [10_000.0]
    for name, value in made_with.items():
        if re.search(r"base|theta", name, re.I) and isinstance(value, (int, float)) and value > 1:
            out.append(float(value))
    for found in re.finditer(
        r"(?:base|theta)\w*\s*(?::\s*\w+\s*)?=\s*([\d_.]+(?:e\d+)?)", text, re.I
    ):
        number = float(found[1].strip("_") or 0)
        out += [number] if number > 1 else []
    return list(dict.fromkeys(out))


def _scales(made_with: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the scales that the target's defaults give, as factors and as divisors."""
    numbers = [
        float(value)
        for name, value in made_with.items()
        if role_of(name, calling=True) == "scale" and isinstance(value, (int, float)) and value > 0
    ]
    return [{"scale": x} for number in numbers for x in (number, 1 / number)]
