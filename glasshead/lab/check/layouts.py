"""How tensors and masks are laid out: the order of their axes, and what a mask's numbers mean."""

from dataclasses import dataclass

import numpy as np

from glasshead.lab.check.pipeline import Array

__all__ = ["DENSE_FORMS", "HEADS", "KEY_FORMS", "KINDS", "LAYOUTS", "WIDTHS", "Encoding",
           "TensorLayout"]  # fmt: skip


@dataclass(frozen=True)
class TensorLayout:
    """How tensors are laid out: letters of B, H, T and D; `heads` if H is given by the caller."""

    axes: str

    @property
    def heads(self) -> bool:
        return "D" in self.axes

    @property
    def batch(self) -> bool:
        return "B" in self.axes

    def write(self, x: Array) -> Array:
        """Turn (B, H, T, D) or (B, T, C) into this layout."""
        full = "BHTD" if x.ndim == 4 else "BTC"
        for axis, letter in reversed(list(enumerate(full))):
            if letter not in self.axes:
                x = np.asarray(x.take(0, axis=axis))
        kept = [letter for letter in full if letter in self.axes]
        return np.ascontiguousarray(x.transpose([kept.index(letter) for letter in self.axes]))

    def read(self, x: Array, full: str) -> Array:
        """Turn this layout into (B, H, T, D) or (B, T, C)."""
        x = x.transpose([self.axes.index(letter) for letter in full if letter in self.axes])
        for axis, letter in enumerate(full):
            if letter not in self.axes:
                x = np.expand_dims(x, axis)
        return x


HEADS = [TensorLayout(axes) for axes in ("BHTD", "BTHD", "BTD", "TD", "TBD", "TBHD", "THD", "HTD")]
WIDTHS = [TensorLayout(axes) for axes in ("BTC", "TBC", "TC")]
LAYOUTS = {layout.axes: layout for layout in [*HEADS, *WIDTHS]}


@dataclass(frozen=True)
class Encoding:
    """How a mask is given: its shape, and what its numbers mean."""

    form: str  # letters of B, H, T and S, 1 for a dimension of one; "N": lengths
    kind: str  # "keep", "hide", "int-keep", "int-hide", "float-keep", "add"

    @property
    def of_keys(self) -> bool:
        return self.form in KEY_FORMS

    @property
    def polarity(self) -> str:
        return self.kind.rpartition("-")[2]

    def encode(self, allowed: Array, keys: Array | None, heads: int) -> Array:
        """Encode (B, T, S) allowed pairs, or (B, S) keys, as the target takes them."""
        if self.form == "N":
            assert keys is not None
            return keys.sum(-1)
        source = allowed[:, None] if keys is None else keys[:, None, None]  # (B, 1, T or 1, S)
        if "H" in self.form:
            source = np.repeat(source, heads, axis=1)
        if self.form == "(BH)TS":
            source = source.repeat(heads, axis=1).reshape(-1, *source.shape[2:])
        else:
            sizes = dict(zip("BHTS", source.shape, strict=True))
            source = source if "B" in self.form else source[:1]
            sizes["B"] = source.shape[0]
            source = source.reshape([1 if c == "1" else sizes[c] for c in self.form])
        match self.kind:
            case "keep":
                return source
            case "hide":
                return ~source
            case "int-keep":
                return source.astype(np.int64)
            case "int-hide":
                return (~source).astype(np.int64)
            case "float-keep":
                return source.astype(np.float64)
        return np.where(source, 0.0, -np.inf)


DENSE_FORMS = ("TS", "BTS", "B1TS", "11TS", "BHTS", "(BH)TS")
KEY_FORMS = ("BS", "B1S", "B11S", "S", "11S", "N")
KINDS = ("keep", "hide", "int-keep", "int-hide", "float-keep", "add")
