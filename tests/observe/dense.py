"""Every statistic from the whole map in float64 NumPy, pair by pair where that is clearest.

Nothing here is shared with the engines: definitions are read off `HeadStatistics` anew.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.attention.scores import PLAIN, Scoring
from glasshead.observe.statistics import HeadStatistics

Array = np.ndarray[Any, Any]
LARGE = ("mean_distance", "received_total", "effective_keys")


@dataclass
class Dense:
    weights: Array  # (B, H, T, S)
    allowed: Array  # (B, H, T, S)
    lse: Array  # (B, H, T)


def dense(
    q: Tensor,
    k: Tensor,
    mask: Mask,
    scoring: Scoring = PLAIN,
    queries: Tensor | None = None,
) -> Dense:
    q, k = q.double().cpu(), k.double().cpu()
    (B, H, T, D), S = q.shape, k.shape[2]
    k = k.repeat_interleave(H // k.shape[1], 1)
    scores = (q @ k.mT).numpy() * (scoring.scale or D**-0.5)
    if scoring.softcap is not None:
        scores = scoring.softcap * np.tanh(scores / scoring.softcap)
    i, j = np.arange(T)[:, None] + S - T, np.arange(S)
    if scoring.slopes is not None:
        scores = scores - scoring.slopes.double().cpu().numpy()[:, None, None] * abs(i - j)
    if scoring.bias is not None:
        scores = scores + scoring.bias.double().cpu().numpy()
    allowed = np.ones((B, H, T, S), bool)
    if mask.causal:
        allowed &= j <= i
    if mask.window is not None:
        allowed &= abs(i - j) < mask.window
    if mask.keys is not None:
        allowed &= mask.keys.cpu().numpy()[:, None, None, :]
    if mask.documents is not None:
        documents = mask.documents.cpu().numpy()
        allowed &= (documents[:, S - T :, None] == documents[:, None, :])[:, None]
    if mask.dense is not None:
        allowed &= mask.dense.cpu().numpy()
    if queries is not None:
        allowed &= queries.cpu().numpy()[:, None, :, None]
    scores = np.where(allowed, scores, -np.inf)
    seen = allowed.any(-1)
    top = np.where(seen, scores.max(-1, initial=-np.inf), 0)
    raw = np.exp(scores - top[..., None])
    total = np.where(seen, raw.sum(-1), 1)
    lse = np.where(seen, np.log(total) + top, -np.inf)
    return Dense(raw / total[..., None], allowed, lse)


def statistics(
    found: Dense, mask: Mask, ids: Tensor | None = None, cell: tuple[int, int] = (1, 1)
) -> dict[str, Array]:
    w, allowed = found.weights, found.allowed
    B, H, T, S = w.shape
    position = np.arange(T) + S - T
    lag = position[:, None] - np.arange(S)
    seen = allowed.any(-1)
    n_rows = np.maximum(seen.sum(-1), 1)
    logs = np.log(np.where(w > 0, w, 1))
    out = {
        "lse": found.lse,
        "row_sum": w.sum(-1),
        "sizes": allowed.sum(-1),
        "lookers": allowed.sum(-2),
        "entropy": -(w * logs).sum(-1),
        "concentration": (w**2).sum(-1),
        "distance": (w * abs(lag)).sum(-1) / max(T, S),
        "self_weight": (w * (lag == 0)).sum(-1),
        "previous_weight": (w * (lag == 1)).sum(-1),
        "received": w.sum(-2) / np.maximum(allowed.sum(-2), 1),
        "diagonality": (w * (abs(lag) <= 8)).sum((-1, -2)) / n_rows,
    }
    out["relative_entropy"] = out["entropy"] / np.log(np.maximum(out["sizes"], 2))
    out["mean_distance"] = (w * abs(lag)).sum(-1)
    out["received_total"] = w.sum(-2)
    real = np.ones((B, S), bool) if mask.keys is None else mask.keys.cpu().numpy()
    real = np.broadcast_to(real, (B, S))
    documents = np.zeros((B, S), int) if mask.documents is None else mask.documents.cpu().numpy()
    documents = np.broadcast_to(documents, (B, S))
    out["first_weight"] = np.zeros((B, H, T))
    for b in range(B):
        for t in range(T):
            own = real[b].copy()
            if mask.documents is not None:
                own &= documents[b] == documents[b, position[t]]
            if own.any():
                out["first_weight"][b, :, t] = w[b, :, t, own.argmax()]
    total = np.maximum(w.sum((-1, -2)), 1e-300)
    strongest = max(1, S // 64)
    out["vertical"] = np.sort(w.sum(-2))[..., -strongest:].sum(-1) / total
    probes = np.arange(T - 1, -1, -max(1, -(-T // 256)))
    by_lag = np.zeros((B, H, T + S - 1))  # from lag 1 - T on
    for t in probes:
        by_lag[..., lag[t] + T - 1] += w[:, :, t]
    probe_total = np.maximum(by_lag.sum(-1), 1e-300)
    out["slash"] = np.sort(by_lag)[..., -strongest:].sum(-1) / probe_total
    if ids is not None:
        out |= _copies(w, ids.cpu().numpy(), real, documents, seen)
    tall, wide = cell
    out["overview_mean"] = np.zeros((B, H, -(-T // tall), -(-S // wide)))
    out["overview_max"] = np.zeros_like(out["overview_mean"])
    for r in range(-(-T // tall)):
        for c in range(-(-S // wide)):
            part = w[:, :, r * tall : (r + 1) * tall, c * wide : (c + 1) * wide]
            out["overview_mean"][:, :, r, c] = part.mean((-1, -2))
            out["overview_max"][:, :, r, c] = part.max((-1, -2))
    return out


def _copies(w: Array, ids: Array, real: Array, documents: Array, seen: Array) -> dict[str, Array]:
    B, H, T, S = w.shape
    mass = {"duplicate": np.zeros((B, H)), "induction": np.zeros((B, H))}
    rows = np.zeros((B, H))
    for b in range(B):
        for t in range(T):
            p = t + S - T
            same = (ids[b, :p] == ids[b, p]) & real[b, :p] & (documents[b, :p] == documents[b, p])
            copies = np.flatnonzero(same & real[b, p])[-16:]
            if len(copies):
                rows[b] += seen[b, :, t]
                mass["duplicate"][b] += w[b, :, t, copies].sum(0)
                mass["induction"][b] += w[b, :, t, copies + 1].sum(0)
    return {name: x / np.maximum(rows, 1) for name, x in mass.items()}


def lags(found: Dense, starts: Array) -> Array:
    """The share of weight in each bucket, by the bucket's own bounds."""
    w = found.weights
    _, _, T, S = w.shape
    lag = np.arange(T)[:, None] + S - T - np.arange(S)
    n_rows = np.maximum(found.allowed.any(-1).sum(-1), 1)
    ends = [*starts[1:], S]
    return np.stack(
        [
            w[:, :, (lag >= a) & (lag < z)].sum(-1) / n_rows
            for a, z in zip(starts, ends, strict=True)
        ],
        -1,
    )


