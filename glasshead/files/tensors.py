"""Safetensors files with a digest of each tensor, checked when the tensor is read.

The metadata of a file that is written here has two entries more: `digests`, of the tensors by name,
and `digest`, of everything else in the header. Other programs ignore them. A file without them is
read too; `verified` says which it is.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from glasshead.errors import CheckpointError
from glasshead.files.digest import DIGITS, digest
from glasshead.files.reading import open_regular

__all__ = [
    "DTYPES", "Like", "TensorFile", "check_tensors", "damage_error", "read_tensors", "shard_like", 
    "unique_keys", "write_tensors",
]  # fmt: skip

DTYPES = {  # by their names in safetensors files
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_LONGEST_HEADER = 100_000_000  # bytes, as in the library
# Returns, by a tensor's name, the parameter that it is sharded like; None if it is not sharded.
Like = Callable[[str], Tensor | None]


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
    entries: dict[str, Any] = {}
    names = {dtype: name for name, dtype in DTYPES.items()}
    end = 0
    for name, tensor in order:
        start, end = end, end + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    digests = dict.fromkeys(entries, "0" * DIGITS)
    start_of_file = file.tell()
    # The digests are known only at the end; until then their places are filled.
    file.write(_header(entries, about, digests))
    for name, tensor in order:
        tensor = tensor if read is None else read(name)
        plain = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        digests[name] = digest(plain)
        file.write(plain.data)
    file.seek(start_of_file)
    file.write(_header(entries, about, digests))
    file.seek(0, 2)


def _header(entries: dict[str, Any], about: dict[str, str], digests: dict[str, str]) -> bytes:
    metadata = {**about, "digests": json.dumps(digests)}
    header = {"__metadata__": metadata, **entries}
    metadata["digest"] = _digest_header(header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _digest_header(header: Any) -> str:
    return blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=16).hexdigest()


class TensorFile:
    """A safetensors file, of which a tensor is read, and checked, when it is needed.

    Raises OSError or ValueError if it is not regular, damaged or not complete.

    Args:
        within: a folder that the file must not leave by a link.
    """

    def __init__(self, path: Path, within: Path | None = None) -> None:
        self.path = path
        with _as_value_error():
            header = _read_header(path, within)
            file: Any = safe_open(path, framework="pt")
            found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            self.shapes = {n: (list(s.get_shape()), str(s.get_dtype())) for n, s in found.items()}
        self._file = file
        self.metadata: dict[str, str] = dict(file.metadata() or {})
        listed, own = self.metadata.pop("digests", None), self.metadata.pop("digest", None)
        self.verified = own is not None
        self._digests: dict[str, str] = {}
        if listed is None and own is None:
            return
        header["__metadata__"].pop("digest", None)
        if listed is None or own != _digest_header(header):
            raise ValueError("its header is not the one that was written")
        self._digests = json.loads(listed)

    @property
    def elements(self) -> int:
        """The number of elements of all tensors."""
        return sum(math.prod(shape) for shape, _ in self.shapes.values())

    def meta_tensors(self) -> dict[str, Tensor]:
        """Return the tensors on the meta device: shape and dtype, but no memory.

        Raises ValueError for a dtype that is not one of `DTYPES`.
        """
        found = {}
        for name, (shape, dtype) in self.shapes.items():
            if dtype not in DTYPES:
                raise ValueError(f"'{name}' is stored as {dtype}")
            found[name] = torch.empty(shape, dtype=DTYPES[dtype], device="meta")
        return found

    def read(self, name: str, check: bool = True) -> Tensor:
        """Return a tensor, a view of the file; raise ValueError if it is not what was written."""
        with _as_value_error():
            tensor: Tensor = self._file.get_tensor(name)
        if check:
            self.check(name, tensor)
        return tensor

    def check(self, name: str, tensor: Tensor) -> None:
        """Raise ValueError unless this is the tensor that was written under the name."""
        if self.verified and digest(_bytes(tensor)) != self._digests[name]:
            raise ValueError(f"'{name}' is not what was written")


def _bytes(tensor: Tensor) -> Any:
    return tensor.contiguous().flatten().view(torch.uint8).numpy()


def _read_header(path: Path, within: Path | None) -> Any:
    """Read the header of a file; raise ValueError if a name occurs twice."""
    with open_regular(path, within) as file:
        start = file.read(8)
        size = int.from_bytes(start, "little")
        if start.startswith(b"version "):
            raise ValueError("it is a pointer of Git LFS, not the file itself")
        if len(start) < 8 or size > _LONGEST_HEADER:
            raise ValueError("it does not begin with the header of a safetensors file")
        text = file.read(size)
    if len(text) < size:
        raise ValueError(f"it ends after {8 + len(text):,} bytes, in the middle of its header")
    found = json.loads(text, object_pairs_hook=unique_keys)
    if not isinstance(found, dict):
        raise ValueError("its header is not a JSON object")
    return found


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict of the fields of a JSON object; raise ValueError if one occurs twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"'{name}' occurs twice")
        found[name] = value
    return found


@contextmanager
def _as_value_error() -> Iterator[None]:
    """Turn what the library raises for a damaged file into a ValueError of one line."""
    try:
        yield
    except (SafetensorError, RuntimeError, OverflowError, KeyError, TypeError) as error:
        raise ValueError(" ".join(f"{error}".split())[:200]) from None


def read_tensors(
    path: Path, like: Like | None = None, within: Path | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a file; with `like`, this process's shard of each."""
    try:
        file = TensorFile(path, within)
        found = {}
        for name in file.shapes:
            tensor = file.read(name)
            if like is not None:
                tensor = shard_like(tensor, like(name))
            found[name] = tensor.clone()  # the file's is a view
    except (OSError, ValueError) as error:
        raise damage_error(path, error) from None
    return found, file.metadata


def check_tensors(path: Path, within: Path | None = None) -> bool:
    """Raise CheckpointError if a file is damaged; return False if it has no digests."""
    try:
        file = TensorFile(path, within)
        for name in file.shapes if file.verified else ():
            file.read(name)
    except (OSError, ValueError) as error:
        raise damage_error(path, error) from None
    return file.verified


def damage_error(path: Path, error: OSError | ValueError) -> CheckpointError:
    """
    >>> str(damage_error(Path("a/b"), FileNotFoundError(2, "No such file or directory")))
    'a/b is missing'
    """
    if isinstance(error, FileNotFoundError):
        return CheckpointError(f"{path} is missing", hint="restore it from a backup")
    reason = getattr(error, "strerror", None) or error
    return CheckpointError(f"{path} is damaged: {reason}", hint="restore it from a backup")


def shard_like(tensor: Tensor, like: Tensor | None) -> Tensor:
    """Return this process's shard of a tensor, if `like` is sharded and has its shape."""
    if like is None:
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or like.shape != tensor.shape:
        return tensor
    local = tensor.to(like.device)
    return distribute_tensor(local, like.device_mesh, like.placements, src_data_rank=None)
