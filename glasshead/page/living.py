"""A model as one living HTML file: the page, with the model in it and an engine that runs it.

    plan = plan_living("runs/poems", "int8")
    plan.size, plan.cost            bytes of the file, and what rounding costs
    plan.write(Path("poems.html"))

The page is the server's own; `web/engine/` answers what the server's routes answer.
"""

import base64
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from glasshead.checkpoint import Run, load
from glasshead.errors import InputError
from glasshead.files.writing import atomic_write
from glasshead.page.bundle import living_page
from glasshead.page.entries import Entry, describe
from glasshead.page.packing import PackedRun, Precision, pack_run, packed_size, rounding_cost

__all__ = ["LARGEST", "LivingPage", "plan_living"]

LARGEST = 200_000_000  # bytes of a file; browsers hold twice as much in one string, phones do not
AROUND = 800_000  # bytes of the page besides the model, about


@dataclass(frozen=True, eq=False)
class LivingPage:
    """What will be written, before it is."""

    run: Run
    entry: Entry
    precision: Precision

    @cached_property
    def packed(self) -> PackedRun:
        return pack_run(self.run, self.entry, self.precision)

    @cached_property
    def cost(self) -> float | None:
        """What rounding changes, in nats a token; None for float32, and without predictions."""
        return None if self.precision == "float32" else rounding_cost(self.run, self.precision)

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return len(self.html().encode())

    def html(self, state: dict[str, str] | None = None) -> str:
        """Return the file; `state` is where the page opens, as in its address."""
        told = {**self.packed.told, "rounding": {"precision": self.precision, "cost": self.cost}}
        data: dict[str, Any] = {
            "kind": "living", "views": told["entry"]["can"], "kept": None, "answers": {},
            "state": {"view": "look", "model": self.entry.id, **(state or {})}, "living": told,
        }  # fmt: skip
        return living_page(data, base64.b64encode(self.packed.data).decode())

    def write(self, out: Path, state: dict[str, str] | None = None) -> int:
        """Write the file, complete or not at all; return its size."""
        content = self.html(state).encode()
        try:
            with atomic_write(out) as file:
                file.write(content)
        except OSError as error:
            raise InputError(
                f"cannot write {out}: {error.strerror}", hint="is there such a folder?"
            ) from None
        return len(content)


def plan_living(path: str | Path, precision: Precision = "float16") -> LivingPage:
    """Open a run for a living page; raise for one that is too large, or that no page can run."""
    run = load(path)
    size = AROUND + _base64_size(packed_size(run, precision))
    if size > LARGEST:
        smaller = AROUND + _base64_size(packed_size(run, "int8")) <= LARGEST
        raise InputError(
            f"the file would have {size / 1e6:,.0f} MB, more than {LARGEST / 1e6:,.0f} MB",
            hint="add --precision int8" if smaller else "export a smaller model",
        )
    entry = describe(run.path.resolve().name, run.path)
    page = LivingPage(run, entry, precision)
    _ = page.packed  # raises for a tokenizer that the page does not have
    return page


def _base64_size(n: int) -> int:
    return 4 * -(-n // 3)
