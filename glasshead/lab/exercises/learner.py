"""Load the learner's file and call what it defines; every error becomes one named trouble."""

import importlib.util
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

__all__ = [
    "LearnerFile",
    "Trouble",
    "TroubleFound",
    "explain_error",
    "load_file",
    "reproducible",
]  # fmt: skip

SEED = 7
_CLASH = re.compile(
    r"shapes cannot be multiplied|size of tensor|must match|Expected size|expected .*size"
    r"|is invalid for input of size|broadcast|size mismatch|Sizes of tensors",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong. `name` is that of its text: the exercise's, or that of a mistake."""

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    line: int = 0  # of the learner's file; 0 if it cannot be told
    code: str = ""
    example: tuple[tuple[str, str], ...] = ()  # (label, numbers)


class TroubleFound(Exception):
    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.name)
        self.trouble = trouble


@dataclass(frozen=True)
class LearnerFile:
    """The learner's file; its names are attributes."""

    path: Path
    module: ModuleType

    def __getattr__(self, name: str) -> Any:
        try:
            return vars(self.module)[name]
        except KeyError:
            raise TroubleFound(Trouble("name-missing", {"name": name})) from None

    def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call something of the learner's; raise TroubleFound with the line if it fails."""
        try:
            return function(*args, **named)
        except Exception as error:
            raise TroubleFound(explain_error(error, self.path)) from error


def load_file(path: Path) -> LearnerFile:
    """Execute the file as a module."""
    spec = importlib.util.spec_from_file_location(f"learner_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    linecache.checkcache(str(path))
    try:
        source = path.read_text(encoding="utf-8")
        exec(compile(source, str(path), "exec"), vars(module))
    except SyntaxError as error:
        line, code = error.lineno or 0, (error.text or "").strip()
        raise TroubleFound(Trouble("syntax", {"error": error.msg}, line, code)) from error
    except UnicodeDecodeError as error:
        raise TroubleFound(Trouble("not-utf8", {"byte": error.start})) from error
    except SystemExit as error:
        raise TroubleFound(Trouble("exits")) from error
    except Exception as error:
        raise TroubleFound(explain_error(error, path)) from error
    return LearnerFile(path, module)


def explain_error(error: BaseException, path: Path) -> Trouble:
    """Say which trouble an exception in the learner's code is, and in which line."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    line, code = (frames[-1].lineno or 0, frames[-1].line or "") if frames else (0, "")
    where: dict[str, Any] = {"line": line, "code": code}
    text = " ".join(str(error).split())
    if isinstance(error, NotImplementedError) and not text:
        return Trouble("not-written", {"name": frames[-1].name if frames else ""}, **where)
    if "view size is not compatible" in text:
        return Trouble("not-contiguous", **where)
    values = {"error": f"{type(error).__name__}: {text}".removesuffix(": ")[:200]}
    if isinstance(error, RuntimeError) and _CLASH.search(text):
        return Trouble("shapes-clash", values, **where)
    return Trouble("raised", values, **where)


@contextmanager
def reproducible() -> Iterator[None]:
    """Compute in float64 with a fixed seed, so that two runs of a check agree."""
    before, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)  # the tensors are small
    try:
        with torch.random.fork_rng([]):
            torch.manual_seed(SEED)
            yield
    finally:
        torch.set_default_dtype(before)
        torch.set_num_threads(threads)
