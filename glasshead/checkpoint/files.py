"""Write files that are complete or absent, and tensors in them."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from glasshead.errors import CheckpointError

__all__ = [
    "DTYPES", "atomic_folder", "atomic_path", "atomic_write", "read_tensors", "shard_like",
    "sync_folder", "write_error", "write_tensors",
]  # fmt: skip

DTYPES = {  # by their names in safetensors files
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@contextmanager
def atomic_write(path: Path, before: Callable[[], None] = lambda: None) -> Iterator[BinaryIO]:
    """Yield a file to write to. It replaces `path` once it is complete and on the disk.

    `before` is called right before the replacement.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        before()
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Bring the renames in a folder to the disk."""
    with suppress(PermissionError):  # Windows cannot open folders, and does not need it
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to write into. It becomes `path` at the end, or is removed on an error."""
    new = path.with_name(f".{path.name}.new")
    try:
        shutil.rmtree(new, ignore_errors=True)  # left by a kill
        new.mkdir(parents=True)
        yield new
        os.replace(new, path)
        sync_folder(path.parent)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if isinstance(error, OSError):
            raise write_error(f"cannot create the folder {path}", error) from None
        raise


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a path of our own, for a file or a folder. It becomes `path` at the end."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{path.name}.", suffix=".new", dir=path.parent) as own:
            yield Path(own, path.name)
            os.replace(Path(own, path.name), path)
        sync_folder(path.parent)
    except OSError as error:
        raise write_error(f"cannot write {path}", error) from None


def write_error(what: str, error: OSError) -> CheckpointError:
    """
    >>> str(write_error("cannot create the folder a/b", NotADirectoryError(20, "Not a directory")))
    'cannot create the folder a/b: a file is in the way'
    """
    why, hint = error.strerror or error, "choose another --out"
    if isinstance(error, FileExistsError | NotADirectoryError):
        why = "a file is in the way"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "make room, or choose another --out"
    return CheckpointError(f"{what}: {why}", hint=hint)


def write_tensors(
    file: BinaryIO,
    tensors: Mapping[str, Tensor],
    about: dict[str, str],
    read: Callable[[str], Tensor] | None = None,
) -> None:
    """Write a safetensors file, tensor by tensor.

    With `read`, which returns a tensor by its name, `tensors` may be on the meta device: only one
    at a time is in memory.

    The library's own writer creates a temporary file, which a kill leaves behind, and hides the
    number of an error; its `save` to bytes needs the memory twice.
    """
    # Wide types first, so that each tensor starts at a multiple of its width.
    order = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    header: dict[str, Any] = {"__metadata__": about}
    names = {dtype: name for name, dtype in DTYPES.items()}
    end = 0
    for name, tensor in order:
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name, tensor in order:
        tensor = tensor if read is None else read(name)
        plain = tensor.detach().cpu().contiguous().flatten()
        file.write(plain.view(torch.uint8).numpy().data)


def read_tensors(
    path: Path, like: Callable[[str], Tensor | None] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a file; with `like`, this process's shard of each."""
    if not path.exists():
        raise CheckpointError(f"{path} is missing", hint="restore it from a backup")
    try:
        with safe_open(path, framework="pt") as file:
            found = {}
            for name in file.keys():  # noqa: SIM118
                tensor = file.get_tensor(name)
                if like is not None:
                    tensor = shard_like(tensor, like(name))
                found[name] = tensor.clone()  # the library's is a view of the file
            return found, file.metadata() or {}
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise CheckpointError(
            f"{path} is damaged: {error}", hint="restore it from a backup"
        ) from None


def shard_like(tensor: Tensor, like: Tensor | None) -> Tensor:
    """Return this process's shard of a tensor, if `like` is sharded and has its shape."""
    if like is None:
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or like.shape != tensor.shape:
        return tensor
    local = tensor.to(like.device)
    return distribute_tensor(local, like.device_mesh, like.placements, src_data_rank=None)
