"""Lessons: plain scripts made of cells, which can be read, run one by one, or run as they are.

A text cell is two blocks of comments, Chinese and English, in Markdown. The code between two text
cells is a code cell:

    # zh:
    # 一个词是**一列数**。
    # en:
    # A word is a **list of numbers**.

    cat = [2.0, 0.0]

Every figure that a text states is checked by an `assert` in the code beside it. At the end there is
something to try: a line of code with `# try: ` and the line that replaces it.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from glasshead.errors import GlassheadError, InputError
from glasshead.lab.texts import Language, Words

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = [
    "Cell",
    "Code",
    "Lesson",
    "apply_try",
    "find_lesson",
    "lessons",
    "out_folder",
    "read_lesson",
    "run_cell",
    "run_folder",
    "show_map",
]

# Lessons are inside an installed package, and beside it in a checkout.
PLACES = (Path(__file__).parents[1] / "lessons", Path(__file__).parents[2] / "lessons")

_HAN = "\u3000-\u30ff\u3400-\u9fff\uff00-\uffef"
_SIGN = "\u2018-\u201d\u2026\u3001-\u3011\uff01-\uff0f\uff1a-\uff1f"
# Lines are joined without a space between Chinese characters and at Chinese punctuation.
_SOFT_BREAK = re.compile(
    rf"([{_HAN}{_SIGN}][*]*)\n *(?=[*]*[{_HAN}{_SIGN}])"
    rf"|([{_SIGN}][*]*)\n(?=[*`]*[^\s*#|>`-])(?!\d+\. )"
    rf"|(\S)\n *(?=[*]*[{_SIGN}])"
)
_TRY = re.compile(r"^( *)\S.*  # try: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Code:
    source: str
    line: int  # in its file, where it begins


Cell: TypeAlias = Words | Code  # texts are Markdown


@dataclass(frozen=True)
class Lesson:
    number: int
    path: Path
    cells: tuple[Cell, ...]

    def title(self, lang: Language) -> str:
        first = self.cells[0]
        assert isinstance(first, Words)  # `read_lesson` checks it
        return first[lang].splitlines()[0].lstrip("# ")


def lessons() -> list[Lesson]:
    """Return all lessons, in order."""
    for place in PLACES:
        if paths := sorted(place.glob("[0-9][0-9]_*.py")):
            return [read_lesson(path) for path in paths]
    raise InputError("no lessons found", hint="install the package again")


def find_lesson(number: int) -> Lesson:
    known = lessons()
    for lesson in known:
        if lesson.number == number:
            return lesson
    raise InputError(
        f"there is no lesson {number}", hint=f"they are {known[0].number} to {known[-1].number}"
    )


def read_lesson(path: Path) -> Lesson:
    """Split a script into its cells."""
    lines = path.read_text(encoding="utf-8").splitlines()
    cells: list[Cell] = []
    at = 0
    while at < len(lines):
        if lines[at] == "# zh:":
            zh, at = _comment(lines, at + 1)
            if at == len(lines) or lines[at] != "# en:":
                raise InputError(
                    f"{path}, line {at + 1}: the English text is missing",
                    hint="add '# en:' and the text below it",
                )
            en, at = _comment(lines, at + 1)
            cells.append(Words(en, _SOFT_BREAK.sub(r"\1\2\3", zh)))
        else:
            start = at
            while at < len(lines) and lines[at] != "# zh:":
                at += 1
            source = "\n".join(lines[start:at])
            if source.strip():
                before = len(source) - len(source.lstrip("\n"))
                cells.append(Code(source.strip("\n"), start + before + 1))
    if not cells or not isinstance(cells[0], Words):
        raise InputError(f"{path} does not start with a text", hint="write '# zh:' first")
    return Lesson(int(path.name[:2]), path, tuple(cells))


def _comment(lines: Sequence[str], at: int) -> tuple[str, int]:
    """Return the text of the comments from this line on, and the line where they end."""
    text = []
    while at < len(lines) and lines[at][:1] == "#" and lines[at] not in ("# zh:", "# en:"):
        text.append(lines[at][1:].removeprefix(" "))
        at += 1
    return "\n".join(text).strip("\n"), at


def apply_try(code: Code) -> Code | None:
    """Return the code with the line that its `# try: ` names; None if it has no such line.

    >>> apply_try(Code("n = 2  # try: n = 4", 1))
    Code(source='n = 4', line=1)
    """
    source, changes = _TRY.subn(r"\1\2", code.source)
    return Code(source, code.line) if changes else None


def run_cell(lesson: Lesson, code: Code, names: dict[str, Any]) -> None:
    """Run one cell with the names that the cells before it defined."""
    names.setdefault("__name__", "__main__")
    names.setdefault("__file__", str(lesson.path))
    try:
        # Line numbers are those of the file.
        exec(compile("\n" * (code.line - 1) + code.source, str(lesson.path), "exec"), names)
    except (GlassheadError, BrokenPipeError):
        raise
    except Exception as error:
        trace = error.__traceback__
        line = code.line
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == str(lesson.path):
                line = trace.tb_lineno
            trace = trace.tb_next
        written = code.source.splitlines()[line - code.line].strip()
        what = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise InputError(
            f"lesson {lesson.number}, line {line}: {what}: {written}",
            hint="an assert checks what the text states"
            if isinstance(error, AssertionError)
            else "was the lesson changed?",
        ) from error


def out_folder() -> Path:
    """Return the folder that lessons write to: GLASSHEAD_LESSON_OUT, or runs/lessons."""
    folder = Path(os.environ.get("GLASSHEAD_LESSON_OUT") or "runs/lessons")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot create {folder}: {error.strerror}",
            hint="set GLASSHEAD_LESSON_OUT to a folder that can be written",
        ) from None
    return folder


def show_map(
    values: "ArrayLike", rows: Sequence[str], cols: Sequence[str], title: str, file: str
) -> None:
    """Print a map, rows attending to columns, and save it as a picture, .svg or .png.

    Zero is white; the darkest cell is the largest.
    """
    import torch
    from rich.console import Console

    from glasshead.observe.picture import Sheet, save
    from glasshead.observe.picture_terminal import print_sheet
    from glasshead.observe.view import Map

    shown = Map(title, torch.as_tensor(values, dtype=torch.float32), list(rows), list(cols))
    sheet = Sheet("map", title, [], [shown], "linear")
    plain = bool(os.environ.get("NO_COLOR"))
    print_sheet(sheet, Console(color_system=None if plain else "auto", highlight=False))
    path = out_folder() / file
    save(sheet, path)
    print(f"→ {path}", file=sys.stderr)


def run_folder(name: str) -> Path:
    """Return a folder for a lesson's run that does not exist yet."""
    from glasshead.training.start import unused_path

    return unused_path(out_folder(), name)
