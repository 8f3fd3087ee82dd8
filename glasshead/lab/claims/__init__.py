"""The textbook's claims, each an experiment that can come out either way.

One small file a claim, `c01_….py` to `c19_….py`, each with a `CLAIM`; `claim.py` says what that is.

>>> claim_modules()[3]
'glasshead.lab.claims.c03_causal'
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glasshead.lab.claims.claim import Claim

__all__ = ["claim_modules", "load_claim"]


def claim_modules() -> dict[int, str]:
    """Return the module of each claim by its number, without importing any."""
    files = sorted(Path(__file__).parent.glob("c[0-9][0-9]_*.py"))
    return {int(file.stem[1:3]): f"{__name__}.{file.stem}" for file in files}


def load_claim(number: int) -> "Claim":
    claim: Claim = import_module(claim_modules()[number]).CLAIM
    return claim
