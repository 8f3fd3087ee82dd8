"""Maps of several heads side by side, for a terminal."""

from collections.abc import Iterator, Sequence

from rich.text import Text
from torch import Tensor

__all__ = ["map_rows"]

_SHADES = " ░▒▓█"


def map_rows(weights: Tensor, labels: Sequence[str], names: Sequence[str]) -> Iterator[Text]:
    """Yield a line for each query: a map of each head, (H, T, S), shaded by weight."""
    from rich.cells import cell_len

    wide = [2 * len(row) for row in weights[:, 0]]
    margin = max(cell_len(label) for label in labels) + 1
    head = "".join(
        name + " " * (w + 3 - cell_len(name)) for name, w in zip(names, wide, strict=True)
    )
    yield Text(" " * margin + head.rstrip(), style="dim")
    for t, label in enumerate(labels):
        line = Text(label + " " * (margin - cell_len(label)))
        for h in range(len(weights)):
            line.append("".join(_shade(float(w)) * 2 for w in weights[h, t]))
            line.append(" │ ", style="dim")
        yield line


def _shade(weight: float) -> str:
    return _SHADES[min(len(_SHADES) - 1, int(weight * (len(_SHADES) - 1) + 0.5))]
