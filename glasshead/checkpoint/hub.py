"""Fetch a model from the hub by its name, and say what that takes; afterwards it is found offline.

Only data is fetched: safetensors, JSON and vocabularies. Nothing pickled, and no code.
"""

import re
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from textwrap import shorten
from typing import Any

from glasshead.errors import InputError, install_hint, near_file
from glasshead.files.checksums import CHECKSUMS

__all__ = ["fetch_model", "is_hub_name"]

# Of the top folder only: others have the same model in other formats.
FILES = ("*.json", "*.safetensors", "*.jinja", "*.spm", "vocab.txt", "merges.txt",
         "tokenizer.model")  # fmt: skip
# The hub's cache holds links, which checksums.json may not be; tensors carry their own digests.
IGNORED = ("*/*", CHECKSUMS)
PATTERNS: dict[str, Any] = {"allow_patterns": [*FILES], "ignore_patterns": [*IGNORED]}
Say = Callable[[str], object]


def is_hub_name(name: str | Path) -> bool:
    """Return whether a path that does not exist can only be meant as OWNER/NAME on the hub.

    >>> is_hub_name("someone/model"), is_hub_name("/no/such/run"), is_hub_name("run")
    (True, False, False)
    """
    owner = re.fullmatch(r"(\w[\w.-]*)/\w[\w.-]*", str(name))
    named_as_file = Path(name).suffix.lower() in (".gguf", ".glass")
    return bool(owner) and not named_as_file and not Path(name).parent.exists()


def fetch_model(name: str, say: Say | None = None) -> Path:
    """Return the folder of a model of the hub, after downloading what is missing of it.

    When a download breaks off, files that are complete stay for the next time. Without a network
    the copy of an earlier download is used.
    """
    otherwise = "name a folder, or a model on the hub such as Qwen/Qwen3-0.6B"
    if not re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", name) or name.lower().endswith(".gguf"):
        raise InputError(f"{name} does not exist", hint=near_file(name, otherwise))
    try:
        import huggingface_hub as hub
    except ImportError:
        raise InputError(
            f"{name} does not exist here, and huggingface_hub, which could download it, is not "
            "installed",
            hint=near_file(name, f"name a folder, or {install_hint('hf')}"),
        ) from None
    tell: Say = say or (lambda line: None)
    try:
        found = hub.HfApi().model_info(name, files_metadata=True)
    except Exception as error:  # whatever can go wrong on a network
        return _find_copy(hub, name, error, tell)
    files = {f.rfilename: f.size or 0 for f in found.siblings or () if _is_wanted(f.rfilename)}
    if not any(file.endswith(".safetensors") for file in files):
        raise InputError(
            f"{name} has no safetensors on the hub",
            hint="pickled parameters are not read; choose a model that has safetensors",
        )
    missing = [f for f in files if not _is_cached(hub, name, f, found.sha)]
    if missing:
        size, whole = (sum(map(files.__getitem__, some)) / 1e6 for some in (missing, files))
        place = hub.constants.HF_HUB_CACHE
        tell(
            f"downloading {name}: {len(missing)} files, {size:,.1f} of {whole:,.1f} MB, to {place}"
        )
    try:
        return Path(hub.snapshot_download(name, **PATTERNS))
    except Exception as error:
        raise InputError(
            f"{name} could not be downloaded: {_said(error)}",
            hint="run the same command again: files that are complete stay",
        ) from None


def _is_wanted(file: str) -> bool:
    wanted, ignored = (any(fnmatch(file, one) for one in some) for some in (FILES, IGNORED))
    return wanted and not ignored


def _is_cached(hub: Any, name: str, file: str, revision: str | None) -> bool:
    return isinstance(hub.try_to_load_from_cache(name, file, revision=revision), str)


def _find_copy(hub: Any, name: str, error: Exception, tell: Say) -> Path:
    """Return the copy of an earlier download; without one, raise for the network's error."""
    try:
        copy = Path(hub.snapshot_download(name, local_files_only=True, **PATTERNS))
    except Exception:
        raise InputError(
            f"{name} does not exist here, and cannot be downloaded from the hub: {_said(error)}",
            hint=near_file(name, "name a folder, or check the name and the network"),
        ) from None
    if not any(copy.glob("*.safetensors")):
        raise InputError(
            f"{name} was downloaded only in part, and the hub cannot be reached: {_said(error)}",
            hint="run the same command again with a network: files that are complete stay",
        )
    tell(f"the hub cannot be reached; using the copy in {copy}")
    return copy


def _said(error: Exception) -> str:
    return shorten(str(error), 160, placeholder=" …")
