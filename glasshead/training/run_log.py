"""What a run writes down as it goes: metrics.jsonl, samples.txt, TensorBoard, loss.png.

A line of metrics.jsonl has `step` and

    loss, lr, grad_norm, skipped, tokens    every log_every steps; loss is the mean since the last
    val_loss, best, ...                     an evaluation
    returned_from, rate                     a return to an earlier step

These are the same however often the run was interrupted; `seconds` and `tokens_per_s` are not.
"""

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["RunLog"]


class Journal:
    """A file that only grows, and can be cut back to where a checkpoint knew it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, text: str) -> None:
        with open(self.path, "ab") as file:
            file.write(text.encode())

    def synced_length(self) -> int:
        """Its bytes, all of them on the disk."""
        with open(self.path, "ab") as file:
            os.fsync(file.fileno())
            return file.tell()

    def cut(self, length: int) -> None:
        """Drop what came after `length` bytes, and a line that was torn."""
        if self.path.exists():
            kept = self.path.read_bytes()[:length]
            os.truncate(self.path, kept.rfind(b"\n") + 1)


class RunLog:
    """Writes into a run's folder; without one, nowhere."""

    def __init__(self, folder: Path | None, tensorboard: bool) -> None:
        self._folder, self._tensorboard = folder, tensorboard
        names = ("metrics.jsonl", "samples.txt") if folder else ()
        self._journals = {name: Journal(folder / name) for name in names if folder}
        self._board: Any = None
        self._purge: int | None = None

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._board is not None:
            self._board.close()

    def write(self, step: int, values: dict[str, Any]) -> None:
        if self._folder is None:
            return
        line = json.dumps({"step": step, **values}, allow_nan=False)
        self._journals["metrics.jsonl"].append(f"{line}\n")
        if self._tensorboard:
            for name, value in values.items():
                self._writer().add_scalar(_BOARD.get(name, name), float(value), step)

    def sample(self, step: int, text: str) -> None:
        if self._folder is not None:
            self._journals["samples.txt"].append(f"--- step {step}\n{text}\n\n")

    def synced_lengths(self) -> dict[str, int]:
        """How long the files are, now that all of them are on the disk."""
        if self._board is not None:
            self._board.flush()
        return {name: journal.synced_length() for name, journal in self._journals.items()}

    def cut(self, lengths: dict[str, int], step: int) -> None:
        """Back to where the checkpoint of `step` knew it."""
        for name, journal in self._journals.items():
            journal.cut(lengths.get(name, 0))
        if self._board is not None:
            self._board.close()
        self._board, self._purge = None, step + 1

    def draw(self) -> None:
        """loss.png, from metrics.jsonl."""
        if self._folder is not None:
            from glasshead.training.plot import draw_losses

            draw_losses(self._folder)

    def _writer(self) -> Any:
        if self._board is None:
            from torch.utils.tensorboard import SummaryWriter

            assert self._folder is not None
            folder = str(self._folder / "tensorboard")
            # What an earlier process wrote of later steps is hidden from view.
            self._board = SummaryWriter(folder, purge_step=self._purge)
        return self._board


_BOARD = {"loss": "loss/training", "val_loss": "loss/validation"}
