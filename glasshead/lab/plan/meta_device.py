"""Run our modules on the meta device, without numbers, as they would run on a GPU or a CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from glasshead.attention.backends import BACKENDS, BackendCall, BackendResult
from glasshead.lab.plan.operations import OperationCounter
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.loss import BLOCK, LARGE, head_loss

__all__ = ["Target", "as_on", "compute_loss", "new_model"]


@dataclass(frozen=True)
class Target:
    """What a pass would run on."""

    cuda: bool = False
    itemsize: int = 4  # bytes of a number in matrix products: 2 for bf16
    compiled: bool = False


class _AsOnTarget(TorchFunctionMode):
    """Let meta tensors answer as those of the target do, and cast as autocast does there."""

    def __init__(self, target: Target, autocast: bool) -> None:
        super().__init__()
        self.target, self.autocast = target, autocast

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, cuda = kwargs or {}, self.target.cuda
        if func == Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return cuda
        if func == Tensor.is_cpu.__get__:  # type: ignore[attr-defined]
            return not cuda
        if func is F.rms_norm and cuda:  # one kernel there, with the traffic of LayerNorm's
            return torch.layer_norm(args[0], args[1], kwargs["weight"])
        if func is F.linear and self.autocast:
            args = [x if x is None else x.bfloat16() for x in args]
        if func is F.layer_norm and self.autocast and cuda and not self.target.compiled:
            args = [x.float() if isinstance(x, Tensor) else x for x in args]
        return func(*args, **kwargs)


class _FusedAttention:
    """Attention backend that dispatches a GPU's operator without asking for a GPU."""

    def why_not(self, call: BackendCall) -> str | None:
        return None

    def run(self, call: BackendCall) -> BackendResult:
        # Kernels want as many heads of keys as of queries, but for the one that decodes a token.
        groups = 1 if call.T == 1 else call.q.shape[1] // call.k.shape[1]
        k, v = (x.repeat_interleave(groups, 1) if groups > 1 else x for x in (call.k, call.v))
        context, lse, *_ = torch._scaled_dot_product_flash_attention(
            call.q, k, v, call.dropout, call.mask.causal, scale=call.scale
        )
        return BackendResult(context, lse=lse)


class _FusedLoss(torch.autograd.Function):
    """Stand-in for model/loss_kernel.py, whose Triton kernel cannot run on the meta device."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        V = weight.shape[0]
        table = F.pad(weight.to(x.dtype), (0, 0, 0, -V % 64))
        logits = x @ table.t()
        if bias is not None:
            logits[:, :V] += bias.to(x.dtype)
        logits.exp_()  # reads and writes each logit once, as the kernel does
        ctx.save_for_backward(x, table, logits)
        ctx.V, ctx.has_bias = V, bias is not None
        return x.new_zeros((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, table, change = ctx.saved_tensors
        dx = (change @ table) * grad.to(x.dtype)
        dweight = torch.mm(change.t(), x, out_dtype=torch.float32)[: ctx.V] * grad
        dbias = change[:, : ctx.V].sum(0, dtype=torch.float32) if ctx.has_bias else None
        return dx, dweight, dbias


@contextmanager
def as_on(target: Target, training: bool) -> Iterator[None]:
    """Make our code treat meta tensors as tensors of the target."""
    autocast = training and target.itemsize == 2
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    BACKENDS["counted"] = _FusedAttention()
    torch.set_autocast_enabled("cuda", autocast and target.cuda)  # GPT.features asks
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        with _AsOnTarget(target, autocast), torch.set_grad_enabled(training):
            yield
    finally:
        del BACKENDS["counted"]
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


def new_model(config: GPTConfig, target: Target, n_layers: int) -> GPT:
    backend = "counted" if target.cuda and config.backend != "explicit" else config.backend
    with torch.device("meta"):
        return GPT(replace(config, n_layers=n_layers, backend=backend))


def compute_loss(
    model: GPT, x: Tensor, targets: Tensor, target: Target, counter: OperationCounter
) -> Tensor:
    """Compute the loss in the way that `model.loss.feature_loss` picks on the target."""
    x, y, config, head = x.flatten(0, 1), targets.flatten(), model.config, model.head
    if config.logit_softcap is None:
        if not target.cuda and target.itemsize == 4:
            # It works in blocks of rows: run some of thousands, and count each so many times.
            N, start = x.shape[0], len(counter.kernels)
            times = max(1, N * config.vocab_size // (16 * BLOCK))
            loss = head_loss(x[: N // times], head.weight, head.bias, y[: N // times])
            counter.kernels[start:] = [kernel.times(times) for kernel in counter.kernels[start:]]
            return loss
        if target.cuda and target.itemsize == 2 and config.vocab_size >= LARGE:
            return _FusedLoss.apply(x.bfloat16(), head.weight, head.bias)
    return F.cross_entropy(model.logits(x).float(), y)
