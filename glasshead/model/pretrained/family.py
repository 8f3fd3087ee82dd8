"""What it takes to know a family of models: its settings and its tensors' names, both ways."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor, cat

from glasshead.errors import ConfigError, InputError, did_you_mean

__all__ = [
    "Family", "ForeignConfig", "HoldingFamily", "ParameterSource", "qkv", "refused", "unlike",
]  # fmt: skip

C = TypeVar("C")


@dataclass(frozen=True)
class ParameterSource:
    """One parameter of ours, and the tensors of theirs that, one below the other, it is made of."""

    ours: str
    theirs: tuple[str, ...]
    rows: tuple[int, ...] = ()  # of each of theirs, where there are several
    transposed: bool = False  # theirs are (in, out)
    zero: bool = False  # of ours that lacks it, theirs is zero
    beside: str = ""  # for `zero`: the matrix of ours whose bias it is, where names do not tell
    led: bool = False  # theirs have one more dimension in front, of one

    def shapes(self, ours: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """The shape that each of theirs must have.

        >>> ParameterSource("qkv", ("q", "k", "v"), (6, 2, 2)).shapes((10, 5))
        {'q': (6, 5), 'k': (2, 5), 'v': (2, 5)}
        """
        rows = self.rows or (ours[0],)
        found = ((n, *ours[1:]) for n in rows)
        return {
            name: (1,) * self.led + (shape[::-1] if self.transposed else shape)
            for name, shape in zip(self.theirs, found, strict=True)
        }

    def join(self, theirs: Sequence[Tensor]) -> Tensor:
        upright = [tensor.T if self.transposed else tensor for tensor in theirs]
        upright = [tensor[0] if self.led else tensor for tensor in upright]
        return upright[0] if len(upright) == 1 else cat(upright)

    def split(self, ours: Tensor) -> dict[str, Tensor]:
        """The inverse of `join`: views of ours."""
        parts = ours.split(self.rows) if self.rows else (ours,)
        return {
            name: part[None] if self.led else part.T if self.transposed else part
            for name, part in zip(self.theirs, parts, strict=True)
        }


def qkv(ours: str, theirs: Sequence[str], config: Any, *, zero: bool = False) -> ParameterSource:
    """The one matrix of ours, made of a matrix each for queries, keys and values."""
    d_head = config.d_head or config.d_model // config.n_heads
    n_kv = config.n_kv_heads or config.n_heads
    rows = tuple(n * d_head for n in (config.n_heads, n_kv, n_kv))
    return ParameterSource(ours, tuple(theirs), rows, zero=zero)


class ForeignConfig:
    """A config.json of theirs. What is asked of it has the type that it must have."""

    def __init__(self, values: Mapping[str, Any], source: str = "config.json") -> None:
        self.values, self.source = values, source

    def whole(self, name: str, usual: int | None = None) -> int:
        value = self._value(name, usual)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise self._wrong(name, value, "a whole number greater than 0")
        return value

    def number(self, name: str, usual: float | None = None) -> float:
        value = self._value(name, usual)
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        if not fits or not 0 < value < 1e30:
            raise self._wrong(name, value, "a number greater than 0")
        return float(value)

    def flag(self, name: str, usual: bool) -> bool:
        value = self._value(name, usual)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def choice(self, name: str, choices: Mapping[str, str], usual: str | None = None) -> str:
        """Ours for one of their words."""
        value = self._value(name, usual)
        if not isinstance(value, str) or value not in choices:
            raise InputError(
                f"{self.source}: {name} '{value}' is not supported",
                hint=did_you_mean(str(value), choices),
            )
        return choices[value]

    def part(self, name: str) -> "ForeignConfig | None":
        """A table within the table, if it is there."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(name, value, "an object")
        return ForeignConfig(value, f"{self.source}, {name}")

    def refuse(self, **usual: Any) -> None:
        """Only these values of these settings are supported; they may be left out."""
        for name, value in usual.items():
            if (found := self.values.get(name, value)) not in (value, None):
                raise InputError(
                    f"{self.source}: {name} {found!r} is not supported",
                    hint=f"only models with {name} {value!r} can be imported",
                )

    def _value(self, name: str, usual: Any) -> Any:
        value = self.values.get(name)
        value = usual if value is None else value
        if value is None:
            raise InputError(
                f"{self.source} lacks '{name}'", hint="the file is not complete; take it anew"
            )
        return value

    def _wrong(self, name: str, value: object, needed: str) -> InputError:
        return InputError(
            f"{self.source}: {name} is {value!r}, but must be {needed}",
            hint="the file is damaged; take it anew",
        )


class Family(ABC, Generic[C]):
    """A family of models of the transformers library, and ours that are the same."""

    name: ClassVar[str]  # their model_type
    kind: ClassVar[str]  # ours
    prefix: ClassVar[str] = ""  # of their names; files of the bare model have them without
    silent: ClassVar[re.Pattern[str]] = re.compile("$^")  # tensors that tell nothing
    left_out: ClassVar[re.Pattern[str]] = re.compile("$^")  # tensors that we have no use for

    @abstractmethod
    def config(self, settings: ForeignConfig) -> C:
        """Ours for theirs."""

    @abstractmethod
    def entries(self, config: C) -> Iterator[ParameterSource]:
        """The names of all parameters."""

    def older(self, name: str) -> str:
        """What older files call one of their tensors."""
        return name

    def copies(self, config: C) -> dict[str, str]:
        """Names of theirs under which the tensor of another may be written a second time."""
        return {}


class HoldingFamily(Family[C]):
    """A family that models of ours can be exported to."""

    architecture: ClassVar[str]  # the class of theirs that an exported model is

    @abstractmethod
    def settings(self, config: C) -> dict[str, Any]:
        """Theirs for ours, which `obstacles` has nothing against."""

    @abstractmethod
    def obstacles(self, config: C) -> list[str]:
        """The fields of ours that theirs cannot hold, with what they would have to be."""


def unlike(config: object, **needed: Any) -> list[str]:
    """The fields that are not what is needed.

    >>> from glasshead.model.gpt import GPTConfig
    >>> unlike(GPTConfig(vocab_size=7), positions=("rotary",), window=(None,))
    ['positions=learned (not rotary)']
    """
    found = []
    for name, values in needed.items():
        value = getattr(config, name)
        if value not in values:
            wanted = " or ".join(str(value).lower() for value in values)
            found.append(f"{name}={str(value).lower()} (not {wanted})")
    return found


def refused(obstacles: Mapping[str, list[str]], hint: str) -> ConfigError:
    """That no family can hold a config, and what stands in the way of those that come nearest."""
    fewest = min(len(found) for found in obstacles.values())
    nearest = [
        f"of {name}: {', '.join(found)}"
        for name, found in obstacles.items()
        if len(found) == fewest
    ]
    return ConfigError(f"no family can hold this model; in the way {'; '.join(nearest)}", hint=hint)
