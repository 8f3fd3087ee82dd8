"""What a run writes while it trains: metrics.jsonl, samples.txt, TensorBoard, loss.png.

With --watch-heads also heads.jsonl: a line has `step` and, for each number, a list of the layers'
lists of their heads.

A line of metrics.jsonl has `step` and

    loss, lr, grad_norm, skipped, tokens    every log_every steps; loss is the mean since the last
    val_loss, best, ...                     an evaluation
    returned_from, rate                     a return to an earlier step

These are the same however often the run was interrupted; `seconds` and `tokens_per_s` are not.
"""

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from glasshead.checkpoint.run import MOST_METRICS
from glasshead.files.digest import digest, digest_file
from glasshead.files.reading import read_small
from glasshead.files.writing import sync_file

__all__ = ["RunLog"]

HEADS = "heads.jsonl"
TAGS = {"loss": "loss/training", "val_loss": "loss/validation"}  # of TensorBoard


class RunLog:
    """Writes into a run's folder; without a folder it writes nothing."""

    def __init__(self, folder: Path | None, tensorboard: bool) -> None:
        self._folder, self._tensorboard = folder, tensorboard
        self._board: Any = None
        self._purge_step: int | None = None

    @property
    def _files(self) -> list[Path]:
        if self._folder is None:
            return []
        watched = [HEADS] if (self._folder / HEADS).exists() else []
        return [self._folder / name for name in ("metrics.jsonl", "samples.txt", *watched)]

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl, and the values to TensorBoard."""
        if self._folder is None:
            return
        line = json.dumps({"step": step, **values}, allow_nan=False)
        _append(self._folder / "metrics.jsonl", f"{line}\n")
        if self._tensorboard:
            board = self._open_board(self._folder)
            for name, value in values.items():
                board.add_scalar(TAGS.get(name, name), float(value), step)

    def write_heads(self, step: int, scores: Mapping[str, Tensor]) -> None:
        """Append a line to heads.jsonl, (L, H) of each number, and histograms to TensorBoard."""
        if self._folder is None:
            return
        rounded = {
            name: [[round(v, 4) if math.isfinite(v) else None for v in row] for row in x.tolist()]
            for name, x in scores.items()
        }
        _append(self._folder / HEADS, f"{json.dumps({'step': step, **rounded})}\n")
        if self._tensorboard:
            board = self._open_board(self._folder)
            for name, x in scores.items():
                if bool((finite := x[x.isfinite()]).numel()):
                    board.add_histogram(f"heads/{name}", finite, step)

    def _open_board(self, folder: Path) -> Any:
        if self._board is None:
            from torch.utils.tensorboard import SummaryWriter

            # Hides what an earlier process wrote about later steps.
            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=self._purge_step)
        return self._board

    def write_sample(self, step: int, text: str) -> None:
        if self._folder is not None:
            _append(self._folder / "samples.txt", f"--- step {step}\n{text}\n\n")

    def draw(self) -> None:
        """Draw loss.png from metrics.jsonl."""
        if self._folder is not None:
            from glasshead.training.plot import draw_losses

            draw_losses(self._folder)

    def sync(self) -> tuple[dict[str, int], dict[str, str]]:
        """Bring all files to the disk; return their lengths and digests, for `truncate`."""
        if self._board is not None:
            self._board.flush()
        lengths = {}
        for path in self._files:
            with open(path, "ab") as file:
                sync_file(file)
                lengths[path.name] = file.tell()
        return lengths, {path.name: digest_file(path) for path in self._files}

    def truncate(
        self, lengths: Mapping[str, int], step: int, digests: Mapping[str, str] | None = None
    ) -> dict[Path, Path | None]:
        """Cut off what was written after the checkpoint of `step`, and a line that was torn.

        Returns:
            The files that were damaged since that checkpoint, each with a copy that was made of it,
            or None if it is missing.
        """
        copies: dict[Path, Path | None] = {}
        for path in self._files:
            length, known = lengths.get(path.name, 0), (digests or {}).get(path.name)
            if not path.exists() and length:
                copies[path] = None
            elif path.exists():
                text = read_small(path, MOST_METRICS, within=self._folder)
                if known is not None and digest(text[:length]) != known:
                    copies[path] = _copy(path)
                os.truncate(path, text[:length].rfind(b"\n") + 1)
        self.close()
        self._purge_step = step + 1
        return copies

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
            self._board = None


def _copy(path: Path) -> Path:
    copy = path.with_name(f"damaged-{path.name}")
    shutil.copyfile(path, copy)
    return copy


def _append(path: Path, text: str) -> None:
    with open(path, "ab") as file:
        file.write(text.encode())
