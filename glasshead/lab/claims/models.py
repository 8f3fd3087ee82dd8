"""Models that attention is compared with, and ways to build and change the models compared."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from glasshead.attention.mask import Mask
from glasshead.model.gpt import GPT

__all__ = [
    "LSTMReader",
    "LSTMSeq2Seq",
    "build_seeded",
    "capture_embeddings",
    "count_parameters",
    "features_under",
    "match_parameters",
]

Model = TypeVar("Model", bound=nn.Module)

WITHIN = 0.02  # the largest difference of matched parameter counts


class LSTMReader(nn.Module):
    """Reads from left to right and answers at every position.

    Args:
        forget: initial bias of the forget gates. After each step sigmoid(forget) of the state is
            left: 73 % for 1, the usual choice.
    """

    def __init__(self, vocab_size: int, width: int, forget: float = 1.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab_size)
        open_gates(self.lstm, forget)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) ids to (B, T, V) logits."""
        return self.head(self.lstm(self.embedding(ids))[0])


class LSTMSeq2Seq(nn.Module):
    """An LSTM that reads, and one that writes and gets nothing but the last state of the first."""

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab_size)
        for lstm in (self.encoder, self.decoder):
            open_gates(lstm, 1.0)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Return (B, T, V) logits. The sources of a batch have one length: there is no padding."""
        _, state = self.encoder(self.embedding(source))
        return self.head(self.decoder(self.embedding(target_in), state)[0])


def open_gates(lstm: nn.LSTM, forget: float) -> None:
    """Set the bias of the forget gates. Torch adds two biases (in, forget, cell, out): one is 0."""
    C = lstm.hidden_size
    with torch.no_grad():
        for name, bias in lstm.named_parameters():
            if name.startswith("bias"):
                bias[C : 2 * C] = forget if name.startswith("bias_hh") else 0.0


def count_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def match_parameters(make: Callable[[int], Model], parameters: int) -> Model:
    """Make the model of the width whose parameter count comes nearest to this one.

    >>> count_parameters(match_parameters(lambda width: LSTMReader(11, width), 20_000))
    19883
    """
    low, high = 1, 2
    while count_parameters(make(high)) < parameters:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        less = count_parameters(make(middle)) < parameters
        low, high = (middle, high) if less else (low, middle)
    model = min((make(low), make(high)), key=lambda made: abs(count_parameters(made) - parameters))
    if abs(count_parameters(model) / parameters - 1) > WITHIN:
        raise ValueError(f"no width comes within {WITHIN:.0%} of {parameters} parameters")
    return model


def build_seeded(seed: int, make: Callable[[], Model]) -> Model:
    """Build a model with this seed, without changing the global random state."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return make()


def features_under(model: GPT, ids: Tensor, mask: Mask) -> Tensor:
    """Return `model.features`, (B, T, C), under this mask instead of the causal one."""
    positions = torch.arange(ids.shape[1], device=ids.device)
    x = model.positions.embed(model.embedding(ids), positions)  # (B, T, C)
    rotation, slopes = model.positions.rotation(positions), model.positions.slopes()
    for block in model.blocks:
        x = block(x, mask, rotation, slopes)
    return model.norm(x)


@contextmanager
def capture_embeddings(model: nn.Module) -> Iterator[list[Tensor]]:
    """Inside the `with`, collect the embeddings of each call, as leaves that get a gradient."""
    leaves: list[Tensor] = []

    def replace(_module: nn.Module, _args: Any, x: Tensor) -> Tensor:
        leaves.append(x.detach().requires_grad_())
        return leaves[-1]

    hook = model.get_submodule("embedding").register_forward_hook(replace)
    try:
        yield leaves
    finally:
        hook.remove()
