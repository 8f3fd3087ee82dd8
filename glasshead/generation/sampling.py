"""Pick the next id from logits, in small pure functions on (B, V).

Each filter sets the logits of the ids it removes to -inf; none removes the most probable id, and
ids of equal logits are kept or removed together. `probabilities` applies them in this order:

    repetition penalty -> temperature -> top-k -> top-p -> min-p -> softmax

    >>> logits = torch.tensor([[2.0, 1.0, 0.0, 0.0]])
    >>> top_k(logits, 2)
    tensor([[2., 1., -inf, -inf]])
    >>> probabilities(logits, SamplingConfig(top_k=2)).tolist()
    [[0.7310585975646973, 0.2689414322376251, 0.0, 0.0]]
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshead.errors import ConfigError, NotFiniteError

__all__ = [
    "GREEDY",
    "PLAIN",
    "SamplingConfig",
    "choose",
    "min_p",
    "not_finite_error",
    "probabilities",
    "repetition_penalty",
    "sample",
    "temperature",
    "top_k",
    "top_p",
]


@dataclass(frozen=True)
class SamplingConfig:
    """How to pick the next id. The defaults sample from the model's own probabilities."""

    temperature: float = 1.0  # below 1 safer, above 1 wilder; 0 takes the most probable
    top_k: int | None = None  # only the k most probable ids
    top_p: float = 1.0  # only the most probable ids that together have this probability
    min_p: float = 0.0  # only ids at least this fraction as probable as the most probable
    repetition_penalty: float = 1.0  # above 1 makes ids that occurred before less probable

    def __post_init__(self) -> None:
        for name, fits, need, try_ in (
            ("temperature", 0 <= self.temperature < math.inf, "at least 0", "0.8"),
            ("top_k", self.top_k is None or self.top_k >= 1, "at least 1", "50"),
            ("top_p", 0 < self.top_p <= 1, "more than 0 and at most 1", "0.95"),
            ("min_p", 0 <= self.min_p <= 1, "between 0 and 1", "0.05"),
            # Beyond this, penalised logits overflow or become equal.
            ("repetition_penalty", 0.1 <= self.repetition_penalty <= 10, "0.1 to 10", "1.1"),
        ):
            if not fits:
                raise ConfigError(
                    f"{name} ({getattr(self, name)}) must be {need}", hint=f"try {try_}"
                )


PLAIN = SamplingConfig()
GREEDY = SamplingConfig(temperature=0)


def repetition_penalty(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Lower the logits of the ids in `seen` (B, V): positive ones divided, negative multiplied."""
    return torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)


def temperature(logits: Tensor, temperature: float) -> Tensor:
    """Divide by the temperature; at 0 keep only the most probable id, the first of equals."""
    if temperature > 0:
        # Relative to the largest, so that a tiny temperature gives 0 and -inf, not inf or NaN.
        least = torch.finfo(logits.dtype).tiny
        return (logits - logits.amax(-1, keepdim=True)) / max(temperature, least)
    best = logits.argmax(-1, keepdim=True)
    return torch.full_like(logits, -math.inf).scatter(-1, best, 0.0)


def top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k largest logits, and those equal to the k-th."""
    least = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < least, -math.inf)


def top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest ids of total probability p or more, and those equal to the last of them."""
    if p >= 1:
        return logits
    ordered = logits.sort(-1, descending=True).values
    mass = ordered.double().softmax(-1)
    before = mass.cumsum(-1) - mass  # the total of the more probable ids
    last = (before < p).sum(-1, keepdim=True) - 1
    return logits.masked_fill(logits < ordered.gather(-1, last), -math.inf)


def min_p(logits: Tensor, p: float) -> Tensor:
    """Keep the ids at least p times as probable as the most probable."""
    if p <= 0:
        return logits
    return logits.masked_fill(logits < logits.amax(-1, keepdim=True) + math.log(p), -math.inf)


def probabilities(logits: Tensor, config: SamplingConfig, seen: Tensor | None = None) -> Tensor:
    """Return the probabilities (B, V) of the next id after all filters.

    Args:
        logits: (B, V).
        seen: (B, V) bool, the ids that occurred before; only for the repetition penalty.
    """
    logits = _as_finite(logits)
    if seen is not None:
        logits = repetition_penalty(logits, seen, config.repetition_penalty)
    logits = temperature(logits, config.temperature)
    if config.top_k is not None:
        logits = top_k(logits, config.top_k)
    return min_p(top_p(logits, config.top_p), config.min_p).softmax(-1)


def sample(probs: Tensor, uniform: Sequence[float] | Tensor) -> Tensor:
    """Draw an id (B,) from each row of probabilities, by a number in [0, 1) for each row.

    A row's id depends on that row and its number only. An id of probability 0 is never drawn.

    >>> sample(torch.tensor([[0.5, 0.0, 0.5], [0.5, 0.0, 0.5]]), [0.49, 0.5])
    tensor([0, 2])
    """
    ends = probs.double().cumsum(-1)  # (B, V)
    total = ends[:, -1:]
    place = torch.as_tensor(uniform, dtype=torch.float64, device=probs.device)[:, None] * total
    place = torch.minimum(place, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(ends, place, right=True)[:, 0]


def choose(
    logits: Tensor,
    config: SamplingConfig,
    uniform: Sequence[float] | Tensor,
    seen: Tensor | None = None,
) -> Tensor:
    """Return the next id (B,) of each row: drawn, or the most probable at temperature 0."""
    if config.temperature > 0:
        return sample(probabilities(logits, config, seen), uniform)
    logits = _as_finite(logits)
    if seen is not None:
        logits = repetition_penalty(logits, seen, config.repetition_penalty)
    return logits.argmax(-1)


def _as_finite(logits: Tensor) -> Tensor:
    """Return the logits in float32 or float64; raise if a row has no finite maximum."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    if logits.is_cuda and torch.cuda.is_current_stream_capturing():
        return logits  # a graph cannot wait for the host; `_Graph` looks for NaN itself
    if not logits.amax(-1).isfinite().all():  # NaN is larger than everything
        raise not_finite_error()
    return logits


def not_finite_error() -> NotFiniteError:
    """Return the error for logits from which no id can be picked."""
    return NotFiniteError(
        "the model's logits contain NaN or infinity, so no token can be predicted",
        hint="training diverged: use an earlier checkpoint, or train with a lower learning rate",
    )
