"""Base classes for families of models: their settings and tensor names, and ours for them."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor, cat, equal

from glasshead.errors import ConfigError, InputError, did_you_mean

__all__ = [
    "Family",
    "ForeignConfig",
    "HoldingFamily",
    "ParameterSource",
    "export_error",
    "find_differences",
    "qkv",
]  # fmt: skip

C = TypeVar("C")


@dataclass(frozen=True)
class ParameterSource:
    """One parameter of ours, and the tensors of theirs that are concatenated to make it."""

    ours: str
    theirs: tuple[str, ...]
    rows: tuple[int, ...] = ()  # of each of theirs, if there are several
    transposed: bool = False  # theirs are (in, out)
    zero: bool = False  # export zeros if our model does not have it
    beside: str = ""  # for `zero`: our matrix whose bias it is, if its name does not say so
    leading_one: bool = False  # theirs have one more dimension in front, of size 1
    repeated: bool = False  # each of theirs is the whole of ours

    def shapes(self, ours: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Return the shape that each of theirs must have.

        >>> ParameterSource("qkv", ("q", "k", "v"), (6, 2, 2)).shapes((10, 5))
        {'q': (6, 5), 'k': (2, 5), 'v': (2, 5)}
        """
        rows = self.rows or (ours[0],) * len(self.theirs)
        found = ((n, *ours[1:]) for n in rows)
        return {
            name: (1,) * self.leading_one + (shape[::-1] if self.transposed else shape)
            for name, shape in zip(self.theirs, found, strict=True)
        }

    def join(self, theirs: Sequence[Tensor]) -> Tensor:
        """Make our parameter of their tensors; raise InputError if repeated ones differ."""
        if self.repeated and not all(equal(theirs[0], other) for other in theirs[1:]):
            raise InputError(
                f"{' and '.join(self.theirs)} differ, but only equal ones are supported",
                hint="models with a gate of its own need hidden_act silu",
            )
        upright = [tensor.T if self.transposed else tensor for tensor in theirs]
        upright = [tensor[0] if self.leading_one else tensor for tensor in upright]
        return upright[0] if len(upright) == 1 or self.repeated else cat(upright)

    def split(self, ours: Tensor) -> dict[str, Tensor]:
        """Return their tensors, as views of our parameter: the inverse of `join`."""
        parts = ours.split(self.rows) if self.rows else (ours,) * len(self.theirs)
        return {
            name: part[None] if self.leading_one else part.T if self.transposed else part
            for name, part in zip(self.theirs, parts, strict=True)
        }


def qkv(ours: str, theirs: Sequence[str], config: Any, *, zero: bool = False) -> ParameterSource:
    """Describe our one matrix, made of their matrices for queries, keys and values."""
    d_head = config.d_head or config.d_model // config.n_heads
    n_kv = config.n_kv_heads or config.n_heads
    rows = tuple(n * d_head for n in (config.n_heads, n_kv, n_kv))
    return ParameterSource(ours, tuple(theirs), rows, zero=zero)


class ForeignConfig:
    """A config.json of another program, whose values are checked when they are read."""

    def __init__(self, values: Mapping[str, Any], source: str = "config.json") -> None:
        self.values, self.source = values, source

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise self._wrong(name, value, "a whole number greater than 0")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, default)
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        if not fits or not 0 < value < 1e30:
            raise self._wrong(name, value, "a number greater than 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def choice(self, name: str, choices: Mapping[str, str], default: str | None = None) -> str:
        """Return our word for one of theirs."""
        value = self._value(name, default)
        if not isinstance(value, str) or value not in choices:
            raise InputError(
                f"{self.source}: {name} '{value}' is not supported",
                hint=did_you_mean(str(value), choices),
            )
        return choices[value]

    def part(self, name: str) -> "ForeignConfig | None":
        """Return a nested object, or None if it is missing."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(name, value, "an object")
        return ForeignConfig(value, f"{self.source}, {name}")

    def require(self, **supported: Any) -> None:
        """Raise InputError for a setting with another value than this one. It may be missing."""
        for name, value in supported.items():
            if (found := self.values.get(name, value)) not in (value, None):
                raise InputError(
                    f"{self.source}: {name} {found!r} is not supported",
                    hint=f"only models with {name} {value!r} can be imported",
                )

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            raise InputError(
                f"{self.source} lacks '{name}'", hint="the file is not complete; download it again"
            )
        return value

    def _wrong(self, name: str, value: object, needed: str) -> InputError:
        return InputError(
            f"{self.source}: {name} is {value!r}, but must be {needed}",
            hint="the file is damaged; download it again",
        )


class Family(ABC, Generic[C]):
    """A family of models of the transformers library that can be imported."""

    name: ClassVar[str]  # their model_type
    kind: ClassVar[str]  # ours
    prefix: ClassVar[str] = ""  # of tensor names, which files of the bare model lack
    ignored: ClassVar[re.Pattern[str]] = re.compile("$^")  # tensors to ignore silently
    left_out: ClassVar[re.Pattern[str]] = re.compile("$^")  # tensors to leave out, with a note

    @abstractmethod
    def config(self, settings: ForeignConfig) -> C:
        """Return our config for their settings."""

    @abstractmethod
    def entries(self, config: C) -> Iterator[ParameterSource]:
        """Yield all parameters of ours, with the names of theirs."""

    def older_name(self, name: str) -> str:
        """Return the name that older files have for a tensor."""
        return name

    def copies(self, config: C) -> dict[str, str]:
        """Return names under which files may have a second copy of another tensor."""
        return {}


class HoldingFamily(Family[C]):
    """A family that our models can also be exported to."""

    architecture: ClassVar[str]  # their class for an exported model

    @abstractmethod
    def settings(self, config: C) -> dict[str, Any]:
        """Return their settings for a config of ours that has no `obstacles`."""

    @abstractmethod
    def obstacles(self, config: C) -> list[str]:
        """Return our settings that prevent an export, and what they would have to be."""


def find_differences(config: object, **needed: Any) -> list[str]:
    """Return the fields that do not have one of the needed values.

    >>> from glasshead.model.gpt import GPTConfig
    >>> find_differences(GPTConfig(vocab_size=7), positions=("rotary",), window=(None,))
    ['positions=learned (not rotary)']
    """
    found = []
    for name, values in needed.items():
        value = getattr(config, name)
        if value not in values:
            wanted = " or ".join(str(value).lower() for value in values)
            found.append(f"{name}={str(value).lower()} (not {wanted})")
    return found


def export_error(obstacles: Mapping[str, list[str]], hint: str) -> ConfigError:
    """Return the error for a config that fits no family, with the obstacles of the nearest ones."""
    fewest = min(len(found) for found in obstacles.values())
    nearest = [
        f"from {name}: {', '.join(found)}"
        for name, found in obstacles.items()
        if len(found) == fewest
    ]
    return ConfigError(f"this model fits no family; it differs {'; '.join(nearest)}", hint=hint)