def assert_matches(
    seen: HeadStatistics, found: Dense, mask: Mask, ids: Tensor | None, atol: float
) -> None:
    """Every field of `seen`, against the same from the whole map."""
    expected = statistics(found, mask, ids, seen.overview_cell)
    expected["lags"] = lags(found, seen.lag_starts.cpu().numpy())
    size = max(found.weights.shape[-2:])
    for name, x in expected.items():
        mine = np.broadcast_to(getattr(seen, name).double().cpu().numpy(), x.shape)
        assert not np.isnan(mine).any(), name
        # These are no shares: they are as exact as their size allows.
        large = size * (name in LARGE)
        if name == "lse":
            large = abs(x[np.isfinite(x)]).max(initial=0)
        slack = 2 * atol if name == "relative_entropy" else atol * (1 + large)
        np.testing.assert_allclose(mine, x, atol=slack, rtol=0, err_msg=name)
    _assert_means_match(seen, found, expected, atol)
    keys, weights = seen.top_keys.cpu().numpy(), seen.top_weights.double().cpu().numpy()
    best = np.sort(found.weights, -1)[..., ::-1][..., : keys.shape[-1]]
    np.testing.assert_allclose(weights, best, atol=atol, rtol=0, err_msg="top_weights")
    top = np.where(found.allowed.any(-1), best[..., 0], 1)
    largest, mine = found.lse + np.log(top), seen.row_max.double().cpu().numpy()
    some = np.isfinite(largest)
    assert (np.isfinite(mine) == some).all()
    # A logarithm has the relative error of its weight.
    slack = atol * (1 + abs(largest[some]).max(initial=0)) + 2 * atol / top[some]
    assert (abs(mine[some] - largest[some]) <= slack).all(), "row_max"
    # Keys are right if they have those weights, which leaves ties open; and each only once.
    at = np.take_along_axis(found.weights, np.maximum(keys, 0), -1)
    assert (keys >= 0).sum() == np.minimum(found.allowed.sum(-1), keys.shape[-1]).sum()
    np.testing.assert_allclose(np.where(keys >= 0, at, 0), best, atol=atol, rtol=0)
    ordered = np.sort(keys, -1)
    assert not ((ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)).any()


def _assert_means_match(
    seen: HeadStatistics, found: Dense, expected: dict[str, Array], atol: float
) -> None:
    """The numbers of a head are means over its rows that see anything."""
    rows = found.allowed.any(-1)
    means = seen.means()
    for name, mine in means.items():
        wanted = expected.get(name)
        if name == "effective_keys":
            wanted = 1 / np.where(rows, expected["concentration"], np.inf)
        assert wanted is not None, name
        if wanted.ndim == 3:
            wanted = (wanted * rows).sum(-1) / np.maximum(rows.sum(-1), 1)
        slack = 4 * atol * (max(found.weights.shape[-2:]) if name in LARGE else 1)
        np.testing.assert_allclose(mine.double().cpu().numpy(), wanted, atol=slack, rtol=0,
                                   err_msg=f"mean {name}")  # fmt: skip
