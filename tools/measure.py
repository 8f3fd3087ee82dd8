"""How large the package is, and how much of it each verb passes through.

    python -m tools.measure [--functions train]

Counts lines and files by part, class names that stand for two things, and functions named by a bare
participle. Then runs `train`, `generate`, `look` and one request of the page on a tiny model and
counts the functions of the package that were called: all of them, and those in the parts that the
verb is about (its command and its own part; not the model, the text and the files beneath).
`--functions VERB` lists the latter.
"""

import argparse
import ast
import collections
import contextlib
import io
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import glasshead

PACKAGE = Path(glasshead.__file__).parent
OWN = {  # the parts that a verb is about
    "train": ("cli", "training"),
    "generate": ("cli", "generation"),
    "look": ("cli", "generation", "observe"),
    "page request": ("serve",),
}
# Verbs whose past form is also the usual name of a thing or a state.
NOT_PARTICIPLES = {
    "embed",
    "feed",
    "need",
    "seed",
    "speed",
    "shed",
    "bed",
    "red",
    "read",
    "weighted",
}


def count_lines() -> Iterator[str]:
    parts: dict[str, list[int]] = collections.defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        parts[part].append(len(path.read_text(encoding="utf-8").splitlines()))
    for part, lines in sorted(parts.items(), key=lambda item: -sum(item[1])):
        yield f"{part:12} {sum(lines):7,} lines {len(lines):4} files"
    total = [n for lines in parts.values() for n in lines]
    yield f"{'all':12} {sum(total):7,} lines {len(total):4} files"


def definitions(kind: type[ast.AST]) -> list[tuple[str, str]]:
    """(name, file) of every class or function of the package."""
    return [
        (node.name, path.relative_to(PACKAGE).as_posix())
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, kind) and isinstance(node, (ast.ClassDef, ast.FunctionDef))
    ]


def names_used_twice() -> list[str]:
    counts = collections.Counter(name for name, _ in definitions(ast.ClassDef))
    return sorted(name for name, count in counts.items() if count > 1)


def bare_participles() -> list[str]:
    """Functions whose whole name is one participle, such as `_kept` or `merged`."""
    irregular = {"told", "kept", "found", "seen", "shown", "said", "made", "given", "known", "left"}

    def is_one(name: str) -> bool:
        word = name.strip("_")
        regular = re.fullmatch(r"[a-z]{2,}(ed|ing)", word) and word not in NOT_PARTICIPLES
        return bool(regular) or word in irregular

    return sorted(f"{name} ({file})" for name, file in definitions(ast.FunctionDef) if is_one(name))


class Tracer:
    """Collects the functions of the package that are called, in every thread."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self.codes.add(frame.f_code)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def functions(self) -> list[tuple[str, str]]:
        """(file, name), without lambdas, comprehensions, class bodies and inner functions."""
        root = f"{PACKAGE}/"
        found = {
            (code.co_filename.removeprefix(root), code.co_qualname)
            for code in self.codes
            if code.co_filename.startswith(root) and "<" not in code.co_qualname
        }
        classes = {(file, name) for name, file in definitions(ast.ClassDef)}
        return sorted(one for one in found if (one[0], one[1].rpartition(".")[2]) not in classes)


def passed(run: Callable[[], object]) -> list[tuple[str, str]]:
    tracer = Tracer()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run()  # once without, so that what only importing calls is not counted
        with tracer.running():
            run()
    return tracer.functions()


def verbs(folder: Path) -> dict[str, Callable[[], object]]:
    from fastapi.testclient import TestClient

    from glasshead.cli import run
    from glasshead.serve.app import create_app
    from glasshead.serve.config import ServeConfig
    from glasshead.serve.library import Library

    text = folder / "text.txt"
    text.write_text("The kitten met a puppy in the park; it was happy.\n" * 99, encoding="utf-8")
    flags = ["--steps", "2", "--preset", "nano", "--device", "cpu", "--no-tensorboard"]
    numbers = iter(range(9))

    def train() -> None:
        run(["train", str(text), "--out", str(folder / f"run{next(numbers)}"), *flags])

    def request() -> None:
        with TestClient(create_app(Library(folder / "run0"), ServeConfig())) as client:
            client.post("/api/look", json={"model": "run0", "text": "The kitten"})

    first = str(folder / "run0")
    return {
        "train": train,
        "generate": lambda: run(["generate", first, "The", "--max-tokens", "5", "--seed", "1"]),
        "look": lambda: run(["look", first, "The kitten met a puppy."]),
        "page request": request,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--functions", metavar="VERB", choices=OWN, help="list those it passes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {verb: passed(run) for verb, run in verbs(Path(folder)).items()}
    own = {
        verb: [one for one in functions if one[0].split("/")[0] in OWN[verb]]
        for verb, functions in found.items()
    }
    if args.functions:
        print(*(f"{file}  {name}" for file, name in own[args.functions]), sep="\n")
        return
    print(*count_lines(), sep="\n")
    for what, names in (
        ("class names that stand for two things", names_used_twice()),
        ("functions named by a bare participle", bare_participles()),
    ):
        print(f"\n{len(names)} {what}", *names, sep="\n  ")
    print("\ncalled functions, and files they are in: all, and in the verb's own parts")
    for verb, functions in found.items():
        shown = (
            f"{len(some):4} in {len({f for f, _ in some}):3}" for some in (functions, own[verb])
        )
        print(f"  {verb:14}", *shown, sep="  ")


if __name__ == "__main__":
    main()
