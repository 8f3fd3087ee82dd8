"""Run the learner's function on cases, compare with the right answer, and name the mistake.

A mistake is known by what it computes: a wrong answer that gives on every case what the learner's
function gives. `compare` tries them in order.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from glasshead.errors import GlassheadError
from glasshead.lab.check.source_lines import find_line
from glasshead.lab.check.target import make_target
from glasshead.lab.exercises.learner import (
    LearnerFile,
    Trouble,
    TroubleFound,
    explain_error,
)

__all__ = ["Inputs", "PrintedNumbers", "Wrong", "compare", "expect", "fail", "show_numbers"]

Inputs: TypeAlias = dict[str, Any]  # in the order of the arguments
Wrong: TypeAlias = tuple[str, Callable[..., Any]]  # its name, and what computes it


@dataclass(frozen=True, eq=False)
class LooseAnswer:
    """A wrong answer that may be anything in some rows, as where it divides 0 by 0."""

    values: Tensor
    sure: Tensor  # of bool, in the shape of the values


Outcome: TypeAlias = tuple[Tensor, ...] | Exception
TOLERANCE = 3e-6  # some compute a part in float32


@dataclass(frozen=True)
class PrintedNumbers:
    """Numbers that a document prints, beside those of the learner's code."""

    source: str  # the name of its text
    theirs: str
    yours: str


def expect(source: str, theirs: Any, yours: Any, digits: int = 4) -> PrintedNumbers:
    """Compare with numbers printed to so many digits; raise TroubleFound if they differ."""
    want = torch.tensor(theirs)
    got = torch.as_tensor(yours).detach().to(want)
    shown = PrintedNumbers(source, show_numbers(want, digits), show_numbers(got, digits))
    if got.shape != want.shape or (got - want).abs().max() > 1.01 * 10**-digits:
        example = (("printed", shown.theirs), ("yours", shown.yours))
        raise TroubleFound(Trouble("printed", {"source": source}, example=example))
    return shown


def fail(name: str, call: Any = None, /, **values: Any) -> TroubleFound:
    """Return the error to raise for a mistake that a property shows."""
    line, code = guess_line(call, name)
    return TroubleFound(Trouble(name, values, line, code))


def compare(
    mine: LearnerFile,
    what: str,
    call: Callable[..., Any],
    right: Callable[..., Any],
    cases: Iterable[Inputs],
    wrong: Iterable[Wrong] = (),
    *,
    place: Any = None,
) -> None:
    """Raise TroubleFound unless `call` gives what `right` gives, on all cases.

    Args:
        what: how the call is written, as in "softmax(scores)".
        cases: small ones first: the first that goes wrong is shown.
        wrong: wrong answers, the likeliest first.
        place: what is searched for the line of a mistake, if not `call`.
    """
    place = place or call
    seen = []
    for inputs in cases:
        given = {n: v.clone() if isinstance(v, Tensor) else v for n, v in inputs.items()}
        try:
            got: Outcome = _tensors(mine, call(*given.values()), right(*inputs.values()), what)
        except TroubleFound:
            raise
        except Exception as error:
            got = error
            if isinstance(error, NotImplementedError) and not str(error):
                raise TroubleFound(explain_error(error, mine.path)) from None
        seen.append((inputs, got))
        for name, value in inputs.items():
            if isinstance(value, Tensor) and not _same(given[name], value):
                raise fail("input-changed", place, argument=name)
    deviating = [one for one in seen if not _agrees(one, right)]
    if not deviating:
        return
    example = _example(what, deviating[0], right, mine.path)
    for name, way in wrong:
        if _explains(seen, way):
            line, code = guess_line(place, name)
            raise TroubleFound(Trouble(name, {}, line, code, example))
    _raise_unnamed(what, deviating, right, mine.path, example)


def _raise_unnamed(
    what: str,
    deviating: Sequence[tuple[Inputs, Outcome]],
    right: Callable[..., Any],
    path: Path,
    example: tuple[tuple[str, str], ...],
) -> None:
    for inputs, got in deviating:
        if isinstance(got, Exception):
            found = explain_error(got, path)
            given = tuple((n, _shape(v)) for n, v in inputs.items())
            raise TroubleFound(Trouble(found.name, found.values, found.line, found.code, given))
    inputs, got = deviating[0]
    assert not isinstance(got, Exception)
    want = _flat(right(*inputs.values()))
    for one, other in zip(got, want, strict=True):
        if one.shape != other.shape:
            values = {"what": what, "got": _shape(one), "want": _shape(other)}
            raise TroubleFound(Trouble("shape", values, example=example[: len(inputs)]))
        if other.dtype == torch.bool and one.dtype != torch.bool:
            values = {"what": what, "dtype": str(one.dtype).removeprefix("torch.")}
            raise TroubleFound(Trouble("not-bool", values))
    if any(one.isnan().any() for one in got):
        raise TroubleFound(Trouble("nan", {"what": what}, example=example))
    raise TroubleFound(Trouble("unknown", {"what": what}, example=example))


