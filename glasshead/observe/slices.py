"""Slices and indices of maps, as a user gives them."""

import math

from glasshead.errors import InputError

__all__ = ["check_index", "check_size", "overlap", "span"]


def overlap(part: slice, page: int, size: int) -> tuple[slice, slice]:
    """Return where a page of this size lies in the answer, and the answer in the page."""
    start, stop = max(part.start, page * size), min(part.stop, (page + 1) * size)
    return (
        slice(start - part.start, stop - part.start),
        slice(start - page * size, stop - page * size),
    )


def span(name: str, part: slice | int, size: int) -> slice:
    if not isinstance(part, slice):
        part = slice(at := check_index(name, part, size), at + 1)
    start, stop, step = part.indices(size)
    if step != 1:
        raise InputError(f"{name} has step {step}", hint="leave the step out: it must be 1")
    return slice(start, max(start, stop))


def check_index(name: str, value: int, size: int) -> int:
    """Return an index from 0; raise if it is out of range. Negative ones count from the end."""
    if -size <= value < size:
        return value % size
    raise InputError(f"{name} {value} does not exist", hint=f"there are {size}, counted from 0")


def check_size(limit: int, what: str, *size: int) -> None:
    if (n := math.prod(size)) > limit:
        raise InputError(
            f"{what} has {' x '.join(map(str, size))} = {n:,} numbers, more than {limit:,}",
            hint="take a smaller tile, or pool the weights with cells(layer, head, level)",
        )
