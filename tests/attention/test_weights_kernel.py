"""The GPU's kernel for weights: in Triton's interpreter, and on the GPU where there is one."""

import math
from importlib.util import find_spec

import pytest
import torch

from glasshead.attention import scores
from glasshead.attention.functional import attend
from glasshead.attention.mask import Mask
from glasshead.attention.scores import PLAIN, Scoring

from ..conftest import interpret
from .cases import Case

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

INTERPRETED = """
import torch
from glasshead.attention import scores, weights_kernel
from tests.attention import test_weights_kernel as test

weights_kernel.TILE = (16, 32, 4)
test.{check}(weights_kernel.weights_from_lse, scores)
"""


@pytest.mark.deep
def test_tiles_agree_with_float64_in_the_interpreter() -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    interpret(INTERPRETED.format(check="check_tiles"))


@pytest.mark.deep
def test_tiles_serve_attend_in_the_interpreter() -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    interpret(INTERPRETED.format(check="check_attend"))


TILED = [  # H, H_kv, T, S, D, dtype: tiles full, cut and hidden; rows that may see nothing
    (3, 3, 37, 37, 5, torch.float16),
    (4, 2, 32, 64, 16, torch.float32),
    (2, 1, 13, 71, 40, torch.float16),
    (2, 2, 71, 13, 16, torch.float32),
    (1, 1, 1, 7, 3, torch.float16),
]  # the interpreter has no products in bf16


def check_tiles(weights_from_lse, _) -> None:
    for H, H_kv, T, S, D, dtype in TILED:
        for parts in ((), ("causal",)):
            case = Case(H=H, H_kv=H_kv, T=T, S=S, D=D, dtype=dtype, mask_parts=parts)
            _, weights, lse = (torch.as_tensor(x) for x in case.exact())
            q, k, _ = case.tensors
            q = q.transpose(1, 2).contiguous().transpose(1, 2)  # as the module gives it
            k = k.mT.contiguous().mT if H == 2 else k
            found = weights_from_lse(q, k, lse.float(), D**-0.5, causal="causal" in parts)
            assert found.dtype == torch.float32
            assert (found.double() - weights).abs().max() < 1e-5, case


def check_attend(weights_from_lse, scores) -> None:
    case = Case(T=37, S=37, D=16, mask_parts=("causal",), score_parts=("scale",))
    in_bands = look(case)
    scores._tiles_for = lambda *_: weights_from_lse
    in_tiles = look(case)
    assert torch.equal(in_bands[0], in_tiles[0])
    for bands, tiles in zip(in_bands[1:], in_tiles[1:], strict=True):
        torch.testing.assert_close(tiles, bands, atol=1e-5, rtol=1e-5)


def look(case: Case, dtype: torch.dtype | None = None, device: str = "cpu") -> list[torch.Tensor]:
    """Context, weights, and the gradients of something made of the weights."""
    q, k, v = (t.to(device, dtype).requires_grad_() for t in case.tensors)
    seen = attend(q, k, v, case.mask, scoring=case.scoring, weights=True)
    ramp = torch.linspace(-1, 1, case.S, device=device, dtype=seen.weights.dtype)
    grads = torch.autograd.grad((seen.weights * ramp).sum(), (q, k))
    return [seen.context.detach(), seen.weights.detach(), *grads]


@needs_gpu
@needs_triton
@pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles FlexAttention
@pytest.mark.parametrize("mask_parts", [(), ("causal",)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("H", "H_kv", "T", "S", "D"),
    [(4, 4, 193, 193, 64), (4, 2, 256, 256, 128), (3, 1, 128, 331, 64), (2, 2, 131, 131, 40)],
)
def test_tiles_agree_with_float64_on_the_gpu(mask_parts, dtype, H, H_kv, T, S, D) -> None:
    case = Case(H=H, H_kv=H_kv, T=T, S=S, D=D, dtype=dtype, mask_parts=mask_parts)
    q = case.tensors[0].cuda()
    assert scores._tiles_for(q, case.mask, case.scoring) is not None
    found = look(case, device="cuda")
    _, weights, _ = case.exact()
    assert (found[1].double().cpu() - torch.as_tensor(weights)).abs().max() < 1e-5
    exact = look(case, torch.float64)
    for grad, true in zip(found[2:], exact[2:], strict=True):
        eps = torch.finfo(dtype).eps * true.abs().max()  # they are given in q's dtype
        assert (grad.double().cpu() - true).abs().max() < eps + 1e-5


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_of_tiles_sum_to_one_at_large_scores(dtype) -> None:
    case = Case(T=193, S=193, D=64, dtype=dtype, size=30, mask_parts=("causal",))
    q, k, v = (t.cuda() for t in case.tensors)
    weights = attend(q, k, v, case.mask, weights=True).weights
    assert (weights.sum(-1) - 1).abs().max() < 1e-4
    assert (weights.triu(1) == 0).all()


@needs_gpu
def test_what_tiles_cannot_do_is_left_to_the_bands() -> None:
    causal, q = Mask(causal=True), torch.empty(2, 3, 193, 64, dtype=torch.bfloat16, device="cuda")
    assert scores._tiles_for(q.cpu(), causal, PLAIN) is None
    assert scores._tiles_for(q.float(), causal, PLAIN) is None
    assert scores._tiles_for(q, causal & Mask(window=7), PLAIN) is None
    assert scores._tiles_for(q, causal, Scoring(softcap=5.0)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_kernels_own_lse_gets_its_gradient(dtype) -> None:
    found = []
    for backend in ("sdpa", "explicit"):
        case = Case(T=11, S=7, dtype=dtype, mask_parts=("causal",))
        q, k, v = (t.requires_grad_() for t in case.tensors)
        lse = attend(q, k, v, case.mask, backend=backend, lse=True).lse
        assert (lse[:, :, :4] == -math.inf).all()
        found.append([lse.detach(), *torch.autograd.grad(lse[:, :, 4:].sum(), (q, k))])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, check_dtype=False)
