"""How large the package is, and how much of it a reader passes through for each verb.

    python -m tools.measure [--functions train] [--package DIR]

Counts lines and files by part, class names that stand for two things, and functions named by a bare
participle. Then runs `train`, `generate`, `look` and one request of the page on a tiny model, and
counts three sets of functions of the package, and the files they are in:

    called   every function that was called
    own      those of them in the parts that the verb is about (`OWN`)
    path     those that were on the call stack when the verb's work was done (`WORK`): what a reader
             follows from the command to the work

`--functions VERB` prints the path, indented by depth. `--package` measures another checkout.
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
from types import FrameType
from typing import Any, NamedTuple

import torch

# The parts that a verb is about, by the names they have now or had before.
OWN = {
    "train": {"api", "cli", "training", "train"},
    "generate": {"cli", "generation", "generate"},
    "look": {"cli", "generation", "generate", "observe"},
    "page request": {"serve", "page"},
}

# The work of each verb: patterns for "file:qualified name" of the functions that do it. A stack is
# followed down to the first function that matches. "stdout" is each write to standard output; of
# `train`, only a forward that records gradients counts, not those of evaluations and samples.
FORWARD = r"model/\w+\.py:(GPT|Transformer)\.(forward|features)$"
STATISTICS = r"observe/statistics\.py:observe$"
WORK = {
    "train": {
        "the model's forward, with gradients": FORWARD,
        "the checkpoint's write": r"checkpoint/\w+\.py:\w*\.?(write_tensors|save_tensors)$",
    },
    "generate": {
        "the model's step": FORWARD + r"|generat\w+/\w+\.py:\w+Step\.__call__$",
        "the text's output": r"stdout$",
    },
    "look": {
        "the model's forward": FORWARD,
        "the statistics": STATISTICS,
        "the picture's output": r"stdout$",
    },
    "page request": {"the model's forward": FORWARD, "the statistics": STATISTICS},
}

# Not those that are also the verb itself (put, set, cut, split, spread, run).
PARTICIPLE = re.compile(
    r"""
    [a-z]{2,}(ed|ing)
    | begun | bound | bought | brought | built | caught | chosen | drawn | driven | fallen | fed
    | felt | forgotten | found | frozen | given | gone | grown | heard | held | kept | known | laid
    | left | lent | lit | lost | made | meant | met | paid | said | seen | sent | shown | shut
    | sold | spent | spoken | stood | stuck | sunk | taken | taught | thought | told | torn
    | understood | won | worn | woven | written
    """,
    re.VERBOSE,
)
# Other words, nouns and adjectives; names that asyncio has; names of the package's top level.
NOT_PARTICIPLE = re.compile(
    r"""
    bed | embed | feed | need | red | seed | shed | speed | string | thing
    | ceiling | crossing | ending | heading | meeting | opening | padding | ranking | reading
    | rounding | sampling | scaling | scoring | setting | spelling | training | weighted
    | cancelled
    | ablating | observing
    """,
    re.VERBOSE,
)


class Function(NamedTuple):
    """A function of the package: its file, from the package on, and its qualified name."""

    file: str
    name: str

    @property
    def part(self) -> str:
        return self.file.split("/")[0].removesuffix(".py")


def count_lines(package: Path) -> Iterator[str]:
    parts: dict[str, list[int]] = collections.defaultdict(list)
    for path in package.rglob("*.py"):
        part = path.relative_to(package).parts[0].removesuffix(".py")
        parts[part].append(len(path.read_text(encoding="utf-8").splitlines()))
    for part, lines in sorted(parts.items(), key=lambda item: -sum(item[1])):
        yield f"{part:12} {sum(lines):7,} lines {len(lines):4} files"
    total = [n for lines in parts.values() for n in lines]
    yield f"{'all':12} {sum(total):7,} lines {len(total):4} files"


def definitions(package: Path, *kinds: type[ast.AST]) -> list[tuple[str, str]]:
    """(name, file) of every class or function of the package."""
    return [
        (node.name, path.relative_to(package).as_posix())
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, kinds)
        and isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def names_used_twice(package: Path) -> list[str]:
    counts = collections.Counter(name for name, _ in definitions(package, ast.ClassDef))
    return sorted(name for name, count in counts.items() if count > 1)


def is_participle(name: str) -> bool:
    """Whether a function's whole name is one participle.

    >>> is_participle("_kept"), is_participle("merged"), is_participle("padding")
    (True, True, False)
    """
    word = name.strip("_")
    return bool(PARTICIPLE.fullmatch(word)) and not NOT_PARTICIPLE.fullmatch(word)


def bare_participles(package: Path) -> list[str]:
    functions = definitions(package, ast.FunctionDef, ast.AsyncFunctionDef)
    return sorted(f"{name} ({file})" for name, file in functions if is_participle(name))


class Tracer(io.StringIO):
    """Standard output that records, in every thread, which functions of the package are called and
    the call stacks at which `work` is done."""

    def __init__(self, package: Path, work: dict[str, str]) -> None:
        super().__init__()
        self.root, self.work, self.active = f"{package}/", work, False
        self.called: set[Function] = set()
        self.stacks: dict[str, dict[tuple[Function, ...], None]] = {name: {} for name in work}
        self.classes = {(file, name) for name, file in definitions(package, ast.ClassDef)}

    @contextlib.contextmanager
    def trace_calls(self) -> Iterator[None]:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        self.active = True
        try:
            yield
        finally:
            self.active = False
            sys.setprofile(None)
            threading.setprofile(None)

    def write(self, text: str) -> int:
        if self.active and text:
            self._record("stdout", sys._getframe(1))
        return super().write(text)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (function := self._function(frame)):
            self.called.add(function)
            self._record(":".join(function), frame)

    def _record(self, what: str, frame: FrameType) -> None:
        for name, pattern in self.work.items():
            if re.search(pattern, what) and ("gradients" not in name or torch.is_grad_enabled()):
                self.stacks[name][tuple(self._stack(frame, pattern))] = None

    def _stack(self, frame: FrameType | None, pattern: str) -> list[Function]:
        """The package's functions from the outermost to `frame`, or to the first that matches."""
        stack: list[Function] = []
        while frame is not None:
            if function := self._function(frame):
                if re.search(pattern, ":".join(function)):
                    stack.clear()
                stack.append(function)
            frame = frame.f_back
        return stack[::-1]

    def _function(self, frame: FrameType) -> Function | None:
        """The package's function of a frame; not lambdas, comprehensions, inner functions and
        class bodies."""
        code = frame.f_code
        if not code.co_filename.startswith(self.root) or "<" in code.co_qualname:
            return None
        found = Function(code.co_filename.removeprefix(self.root), code.co_qualname)
        is_body = (found.file, found.name.rpartition(".")[2]) in self.classes
        return None if is_body else found

    def path(self) -> list[tuple[int, Function]]:
        """(depth, function) of all stacks as one tree, each function once, in the order met."""
        tree: dict[Function, Any] = {}
        for stack in (stack for stacks in self.stacks.values() for stack in stacks):
            branch = tree
            for function in stack:
                branch = branch.setdefault(function, {})
        met: dict[Function, int] = {}

        def walk(branch: dict[Function, Any], depth: int) -> None:
            for function, below in branch.items():
                met.setdefault(function, depth)
                walk(below, depth + 1)

        walk(tree, 0)
        return [(depth, function) for function, depth in met.items()]


