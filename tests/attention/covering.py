"""A few combinations of settings instead of all: every pair of values occurs together."""

from itertools import combinations, product
from typing import Any


def covering(*choices: list[Any]) -> list[tuple[Any, ...]]:
    """Choose combinations of one value of each list, so that each pair of values is in one.

    >>> covering([0, 1], ["a", "b"], [None, 3])
    [(0, 'a', None), (0, 'b', 3), (1, 'a', 3), (1, 'b', None)]
    """
    everything = list(product(*(range(len(values)) for values in choices)))

    def pairs(row: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(combinations(enumerate(row), 2))

    missing = set().union(*map(pairs, everything))
    chosen = []
    while missing:
        best = max(everything, key=lambda row: len(pairs(row) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return [
        tuple(values[n] for values, n in zip(choices, row, strict=True)) for row in sorted(chosen)
    ]
