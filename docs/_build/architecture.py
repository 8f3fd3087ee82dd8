"""The parts of docs/architecture.md that a machine knows: the tree, its sizes and the import graph.

python -m docs._build.architecture        writes them in
python -m docs._build.architecture --check   fails if they were not there already
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

from docs._build.imports import ORDER, PACKAGE, ROOT, between_parts

PAGE = ROOT / "docs/architecture.md"
GRAPH = ROOT / "docs/img/imports.svg"
SOURCES = {".py", ".js", ".css"}
BESIDE = {
    "tests": "mirror the package",
    "bench": "against peers, in one run",
    "lessons": "twelve scripts, in two languages",
    "docs/_build": "writes this page and the site",
}
WIDTH = 104


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in SOURCES)


@cache
def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def about(path: Path) -> str:
    """What a file says of itself in its first sentence."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        said = ast.get_docstring(ast.parse(text)) or ""
    else:
        said = text.lstrip("/* ").split("*/")[0]
        said = " ".join(line.lstrip("/* ") for line in said.split("\n\n")[0].splitlines())
        said = said if text.startswith("/") else ""
    return re.split(r"(?<=[.?])\s", " ".join(said.split("\n\n")[0].split()))[0]


def tree(folder: Path, depth: int = 0) -> Iterator[str]:
    """One line a file or folder: its name, its lines of code, what it is for."""
    inside = sum(map(lines, sources(folder)))
    yield f"{'  ' * depth + folder.name + '/':<30}{inside:>7,}"
    entries = sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name))
    for path in entries:
        if path.suffix in SOURCES:
            line = f"{'  ' * (depth + 1) + path.name:<30}{lines(path):>7,}  {about(path)}"
            yield (line if len(line) <= WIDTH else line[: WIDTH - 1] + "…").rstrip()
        elif path.is_dir() and sources(path):
            yield from tree(path, depth + 1)


def beside() -> Iterator[str]:
    for name, purpose in BESIDE.items():
        if found := sources(ROOT / name):
            yield f"{name + '/':<30}{sum(map(lines, found)):>7,}  {purpose}; {len(found)} files"


def matrix() -> str:
    """Who imports whom as a table: how many files of a row's part import the column's part."""
    count, parts = between_parts(), [*chain(*ORDER[:-1])]
    columns = [part for part in parts if any(count[one, part] for one in parts)]
    rows = [f"| | {' | '.join(columns)} |", "|---|" + "--:|" * len(columns)]
    for part in parts:
        if any(count[part, other] for other in columns):
            cells = (str(count[part, other] or "") for other in columns)
            rows.append(f"| **{part}** | {' | '.join(cells)} |")
    return "\n".join(rows)


def graph() -> str:
    """The parts in a row, from left to right, and an arc from each to each that it imports."""
    step, left, base = 88, 56, 250
    parts = [*chain(*ORDER[:-1])]
    x = {part: left + step * index for index, part in enumerate(parts)}
    size = {part: sum(map(lines, sources(PACKAGE / part))) for part in parts}
    size |= {p: lines(PACKAGE / f"{p}.py") for p in parts if not (PACKAGE / p).is_dir()}
    width, height = left * 2 + step * (len(parts) - 1), base + 66
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" text-anchor="middle">',
        "<title>Who imports whom: each arc leads left, from a part to one that it imports</title>",
    ]
    for (part, other), count in sorted(between_parts().items()):
        if part in x and other in x:
            far, near = x[part], x[other]
            rise, thick = base - 18 - (far - near) * 0.31, 0.7 + 0.55 * count**0.5
            out.append(
                f'<path d="M{far} {base}C{far} {rise:.0f} {near} {rise:.0f} {near} {base}" '
                f'fill="none" stroke="#4f7fb8" stroke-opacity=".55" stroke-width="{thick:.2f}"/>'
            )
    for part in parts:
        radius = 3 + size[part] ** 0.5 / 9
        out.append(f'<circle cx="{x[part]}" cy="{base}" r="{radius:.1f}" fill="#d4603a"/>')
        for dy, text, look in (
            (32, part, 'font-size="15" font-weight="600" fill="#7c828d"'),
            (50, f"{size[part]:,}", 'font-size="12" fill="#8a909b"'),
        ):
            out.append(f'<text x="{x[part]}" y="{base + dy}" {look}>{text}</text>')
    return "\n".join([*out, "</svg>", ""])


def generated() -> dict[str, str]:
    files = "\n".join([*tree(PACKAGE), *beside()])
    return {"imports": matrix(), "tree": f"```text\n{files}\n```"}


def written(page: str) -> str:
    """The page with its generated parts as they are now."""
    for name, text in generated().items():
        start, end = f"<!-- generated: {name} -->", f"<!-- /generated: {name} -->"
        before, found, rest = page.partition(start)
        after = rest.partition(end)[2]
        if not found or not after:
            raise SystemExit(f"{PAGE.name} lacks '{start}' or '{end}'")
        page = f"{before}{start}\n{text}\n{end}{after}"
    return page


def main() -> None:
    found = {PAGE: written(PAGE.read_text(encoding="utf-8")), GRAPH: graph()}
    old = {path: path.read_text(encoding="utf-8") if path.exists() else "" for path in found}
    stale = [path for path, text in found.items() if old[path] != text]
    if "--check" in sys.argv[1:] and stale:
        raise SystemExit(f"not current: {', '.join(p.name for p in stale)}\n\nhint: make format")
    for path in stale:
        path.write_text(found[path], encoding="utf-8")


if __name__ == "__main__":
    main()
