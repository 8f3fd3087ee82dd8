"""The GPU's kernels against float64, where there is a GPU."""

import math

import pytest
import torch

from glasshead.attention.backends import BACKENDS, BackendCall, _score_rule, pick_backend
from glasshead.attention.functional import attend
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring

from .cases import Case

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # torch's own, while it compiles FlexAttention
    pytest.mark.filterwarnings("ignore"),
]

MASKS = [
    (),
    ("causal",),
    ("causal", "keys"),
    ("causal", "window"),
    ("causal", "documents"),
    ("dense",),
]
# Each pair compiles a kernel of its own.
PAIRS = [(mask, ()) for mask in MASKS] + [
    (("causal",), ("slopes",)),
    (("causal", "window"), ("softcap",)),
    (("keys",), ("bias",)),
]


@pytest.fixture(autouse=True)
def _compile_afresh():
    torch._dynamo.reset()


def moved(case: Case, dtype: torch.dtype) -> tuple[list[torch.Tensor], Mask, Scoring]:
    def put(x):
        return x if x is None else x.cuda()

    m, s = case.mask, case.scoring
    mask = Mask(m.causal, m.window, put(m.keys), put(m.documents), put(m.dense))
    floats = [None if t is None else t.to(dtype).cuda() for t in (s.slopes, s.bias)]
    tensors = [t.to(dtype).cuda().requires_grad_() for t in case.tensors]
    return tensors, mask, Scoring(s.scale, s.softcap, *floats)


def run(case: Case, backend: str, dtype: torch.dtype) -> list[torch.Tensor]:
    (q, k, v), mask, scoring = moved(case, dtype)
    seen = attend(q, k, v, mask, scoring=scoring, backend=backend, lse=True)
    grads = torch.autograd.grad(seen.context, (q, k, v), torch.ones_like(seen.context) * 0.1)
    return [seen.context.detach(), seen.lse.detach(), *grads]


@pytest.mark.parametrize(("mask_parts", "score_parts"), PAIRS)
@pytest.mark.parametrize(
    ("dtype", "T", "S"),
    [(torch.bfloat16, 193, 193), (torch.float16, 67, 193), (torch.float32, 192, 192)],
)
def test_backends_agree_on_the_gpu(dtype, mask_parts, score_parts, T, S) -> None:
    case = Case(B=2, H=4, H_kv=2, T=T, S=S, D=64, dtype=torch.float32,
                mask_parts=mask_parts, score_parts=score_parts)  # fmt: skip
    case.tensors = [t.to(dtype).float() for t in case.tensors]
    exact = run(case, "explicit", torch.float64)
    plain = run(case, "explicit", dtype)
    for backend in ("auto", "sdpa", "flex"):
        (q, k, v), mask, scoring = moved(case, dtype)
        call = BackendCall(q, k, v, mask.simplify(T, S), scoring)
        if backend != "auto" and BACKENDS[backend].why_not(call) is not None:
            continue
        for name, got, same, true in zip(
            ("context", "lse", "dq", "dk", "dv"),
            run(case, backend, dtype),
            plain,
            exact,
            strict=True,
        ):
            assert not got.isnan().any(), (backend, name)
            gone = true == -math.inf
            assert torch.equal(got == -math.inf, gone), (backend, name)
            error = (got.double() - true)[~gone].abs().max()
            bound = (3 if name[0] == "d" else 2) * (same.double() - true)[~gone].abs().max()
            # TF32 is off; float32 kernels still add up in another order.
            floor = 1e-2 if name == "lse" and dtype != torch.float32 and score_parts else 2e-5
            assert error <= bound + floor, (backend, name, error.item(), bound.item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask_parts", MASKS)
@pytest.mark.parametrize("D", [64, 128, 256, 40])
def test_asking_changes_no_bit_on_the_gpu(dtype, mask_parts, D) -> None:
    case = Case(B=2, H=4, H_kv=4, T=193, S=193, D=D, mask_parts=mask_parts)
    (q, k, v), mask, _ = moved(case, dtype)
    with torch.no_grad():
        plain = attend(q, k, v, mask).context
        asked = attend(q, k, v, mask, weights=True, lse=True)
    assert torch.equal(plain, asked.context)
    sums = asked.weights.sum(-1)
    assert ((sums - 1).abs() < 1e-4)[asked.lse > -math.inf].all()
    assert (sums[asked.lse == -math.inf] == 0).all()


@pytest.mark.parametrize("T", [64, 192, 320])
def test_dense_masks_give_finite_gradients_at_lengths_that_trouble_cudnn(T) -> None:
    q, k, v = (torch.randn(1, 2, T, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    q, k, v = (q * 40).requires_grad_(), (k * -40).requires_grad_(), v.requires_grad_()
    dense = torch.rand(1, 1, T, T, device="cuda") > 0.9
    for backend in ("auto", "sdpa"):
        seen = attend(q, k, v, Mask(dense=dense), backend=backend)
        grads = torch.autograd.grad(seen.context.float().sum(), (q, k, v))
        assert all(g.isfinite().all() for g in grads)


def test_auto_takes_a_fused_kernel_on_the_gpu() -> None:
    q, k, v = (torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    assert (
        pick_backend("auto", BackendCall(q, k, v, Mask(causal=True), Scoring())) is BACKENDS["sdpa"]
    )
    assert (
        pick_backend("auto", BackendCall(q, k, v, Mask(causal=True, window=9), Scoring()))
        is BACKENDS["flex"]
    )
    assert (
        pick_backend("auto", BackendCall(q, k, v, Mask(), Scoring(softcap=5.0))) is BACKENDS["flex"]
    )


def test_attention_compiles_on_the_gpu() -> None:
    q, k, v = (torch.randn(2, 4, 193, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))

    def run(q, k, v):
        return attend(q, k, v, Mask(causal=True)).context

    compiled = torch.compile(run, fullgraph=True)
    torch.testing.assert_close(compiled(q, k, v), run(q, k, v))


def test_the_rules_for_flex_attention_do_not_make_the_host_wait() -> None:
    q, k, v = (torch.randn(2, 4, 193, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    call = BackendCall(q, k, v, Mask(causal=True), Scoring(slopes=torch.ones(4, device="cuda")))
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert _score_rule(call) is not None
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_new_mask_of_the_same_kind_is_not_compiled_again() -> None:
    q, k, v = (torch.randn(2, 4, 193, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    q.requires_grad_()  # else a mask this small is not compiled at all
    compiled = torch._dynamo.utils.counters["stats"]
    before = None
    for length in range(100, 120):
        keys = torch.arange(193, device="cuda") < torch.tensor([[193], [length]], device="cuda")
        attend(q, k, v, Mask(causal=True, keys=keys))
        if before is None:
            before = compiled["unique_graphs"]
    assert compiled["unique_graphs"] == before
