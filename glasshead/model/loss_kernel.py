"""Cross-entropy over a large vocabulary on a GPU: gradients overwrite the logits.

A step of 65,536 tokens over 50,304 words has 6.6 GB of logits in bf16. The time goes into reading
and writing them, so a program reads a row once for its log-sum-exp and loss, and overwrites it with
the gradient of the mean loss.
"""

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["head_loss"]

# Logits that a program reads at a time, and its warps: the fastest of twelve pairs on an H200.
TILE = (8192, 8)


def head_loss(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Compute F.cross_entropy(F.linear(x, weight, bias), targets), products in the dtype of x."""
    return _FusedHeadLoss.apply(x, weight, bias, targets)


class _FusedHeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor
    ) -> Tensor:
        V = weight.shape[0]
        # Products are slow unless rows start at multiples of 16 bytes.
        table = F.pad(weight.to(x.dtype), (0, 0, 0, -V % 64))
        logits = x @ table.t()  # (N, V)
        if bias is not None:
            logits[:, :V] += bias.to(x.dtype)
        losses = _turn_into_gradients(logits, targets, V)
        ctx.save_for_backward(x, table, logits)
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        ctx.V = V
        return losses.mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, table, change = ctx.saved_tensors
        of_weight, of_bias = ctx.dtypes
        grad = grad.clone()  # any kernel: cuBLAS warns if its own is the first of a thread
        dx = (change @ table) * grad  # a scalar does not change the dtype
        dweight = _product(change.t(), x, of_weight)[: ctx.V] * grad
        dbias = None
        if of_bias is not None:
            dbias = change[:, : ctx.V].sum(0, dtype=of_bias) * grad
        return dx, dweight, dbias, None


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a @ b in a wider dtype, without rounding to that of a first."""
    if a.dtype == dtype or not a.is_cuda:
        return (a @ b).to(dtype)
    return torch.mm(a, b, out_dtype=dtype)


def _turn_into_gradients(logits: Tensor, targets: Tensor, V: int) -> Tensor:
    """Return the loss of each row, (N,); overwrite the logits with gradients of the mean loss."""
    N = logits.shape[0]
    losses = torch.empty(N, dtype=torch.float32, device=logits.device)
    block = min(triton.next_power_of_2(V), TILE[0])
    warps = TILE[1] if block == TILE[0] else max(1, block // 512)
    with torch.cuda.device_of(logits):
        _gradient_kernel[(N,)](
            logits, targets, losses, logits.stride(0), 1 / N, V=V, BLOCK=block, num_warps=warps
        )
    return losses


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _gradient_kernel(  # type: ignore[no-untyped-def]
    logits, targets, losses, stride, share, V: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)  # row * stride may exceed 2**31
    here = logits + row * stride
    place = tl.arange(0, BLOCK)
    target = tl.load(targets + row)
    wanted = tl.load(here + target).to(tl.float32)
    tl.debug_barrier()  # all threads read it before any overwrites it
    top = -float("inf")
    total = 0.0
    for start in tl.static_range(0, V, BLOCK):
        inside = start + place < V
        x = tl.load(here + start + place, mask=inside, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher))
        top = higher
    lse = top + tl.log(total)
    tl.store(losses + row, lse - wanted)
    for start in tl.static_range(0, V, BLOCK):
        inside = start + place < V
        if BLOCK < V:  # otherwise x still has the row
            x = tl.load(here + start + place, mask=inside, other=-float("inf")).to(tl.float32)
        change = tl.exp(x - lse) - tl.where(start + place == target, 1.0, 0.0)
        tl.store(here + start + place, (change * share).to(logits.dtype.element_ty), mask=inside)
