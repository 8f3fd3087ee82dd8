"""The design's order of parts, and who imports whom, read from the source without running it."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "glasshead"

# A part imports itself and parts of earlier rows. Parts in one row do not know each other.
ORDER = [
    ["errors", "lazy", "messages"],
    ["files"],
    ["machine"],
    ["text", "attention"],
    ["model", "observe"],
    ["roles"],
    ["causes"],
    ["checkpoint"],
    ["training", "generation"],
    ["api"],
    ["page"],
    ["lab", "serve"],
    ["cli", "testing"],
    ["pytest_plugin"],
    ["__init__", "__main__"],  # the package itself and `python -m glasshead`
]
ROW = {part: row for row, parts in enumerate(ORDER) for part in parts}


def imported(name: str, source: str) -> Iterator[tuple[int, str]]:
    """Every (line, dotted module) that a module imports, wherever in the file the import stands.

    `name` is where the module lies in the package, such as "text/corpus.py".
    """
    here = ["glasshead", *Path(name).parent.parts]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = here[: len(here) - level + 1] if level else []
                stem = ".".join([*base, *([module] if module else [])])
                yield from ((node.lineno, f"{stem}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield node.lineno, module


def part_of(module: str) -> str | None:
    """The part that a dotted name leads to; None outside of the package."""
    match module.split("."):
        case ["glasshead", part, *_] if part in ROW:
            return part
        case ["glasshead", "__version__"]:
            return None
        case ["glasshead", *_]:
            return "__init__"
    return None


@cache
def between_parts() -> Counter[tuple[str, str]]:
    """(part, part it imports) -> how many of its files do."""
    found: Counter[tuple[str, str]] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        part = name.partition("/")[0].removesuffix(".py")
        parts = {part_of(module) for _, module in imported(name, path.read_text(encoding="utf-8"))}
        found.update((part, other) for other in parts if other and other != part)
    return found
