"""Where the documents are wrong, and the correct form."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from glasshead.lab.texts import Words

__all__ = ["ERRATA", "Erratum"]


@dataclass(frozen=True)
class Erratum:
    name: str
    source: str  # which document: "002"
    says: Words
    correct: Words


ERRATA = tuple(
    Erratum(one["name"], one["source"], Words(**one["says"]), Words(**one["correct"]))
    for one in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["erratum"]
)