def trace(package: Path, verb: str, run: Callable[[], object]) -> Tracer:
    tracer = Tracer(package, WORK[verb])
    with contextlib.redirect_stdout(tracer), contextlib.redirect_stderr(io.StringIO()):
        run()  # once without, so that what only importing calls is not counted
        with tracer.trace_calls():
            run()
    return tracer


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
        app = create_app(Library(folder / "run0"), ServeConfig())
        with TestClient(app, base_url="http://127.0.0.1") as client:
            reply = client.post("/api/look", json={"model": "run0", "text": "The kitten"})
            reply.raise_for_status()

    first = str(folder / "run0")
    return {
        "train": train,
        "generate": lambda: run(["generate", first, "The", "--max-tokens", "5", "--seed", "1"]),
        "look": lambda: run(["look", first, "The kitten met a puppy."]),
        "page request": request,
    }


def describe_verb(verb: str, tracer: Tracer) -> str:
    own = {function for function in tracer.called if function.part in OWN[verb]}
    path = {function for _, function in tracer.path()}
    cells = (
        f"{len(some):5} in {len({f.file for f in some}):3}" for some in (tracer.called, own, path)
    )
    unmet = [name for name, stacks in tracer.stacks.items() if not stacks]
    return f"  {verb:14}{'   '.join(cells)}" + "".join(f"\n    {n} was not met" for n in unmet)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--functions", metavar="VERB", choices=WORK, help="print the verb's path")
    parser.add_argument("--package", metavar="DIR", type=Path, help="a checkout to measure")
    args = parser.parse_args()
    if args.package is not None:
        sys.path.insert(0, str(args.package.resolve()))
    import glasshead

    package = Path(glasshead.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        found = {verb: trace(package, verb, run) for verb, run in verbs(Path(folder)).items()}
    if args.functions:
        for depth, function in found[args.functions].path():
            print(f"{'  ' * depth}{function.name}  ({function.file})")
        return
    print(*count_lines(package), sep="\n")
    for what, names in (
        ("class names that stand for two things", names_used_twice(package)),
        ("functions named by a bare participle", bare_participles(package)),
    ):
        print(f"\n{len(names)} {what}", *names, sep="\n  ")
    print("\nfunctions and files:  called       own            path")
    for verb, tracer in found.items():
        print(describe_verb(verb, tracer))


if __name__ == "__main__":
    main()
