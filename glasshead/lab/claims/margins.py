"""How far each threshold can be moved before the verdict changes: an attack on stored evidence."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from glasshead.lab.claims import claim_modules, load_claim
from glasshead.lab.claims.verdict import Verdict

__all__ = ["FACTORS", "Margin", "find_margins", "thresholds"]

FACTORS = (0.5, 0.67, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0)
# Numbers of a module that are settings of an experiment, not thresholds of its judge.
SETTINGS = frozenset({"LR", "DROPOUT", "LEAST", "CHANCE_LEVEL", "BURST", "DEAD"})


@dataclass(frozen=True)
class Margin:
    """A threshold, and the verdicts that other values of it would give."""

    name: str
    value: float
    others: Mapping[float, Verdict]  # by factor, where the verdict is another one
    tried: tuple[float, ...]

    @property
    def span(self) -> tuple[float, float]:
        """The lowest and the highest factor around 1 at which the verdict stays."""
        low = max((f for f in self.others if f < 1), default=0.0)
        high = min((f for f in self.others if f > 1), default=float("inf"))
        inside = [1.0, *(f for f in self.tried if low < f < high)]
        return min(inside), max(inside)


def thresholds(number: int) -> dict[str, float]:
    """Return the thresholds of a claim by name.

    >>> thresholds(2)
    {'NEEDED': 0.05, 'ALIVE': 0.01}
    """
    module = import_module(claim_modules()[number])
    return {
        name: value
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, float) and name not in SETTINGS
    }


def find_margins(number: int, evidence: Mapping[str, Any]) -> Iterator[Margin]:
    """Judge the evidence with each threshold multiplied by each factor, one at a time."""
    claim = load_claim(number)
    verdict = claim.judge(dict(evidence)).verdict
    for name, value in thresholds(number).items():
        # A share above 1 cannot be reached.
        tried = tuple(f for f in FACTORS if not value <= 1 < value * f)
        found = {}
        for factor in tried:
            with _changed(number, name, value * factor):
                found[factor] = claim.judge(dict(evidence)).verdict
        others = {factor: other for factor, other in found.items() if other is not verdict}
        yield Margin(name, value, others, tried)


@contextmanager
def _changed(number: int, name: str, value: float) -> Iterator[None]:
    module = import_module(claim_modules()[number])
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)
