"""Scores of roles against loops over pairs, and against heads whose weights are set by hand."""

import pytest
import torch

from glasshead.attention.mask import Mask
from glasshead.observe.statistics import observe
from glasshead.roles.scores import (
    best_lag,
    copies,
    followers,
    role_scores,
    scores_by_chance,
    streaming_share,
    weight_by_chance,
    weight_by_place,
    weight_on,
)

B, H, T, D = 3, 5, 37, 11


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(0, 7, (B, T))


@pytest.fixture
def weights() -> torch.Tensor:
    scores = torch.randn(B, H, T, T, dtype=torch.double)
    return scores.masked_fill(~torch.ones(T, T).tril().bool(), -torch.inf).softmax(-1)


def visible() -> torch.Tensor:
    return torch.ones(1, T, T).tril().bool()


def test_copies_and_followers_are_those_of_a_loop(ids):
    found, after = copies(ids), followers(ids)
    for b in range(B):
        for i in range(T):
            earlier = {j for j in range(i) if ids[b, j] == ids[b, i]}
            assert set(found[b, i].nonzero().flatten().tolist()) == earlier
            assert set(after[b, i].nonzero().flatten().tolist()) == {j + 1 for j in earlier}


def test_weight_on_targets_is_that_of_a_loop(weights, ids):
    targets = copies(ids)
    found = weight_on(weights, targets)
    for b in range(B):
        rows = [i for i in range(T) if targets[b, i].any()]
        for h in range(H):
            sums = [weights[b, h, i][targets[b, i]].sum() for i in rows]
            assert found[b, h].item() == pytest.approx(torch.stack(sums).mean().item())


def test_an_even_head_scores_what_chance_says(ids):
    even = visible().double() / visible().sum(-1, keepdim=True)
    even = even[:, None].expand(B, H, T, T)
    chance = weight_by_chance(visible(), followers(ids))
    torch.testing.assert_close(weight_on(even, followers(ids)), chance.expand(B, H))


def test_a_head_of_fixed_distance_scores_no_more_than_its_place():
    """Its targets are at another distance in each sequence: what it gets it gets by place."""
    periods = (11, 13, 17)
    ids = torch.stack([torch.arange(T) % period for period in periods])
    weights = torch.zeros(B, 1, T, T)
    rows = torch.arange(10, T)
    weights[:, 0, rows, rows - 10] = 1  # what follows the copy, where the period is 11
    found = weight_on(weights, followers(ids))
    by_place = weight_by_place(weights, visible(), followers(ids))
    assert found[:, 0].tolist() == [1.0, 0.0, 0.0]
    assert by_place[0, 0] == pytest.approx(1.0)
    moving = followers(ids).float()[:, None]  # a head that follows the tokens
    moving = moving / moving.sum(-1, keepdim=True).clamp(min=1)
    assert weight_on(moving, followers(ids)).min() == pytest.approx(1)
    assert (weight_by_place(moving, visible(), followers(ids)) < 0.3).all()


def test_weight_by_place_is_that_of_a_loop(weights, ids):
    targets = followers(ids)
    found = weight_by_place(weights, visible(), targets)
    for b in range(B):
        others = [c for c in range(B) if c != b]
        for h in range(H):
            profile = [
                torch.stack([weights[c, h].diagonal(-lag) for c in others]).mean()
                if lag >= 0
                else 0
                for lag in range(T)
            ]
            rows = [i for i in range(T) if targets[b, i].any()]
            pairs = targets[b].nonzero().tolist()
            assert found[b, h].item() == pytest.approx(
                sum(float(profile[i - j]) for i, j in pairs) / len(rows)
            )


def test_scores_of_statistics_are_those_of_weights(ids):
    q, k = torch.randn(2, B, H, T, D)
    found = observe(q, k, Mask(causal=True), ids=ids)
    weights = (q @ k.mT / D**0.5).masked_fill(~visible(), -torch.inf).softmax(-1)
    scores = role_scores(found)
    near = visible()[0] & (torch.arange(T)[:, None] - torch.arange(T) <= 8)
    expected = {
        "sink": weights[..., 0].mean(-1),
        "previous": weights.diagonal(-1, 2, 3).sum(-1) / T,
        "self": weights.diagonal(0, 2, 3).mean(-1),
        "local": (weights * near).sum((-1, -2)) / T,
        "duplicate": weight_on(weights, copies(ids)),
        "induction": weight_on(weights, followers(ids)),
    }
    for name, value in expected.items():
        torch.testing.assert_close(scores[name], value, rtol=1e-4, atol=1e-6)
    by_lag = torch.stack([weights.diagonal(-lag, 2, 3).sum(-1) / T for lag in range(2, T)])
    share, lag = best_lag(found)
    torch.testing.assert_close(share, by_lag.amax(0), rtol=1e-4, atol=1e-6)
    assert torch.equal(lag, by_lag.argmax(0) + 2)
    near = torch.arange(T)[:, None] - torch.arange(T) < 5
    near = near | (torch.arange(T) == 0)
    expected_share = (weights * near * visible()).sum((-1, -2)) / T
    torch.testing.assert_close(streaming_share(found, 1, 5), expected_share, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_chance_is_what_an_even_head_scores(causal):
    found = observe(torch.zeros(1, 1, T, D), torch.randn(1, 1, T, D), Mask(causal=causal))
    scores, chance = role_scores(found), scores_by_chance(found)
    for name in ("sink", "self", "local"):
        assert scores[name].item() == pytest.approx(chance[name].item(), rel=1e-4)
