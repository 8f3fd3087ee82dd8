"""Figures in a text, and whether they were measured.

A figure is a number with a unit of something that one measures: seconds, BLEU, MB, times as fast.
It must be among the numbers of the stored results, to as many digits as are given, or the page must
say how it follows from others: <!-- computed: 16 * 100_000**2 * 4 / 1e9 -->
"""

import json
import re
from collections.abc import Iterator, Set
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from pathlib import Path

from tests.documents.blocks import prose

ROOT = Path(__file__).resolve().parents[2]

NUMBER = r"(?<![\w.,])\d+(?:,\d{3})*(?:\.\d+)?(?![\d])"
UNITS = (
    r"s|ms|seconds?|minutes?|hours?|microseconds?|%|BLEU|chrF|times|[kMG]i?B|TiB|tokens/s|"
    r"tokens a second|秒|毫秒|微秒|分钟|小时|倍|百分点"
)
FIGURE = re.compile(rf"({NUMBER})(?:\s| )?(?:{UNITS})(?![A-Za-z])")


def figures(page: str) -> list[str]:
    """
    >>> figures("It took 31.3 s, 100 lines and `9 s`; 44.8 BLEU, 1,832 MB.")
    ['31.3', '44.8', '1832']
    """
    return [found.replace(",", "") for found in FIGURE.findall(prose(page))]


@cache
def measured() -> frozenset[Decimal]:
    """Every number of the stored results."""
    texts = [ROOT / "docs/results.md", *sorted((ROOT / "bench").glob("results/*.json"))]
    texts += [ROOT / "docs/claims.json", *sorted((ROOT / "docs/claims").glob("*.md"))]
    return frozenset(number for path in texts if path.exists() for number in _numbers(path))


def computed(page: str) -> set[Decimal]:
    """
    >>> computed("640 GB <!-- computed: 16 * 100_000**2 * 4 / 1e9 -->")
    {Decimal('640.0')}
    """
    sums = re.findall(r"<!-- computed: ([\d\s.+*/()_e-]+?) -->", page)
    return {Decimal(repr(float(eval(one, {"__builtins__": {}})))) for one in sums}


def _numbers(path: Path) -> Iterator[Decimal]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        yield from _leaves(json.loads(text, parse_float=Decimal, parse_int=Decimal))
    else:
        found = re.findall(r"(?<![\w.])(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)", text)
        yield from (Decimal(number.replace(",", "")) for number in found)


def _leaves(value: object) -> Iterator[Decimal]:
    match value:
        case dict():
            for inner in value.values():
                yield from _leaves(inner)
        case list():
            for inner in value:
                yield from _leaves(inner)
        case Decimal() if value.is_finite():
            yield value


def is_measured(figure: str, results: Set[Decimal]) -> bool:
    """Whether some result is this figure when rounded to its digits.

    >>> is_measured("42.1", {Decimal("42.11")}), is_measured("42.2", {Decimal("42.11")})
    (True, False)
    """
    wanted = Decimal(figure)
    near = (result for result in results if result.adjusted() < 20)
    return any(result.quantize(wanted, ROUND_HALF_UP) == wanted for result in near)
