"""What attention is compared with: an LSTM that reads, and a pair of them that translates.

Both are given as many parameters as the attention model they stand beside (`equal`), and forget
gates that start half open, as is good practice: they should lose for what they are, if they do.
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

__all__ = ["LSTMReader", "LSTMSeq2Seq", "count", "equal"]

Model = TypeVar("Model", bound=nn.Module)

WITHIN = 0.02  # how far parameter counts may lie apart


class LSTMReader(nn.Module):
    """Reads from left to right and answers at every position.

    Args:
        forget: what the forget gates' bias starts at. Of a state, sigmoid(forget) is left after
            each step: 73 % for 1, the usual choice.
    """

    def __init__(self, vocab_size: int, width: int, forget: float = 1.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab_size)
        open_gates(self.lstm, forget)

    def forward(self, ids: Tensor) -> Tensor:
        return self.read(self.embedding(ids))

    def read(self, x: Tensor) -> Tensor:
        """(B, T, C) embeddings to (B, T, V) logits."""
        return self.head(self.lstm(x)[0])


class LSTMSeq2Seq(nn.Module):
    """One LSTM reads; its last state is all that the LSTM which writes gets to know."""

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab_size)
        for lstm in (self.encoder, self.decoder):
            open_gates(lstm, 1.0)

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Logits (B, T, V). Sources of a batch have one length: there is no padding."""
        _, state = self.encoder(self.embedding(source))
        return self.head(self.decoder(self.embedding(target_in), state)[0])


def open_gates(lstm: nn.LSTM, forget: float) -> None:
    """Torch adds two biases to each gate (in, forget, cell, out): one is set, the other zeroed."""
    C = lstm.hidden_size
    with torch.no_grad():
        for name, bias in lstm.named_parameters():
            if name.startswith("bias"):
                bias[C : 2 * C] = forget if name.startswith("bias_hh") else 0.0


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def equal(make: Callable[[int], Model], parameters: int) -> Model:
    """The model of the width whose parameters come nearest to that number.

    >>> count(equal(lambda width: LSTMReader(11, width), 20_000))
    19883
    """
    low, high = 1, 2
    while count(make(high)) < parameters:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(make(middle)) < parameters else (low, middle)
    model = min((make(low), make(high)), key=lambda made: abs(count(made) - parameters))
    if abs(count(model) / parameters - 1) > WITHIN:
        raise ValueError(f"no width comes within {WITHIN:.0%} of {parameters} parameters")
    return model
