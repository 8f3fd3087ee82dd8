"""Scores of roles: how much of a head's weight goes where its role says.

    >>> weights = torch.eye(3)[None, None]  # a head that looks at itself
    >>> weight_on(weights, torch.eye(3, dtype=torch.bool)[None])
    tensor([[1.]])

Everything here is a pure function. Scores of a long text follow from `HeadStatistics`; on the short
texts of probes, target pairs may be any, and each score has controls.
"""

import torch
from torch import Tensor

from glasshead.observe.statistics import NEAR, HeadStatistics

__all__ = [
    "best_lag", "copies", "followers", "role_scores", "scores_by_chance", "streaming_share",
    "weight_by_chance", "weight_by_place", "weight_on",
]  # fmt: skip


def role_scores(found: HeadStatistics) -> dict[str, Tensor]:
    """Return the score of each role that a layer's statistics tell, (B, H), from 0 to 1.

    "duplicate" and "induction" are missing if the statistics were measured without ids.
    """
    means = found.means()
    scores = {
        "sink": means["first_weight"],
        "previous": means["previous_weight"],
        "self": means["self_weight"],
        "local": found.diagonality,
        "lag": best_lag(found)[0],
        "broad": means["relative_entropy"],
    }
    return scores | {name: means[name] for name in ("duplicate", "induction") if name in means}


def scores_by_chance(found: HeadStatistics) -> dict[str, Tensor]:
    """Return what a head with equal weight on all keys that it may see would score, (B, 1)."""
    sizes = found.sizes[:, 0].clamp(min=1).double()  # (B, T)
    causal = int(found.lag_starts.min()) == 0
    one = (1 / sizes).mean(-1, keepdim=True)
    T, S = found.lse.shape[-1], found.received.shape[-1]
    place = torch.arange(S - T, S, device=sizes.device)
    ahead = 0 if causal else (S - 1 - place).clamp(max=NEAR)
    near = torch.minimum(place.clamp(max=NEAR) + 1 + ahead, sizes)
    return {
        "sink": one,
        "previous": one,
        "self": one,
        "local": (near / sizes).mean(-1, keepdim=True),
        "lag": one,
    }


def best_lag(found: HeadStatistics) -> tuple[Tensor, Tensor]:
    """Return the largest share of weight at one single distance other than 0 and 1, and it.

    Negative distances look ahead. Both are (B, H).
    """
    starts = found.lag_starts
    single = (starts.abs() < 128) & (starts != 0) & (starts != 1)
    if not bool(single.any()):
        zero = found.lags.new_zeros(found.lags.shape[:2])
        return zero, zero.long()
    share, place = found.lags[..., single].max(-1)
    return share, starts[single][place]


def weight_on(weights: Tensor, targets: Tensor) -> Tensor:
    """Return the mean weight on targets, over the rows that have one, (B, H).

    Args:
        weights: (B, H, T, S).
        targets: (B, T, S) bool.
    """
    return torch.einsum("bhts,bts->bh", weights, targets.to(weights.dtype)) / _rows(targets)


def weight_by_chance(visible: Tensor, targets: Tensor) -> Tensor:
    """Return `weight_on` of a head with equal weight on all keys that it may see, (B, 1).

    Args:
        visible: (B | 1, T, S) bool, the pairs that the mask allows.
        targets: (B, T, S) bool.
    """
    even = visible.double() / visible.sum(-1, keepdim=True).clamp(min=1)  # (B | 1, T, S)
    return (even * targets).sum((-1, -2))[:, None] / _rows(targets)


def weight_by_place(weights: Tensor, visible: Tensor, targets: Tensor) -> Tensor:
    """Return `weight_on` of a head whose distances do not depend on the tokens, (B, H).

    The distances are those that the head shows in the other sequences of the batch: where targets
    are equally far in all of a sequence, its own distances would already be those of its targets.
    """
    B, _, T, S = weights.shape
    lag = torch.arange(T, device=weights.device)[:, None] - torch.arange(S, device=weights.device)
    lag = (lag + S - 1).flatten()  # from 0
    n = T + S - 1
    mass = weights.new_zeros(*weights.shape[:2], n).index_add_(2, lag, weights.flatten(2))
    seen = visible.expand(B, T, S).flatten(1).to(weights.dtype)
    counts = weights.new_zeros(B, n).index_add_(1, lag, seen)
    if B > 1:
        mass, counts = mass.sum(0) - mass, counts.sum(0) - counts
    profile = mass / counts.clamp(min=1)[:, None]  # (B, H, n) mean weight at a distance
    wanted = weights.new_zeros(B, n).index_add_(1, lag, targets.flatten(1).to(weights.dtype))
    return torch.einsum("bhn,bn->bh", profile, wanted) / _rows(targets)


def copies(ids: Tensor) -> Tensor:
    """Return the pairs (query, earlier copy of its token), (B, T, T).

    >>> copies(torch.tensor([[7, 5, 7]]))[0].nonzero().tolist()
    [[2, 0]]
    """
    return (ids[:, :, None] == ids[:, None, :]).tril(-1)


def followers(ids: Tensor) -> Tensor:
    """Return the pairs (query, token after an earlier copy of its token), (B, T, T).

    >>> followers(torch.tensor([[7, 5, 7]]))[0].nonzero().tolist()
    [[2, 1]]
    """
    return copies(ids).roll(1, 2).index_fill(2, torch.tensor([0], device=ids.device), False).tril()


def streaming_share(found: HeadStatistics, n_sink: int = 1, n_recent: int = 128) -> Tensor:
    """Return the share of weight on the first key and on the last `n_recent` keys, (B, H).

    A head with almost all of its weight there answers the same with a short cache.
    """
    if n_sink != 1 or n_recent > 128:
        raise ValueError("statistics hold the first key and lags below 128")
    recent = (found.lag_starts >= 0) & (found.lag_starts < n_recent)
    near = (found.lags * recent).sum(-1)
    rows = (found.lse > -torch.inf).to(found.first_weight.dtype)
    T, S = found.lse.shape[-1], found.received.shape[-1]
    far = torch.arange(S - T, S, device=rows.device) >= n_recent  # whose first key is not recent
    sink = (found.first_weight * rows * far).sum(-1) / rows.sum(-1).clamp(min=1)
    return near + sink


def _rows(targets: Tensor) -> Tensor:
    """Return in how many rows there is a target, (B, 1)."""
    return targets.any(-1).sum(-1, keepdim=True).clamp(min=1)
