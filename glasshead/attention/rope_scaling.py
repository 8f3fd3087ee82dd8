"""How the turns of rotary positions are slowed, so that a model reads further than it was trained.

    linear:FACTOR                        every turn
    llama3:FACTOR,LOW,HIGH,LENGTH        slow turns; those between are blended
    yarn:FACTOR,FAST,SLOW,LENGTH[,GAIN]  likewise, blended by dimension; q and k grow by GAIN

LENGTH is what the model was trained on first. Each is written as one word, so that it can be a
setting and a flag; `--rope-scaling linear:4` reads four times as far.

    >>> scaling_of("linear:4").slowed(torch.tensor([1.0, 0.01]), 10_000.0)
    tensor([0.2500, 0.0025])
"""

import math
from dataclasses import astuple, dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from glasshead.errors import ConfigError, did_you_mean

__all__ = ["SCALINGS", "LinearScaling", "Llama3Scaling", "Scaling", "YarnScaling", "scaling_of"]


class Scaling(Protocol):
    name: ClassVar[str]

    @property
    def gain(self) -> float:
        """What turned queries and keys are multiplied with."""
        ...

    def slowed(self, frequencies: Tensor, base: float) -> Tensor: ...


class _Written:
    """A scaling is written as its name and its numbers."""

    name: ClassVar[str]

    def __str__(self) -> str:
        numbers = astuple(self)  # type: ignore[call-overload]
        return f"{self.name}:{','.join(f'{number:.17g}' for number in numbers)}"


@dataclass(frozen=True)
class LinearScaling(_Written):
    name = "linear"
    gain = 1.0

    factor: float

    def slowed(self, frequencies: Tensor, base: float) -> Tensor:
        return frequencies / self.factor


@dataclass(frozen=True)
class Llama3Scaling(_Written):
    """A turn that takes longer than LENGTH / LOW is slowed, one shorter than LENGTH / HIGH not."""

    name = "llama3"
    gain = 1.0

    factor: float
    low: float
    high: float
    length: float

    def slowed(self, frequencies: Tensor, base: float) -> Tensor:
        turns = self.length * frequencies / (2 * math.pi)  # in the length it was trained on
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return kept * frequencies + (1 - kept) * frequencies / self.factor


@dataclass(frozen=True)
class YarnScaling(_Written):
    """Dimensions that make more than FAST turns in LENGTH keep their speed; below SLOW, none."""

    name = "yarn"

    factor: float
    fast: float
    slow: float
    length: float
    gain: float

    def slowed(self, frequencies: Tensor, base: float) -> Tensor:
        n = len(frequencies)
        first = max(math.floor(self._where(self.fast, n, base)), 0)
        last = min(math.ceil(self._where(self.slow, n, base)), 2 * n - 1)
        places = torch.arange(n, device=frequencies.device, dtype=torch.float32)
        slow = ((places - first) / (last - first or 0.001)).clamp(0, 1)
        return frequencies * (1 - slow) + frequencies / self.factor * slow

    @staticmethod
    def usual_gain(factor: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * math.log(factor) + 1.0

    def _where(self, turns: float, n: int, base: float) -> float:
        """The dimension that makes so many turns."""
        return n * math.log(self.length / (turns * 2 * math.pi)) / math.log(base)


SCALINGS: dict[str, type[LinearScaling] | type[Llama3Scaling] | type[YarnScaling]] = {
    kind.name: kind for kind in (LinearScaling, Llama3Scaling, YarnScaling)
}


def scaling_of(written: str) -> Scaling:
    """
    >>> str(scaling_of("llama3:8,1,4,8192"))
    'llama3:8,1,4,8192'
    """
    name, _, rest = written.partition(":")
    if name not in SCALINGS:
        raise ConfigError(f"unknown rope_scaling '{written}'", hint=did_you_mean(name, SCALINGS))
    try:
        given = [float(number) for number in rest.split(",")]
        if name == YarnScaling.name and len(given) == 4:
            given.append(YarnScaling.usual_gain(given[0]))
        scaling = SCALINGS[name](*given)
    except (ValueError, TypeError):
        raise ConfigError(
            f"rope_scaling '{written}' does not have the numbers of {name}",
            hint="write it like linear:4, llama3:8,1,4,8192 or yarn:4,32,1,32768",
        ) from None
    numbers = astuple(scaling)
    ordered = not isinstance(scaling, Llama3Scaling) or scaling.low < scaling.high
    if not all(0 < number < math.inf for number in numbers) or not ordered:
        raise ConfigError(
            f"rope_scaling '{written}': its numbers must be greater than 0, and llama3's "
            "second less than its third",
            hint="write it like linear:4, llama3:8,1,4,8192 or yarn:4,32,1,32768",
        )
    return scaling
