"""Where recorded tensors lie: on the GPU that made them, in memory, or in temporary files."""

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glasshead.errors import RecordingError

__all__ = ["GrowingTensor", "TensorStorage", "on_stream"]

CPU = torch.device("cpu")


class TensorStorage:
    """Keeps tensors where they are while there is room; then in memory, then in temporary files.

    On a GPU they take at most the share `on_device` of what is free at first. In memory they take
    `in_memory` bytes; those that come from a GPU are copied beside what it computes. The files are
    unlinked as soon as they are open, so they vanish with the tensors.
    """

    def __init__(
        self, in_memory: int = 2**30, folder: Path | None = None, on_device: float = 0.5
    ) -> None:
        self.in_memory, self.folder, self.on_device = in_memory, folder, on_device
        self.used = 0
        self._room: dict[torch.device, float] = {}  # bytes that are left on each GPU
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def has_room(self, device: torch.device, size: int) -> bool:
        """Whether so many bytes may stay on a device; they count as used then."""
        if device.type == "cuda":
            if device not in self._room:
                free, _ = torch.cuda.mem_get_info(device)
                free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
                self._room[device] = self.on_device * free
            fits = size <= self._room[device]
            self._room[device] -= size if fits else 0
        else:
            fits = device.type == "cpu" and self.used + size <= self.in_memory
            self.used += size if fits else 0
        return fits

    def keep(self, x: Tensor) -> Tensor:
        """Return the tensor itself if it may stay where it is, else a copy elsewhere."""
        if self.has_room(x.device, x.nbytes):
            return x
        kept = self.empty(x.shape, x.dtype, x.device)
        self.copy(kept, x)
        return kept

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device = CPU) -> Tensor:
        """Return a new tensor for what comes from a device, on it if there is room."""
        count = math.prod(shape)
        size = count * dtype.itemsize
        if device != CPU and self.has_room(device, size):
            return torch.empty(*shape, dtype=dtype, device=device)
        if self.has_room(CPU, size) or not count:
            return torch.empty(*shape, dtype=dtype, pin_memory=device.type == "cuda")
        handle, name = tempfile.mkstemp(suffix=".glasshead", dir=self.folder)
        try:
            # Reserved now, so that a full disk is an error here and not a crash at some write.
            reserve = getattr(os, "posix_fallocate", lambda file, _, size: os.truncate(file, size))
            reserve(handle, 0, size)
            return torch.from_file(name, shared=True, size=count, dtype=dtype).view(*shape)
        except OSError as error:
            raise RecordingError(
                f"{size:,} bytes do not fit in {os.path.dirname(name)}: {error.strerror}",
                hint="record fewer layers, name a folder with more space, or keep statistics only",
            ) from None
        finally:
            os.close(handle)
            os.unlink(name)

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Copy into one of these tensors; `finish` must be called before it is read on a CPU."""
        if not (source.is_cuda and target.is_cpu and target.is_contiguous()):
            target.copy_(source)
            return
        side = self._streams.setdefault(source.device, torch.cuda.Stream(source.device))
        side.wait_stream(torch.cuda.current_stream(source.device))
        with torch.cuda.stream(side):
            target.copy_(source, non_blocking=True)
        source.record_stream(side)

    def finish(self) -> None:
        """Wait until all copies from a GPU are there."""
        for stream in self._streams.values():
            stream.synchronize()


class GrowingTensor:
    """A tensor (B, H, n, ...) that grows along n, doubling its capacity."""

    def __init__(self, storage: TensorStorage) -> None:
        self.storage = storage
        self.length = 0
        self._buffer: Tensor | None = None

    @property
    def value(self) -> Tensor:
        assert self._buffer is not None
        return self._buffer[:, :, : self.length]

    def append(self, x: Tensor) -> None:
        """Append x (B, H, m, ...), which nothing else may change later."""
        needed, old = self.length + x.shape[2], self._buffer
        if old is None:
            self._buffer = self.storage.keep(x)
        else:
            if needed > old.shape[2]:
                shape = (*x.shape[:2], max(needed, 2 * old.shape[2]), *x.shape[3:])
                self.storage.finish()
                self._buffer = self.storage.empty(shape, x.dtype, x.device)
                self.storage.copy(self._buffer[:, :, : self.length], old[:, :, : self.length])
            assert self._buffer is not None
            self.storage.copy(self._buffer[:, :, self.length : needed], x)
        self.length = needed


@contextmanager
def on_stream(stream: Any) -> Iterator[None]:
    """Run on the stream of a GPU on which a model ran; the present one then waits for it."""
    if stream is None:
        yield
        return
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(stream.device).wait_stream(stream)
