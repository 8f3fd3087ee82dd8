"""The tiles against the whole map, over masks and sizes; and how much memory they take."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glasshead.attention.mask import Mask
from glasshead.attention.scores import PLAIN, Scoring
from glasshead.observe import tile_engine
from glasshead.observe.statistics import observe
from glasshead.observe.tile_buffers import TileBuffers
from glasshead.observe.tile_operations import sorted_columns, top_columns
from glasshead.observe.visible_keys import count_visible, earlier_copies, sort_by_token
from tests.observe.dense import assert_matches, dense

SIZES = st.sampled_from([1, 2, 3, 7, 31, 32, 37, 61, 97])


@st.composite
def calls(draw):
    B, H_kv, group = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    T, S, D = draw(SIZES), draw(SIZES), draw(st.sampled_from([1, 5, 8]))
    H = H_kv * group
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    keys = documents = wall = None
    if draw(st.booleans()):
        keys = torch.rand(draw(st.sampled_from([1, B])), S, generator=g) > draw(
            st.sampled_from([0.2, 0.9])
        )
    if T <= S and draw(st.booleans()):
        documents = torch.randint(0, 3, (B, S), generator=g)
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(B, H, T, S), (T, S), (B, 1, 1, S), (1, H, T, 1)]))
        wall = torch.rand(shape, generator=g) > 0.3
    mask = Mask(
        causal=draw(st.booleans()),
        window=draw(st.sampled_from([None, 1, 5, 40])),
        keys=keys,
        documents=documents,
        dense=wall,
    )
    scoring = draw(
        st.sampled_from(
            [
                PLAIN,
                Scoring(scale=0.7, softcap=2.5),
                Scoring(slopes=torch.rand(H, generator=g)),
                Scoring(bias=torch.randn(1, H, T, S, generator=g)),
            ]
        )
    )
    q = torch.randn(B, H, T, D, generator=g)
    k = torch.randn(B, H_kv, S, D, generator=g)
    ids = torch.randint(0, 5, (B, S), generator=g) if T <= S else None
    queries = torch.rand(B, T, generator=g) > 0.3 if draw(st.booleans()) else None
    return q, k, mask, scoring, ids, queries


@settings(deadline=None, max_examples=60)
@given(calls(), st.sampled_from([1, 4, 1024]), st.sampled_from([1, 3, 8]))
def test_tiles_agree_with_the_whole_map(call, overview, top_k):
    q, k, mask, scoring, ids, queries = call
    seen = observe(
        q, k, mask, scoring=scoring, ids=ids, queries=queries, overview=overview, top_k=top_k
    )
    found = dense(q, k, mask, scoring, queries)
    # A far key under a steep ALiBi has a score of 70, which float32 itself rounds by 4e-6.
    rounding = 2.0**-24 * abs(found.lse[np.isfinite(found.lse)]).max(initial=0)
    assert_matches(seen, found, mask, ids, atol=3e-6 + rounding)


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_the_size_of_a_band_changes_nothing(monkeypatch, rows):
    monkeypatch.setitem(tile_engine.ROWS, "cpu", (rows, rows))
    g = torch.Generator().manual_seed(rows)
    q, k = torch.randn(1, 2, 53, 8, generator=g), torch.randn(1, 1, 61, 8, generator=g)
    for mask in (Mask(causal=True), Mask(window=9), Mask(causal=True, window=20)):
        assert_matches(observe(q, k, mask, overview=8), dense(q, k, mask), mask, None, atol=3e-6)


def test_infinite_biases_hide_pairs():
    g = torch.Generator().manual_seed(0)
    q, k = torch.randn(1, 2, 13, 8, generator=g), torch.randn(1, 2, 17, 8, generator=g)
    wall = torch.rand(1, 2, 13, 17, generator=g) > 0.5
    wall[:, :, 3] = False
    for lowest in (-torch.inf, torch.finfo(torch.float32).min):
        bias = torch.zeros(1, 2, 13, 17).masked_fill(~wall, lowest)
        seen, same = observe(q, k, scoring=Scoring(bias=bias)), observe(q, k, Mask(dense=wall))
        for name in ("entropy", "top_weights", "top_keys", "received_total", "lags", "lse"):
            torch.testing.assert_close(getattr(seen, name), getattr(same, name), msg=name)


@given(st.integers(1, 5), st.integers(1, 700), st.integers(1, 9), st.integers(0, 99))
def test_top_columns_are_topk(rows, n, k, seed):
    x = torch.randn(rows, n, generator=torch.Generator().manual_seed(seed))
    values, places = top_columns(x, k)
    expected = x.topk(min(k, n))
    torch.testing.assert_close(values, expected.values)
    torch.testing.assert_close(x.gather(1, places), expected.values)


@given(st.integers(1, 5), st.integers(2, 400), st.integers(1, 9), st.integers(0, 99))
def test_sorted_columns_are_topk_of_numbers_of_any_size_and_sign(rows, m, k, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, m, generator=g) * 10.0 ** torch.randint(-30, 30, (rows, m), generator=g)
    x[:, seed % m] = -1e30
    x[:, (seed // 2) % m] = 0.0
    values, places = sorted_columns(x, k := min(k, m))
    assert torch.equal(values, x.topk(k).values)
    assert torch.equal(x.gather(1, places), values)
    assert all(len(set(row)) == k for row in places.tolist())


@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 12), st.integers(0, 99))
def test_weights_of_one_lag_stand_below_each_other(heads, n, m, seed):
    g = torch.Generator().manual_seed(seed)
    buffers = TileBuffers(torch.zeros((), dtype=torch.float64), 9, 12, 3, 1)
    buffers.views(1, 9, 12).weights.fill_(7)  # what a band before left there
    most = buffers.start_band(n, m)
    found = buffers.views(min(heads, most), n, m)
    found.weights.copy_(torch.rand(found.weights.shape, generator=g, dtype=torch.float64))
    for w, by_lag in zip(found.weights, found.by_lag, strict=True):
        wanted = [w.diagonal(key_ahead).sum() for key_ahead in range(1 - n, m)]
        torch.testing.assert_close(by_lag.sum(0), torch.stack(wanted))


@pytest.mark.parametrize("limit", [1, 2**9, 2**11, 2**13, 2**19])
@pytest.mark.parametrize("group", [1, 3])
def test_how_many_heads_are_taken_together_changes_nothing(monkeypatch, limit, group):
    monkeypatch.setitem(tile_engine.BAND, "cpu", limit)
    monkeypatch.setitem(tile_engine.ROWS, "cpu", (16, 16))
    g = torch.Generator().manual_seed(limit)
    q, k = torch.randn(3, 2 * group, 37, 8, generator=g), torch.randn(3, 2, 41, 8, generator=g)
    ids = torch.randint(0, 5, (3, 41), generator=g)
    keys = torch.rand(3, 41, generator=g) > 0.2
    for mask in (Mask(causal=True), Mask(causal=True, window=9, keys=keys)):
        assert_matches(observe(q, k, mask, ids=ids), dense(q, k, mask), mask, ids, atol=3e-6)


@pytest.mark.parametrize("mask", [Mask(causal=True), Mask(keys=torch.arange(37)[None] < 29)])
def test_keys_that_are_hidden_may_hold_nan(mask):
    g = torch.Generator().manual_seed(0)
    q, k = torch.randn(1, 2, 37, 8, generator=g), torch.randn(1, 2, 37, 8, generator=g)
    wanted = observe(q, k, mask)
    k[:, :, 29:] = torch.nan
    found = observe(q, k, mask)
    for name in ("entropy", "distance", "top_keys", "previous_weight", "row_sum"):
        ours, theirs = (getattr(x, name)[:, :, :29] for x in (found, wanted))
        torch.testing.assert_close(ours, theirs, msg=name)


@settings(deadline=None)
@given(calls())
def test_visible_pairs_are_what_the_mask_allows(call):
    q, k, mask, _, _, queries = call
    (B, H, T, _), S = q.shape, k.shape[2]
    sizes, lookers = count_visible(mask, T, S, queries, q.device)
    allowed = torch.from_numpy(dense(q, k, mask, queries=queries).allowed)
    assert torch.equal(sizes.expand(B, H, T), allowed.sum(-1))
    assert torch.equal(lookers.expand(B, H, S), allowed.sum(-2))


def test_only_the_latest_16_copies_are_looked_up():
    found = earlier_copies(*sort_by_token(torch.zeros(1, 40, dtype=torch.long), Mask()), 2)
    assert found[0, 1].tolist() == [*range(38, 22, -1)]


MEMORY = """
import sys, torch
from glasshead.attention.mask import Mask
from glasshead.observe.statistics import observe
from glasshead.observe.tile_buffers import TileBuffers
from tests.observe.peak_memory import peak_memory
T = int(sys.argv[1])
q, k, v = (torch.randn(1, 12, T, 64) for _ in range(3))
observe(q[:, :, :64], k[:, :, :64], Mask(causal=True))
before = peak_memory()
observe(q[:, :, -64:], k, Mask(causal=True))
observe(q[:, :1], k[:, :1], Mask(causal=True, window=257))
print(peak_memory() - before)
"""


def test_a_long_layer_needs_little_memory_beside_q_and_k():
    """Rows that reach 32,768 keys, and 32,768 rows of one head. The whole layer is in bench/."""
    run = [sys.executable, "-c", MEMORY, "32768"]
    grown = float(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    assert grown < 150  # MiB
