"""Files that are whole or not there, and tensors in them."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from glasshead.errors import CheckpointError

__all__ = [
    "atomic_folder",
    "atomic_write",
    "read_tensors",
    "shard_like",
    "sync_folder",
    "write_error",
    "write_tensors",
]

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@contextmanager
def atomic_write(path: Path, before: Callable[[], None] = lambda: None) -> Iterator[BinaryIO]:
    """A file to write to. It takes the place of `path` once it is whole and on the disk.

    `before` is called right before it does.
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
    with suppress(PermissionError):  # Windows opens no folders, and needs none
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to write into. It becomes `path` once everything is in it, or is gone."""
    made = path.with_name(f".{path.name}.new")
    try:
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        yield made
        os.replace(made, path)
        sync_folder(path.parent)
    except OSError as error:
        shutil.rmtree(made, ignore_errors=True)
        raise write_error(f"cannot make the folder {path}", error) from None
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def write_error(what: str, error: OSError) -> CheckpointError:
    """
    >>> str(write_error("cannot make the folder a/b", NotADirectoryError(20, "Not a directory")))
    'cannot make the folder a/b: a file is in the way'
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
    """A safetensors file, tensor by tensor.

    With `read`, which gives a tensor by its name, `tensors` may be on the meta device: only one
    at a time is in memory.

    The library's own writer makes a temporary file of its own, which a kill leaves behind, and
    hides the number of an error; `save` to bytes would need the memory twice.
    """
    # Wide types first: then each tensor starts at a multiple of its width.
    order = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    header: dict[str, Any] = {"__metadata__": about}
    end = 0
    for name, tensor in order:
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
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
    """The tensors and what is written about them; with `like`, this process's part of each."""
    if not path.exists():
        raise CheckpointError(f"{path} is missing", hint="take it from a copy")
    try:
        with safe_open(path, framework="pt") as file:
            found = {}
            for name in file.keys():  # noqa: SIM118
                tensor = file.get_tensor(name)
                if like is not None:
                    tensor = shard_like(tensor, like(name))
                found[name] = tensor.clone()  # the library's lie in the file; ours must outlive it
            return found, file.metadata() or {}
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged: {error}", hint="take it from a copy") from None


def shard_like(tensor: Tensor, like: Tensor | None) -> Tensor:
    """What this process has of a whole tensor, if `like` is in parts and has its shape."""
    if like is None:
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or like.shape != tensor.shape:
        return tensor
    here = tensor.to(like.device)
    return distribute_tensor(here, like.device_mesh, like.placements, src_data_rank=None)