def guess_line(call: Any, mistake: str) -> tuple[int, str]:
    """Return the line where a mistake probably is; 0 if it cannot be told."""
    try:
        return find_line(make_target(call, {}), mistake) or (0, "")
    except (GlassheadError, TypeError):
        return 0, ""


def _tensors(mine: LearnerFile, got: Any, want: Any, what: str) -> tuple[Tensor, ...]:
    """Return what was returned as a tuple of tensors; raise TroubleFound if it is none."""
    if got is None:
        raise TroubleFound(Trouble("nothing-returned", {"what": what}))
    wanted = len(want) if isinstance(want, tuple) else 1
    out = tuple(got) if isinstance(got, (tuple, list)) else (got,)
    if isinstance(got, (tuple, list)) != isinstance(want, tuple) or len(out) != wanted:
        raise TroubleFound(
            Trouble("wrong-return", {"what": what, "got": _describe(got), "want": _describe(want)})
        )
    for each in out:
        if not isinstance(each, Tensor):
            values = {"what": what, "got": _describe(got), "want": _describe(want)}
            raise TroubleFound(Trouble("wrong-return", values))
    return tuple(each.detach() for each in out)


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"tensor {_shape(value)}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_describe, value))})"
    return type(value).__name__


def _flat(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,)


def _agrees(one: tuple[Inputs, Outcome], way: Callable[..., Any]) -> bool:
    """Say whether a way gives what was seen; two exceptions agree."""
    inputs, got = one
    try:
        want = _flat(way(*inputs.values()))
    except Exception:
        return isinstance(got, Exception)
    if isinstance(got, Exception):
        return False
    if isinstance(want[0], LooseAnswer):
        values, sure = want[0].values, want[0].sure
        if got[0].shape != values.shape:
            return False
        return _same(got[0][sure], values[sure])
    return len(got) == len(want) and all(map(_same, got, want))


def _explains(seen: Sequence[tuple[Inputs, Outcome]], way: Callable[..., Any]) -> bool:
    """Say whether a way gives all that was seen, and not only exceptions or unsure rows."""
    if not all(_agrees(one, way) for one in seen):
        return False
    for inputs, got in seen:
        if not isinstance(got, Exception):
            [want, *_] = _flat(way(*inputs.values()))
            if not isinstance(want, LooseAnswer) or want.sure.any():
                return True
    return False


def _same(got: Tensor, want: Tensor) -> bool:
    if got.shape != want.shape or (want.dtype == torch.bool) != (got.dtype == torch.bool):
        return False
    some = want[want.isfinite()].abs() if want.is_floating_point() else want.new_zeros(0)
    size = 1.0 + float(some.max()) if some.numel() else 1.0
    return torch.allclose(
        got.double(), want.double(), rtol=0, atol=TOLERANCE * size, equal_nan=True
    )


def _example(
    what: str, one: tuple[Inputs, Outcome], right: Callable[..., Any], path: Path
) -> tuple[tuple[str, str], ...]:
    """Show the inputs and the first place where the answer differs."""
    inputs, got = one
    lines = [
        (
            name,
            f"{_shape(value)} {show_numbers(value)}".strip() if _is_tensor(value) else str(value),
        )
        for name, value in inputs.items()
    ]
    if isinstance(got, Exception):
        return tuple(lines)
    for mine, other in zip(got, _flat(right(*inputs.values())), strict=True):
        if mine.shape != other.shape:
            break
        if not _same(mine, other):
            place = _first_row(mine, other)
            at = f"[{', '.join(map(str, place))}]" if place else ""
            lines.append(("got", f"{at} {show_numbers(mine[place])}".strip()))
            lines.append(("expected", f"{at} {show_numbers(other[place])}".strip()))
            break
    return tuple(lines)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _first_row(got: Tensor, want: Tensor) -> tuple[int, ...]:
    off = ~torch.isclose(got.double(), want.double(), atol=1e-5, equal_nan=True)
    where = off.nonzero()
    return tuple(where[0].tolist()[:-1]) if len(where) else ()


def _shape(value: Any) -> str:
    return f"({', '.join(map(str, value.shape))})" if isinstance(value, Tensor) else str(value)


def show_numbers(value: Tensor, digits: int = 4) -> str:
    """Write a tensor on one line, at most 12 numbers of it."""
    value = value.detach()
    if value.numel() > 12:
        return " ".join(_number(x, digits) for x in value.flatten()[:12].tolist()) + " …"
    if value.ndim > 1:
        rows = " ".join(show_numbers(row, digits) for row in value)
        return rows if value.ndim == 2 else f"[{rows}]"
    numbers = " ".join(_number(x, digits) for x in value.reshape(-1).tolist())
    return f"[{numbers}]" if value.ndim else numbers


def _number(value: Any, digits: int) -> str:
    if isinstance(value, float):
        text = f"{value:.{digits}f}"
        return str(int(value)) if value.is_integer() else text
    return str(int(value)) if isinstance(value, bool) else str(value)
