"""Results of benchmarks: rows, tables in Markdown, and the files that store them."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "RESULTS",
    "Row",
    "Settings",
    "figure",
    "save_rows",
    "tables",
    "wide",
    "write_between_markers",
]

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Settings:
    """How an area is measured."""

    device: str
    quick: bool = False  # tiny sizes: does it run?
    repeats: int = 8  # timed turns
    nanogpt: Path | None = None  # a checkout of nanoGPT

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")


@dataclass(frozen=True)
class Row:
    """One measurement, of ours and of a peer.

    >>> Row("forward", "torch", "ms", ours=2.0, theirs=3.0).ratio
    1.5
    >>> Row("greedy", "transformers", "tokens/s", ours=30.0, theirs=20.0).ratio
    1.5
    """

    name: str
    peer: str
    unit: str  # .../s: more is better; anything else, such as ms or MB: less is
    ours: float | None
    theirs: float | None = None  # None if there is no figure; the note says why
    limit: float | None = None  # of the hardware
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better ours is; above 1 ours is ahead."""
        if not self.ours or not self.theirs:
            return None
        more_is_better = self.unit.endswith("/s")
        return self.ours / self.theirs if more_is_better else self.theirs / self.ours


def figure(x: float | None) -> str:
    """Format with three significant digits.

    >>> figure(0.0123), figure(3.14159), figure(31415.9), figure(None)
    ('0.0123', '3.14', '31,416', '')
    """
    if x is None:
        return ""
    digits = max(0, 2 - math.floor(math.log10(abs(x)))) if x else 0
    return f"{x:,.{digits}f}"


def cells(rows: Sequence[Row]) -> list[list[str]]:
    head = ["", "peer", "ours", "theirs", "unit", "ratio", "limit", ""]
    body = [
        [
            row.name, row.peer, figure(row.ours), figure(row.theirs) or "-", row.unit,
            "" if row.ratio is None else f"{row.ratio:.2f}", figure(row.limit), row.note,
        ]
        for row in rows
    ]  # fmt: skip
    return [head, *body]


def wide(rows: Sequence[Row]) -> str:
    """Format for a terminal, in aligned columns."""
    table = cells(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if 2 <= i <= 6 and i != 4 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    )
    return "\n".join(lines)


def markdown(rows: Sequence[Row]) -> str:
    head, *body = ("| " + " | ".join(line) + " |" for line in cells(rows))
    return "\n".join([head, "|---|---|---:|---:|---|---:|---:|---|", *body])


def tables(kept: Mapping[str, Any]) -> str:
    """Format all stored results of a machine for the page."""
    machine = kept["machine"]
    peaks = ", ".join(f"{peak / 1e12:.3g} TFLOP/s in {of}" for of, peak in machine["peaks"].items())
    parts = [
        f"`python -m bench` on {machine['name']}, torch {machine['torch']}. It reads "
        f"{machine['read'] / 1e9:,.3g} GB/s from its memory and multiplies matrices at {peaks}, "
        "measured: the limits follow from that. Ratio: above 1 we are ahead.",
    ]
    for area, rows in kept["areas"].items():
        parts += [f"**{area.capitalize()}**", markdown([Row(**row) for row in rows])]
    return "\n\n".join(parts)


def save_rows(file: Path, machine: Any, areas: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Store rows of some areas; other areas keep what is stored."""
    kept = json.loads(file.read_text(encoding="utf-8"))["areas"] if file.exists() else {}
    kept |= {area: [asdict(row) for row in rows] for area, rows in areas.items()}
    found = {"machine": asdict(machine), "areas": kept}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def write_between_markers(page: Path, name: str, text: str) -> None:
    """Write text between <!-- name --> and <!-- /name -->, or at the end if there are none."""
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    block = f"{begin}\n\n{text}\n\n{end}"
    marked = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if marked.search(before):
        after = marked.sub(lambda _: block, before)
    else:
        after = f"{before.rstrip()}\n\n{block}\n".lstrip()
    page.write_text(after, encoding="utf-8")
