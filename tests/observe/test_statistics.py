"""What `observe` says against the whole map in float64, and what it refuses."""

import math

import numpy as np
import pytest
import torch

from glasshead.attention.functional import attend
from glasshead.attention.mask import ALLOW_ALL, Mask
from glasshead.attention.scores import PLAIN, Scoring
from glasshead.errors import BackendError, ConfigError, MaskError, ShapeError
from glasshead.observe import triton_engine
from glasshead.observe.engine import EngineInput
from glasshead.observe.lags import lag_starts
from glasshead.observe.statistics import HeadStatistics, observe
from tests.observe.dense import assert_matches, dense


def layer(seed, B=2, H=6, H_kv=2, T=29, S=37, D=8, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(B, H, T, D, generator=g).to(dtype)
    k = torch.randn(B, H_kv, S, D, generator=g).to(dtype)
    return q, k, torch.randint(0, 7, (B, S), generator=g)


def test_all_statistics_of_1024_tokens_are_exact_to_3e_6():
    q, k, ids = layer(0, B=1, H=2, H_kv=1, T=1024, S=1024, D=64)
    mask = Mask(causal=True)
    seen = observe(q, k, mask, ids=ids, overview=61)
    assert_matches(seen, dense(q, k, mask), mask, ids, atol=3e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_measured_in_float32(dtype):
    q, k, ids = layer(1, dtype=dtype)
    seen = observe(q, k, Mask(causal=True), ids=ids)
    assert seen.entropy.dtype == torch.float32
    assert_matches(seen, dense(q, k, Mask(causal=True)), Mask(causal=True), ids, atol=3e-6)


def test_float64_stays_float64():
    q, k, ids = layer(2, dtype=torch.float64)
    seen = observe(q, k, ids=ids)
    assert seen.entropy.dtype == torch.float64
    assert_matches(seen, dense(q, k, Mask()), Mask(), ids, atol=1e-12)


def test_scores_may_be_large_without_losing_entropy():
    q, k, _ = layer(3, D=16)
    q = q * 40
    seen = observe(q.double(), k.double())
    rough = observe(q, k)
    scale = float(seen.lse.abs().max())
    assert scale > 100
    torch.testing.assert_close(rough.entropy.double(), seen.entropy, atol=1e-6 * scale, rtol=0)


def test_a_given_lse_gives_the_same_statistics():
    q, k, ids = layer(4)
    mask = Mask(causal=True)
    lse = attend(q, k, k, mask, lse=True).lse
    assert_matches(observe(q, k, mask, lse=lse, ids=ids), dense(q, k, mask), mask, ids, atol=3e-6)


def test_row_sums_show_an_lse_that_does_not_fit():
    q, k, _ = layer(5)
    lse = attend(q, k, k, lse=True).lse + math.log(2)
    row_sum = observe(q, k, lse=lse).row_sum
    torch.testing.assert_close(row_sum, torch.full_like(row_sum, 0.5))


def test_rows_that_do_not_count_are_empty_rows():
    q, k, ids = layer(6, T=37)
    mask, counts = Mask(causal=True), torch.arange(37) < torch.tensor([[11], [31]])
    seen = observe(q, k, mask, ids=ids, queries=counts)
    assert_matches(seen, dense(q, k, mask, queries=counts), mask, ids, atol=3e-6)
    assert (seen.lse[0, :, 11:] == -math.inf).all()
    assert not seen.entropy[0, :, 11:].any()


def test_rows_that_do_not_count_may_hold_nan():
    q, k, ids = layer(6)
    counts = torch.arange(29) < torch.tensor([[11], [23]])
    wanted = observe(q, k, ids=ids, queries=counts)
    found = observe(q.masked_fill(~counts[:, None, :, None], torch.nan), k, ids=ids, queries=counts)
    for name, x in vars(wanted).items():
        if isinstance(x, torch.Tensor):
            assert torch.equal(getattr(found, name), x), name


def test_nothing_to_see_gives_zeros_and_no_nan():
    q, k, ids = layer(7)
    seen = observe(q, k, Mask(keys=torch.zeros(2, 37, dtype=torch.bool)), ids=ids)
    for name, x in vars(seen).items():
        if isinstance(x, torch.Tensor) and name not in ("lse", "top_keys", "lag_starts"):
            assert not x.any(), name
    assert (seen.top_keys == -1).all()
    assert not any(x.isnan().any() for x in seen.means().values())


@pytest.mark.parametrize(("T", "S"), [(0, 5), (5, 0), (1, 1), (1, 17)])
def test_the_smallest_sizes_work(T, S):
    q, k, _ = layer(8, T=T, S=S)
    seen = observe(q, k, Mask(causal=True))
    assert seen.entropy.shape == (2, 6, T)
    assert seen.received.shape == (2, 6, S)
    if T and S:
        assert_matches(seen, dense(q, k, Mask(causal=True)), Mask(causal=True), None, atol=3e-6)


def test_equal_weights_have_relative_entropy_1_and_as_many_effective_keys_as_keys():
    k = layer(9, T=37)[1]
    seen = observe(torch.zeros(2, 6, 37, 8), k, Mask(causal=True))
    size = torch.arange(1, 38).float()
    torch.testing.assert_close(seen.effective_keys, size.expand(2, 6, 37))
    torch.testing.assert_close(seen.relative_entropy[..., 1:], torch.ones(2, 6, 36))
    torch.testing.assert_close(seen.mean_distance, ((size - 1) / 2).expand(2, 6, 37))
    torch.testing.assert_close(seen.received_total.sum(-1), torch.full((2, 6), 37.0))


def copying_head(ids, plus):
    """A head whose queries look only at earlier copies of their token, or right after them."""
    S = ids.shape[1]
    i, j = torch.arange(S)[:, None], torch.arange(S)
    source = (j - plus).clamp(min=0)
    match = (ids[0, source][None, :] == ids[0][:, None]) & (j - plus >= 0) & (j - plus < i)
    return match[None, None]


def test_induction_and_duplicate_heads_are_told_apart():
    ids = torch.randperm(53)[:23].repeat(2)[None]
    q = torch.zeros(1, 2, 46, 4)
    bias = torch.cat([copying_head(ids, 0), copying_head(ids, 1)], 1).float() * 30
    seen = observe(q, q, Mask(causal=True), scoring=Scoring(bias=bias), ids=ids)
    torch.testing.assert_close(seen.duplicate, torch.tensor([[1.0, 0.0]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(seen.induction, torch.tensor([[0.0, 1.0]]), atol=1e-6, rtol=0)


def test_vertical_and_slash_heads_are_told_apart():
    T = 128
    i, j = torch.arange(T)[:, None], torch.arange(T)
    bias = torch.stack([((j == 5) | (j == 0)).expand(T, T), i - j == 17]).float()[None] * 30
    q = torch.zeros(1, 2, T, 4)
    seen = observe(q, q, scoring=Scoring(bias=bias.expand(1, 2, T, T)))
    assert seen.vertical[0, 0] > 0.99
    assert seen.vertical[0, 1] < 0.2
    assert seen.slash[0, 1] > 0.85  # the first rows have no key 17 back
    assert seen.slash[0, 0] < 0.2


def test_buckets_of_lags_are_single_near_0_then_powers_of_two():
    starts = lag_starts(300, 700, False, torch.device("cpu")).tolist()
    assert starts == [-299, -255, *range(-127, 128), 128, 256, 512]
    assert lag_starts(300, 700, True, torch.device("cpu")).tolist() == [*range(128), 128, 256, 512]


def test_shapes_are_as_documented():
    q, k, ids = layer(10)
    seen = observe(q, k, Mask(causal=True), ids=ids, top_k=3, overview=5)
    assert seen.overview_cell == (8, 8)
    assert seen.overview_mean.shape == seen.overview_max.shape == (2, 6, 4, 5)
    assert seen.top_keys.shape == seen.top_weights.shape == (2, 6, 29, 3)
    assert seen.lags.shape == (2, 6, len(seen.lag_starts))
    assert all(x.shape == (2, 6) for x in seen.means().values())


def test_looking_leaves_no_gradient():
    q, k, _ = layer(11)
    assert not observe(q.requires_grad_(), k).entropy.requires_grad


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"lse": torch.zeros(2, 6, 28)}, ShapeError, "lse has shape (2, 6, 28)"),
        ({"ids": torch.zeros(2, 29, dtype=torch.long)}, ShapeError, "ids has shape (2, 29)"),
        ({"ids": torch.zeros(2, 37)}, ShapeError, "ids of dtype torch.float32"),
        ({"queries": torch.ones(2, 29)}, ShapeError, "queries has dtype torch.float32"),
        ({"k": torch.zeros(2, 4, 37, 8)}, ShapeError, "do not fit together"),
        ({"k": torch.zeros(2, 2, 37)}, ShapeError, "k (2, 2, 37)"),
        ({"mask": "causal"}, MaskError, "mask is a str"),
        ({"top_k": 0}, ConfigError, "top_k (0)"),
        ({"engine": "tritn"}, BackendError, "unknown engine 'tritn'"),
    ],
)
def test_what_cannot_be_measured_is_named(change, error, message):
    q, k, _ = layer(12)
    with pytest.raises(error) as raised:
        observe(**({"q": q, "k": k} | change))
    assert message in str(raised.value)
    assert raised.value.hint


def test_triton_asked_for_where_it_cannot_serve_says_why(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    q, k, _ = layer(13)
    with pytest.raises(BackendError, match=r"Triton is not installed|it needs CUDA"):
        observe(q, k, engine="triton")
    assert observe(q, k).engine == "tiles"


def test_the_engine_is_chosen_by_reasons(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(triton_engine.importlib.util, "find_spec", lambda name: True)
    q, k, _ = layer(14)

    def why_not(q=q, k=k, mask=ALLOW_ALL, scoring=PLAIN, top_k=8):
        return triton_engine.why_not(
            EngineInput(q, k, mask, scoring, None, None, None, top_k, (1, 1), False)
        )

    assert why_not() is None
    assert "float64" in why_not(q.double(), k.double())
    assert "dense" in why_not(mask=Mask(dense=torch.ones(29, 37, dtype=torch.bool)))
    assert "biases" in why_not(scoring=Scoring(bias=torch.zeros(29, 37)))
    assert "256" in why_not(torch.zeros(2, 6, 29, 264), torch.zeros(2, 2, 37, 264))
    assert "40" in why_not(top_k=40)


def test_the_example_of_documents_looks_at_its_own_first_key():
    q, k, _ = layer(15, T=37)
    documents = (torch.arange(37) // 10)[None].expand(2, 37)
    mask = Mask(causal=True, documents=documents)
    seen: HeadStatistics = observe(q, k, mask)
    starts = seen.first_weight[:, :, ::10]
    np.testing.assert_allclose(starts.numpy(), 1.0, atol=1e-6)
