"""Checkpoints of several processes: each writes its part while the training continues.

    state/last/             or previous/; a single process has last.safetensors instead
      progress.json         the counters
      __0_0.distcp, ...     tensors, by torch.distributed.checkpoint
      .metadata             where each of them is
      digests.json          of all these files; each process has added those that it wrote

Any number of processes can read either kind, also a single one.
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

from glasshead.checkpoint.processes import ALONE, Processes
from glasshead.checkpoint.run_folder import DIGESTS
from glasshead.errors import CheckpointError
from glasshead.files.digest import digest_file
from glasshead.files.reading import check_regular, read_small
from glasshead.files.tensors import Like
from glasshead.files.writing import atomic_write, sync_folder

__all__ = ["ShardWriter", "full_tensor", "read_shards"]


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a tensor of which each process has a shard; all processes must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


class ShardWriter:
    """Writes one checkpoint at a time, in the background."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._renamed = threading.Event()
        self._pending: Future[Any] | None = None
        self._error: Exception | None = None

    def save(
        self,
        tensors: dict[str, Tensor],
        progress: dict[str, Any],
        folder: Path,
        rename: Callable[[], None],
    ) -> None:
        """Start writing into a folder. The tensors may change as soon as this returns.

        The first process calls `rename` when the folder is complete.
        """
        self.wait()
        if self._processes.first:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            with atomic_write(folder / "progress.json") as file:
                file.write(json.dumps(progress).encode())
        dist.barrier(self._processes.save_group)
        # On a CPU torch may not copy the tensors itself.
        copies = {name: t.clone() if t.device.type == "cpu" else t for name, t in tensors.items()}
        with _without_warnings():
            pending = async_save(
                copies, checkpoint_id=folder, process_group=self._processes.save_group
            )
        assert isinstance(pending, Future)
        self._pending = pending
        self._renamed.clear()

        def finish(future: Future[Any]) -> None:
            try:
                future.result()
                self._write_digests(folder)
                if self._processes.first:
                    sync_folder(folder)
                    rename()
            except Exception as error:  # `wait` raises it
                self._error = error
            finally:
                self._renamed.set()

        pending.add_done_callback(finish)

    def _write_digests(self, folder: Path) -> None:
        """Collect the digests of all files in the first process, which writes them."""
        rank, found = self._processes.rank, dict[str, str]()
        names = [f"__{rank}_*.distcp", *([".metadata", "progress.json"] if rank == 0 else [])]
        error: OSError | None = None
        try:
            found = {file.name: digest_file(file) for n in names for file in folder.glob(n)}
        except OSError as caught:  # the others wait for this process all the same
            error = caught
        gathered: list[Any] = [None] * self._processes.size
        dist.all_gather_object(gathered, found, group=self._processes.save_group)
        if error:
            raise error
        if self._processes.first:
            every = {name: one for part in gathered for name, one in part.items()}
            if missing := {file.name for file in folder.iterdir()} - every.keys():
                raise OSError(0, f"{min(missing)} was not written by any process")
            with atomic_write(folder / DIGESTS) as file:
                file.write(json.dumps(every, indent=2).encode())

    def wait(self) -> None:
        """Wait until the checkpoint that is being written is complete and has its name."""
        if self._pending is None:
            return
        self._renamed.wait()
        self._pending, error, self._error = None, self._error, None
        if error is not None:
            raise CheckpointError(
                f"cannot write a checkpoint: {_first_line(error)}",
                hint="the one before it is intact: make room, then start again with --resume",
            ) from None


def read_shards(
    folder: Path, like: Like | None = None, processes: Processes = ALONE
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors, sharded as `like` says, and the progress.

    Each process checks some of the files; the caller asks all of them whether they succeeded.
    """
    try:
        _check_digests(folder, processes)
        progress = dict(json.loads(read_small(folder / "progress.json")))
        reader = _Reader(folder)
        found = reader.read_metadata().state_dict_metadata
        tensors = {name: _allocate(about, like and like(name)) for name, about in found.items()}
        with _without_warnings():
            load(tensors, storage_reader=reader, no_dist=True)
    except Exception as error:  # a damaged pickle and torch's reader can raise anything
        raise CheckpointError(
            f"{folder} is damaged: {_first_line(error)}", hint="restore it from a backup"
        ) from None
    return tensors, progress


def _check_digests(folder: Path, processes: Processes) -> None:
    """Raise ValueError if a file is not what was written."""
    if not (folder / DIGESTS).exists():  # an old run
        return
    known = json.loads(read_small(folder / DIGESTS, 1 << 24))
    there = {file.name for file in folder.iterdir()} - {DIGESTS}
    if odd := sorted(there ^ known.keys()):
        raise ValueError(f"{odd[0]} is {'missing' if odd[0] in known else 'not part of it'}")
    for name in sorted(known)[processes.rank :: processes.size]:
        check_regular(folder / name)
        if digest_file(folder / name) != known[name]:
            raise ValueError(f"{name} is not what was written")


def _allocate(about: Any, like: Tensor | None) -> Tensor:
    if not isinstance(about, TensorStorageMetadata):
        raise ValueError("it has an entry that is not a tensor")
    if isinstance(like, DTensor) and like.shape == about.size:
        return torch.empty_like(like, dtype=about.properties.dtype)
    return torch.empty(about.size, dtype=about.properties.dtype)


class _Reader(FileSystemReader):
    """Reads .metadata, which torch pickles, without running any code in it."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        text = read_small(Path(self.path) / ".metadata", 1 << 30)
        metadata = _SafeUnpickler(io.BytesIO(text)).load()
        if not isinstance(metadata, Metadata):
            raise ValueError(".metadata has another content")
        metadata.storage_meta.load_id = self.load_id  # type: ignore[union-attr]
        return metadata


class _SafeUnpickler(pickle.Unpickler):
    """Creates the classes of torch's metadata, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_dtype or name in _ALLOWED.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f".metadata asks for {module}.{name}")


_ALLOWED = {
    "torch": ("Size",),
    "torch.serialization": ("_get_layout",),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.distributed.checkpoint.metadata": (
        *("Metadata", "MetadataIndex", "StorageMeta", "TensorStorageMetadata"),
        *("TensorProperties", "ChunkStorageMetadata", "_MEM_FORMAT_ENCODING"),
    ),
    **dict.fromkeys(("pathlib", "pathlib._local"), ("PosixPath", "WindowsPath")),
}


def _first_line(error: BaseException) -> str:
    """Return the first line of an error, into which torch may collect those of all processes."""
    failures = getattr(error, "failures", None) or {}
    inner = next(iter(failures.values()), error)
    inner = inner[0] if isinstance(inner, tuple) else inner
    return (getattr(inner, "strerror", None) or str(inner) or repr(inner)).strip().splitlines()[0]


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence torch, which warns that a process reads or writes alone; that is intended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
