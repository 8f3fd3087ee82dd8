"""The state of a run that several processes train: each writes its part, while it trains on.

    state/last/             or previous/; a single process has last.safetensors instead
      progress.json         the counters
      __0_0.distcp, ...     tensors, by torch.distributed.checkpoint
      .metadata             where each lies

Any number of processes can read it, one too, and any number can read a last.safetensors.
"""

import io
import json
import pickle
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.tensor import DTensor

from glasshead.checkpoint.files import atomic_write, sync_folder
from glasshead.checkpoint.processes import Processes
from glasshead.checkpoint.state import Like
from glasshead.errors import CheckpointError

__all__ = ["ShardWriter", "full_tensor", "read_shards"]


def full_tensor(tensor: Tensor) -> Tensor:
    """All of it, where processes have parts; all of them must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


class ShardWriter:
    """Writes one state at a time, in the background; `done` gives it its name once it is whole."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._named = threading.Event()
        self._pending: Future[Any] | None = None
        self._error: Exception | None = None

    def save(
        self,
        tensors: dict[str, Tensor],
        progress: dict[str, Any],
        folder: Path,
        done: Callable[[], None],
    ) -> None:
        """Begin to write; what `tensors` hold may change as soon as this returns."""
        self.wait()
        if self._processes.first:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            with atomic_write(folder / "progress.json") as file:
                file.write(json.dumps(progress).encode())
        dist.barrier(self._processes.saving)
        # On a CPU torch's own copy may be the tensor itself.
        still = {name: t.clone() if t.device.type == "cpu" else t for name, t in tensors.items()}
        with _quiet():
            pending = async_save(still, checkpoint_id=folder, process_group=self._processes.saving)
        assert isinstance(pending, Future)
        self._pending = pending
        self._named.clear()

        def name(future: Future[Any]) -> None:
            try:
                future.result()
                if self._processes.first:
                    sync_folder(folder)
                    done()
            except Exception as error:  # to be raised where it is waited for
                self._error = error
            finally:
                self._named.set()

        pending.add_done_callback(name)

    def wait(self) -> None:
        """Until the state that is being written is whole and has its name."""
        if self._pending is None:
            return
        self._named.wait()
        self._pending, error, self._error = None, self._error, None
        if error is not None:
            raise CheckpointError(
                f"cannot write a checkpoint: {_why(error)}",
                hint="the one before it is whole: make room, and start again to go on from there",
            ) from None


def read_shards(folder: Path, like: Like | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, each shared out as `like` says, and the progress."""
    try:
        progress = dict(json.loads((folder / "progress.json").read_bytes()))
        reader = _Reader(folder)
        found = reader.read_metadata().state_dict_metadata
        tensors = {name: _room(about, like and like(name)) for name, about in found.items()}
        with _quiet():
            load(tensors, storage_reader=reader, no_dist=True)
    except Exception as error:  # of a damaged pickle, of torch's reader: there is no end of them
        raise CheckpointError(
            f"{folder} is damaged: {_why(error)}", hint="take it from a copy"
        ) from None
    return tensors, progress


def _room(about: Any, like: Tensor | None) -> Tensor:
    if not isinstance(about, TensorStorageMetadata):
        raise ValueError("it holds something that is no tensor")
    if isinstance(like, DTensor) and like.shape == about.size:
        return torch.empty_like(like, dtype=about.properties.dtype)
    return torch.empty(about.size, dtype=about.properties.dtype)


class _Reader(FileSystemReader):
    """torch keeps .metadata as a pickle, which could run anything. This one runs nothing."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        text = (Path(self.path) / ".metadata").read_bytes()
        metadata = _Harmless(io.BytesIO(text)).load()
        if not isinstance(metadata, Metadata):
            raise ValueError(".metadata is something else")
        metadata.storage_meta.load_id = self.load_id  # type: ignore[union-attr]
        return metadata


class _Harmless(pickle.Unpickler):
    """Makes what torch's metadata is made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_dtype or name in _HARMLESS.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f".metadata asks for {module}.{name}")


_HARMLESS = {
    "torch": ("Size",),
    "torch.serialization": ("_get_layout",),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.distributed.checkpoint.metadata": (
        *("Metadata", "MetadataIndex", "StorageMeta", "TensorStorageMetadata"),
        *("TensorProperties", "ChunkStorageMetadata", "_MEM_FORMAT_ENCODING"),
    ),
    **dict.fromkeys(("pathlib", "pathlib._local"), ("PosixPath", "WindowsPath")),
}


def _why(error: BaseException) -> str:
    """The first line that says something; torch collects the errors of all processes in one."""
    failures = getattr(error, "failures", None) or {}
    inner = next(iter(failures.values()), error)
    inner = inner[0] if isinstance(inner, tuple) else inner
    return (getattr(inner, "strerror", None) or str(inner) or repr(inner)).strip().splitlines()[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """torch warns of what is meant here, such as that nobody else reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
