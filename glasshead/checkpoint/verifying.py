"""Check every file of a run, of an export or of a recording against what was written.

for found in check_files("runs/poems"): print(found.file, found.verdict, found.reason)
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from glasshead.checkpoint.foreign_model import kind_of
from glasshead.checkpoint.gguf_reader import GGUFFile, digest_gguf
from glasshead.checkpoint.run import MOST_METRICS, RunConfig
from glasshead.checkpoint.run_folder import DIGESTS, RunFolder
from glasshead.errors import CheckpointError, GlassheadError, InputError, near_file
from glasshead.files.checksums import CHECKSUMS, check_content, checksums
from glasshead.files.digest import digest
from glasshead.files.reading import read_small
from glasshead.files.tensors import TensorFile, check_tensors

__all__ = ["Checked", "check_files"]

Verdict = Literal["good", "unverified", "damaged"]


@dataclass(frozen=True)
class Checked:
    file: Path
    verdict: Verdict  # unverified: it was written without a digest
    reason: str = ""


def check_files(path: str | Path) -> Iterator[Checked]:
    """Check the files of a run, a folder of the transformers library, a GGUF or a .glass file.

    Raises InputError if there is no such file or folder.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path} does not exist", hint=near_file(path, "name a run"))
    match kind_of(path):
        case "gguf":
            yield _check(path, _check_gguf)
        case "glass":
            yield _check(path, check_tensors)
        case "transformers":
            yield from _check_folder(path)
        case _:
            if not (path / "config.json").exists():
                RunFolder.open(path)  # raises: it is no run
            yield from _check_folder(path)
            yield from _check_states(path)


def _check(file: Path, check: Callable[[Path], bool]) -> Checked:
    """Call `check`, which returns False for a file without digests."""
    try:
        return Checked(file, "good" if check(file) else "unverified")
    except (GlassheadError, OSError, ValueError) as error:
        reason = str(getattr(error, "strerror", None) or error)
        for start in (f"{file} is damaged: ", f"{file} is "):
            reason = reason.removeprefix(start)
        return Checked(file, "damaged", reason)


def _check_gguf(path: Path) -> bool:
    GGUFFile(path)
    return bool(digest_gguf(path)[1])


def _check_folder(folder: Path) -> Iterator[Checked]:
    """Check the small files that checksums.json lists, and all safetensors."""
    try:
        known = checksums(folder)
    except CheckpointError as error:
        yield Checked(folder / CHECKSUMS, "damaged", str(error).partition(": ")[2])
        known = {}

    def check_small(file: Path) -> bool:
        check_content(file, read_small(file, within=folder))
        return True

    for name in sorted(known):
        yield _check(folder / name, check_small)
    for name in sorted({"config.json", "tokenizer.json"} - known.keys()):
        if (folder / name).exists():
            yield Checked(folder / name, "unverified")
    tensors = {folder / "model.safetensors", *folder.glob("*.safetensors")}
    if any(folder.glob("model.safetensors.index.json")):
        tensors.discard(folder / "model.safetensors")
    for file in sorted(file for file in tensors if not file.name.startswith("damaged-")):
        yield _check(file, check_tensors)


def _check_states(folder: Path) -> Iterator[Checked]:
    """Check the checkpoints, and the logs up to where the last good one had written them."""
    run = RunFolder(folder, RunConfig("", {}, {}, {}))  # config.json may be damaged
    found: list[Checked] = []
    for state in run.states:
        if state.exists():
            found.append(_check(state, _check_shards if state.is_dir() else check_tensors))
    yield from found
    last = next((one.file for one in found if one.verdict == "good" and one.file.is_file()), None)
    if last is None:
        return
    progress = json.loads(TensorFile(last).metadata["progress"])
    for name, known in progress.get("digests", {}).items():
        yield _check(folder / name, partial(_check_log, progress["lengths"][name], known))


def _check_log(length: int, known: str, file: Path) -> bool:
    content = read_small(file, MOST_METRICS, within=file.parent)
    if digest(content[:length]) != known:
        raise ValueError("it is not what was written")
    return True


def _check_shards(state: Path) -> bool:
    from glasshead.checkpoint.sharded import read_shards

    read_shards(state)
    return (state / DIGESTS).exists()
