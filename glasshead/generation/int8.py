"""Store the matrices of a model in eight bits, for faster decoding on a CPU.

Decoding one text reads every parameter for each token and computes little with it, so it is limited
by memory. A quarter of the bytes gives up to three times the speed. Each row of a matrix becomes
integers from -127 to 127 and one factor; all other computation stays in float32.

The cost is rounding: a parameter changes by at most 1/254 of the largest of its row.
"""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.errors import ConfigError
from glasshead.model.gpt import GPT

__all__ = ["Int8Linear", "to_int8"]

KERNEL_ROWS = 24  # with more rows of input than this, float32 products are faster


class Int8Linear(nn.Module):
    """An nn.Linear whose weight is integers and a factor for each row."""

    weight: Tensor  # (O, I) int8
    factor: Tensor  # (O,)
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        largest = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny)
        # Rounded up to bf16, the kernel's dtype, first: the integers then fit the factor it uses.
        factor = (largest * (1 + 2**-8) / 127).bfloat16()
        integers = (weight / factor.float()[:, None]).round().clamp(-127, 127)
        self.register_buffer("weight", integers.to(torch.int8))
        self.register_buffer("factor", factor)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float())
        self.train(linear.training)  # otherwise `eval_mode` has to change it for every token

    def forward(self, x: Tensor) -> Tensor:
        rows, bias = x.flatten(0, -2), self.bias
        if rows.shape[0] > KERNEL_ROWS or rows.shape[1] % 32:  # the kernel reads 32 at a time
            out = F.linear(rows, self.weight.float()) * self.factor.float()
        else:
            out = torch._weight_int8pack_mm(rows.bfloat16(), self.weight, self.factor)
        out = out.float() if bias is None else out + bias  # in float32 either way
        return out.view(*x.shape[:-1], -1)


def to_int8(model: GPT) -> GPT:
    """Return a copy of a model on a CPU with its linear layers in eight bits."""
    if model.embedding.weight.device.type != "cpu":
        raise ConfigError(
            f"int8 works on CPUs only, but the model is on {model.embedding.weight.device}",
            hint="use --device cpu, or another precision",
        )
    small = copy.deepcopy(model).float()
    for name, module in list(small.named_modules()):
        if isinstance(module, nn.Linear):
            small.set_submodule(name, Int8Linear(module))
    return small
