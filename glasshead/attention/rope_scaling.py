"""Scaling of RoPE frequencies, so that a model reads longer texts than it was trained on.

    linear:FACTOR                        all frequencies are divided by FACTOR
    llama3:FACTOR,LOW,HIGH,LENGTH        only low frequencies; those between are blended
    yarn:FACTOR,FAST,SLOW,LENGTH[,GAIN]  likewise, blended by dimension; q and k are scaled by GAIN

LENGTH is the original training length. A scaling is written as one word, which can be a setting and
a flag; `--rope-scaling linear:4` reads texts four times as long.

    >>> parse_scaling("linear:4").scale_frequencies(torch.tensor([1.0, 0.01]), 10_000.0)
    tensor([0.2500, 0.0025])
"""

import math
from dataclasses import astuple, dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from glasshead.errors import ConfigError, did_you_mean

__all__ = ["SCALINGS", "LinearScaling", "Llama3Scaling", "Scaling", "YarnScaling", "parse_scaling"]


class Scaling(Protocol):
    name: ClassVar[str]

    @property
    def gain(self) -> float:
        """The factor of rotated queries and keys."""
        ...

    def scale_frequencies(self, frequencies: Tensor, base: float) -> Tensor: ...


class _ScalingText:
    """Writes a scaling as its name and its numbers."""

    name: ClassVar[str]

    def __str__(self) -> str:
        numbers = astuple(self)  # type: ignore[call-overload]
        return f"{self.name}:{','.join(f'{number:.17g}' for number in numbers)}"


@dataclass(frozen=True)
class LinearScaling(_ScalingText):
    name = "linear"
    gain = 1.0

    factor: float

    def scale_frequencies(self, frequencies: Tensor, base: float) -> Tensor:
        return frequencies / self.factor


@dataclass(frozen=True)
class Llama3Scaling(_ScalingText):
    """Divide frequencies of wavelengths above LENGTH / LOW; keep those below LENGTH / HIGH."""

    name = "llama3"
    gain = 1.0

    factor: float
    low: float
    high: float
    length: float

    def scale_frequencies(self, frequencies: Tensor, base: float) -> Tensor:
        turns = self.length * frequencies / (2 * math.pi)  # full turns within LENGTH
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return kept * frequencies + (1 - kept) * frequencies / self.factor


@dataclass(frozen=True)
class YarnScaling(_ScalingText):
    """Keep dimensions of more than FAST turns in LENGTH; divide those of less than SLOW."""

    name = "yarn"

    factor: float
    fast: float
    slow: float
    length: float
    gain: float

    def scale_frequencies(self, frequencies: Tensor, base: float) -> Tensor:
        n = len(frequencies)
        first = max(math.floor(self._dimension(self.fast, n, base)), 0)
        last = min(math.ceil(self._dimension(self.slow, n, base)), 2 * n - 1)
        places = torch.arange(n, device=frequencies.device, dtype=torch.float32)
        slow = ((places - first) / (last - first or 0.001)).clamp(0, 1)
        return frequencies * (1 - slow) + frequencies / self.factor * slow

    @staticmethod
    def default_gain(factor: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0

    def _dimension(self, turns: float, n: int, base: float) -> float:
        """Return the dimension that makes so many turns."""
        return n * math.log(self.length / (turns * 2 * math.pi)) / math.log(base)


EXAMPLES = "write it like linear:4, llama3:8,1,4,8192 or yarn:4,32,1,32768"
SCALINGS: dict[str, type[LinearScaling] | type[Llama3Scaling] | type[YarnScaling]] = {
    kind.name: kind for kind in (LinearScaling, Llama3Scaling, YarnScaling)
}


def parse_scaling(written: str) -> Scaling:
    """Parse a scaling such as "linear:4"; raise ConfigError if it is malformed.

    >>> str(parse_scaling("llama3:8,1,4,8192"))
    'llama3:8,1,4,8192'
    """
    name, _, rest = written.partition(":")
    if name not in SCALINGS:
        raise ConfigError(f"unknown rope_scaling '{written}'", hint=did_you_mean(name, SCALINGS))
    try:
        given = [float(number) for number in rest.split(",")]
        if name == YarnScaling.name and len(given) == 4:
            given.append(YarnScaling.default_gain(given[0]))
        scaling = SCALINGS[name](*given)
    except (ValueError, TypeError):
        raise ConfigError(
            f"rope_scaling '{written}' does not have the numbers that {name} needs", hint=EXAMPLES
        ) from None
    numbers = astuple(scaling)
    ordered = not isinstance(scaling, Llama3Scaling) or scaling.low < scaling.high
    if not all(0 < number < math.inf for number in numbers) or not ordered:
        raise ConfigError(
            f"rope_scaling '{written}': its numbers must be greater than 0, and llama3's "
            "second less than its third",
            hint=EXAMPLES,
        )
    return scaling
