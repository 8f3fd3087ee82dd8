"""RMSNorm: divide by the root mean square, multiply by a learned weight.

torch fuses it on GPUs; on a CPU its gradient takes a dozen passes over memory. Here it takes seven,
which makes small models measurably faster.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["RMSNorm", "rms_norm"]


class RMSNorm(nn.Module):
    """nn.RMSNorm with a faster gradient on a CPU."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Divide x by its root mean square along the last dimension; multiply by `weight`.

    >>> rms_norm(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0]), 0.0)
    tensor([0.8485, 2.2627])
    """
    weight = weight.to(x.dtype)  # under autocast x is in half precision
    slow = x.is_cpu and x.dtype.itemsize >= 4 and not torch.compiler.is_compiling()
    if slow and torch.is_grad_enabled():
        return _RMSNorm.apply(x, weight, eps)
    if weight.dim() == 1:
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    return F.rms_norm(x, x.shape[-1:], None, eps) * weight


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        rate = torch.rsqrt(size.square() / x.shape[-1] + eps)
        ctx.save_for_backward(x, weight, rate)
        return (x * rate).mul_(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, rate = ctx.saved_tensors
        y = x * rate
        along = grad * weight
        share = torch.linalg.vecdot(along, y).unsqueeze(-1) / x.shape[-1]
        dx = torch.addcmul(along, y, share, value=-1).mul_(rate)
        return dx, y.mul_(grad).sum_to_size(weight.shape), None
