"""What an example consists of: numbers of a document beside ours, and its slips."""

from dataclasses import dataclass
from typing import Any, Literal

from glasshead.lab.claims.errata import ERRATA, Erratum
from glasshead.lab.texts import Words

__all__ = ["Example", "Figure", "Number", "Shown", "Slip", "erratum"]

# Where the document's number comes from: its text prints it, its code computes it when it is run,
# or a picture shows it; "ours" marks a step of which the document gives no number.
Shown = Literal["text", "code", "picture", "ours"]


@dataclass(frozen=True)
class Number:
    """One number or one vector: as the document has it, and as it is computed here."""

    label: Words
    document: tuple[float, ...]
    ours: tuple[float, ...]
    decimals: int
    shown: Shown = "text"
    part: str = ""  # the step of the example that it belongs to

    @property
    def agrees(self) -> bool:
        """Tell whether ours, rounded to the document's decimals, is the document's."""
        half = 0.5 * 10**-self.decimals * (1 + 1e-4)
        same = len(self.document) == len(self.ours)
        near = (abs(a - b) <= half for a, b in zip(self.document, self.ours, strict=False))
        return self.shown == "ours" or (same and all(near))


@dataclass(frozen=True)
class Figure:
    """What the document's form gives, and what ours gives, for one quantity."""

    label: Words
    document: str
    ours: str


@dataclass(frozen=True)
class Slip:
    """A mistake of a document, with what it does to the numbers."""

    erratum: Erratum
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Example:
    name: str
    source: str  # which document: "002"
    numbers: tuple[Number, ...]
    slips: tuple[Slip, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "example": self.name,
            "document": self.source,
            "numbers": [
                {
                    "part": number.part,
                    "label": number.label.en,
                    "document": None if number.shown == "ours" else list(number.document),
                    "shown_in": number.shown,
                    "ours": list(number.ours),
                    "agrees": None if number.shown == "ours" else number.agrees,
                }
                for number in self.numbers
            ],
            "slips": [
                {
                    "name": slip.erratum.name,
                    "document": slip.erratum.source,
                    "says": slip.erratum.says.en,
                    "correct": slip.erratum.correct.en,
                    "figures": [
                        {"label": f.label.en, "document": f.document, "ours": f.ours}
                        for f in slip.figures
                    ],
                }
                for slip in self.slips
            ],
        }


def erratum(name: str) -> Erratum:
    return next(one for one in ERRATA if one.name == name)
