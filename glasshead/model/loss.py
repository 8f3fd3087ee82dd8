"""The cross-entropy of a model's predictions, in nats per token."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from glasshead.machine import triton_works
from glasshead.model.gpt import GPT

__all__ = ["feature_loss", "head_loss", "next_token_loss"]

LARGE = 4096  # size of a vocabulary from which logits take most of a step on a GPU
BLOCK = 2**21  # logits at a time: 8 MiB
SAFE = (1e-20, 1e30)  # range of sums of exp(logit), well inside that of float32


def next_token_loss(model: GPT, ids: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of predicting targets (B, T) from ids (B, T)."""
    return feature_loss(model, model.features(ids), targets)


def feature_loss(model: GPT, x: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of targets (B, T), given the model's features x (B, T, C)."""
    x, y = x.flatten(0, 1), targets.flatten()  # (N, C), (N,)
    plain = model.config.logit_softcap is None and not torch.compiler.is_compiling()
    casts = torch.is_autocast_enabled(x.device.type)
    if plain and x.is_cpu and x.dtype == torch.float32 and not casts and torch.is_grad_enabled():
        return head_loss(x, model.head.weight, model.head.bias, y)
    # Not in float16, in which the gradient of a mean over many tokens would vanish.
    bf16 = casts and torch.get_autocast_dtype(x.device.type) == torch.bfloat16
    if plain and x.is_cuda and bf16 and model.config.vocab_size >= LARGE and triton_works():
        from glasshead.model.loss_kernel import head_loss as fused_head_loss

        with torch.autocast("cuda", enabled=False):
            return fused_head_loss(x.bfloat16(), model.head.weight, model.head.bias, y)
    return F.cross_entropy(model.logits(x).float(), y)


def head_loss(x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Compute F.cross_entropy(F.linear(x, weight, bias), targets), nearly twice as fast.

    With a small width and a large vocabulary, a step mostly reads and writes logits. Here they are
    computed a block of rows at a time and turned into gradients while they are in the cache: the
    N x V table never exists.

    >>> x, weight, bias = torch.eye(2), torch.eye(2), torch.zeros(2)
    >>> head_loss(x, weight, bias, torch.tensor([0, 1]))
    tensor(0.3133)
    """
    return _HeadLoss.apply(x, weight, bias, targets)


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor
    ) -> Tensor:
        N, V = x.shape[0], weight.shape[0]
        rows = math.ceil(N / math.ceil(N * V / BLOCK))
        dx, dweight = torch.empty_like(x), torch.empty_like(weight)
        dbias = None if bias is None else torch.empty_like(bias)
        loss, space = x.new_zeros(()), x.new_empty(rows, V)
        for start in range(0, N, rows):
            part, y = x[start : start + rows], targets[start : start + rows, None]
            powers, total, target = _powers(part, weight, bias, y, space[: len(part)])
            loss += (total.log() - target).sum()
            # The gradient of the logits is (powers - total * one_hot(y)) * share; the smaller
            # matrices are multiplied by share instead.
            powers.scatter_(1, y, target.exp_().sub_(total))
            share = 1 / (N * total)  # (rows, 1)
            torch.mm(powers, weight, out=dx[start : start + rows]).mul_(share)
            keep = 1 if start else 0
            torch.addmm(dweight, powers.t(), part * share, beta=keep, out=dweight)
            if dbias is not None:
                torch.addmv(dbias, powers.t(), share.squeeze(1), beta=keep, out=dbias)
        ctx.save_for_backward(dx, dweight, dbias)
        return loss / N

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # loss.backward() passes 1: multiplying would only read and write everything again.
        if grad == 1:
            return *ctx.saved_tensors, None
        return *(None if g is None else grad * g for g in ctx.saved_tensors), None


def _powers(
    x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor, out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return exp of the logits (rows, V), its sum (rows, 1), and each target's logit (rows, 1).

    Subtracting the largest logit first, as softmax does, costs two more passes. Only unusual logits
    need it, so it is done only if the sums are out of range.
    """
    for shifted in (False, True):
        logits = torch.mm(x, weight.t(), out=out)
        if bias is not None:
            logits += bias
        if shifted:
            logits -= logits.amax(-1, keepdim=True)
        target = logits.gather(1, y)
        powers = logits.exp_()
        total = powers.sum(-1, keepdim=True)
        low, high = total.aminmax()
        if low > SAFE[0] and high < SAFE[1]:
            break
    return powers, total, target
