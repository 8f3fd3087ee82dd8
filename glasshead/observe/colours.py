"""The one table of colours, and scales from weights to colours.

Pictures, the page and the lab's reports use this table; `page/colour_files.py` writes it as the CSS
and the JavaScript of the page. Weights go from paper to ink in one hue, given by a few stops and
blended in OKLab, where equal steps look equal.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "COLOURS",
    "DIVERGING",
    "SEQUENTIAL",
    "SERIES",
    "Kind",
    "Scale",
    "Theme",
    "cell_colours",
    "full_bar",
    "hex_of",
    "palette",
    "three",
]

Kind = Literal["linear", "log", "ratio"]
Theme = Literal["light", "dark"]

COLOURS: dict[Theme, dict[str, str]] = {
    "light": {
        "paper": "#fcfbf8", "panel": "#ffffff", "sunk": "#f4f2ec", "raised": "#ffffff",
        "ink": "#22262e", "quiet": "#6b707a", "label": "#7a7f89", "line": "#e4e1d9",
        "accent": "#c0431f", "on-accent": "#ffffff", "tint": "#fbeee8", "data": "#1f4f88",
        "good": "#23734a", "bad": "#b3261e",
    },
    "dark": {
        "paper": "#15171b", "panel": "#1b1e23", "sunk": "#101216", "raised": "#2c3139",
        "ink": "#e4e6ea", "quiet": "#9299a4", "label": "#8e949f", "line": "#2f343c",
        "accent": "#ff9066", "on-accent": "#2a120a", "tint": "#33221c", "data": "#93c0ec",
        "good": "#7fd1a2", "bad": "#ff9a90",
    },
}  # fmt: skip
SEQUENTIAL: dict[Theme, tuple[str, ...]] = {
    "light": ("#f4f2ec", "#cfdcea", "#8fb1d3", "#4a7fb5", "#1f4f88", "#0e2a54"),
    "dark": ("#1d2026", "#21364f", "#2b5a8c", "#4f8cc9", "#93c0ec", "#e6f3ff"),
}
# Less than equal attention: earth. More: the ink of all other pictures.
DIVERGING: dict[Theme, tuple[str, ...]] = {
    "light": ("#dbbd94", "#ecdcc4", "#f4f2ec", "#8fb1d3", "#0e2a54"),
    "dark": ("#54432f", "#3a3128", "#1d2026", "#2b6aa8", "#e6f3ff"),
}
# Curves over each other; the accent stays for what is chosen.
SERIES: dict[Theme, tuple[str, ...]] = {
    "light": ("#2f6fb3", "#2a8a7a", "#b07a1e", "#8a4f9e", "#bd4f74", "#5d8a3a", "#5b6675",
              "#8a5a3c"),
    "dark": ("#6fa8e0", "#5fc2b0", "#dcb05c", "#c08fd4", "#e88fb0", "#9cc678", "#a3adbb",
             "#c99a7c"),
}  # fmt: skip

DECADES = 4  # of a logarithmic scale
OCTAVES = 4  # of ratios, on either side of 1


@dataclass(frozen=True)
class Scale:
    """From numbers to shades 0 to 255 of a palette."""

    kind: Kind
    low: float
    high: float

    @classmethod
    def of(cls, values: Any, kind: Kind) -> "Scale":
        """The scale whose strongest colour is the largest number; of ratios it is always 16.

        A row with one number only, such as that of a text's first word, has no choice but 1: it
        says nothing, and would make all others pale.
        """
        if kind == "ratio":
            return cls(kind, 2.0**-OCTAVES, 2.0**OCTAVES)
        numbers = np.nan_to_num(np.asarray(values, dtype=np.float64))
        telling = numbers[(numbers != 0).sum(-1) > 1]
        high = float(np.max(telling if telling.any() else numbers, initial=0)) or 1.0
        return cls(kind, high * 10.0**-DECADES if kind == "log" else 0.0, high)

    def ends(self, values: Any) -> tuple[str, str]:
        """What stands at the two ends of the colours."""
        if self.kind == "ratio":
            return f"≤1/{2**OCTAVES}", f"≥{2**OCTAVES}"
        beyond = "≥" * bool(np.max(np.nan_to_num(np.asarray(values)), initial=0) > self.high)
        return f"≤{three(self.low)}" if self.low else "0", f"{beyond}{three(self.high)}"

    def shades(self, values: Any) -> NDArray[np.uint8]:
        """NaN has the shade of nothing.

        >>> Scale("linear", 0, 0.5).shades([0, 0.25, 0.5])
        array([  0, 128, 255], dtype=uint8)
        """
        x = np.asarray(values, dtype=np.float64)
        if self.kind == "linear":
            share = x / self.high
        else:
            with np.errstate(divide="ignore"):
                share = np.log(x / self.low) / np.log(self.high / self.low)
        share = np.nan_to_num(np.clip(share, 0, 1), nan=0.5 if self.kind == "ratio" else 0.0)
        return np.round(share * 255).astype(np.uint8)


@lru_cache
def palette(kind: Kind, theme: Theme = "light") -> NDArray[np.uint8]:
    """(256, 3) red, green and blue of each shade."""
    stops = (DIVERGING if kind == "ratio" else SEQUENTIAL)[theme]
    points = np.array([_oklab(stop) for stop in stops])
    places = np.linspace(0, len(stops) - 1, 256)
    blended = [np.interp(places, np.arange(len(stops)), points[:, axis]) for axis in range(3)]
    return _rgb(np.stack(blended, axis=1))


def cell_colours(
    values: Any, shades: NDArray[np.uint8], kind: Kind, theme: Theme = "light"
) -> NDArray[np.uint8]:
    """(..., 3) the colours of cells; where there is no number, that of the paper."""
    rgb = palette(kind, theme)[shades]
    paper = bytes.fromhex(COLOURS[theme]["paper"][1:])
    rgb[np.isnan(np.asarray(values))] = np.frombuffer(paper, np.uint8)
    return rgb


def three(value: float) -> str:
    """Three digits.

    >>> three(0.12345), three(12.345), three(0.00012)
    ('0.123', '12.3', '1.2e-04')
    """
    if value and abs(value) < 1e-3:
        return f"{value:.1e}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.3g}"


def full_bar(longest: float) -> float:
    """What a bar stands for that fills its room: a power of ten, so that lists can be compared.

    >>> full_bar(0.999), full_bar(0.1), full_bar(0.02), full_bar(29.9)
    (1.0, 0.1, 0.1, 100.0)
    """
    # A sum of weights may come out a little above 1.
    return float(10.0 ** math.ceil(math.log10(longest) - 1e-4)) if longest > 0 else 1.0


def hex_of(rgb: NDArray[np.uint8]) -> str:
    """
    >>> hex_of(np.array([255, 0, 16], dtype=np.uint8))
    '#ff0010'
    """
    return f"#{bytes(rgb).hex()}"


_TO_LMS = np.array([[0.4122214708, 0.5363325363, 0.0514459929],
                    [0.2119034982, 0.6806995451, 0.1073969566],
                    [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
_TO_LAB = np.array([[0.2104542553, 0.7936177850, -0.0040720468],
                    [1.9779984951, -2.4285922050, 0.4505937099],
                    [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip


def _oklab(colour: str) -> NDArray[np.float64]:
    rgb = np.frombuffer(bytes.fromhex(colour[1:]), dtype=np.uint8) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return _TO_LAB @ np.cbrt(_TO_LMS @ linear)


def _rgb(lab: NDArray[np.float64]) -> NDArray[np.uint8]:
    lms = (lab @ np.linalg.inv(_TO_LAB).T) ** 3
    linear = np.clip(lms @ np.linalg.inv(_TO_LMS).T, 0, 1)
    rgb = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.round(rgb * 255).astype(np.uint8)
