"""Every backend against the four NumPy steps in float64.

The bound is the design's: at most twice the error of the explicit path in the same dtype, three
times for gradients. Its floor: one rounding of the largest value in that dtype, and what it does
to the result when the largest score is rounded in the kernel's precision (float32 or better).
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from glasshead.attention import backends
from glasshead.attention.backends import BACKENDS, BackendCall, Flex
from glasshead.attention.functional import attend
from glasshead.attention.mask import Mask
from glasshead.attention.scores import PLAIN, Scoring
from glasshead.errors import BackendError

from .cases import DTYPES, HALF, Case, cases


def error(x: Tensor, exact: np.ndarray | Tensor) -> float:
    exact = torch.as_tensor(exact)
    assert x.shape == exact.shape
    assert not x.isnan().any()
    gone = exact == -math.inf
    assert (x[gone] == -math.inf).all()
    return (x.double() - exact)[~gone].abs().max().item() if (~gone).any() else 0.0


def largest(x: np.ndarray | Tensor) -> float:
    x = torch.as_tensor(x)
    return max(x[x != -math.inf].abs().flatten().tolist(), default=0.0)


def floor(exact: np.ndarray | Tensor, case: Case) -> float:
    inner = torch.float64 if case.dtype == torch.float64 else torch.float32
    q, k, _ = case.tensors
    score = largest(q) * largest(k) * case.D * case.scoring.scale_for(case.D)
    in_result = torch.finfo(case.dtype).eps * largest(exact)
    in_scores = 4 * torch.finfo(inner).eps * (1 + score) * (1 + largest(exact))
    return in_result + in_scores


def rounded_weights(case: Case) -> float:
    """The error of the context from weights that are rounded to half precision.

    A context whose values cancel may be much smaller than this.
    """
    half = case.dtype in HALF
    return torch.finfo(case.dtype).eps / 2 * largest(case.tensors[2]) if half else 0.0


def score_rounding(case: Case, lse: np.ndarray, dtype: torch.dtype) -> float:
    """The error of scores, weights and lse that are computed in `dtype`.

    A score of size n is rounded by n * eps. One whose products cancel is rounded by the size of
    these, even where the lse is small.
    """
    q, k, _ = (t.double().abs() for t in case.tensors)
    products = q @ k.repeat_interleave(case.H // case.H_kv, 1).mT * case.scoring.scale_for(case.D)
    size = max(1.0, np.abs(lse[lse > -np.inf]).max(initial=0))
    return torch.finfo(dtype).eps * (64 * size + case.D * largest(products))


def gradients(case: Case, backend: str, dtype: torch.dtype | None = None) -> list[Tensor]:
    inputs = [t.detach().to(dtype or case.dtype).requires_grad_() for t in case.tensors]
    scoring = Scoring(
        case.scoring.scale,
        case.scoring.softcap,
        *(None if t is None else t.to(inputs[0].dtype)
          for t in (case.scoring.slopes, case.scoring.bias)),
    )  # fmt: skip
    seen = attend(*inputs, case.mask, scoring=scoring, backend=backend)
    g = torch.Generator().manual_seed(case.seed)
    seed = torch.randn(seen.context.shape, generator=g, dtype=torch.float64)
    return list(torch.autograd.grad(seen.context, inputs, seed.to(seen.context.dtype)))


@settings(max_examples=150, deadline=None)
@given(cases(dtypes=(torch.float64, torch.float32)))
def test_explicit_equals_the_five_steps(case: Case) -> None:
    context, weights, lse = case.exact()
    seen = attend(
        *case.tensors, case.mask, scoring=case.scoring, backend="explicit", weights=True, lse=True
    )
    slack = score_rounding(case, lse, case.dtype)
    assert error(seen.context, context) <= slack * 4
    assert error(seen.weights, weights) <= slack
    assert error(seen.lse, lse) <= slack


@settings(max_examples=200, deadline=None)
@given(cases(score_parts=("slopes", "bias", "scale")))
def test_sdpa_is_as_right_as_the_explicit_path(case: Case) -> None:
    context, _, lse = case.exact()
    sdpa = attend(*case.tensors, case.mask, scoring=case.scoring, backend="sdpa", lse=True)
    plain = attend(*case.tensors, case.mask, scoring=case.scoring, backend="explicit", lse=True)
    bound = 2 * error(plain.context, context) + floor(context, case) + rounded_weights(case)
    assert error(sdpa.context, context) <= bound
    assert error(sdpa.lse, lse) <= 2 * error(plain.lse, lse) + floor(lse, case)


@settings(max_examples=150, deadline=None)
@given(cases(score_parts=("slopes", "scale")))
def test_sdpa_gradients_are_as_right_as_the_explicit_ones(case: Case) -> None:
    exact = gradients(case, "explicit", torch.float64)
    plain = gradients(case, "explicit")
    q, k, v = case.tensors
    # A gradient is a sum of products of v with q or k, which may cancel; half precision rounds
    # each of them.
    products = largest(v) * max(1.0, largest(q), largest(k))
    each = torch.finfo(case.dtype).eps * products if case.dtype in HALF else 0.0
    for ours, theirs, reference in zip(gradients(case, "sdpa"), plain, exact, strict=True):
        rounding = 2 * floor(reference, case) * (1 + largest(q)) + each
        bound = 3 * error(theirs, reference) + rounding
        assert error(ours, reference) <= bound


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@settings(max_examples=25, deadline=None)
@given(cases(dtypes=(torch.float64, torch.float32, torch.bfloat16), least=1))
def test_the_rules_given_to_flex_attention_mean_the_same(case: Case) -> None:
    context, _, _ = case.exact()
    (_, _, T, _), S = case.tensors[0].shape, case.S
    call = BackendCall(*case.tensors, case.mask.simplify(T, S), case.scoring)
    plain = attend(*case.tensors, case.mask, scoring=case.scoring, backend="explicit")
    flex = Flex(fused=False).run(call)
    bound = 2 * error(plain.context, context) + 2 * floor(context, case) + rounded_weights(case)
    assert error(flex.context, context) <= bound


EACH_RULE = [  # every part of a mask and of the scoring; grouped queries; T < S, T = S and T > S
    Case(H=4, H_kv=2, mask_parts=("causal",), score_parts=("softcap",)),
    Case(T=7, S=5, mask_parts=("window",), score_parts=("slopes",)),
    Case(mask_parts=("keys",), score_parts=("bias",)),
    Case(T=7, mask_parts=("causal", "documents"), score_parts=("scale",)),
    Case(H=6, H_kv=2, mask_parts=("dense",), score_parts=("bias", "slopes")),
    Case(T=11, S=13, mask_parts=("causal", "dense-rows", "window"), score_parts=()),
]


@pytest.mark.skipif(" " in torch.__file__, reason="flex is refused where torch's path has a space")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("case", EACH_RULE, ids=lambda case: "-".join(case.mask_parts))
def test_flex_by_name_gives_context_weights_and_lse(case: Case, monkeypatch) -> None:
    """Uncompiled, so that no C++ compiler is needed and no time is spent on compiling."""
    monkeypatch.setattr(backends, "_compiled_flex", lambda: flex_attention)
    monkeypatch.setattr(backends, "find_compiler", lambda: "c++")
    context, weights, lse = case.exact()
    seen = attend(
        *case.tensors, case.mask, scoring=case.scoring, backend="flex", weights=True, lse=True
    )
    assert error(seen.context, context) < 1e-5
    assert error(seen.weights, weights) < 1e-5
    assert error(seen.lse, lse) < 1e-5


@pytest.mark.deep
@pytest.mark.skipif(" " in torch.__file__, reason="torch cannot link where its path has a space")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
def test_compiled_flex_attention_serves_on_cpu() -> None:
    case = Case(B=2, H=4, H_kv=2, T=37, S=53, D=16, mask_parts=("causal", "keys"),
                score_parts=("softcap",))  # fmt: skip
    context, weights, lse = case.exact()
    seen = attend(
        *case.tensors, case.mask, scoring=case.scoring, backend="flex", weights=True, lse=True
    )
    assert error(seen.context, context) < 1e-5
    assert error(seen.weights, weights) < 1e-5
    assert error(seen.lse, lse) < 1e-5


@pytest.mark.skipif(" " in torch.__file__, reason="flex is refused before it is compiled")
def test_a_failed_compilation_is_one_line(monkeypatch) -> None:
    from torch._dynamo.exc import BackendCompilerFailed

    def fails(*_, **__) -> None:
        raise BackendCompilerFailed.__new__(BackendCompilerFailed)

    monkeypatch.setattr(backends, "_compiled_flex", lambda: fails)
    monkeypatch.setattr(backends, "find_compiler", lambda: "c++")
    with pytest.raises(
        BackendError, match=r"cannot compile FlexAttention for \(1, 1, 7, 16\)"
    ) as e:
        attend(*torch.randn(3, 1, 1, 7, 16), backend="flex")
    assert "sdpa" in e.value.hint


def test_without_a_compiler_flex_says_what_it_needs(monkeypatch) -> None:
    monkeypatch.setattr(backends, "find_compiler", lambda: None)
    tensors = torch.randn(3, 1, 1, 7, 16).unbind()
    if " " not in torch.__file__:
        with pytest.raises(BackendError, match=r"it needs a C\+\+ compiler"):
            attend(*tensors, backend="flex")
    assert attend(*tensors).context.shape == (1, 1, 7, 16)


@pytest.mark.deep
@pytest.mark.skipif(" " in torch.__file__, reason="flex is refused before it is compiled")
@pytest.mark.filterwarnings("ignore")  # torch's own, while it tries
def test_a_compiler_that_is_missing_is_one_line(tmp_path, monkeypatch) -> None:
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    with (
        config.patch({"cpp.cxx": ("no-such-compiler",)}),
        pytest.raises(BackendError, match=r"cannot compile FlexAttention for \(1, 1, 7, 16\)"),
    ):
        attend(*torch.randn(3, 1, 1, 7, 16), backend="flex")
    torch._dynamo.reset()


@settings(max_examples=15, deadline=None)
@given(cases(dtypes=(torch.float64,), least=1))
def test_second_derivatives_of_the_explicit_path(case: Case) -> None:
    case = Case(B=1, H=2, H_kv=1, T=2, S=3, D=2, dtype=torch.float64, seed=case.seed,
                mask_parts=case.mask_parts, score_parts=case.score_parts)  # fmt: skip
    inputs = [t.requires_grad_() for t in case.tensors]

    def run(*qkv: Tensor) -> tuple[Tensor, Tensor]:
        seen = attend(*qkv, case.mask, scoring=case.scoring, backend="explicit", weights=True)
        assert seen.weights is not None
        return seen.context, seen.weights

    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)


@settings(max_examples=50, deadline=None)
@given(cases(score_parts=("slopes", "bias")))
def test_weights_and_lse_have_the_gradients_of_the_formula(case: Case) -> None:
    def gradient(backend: str, dtype: torch.dtype) -> list[Tensor]:
        q, k, v = (t.detach().to(dtype).requires_grad_() for t in case.tensors)
        seen = attend(
            q, k, v, case.mask, scoring=case.scoring, backend=backend, weights=True, lse=True
        )
        assert seen.weights is not None
        assert seen.lse is not None
        ramp = torch.arange(case.S, dtype=torch.float64).to(seen.weights)
        kept = seen.lse != -math.inf
        total = (seen.weights * ramp).sum() + (seen.lse[kept] * 0.7).sum()
        return list(torch.autograd.grad(total, (q, k)))

    exact = gradient("explicit", torch.float64)
    for ours, reference in zip(gradient("sdpa", case.dtype), exact, strict=True):
        assert error(ours, reference) <= 4 * floor(reference, case) * (1 + largest(case.tensors[0]))


@settings(max_examples=100, deadline=None)
@given(cases(score_parts=("slopes", "bias")))
def test_asking_for_weights_and_lse_changes_no_bit(case: Case) -> None:
    for backend in ("explicit", "sdpa", "auto"):
        plain = attend(*case.tensors, case.mask, scoring=case.scoring, backend=backend)
        asked = attend(
            *case.tensors, case.mask, scoring=case.scoring, backend=backend, weights=True, lse=True
        )
        assert torch.equal(plain.context, asked.context)
        assert plain.weights is None
        assert plain.lse is None


@settings(max_examples=100, deadline=None)
@given(cases())
def test_weights_are_exact_whatever_the_dtype_and_rows_sum_to_one(case: Case) -> None:
    _, weights, lse = case.exact()
    seen = attend(*case.tensors, case.mask, scoring=case.scoring, weights=True, lse=True)
    assert seen.weights is not None
    assert seen.weights.dtype == (torch.float64 if case.dtype == torch.float64 else torch.float32)
    slack = score_rounding(case, lse, seen.weights.dtype)
    assert error(seen.weights, weights) <= slack
    sums = seen.weights.sum(-1)
    empty = torch.as_tensor(lse) == -math.inf
    assert (sums[empty] == 0).all()
    assert ((sums[~empty] - 1).abs() <= slack).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("backend", ["explicit", "sdpa"])
def test_a_row_that_may_attend_to_nothing_is_zero_and_has_finite_gradients(
    backend: str, dtype: torch.dtype
) -> None:
    case = Case(dtype=dtype)
    mask = torch.ones(case.T, case.S, dtype=torch.bool)
    mask[2] = False
    inputs = [t.requires_grad_() for t in case.tensors]
    seen = attend(*inputs, mask, backend=backend, weights=True, lse=True)
    assert seen.weights is not None
    assert seen.lse is not None
    assert (seen.context[:, :, 2] == 0).all()
    assert (seen.weights[:, :, 2] == 0).all()
    assert (seen.lse[:, :, 2] == -math.inf).all()
    q_grad, *others = torch.autograd.grad(seen.context.sum(), inputs)
    assert (q_grad[:, :, 2] == 0).all()
    assert all(g.isfinite().all() for g in (q_grad, *others))


def test_dropout_keeps_the_mean_and_leaves_the_observed_weights_alone() -> None:
    case = Case(B=1, H=1, H_kv=1, T=13, S=17, D=3)
    plain = attend(*case.tensors, weights=True)
    torch.manual_seed(0)
    many = [attend(*case.tensors, dropout=0.3, weights=True) for _ in range(400)]
    assert not torch.equal(many[0].context, plain.context)
    for dropped in many[:5]:
        torch.testing.assert_close(dropped.weights, plain.weights)
    mean = torch.stack([m.context for m in many]).mean(0)
    assert (mean - plain.context).abs().max() < 0.15


@pytest.mark.parametrize(
    ("backend", "case", "keywords", "reason"),
    [
        ("sdpa", Case(score_parts=("softcap",)), {}, "softcap"),
        ("sdpa", Case(), {"dropout": 0.1}, "no dropout on CPU"),
        ("flex", Case(), {"dropout": 0.1}, "no dropout"),
        ("flex", Case(dtype=torch.float64), {}, "no float64"),
    ],
)
def test_a_forced_backend_that_cannot_serve_says_why(
    backend: str, case: Case, keywords: dict, reason: str
) -> None:
    with pytest.raises(BackendError, match=reason) as caught:
        attend(*case.tensors, scoring=case.scoring, backend=backend, **keywords)
    assert "auto" in caught.value.hint


def test_flex_refuses_gradients_on_cpu() -> None:
    q, k, v = (t.requires_grad_() for t in Case().tensors)
    with pytest.raises(BackendError, match="no gradients on CPU"):
        attend(q, k, v, backend="flex")


def test_an_unknown_backend_is_met_with_a_suggestion() -> None:
    with pytest.raises(BackendError, match="unknown backend 'spda'") as caught:
        attend(*Case().tensors, backend="spda")
    assert "'sdpa'" in caught.value.hint


def test_auto_picks_by_what_is_asked() -> None:
    def picked(case: Case, **keywords: float) -> str:
        from glasshead.attention.backends import pick_backend

        call = BackendCall(
            *case.tensors, case.mask.simplify(case.T, case.S), case.scoring, **keywords
        )
        chosen = pick_backend("auto", call)
        return next(name for name, backend in BACKENDS.items() if backend is chosen)

    assert picked(Case(mask_parts=("causal",))) == "sdpa"
    assert picked(Case(score_parts=("softcap",))) == "explicit"
    assert picked(Case(), dropout=0.1) == "explicit"
    assert picked(Case(T=1, dtype=HALF[0])) == "sdpa"


def test_causal_skips_no_key_when_one_query_meets_a_long_past() -> None:
    case = Case(T=1, S=13)
    with_mask = attend(*case.tensors, Mask(causal=True))
    assert torch.equal(with_mask.context, attend(*case.tensors, None).context)


def test_attention_compiles_without_changing_the_result() -> None:
    case = Case(mask_parts=("causal",), T=7)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k, v, case.mask, scoring=PLAIN).context

    compiled = torch.compile(run, backend="eager", fullgraph=True)
    assert torch.equal(compiled(*case.tensors), run(*case.tensors))
