import pytest
import torch

from glasshead.attention.functional import attend
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring, recompute
from glasshead.errors import ConfigError, NotFiniteError, ShapeError

from .cases import Case


def test_future_tokens_do_not_change_the_past() -> None:
    q, k, v = Case(T=7, S=7).tensors
    before = attend(q, k, v, Mask(causal=True)).context
    k[:, :, 5:], v[:, :, 5:] = 50.0, -50.0
    after = attend(q, k, v, Mask(causal=True)).context
    assert torch.equal(before[:, :, :5], after[:, :, :5])
    assert not torch.equal(before[:, :, 5:], after[:, :, 5:])


def test_grouped_queries_equal_repeated_keys() -> None:
    case = Case(H=6, H_kv=2)
    q, k, v = case.tensors
    repeated = attend(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1)).context
    torch.testing.assert_close(attend(q, k, v).context, repeated)


def test_values_may_be_wider_than_keys() -> None:
    q, k, _ = Case().tensors
    v = torch.randn(2, 3, 7, 13)
    assert attend(q, k, v).context.shape == (2, 3, 5, 13)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_nan_in_the_input_is_named_with_its_place(name: str) -> None:
    tensors = dict(zip("qkv", Case().tensors, strict=True))
    tensors[name][1, 2, 3, 4] = torch.nan
    with pytest.raises(NotFiniteError, match=rf"{name} holds NaN.*\(1, 2, 3, 4\), 1 in all"):
        attend(**tensors)


def test_infinite_values_that_cancel_are_not_taken_for_nan_in_the_input() -> None:
    q, k, v = Case().tensors
    v[0, 0, 0, 0], v[0, 0, 1, 0] = torch.inf, -torch.inf
    assert attend(q, k, v).context.isnan().any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q.long(), k, v), "q has dtype torch.int64"),
        (lambda q, k, v: (q, k.bool(), v), "k has dtype torch.bool"),
        (lambda q, k, v: (q[0], k, v), r"q has shape \(3, 5, 11\)"),
        (lambda q, k, v: (q, k[..., :7], v), r"k \(2, 3, 7, 7\)"),
        (lambda q, k, v: (q, k, v[:, :, :3]), r"v \(2, 3, 3, 11\)"),
        (lambda q, k, v: (q[:1], k, v), r"q \(1, 3, 5, 11\)"),
        (lambda q, k, v: (q, k[:, :2], v[:, :2]), r"n_heads \(3\).*n_kv_heads \(2\)"),
        (lambda q, k, v: (q, k[:, :0], v[:, :0]), r"n_kv_heads \(0\)"),
        (lambda q, k, v: (q.double(), k, v), "torch.float64, torch.float32"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(change, message: str) -> None:
    with pytest.raises(ShapeError, match=message) as caught:
        attend(*change(*Case().tensors))
    assert caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_a_senseless_dropout_is_refused(dropout: float) -> None:
    with pytest.raises(ConfigError, match="dropout"):
        attend(*Case().tensors, dropout=dropout)


def test_observing_under_autocast_stays_exact() -> None:
    case = Case(T=13, S=17)
    _, weights, lse = case.exact()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen = attend(*case.tensors, weights=True, lse=True)
    torch.testing.assert_close(seen.weights.double(), torch.as_tensor(weights), atol=1e-6, rtol=0)
    torch.testing.assert_close(seen.lse.double(), torch.as_tensor(lse), atol=1e-5, rtol=0)


@pytest.mark.parametrize("part", ["weights", "lse"])
def test_gradients_of_what_is_recomputed_are_those_of_the_formula_with_its_softcap(part):
    torch.manual_seed(5)
    q, k = (torch.randn(2, 3, n, 7, dtype=torch.float64, requires_grad=True) for n in (5, 11))
    mask, scoring = Mask(causal=True), Scoring(softcap=0.7)
    found = recompute(q, k, mask, scoring, weights=True, lse=True)[part == "lse"]
    s = 0.7 * torch.tanh((q @ k.mT) / 7**0.5 / 0.7)
    s = s.masked_fill(~mask.to_tensor(5, 11), -torch.inf)
    expected = s.softmax(-1) if part == "weights" else s.logsumexp(-1)
    torch.testing.assert_close(found, expected)
    change = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad((x * change).sum(), (q, k)) for x in (found, expected))
    torch.testing.assert_close(ours, theirs)
