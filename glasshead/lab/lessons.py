"""Lessons: plain scripts made of cells, which can be read, run one by one, or run as they are.

A text cell is two blocks of comments, Chinese and English, in Markdown. What stands between two
text cells is a code cell:

    # zh:
    # 一个词是**一列数**。
    # en:
    # A word is a **list of numbers**.

    cat = [2.0, 0.0]

Whatever figure a text states, an `assert` in the code beside it checks: running is the proof. At
the end stands something to try: a line of code with `# try: ` and the line to put in its place.
"""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from glasshead.errors import GlassheadError, InputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = [
    "Cell", "Code", "Lesson", "LessonText", "find", "lessons", "out_folder", "read", "run",
    "run_folder", "show_map", "tried",
]  # fmt: skip

# In an installed package they lie inside of it, in a checkout beside it.
PLACES = (Path(__file__).parents[1] / "lessons", Path(__file__).parents[2] / "lessons")

Language = Literal["zh", "en"]
_HAN = "\u3000-\u30ff\u3400-\u9fff\uff00-\uffef"
_SIGN = "\u2018-\u201d\u2026\u3001-\u3011\uff01-\uff0f\uff1a-\uff1f"
# Between two Chinese characters, and at Chinese punctuation, a line goes on without a space.
_SOFT_BREAK = re.compile(
    rf"([{_HAN}{_SIGN}][*]*)\n *(?=[*]*[{_HAN}{_SIGN}])"
    rf"|([{_SIGN}][*]*)\n(?=[*`]*[^\s*#|>`-])(?!\d+\. )"
    rf"|(\S)\n *(?=[*]*[{_SIGN}])"
)
_TRY = re.compile(r"^( *)\S.*  # try: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class LessonText:
    """The same in two languages, as Markdown."""

    zh: str
    en: str

    def of(self, lang: Language) -> str:
        return self.zh if lang == "zh" else self.en


@dataclass(frozen=True)
class Code:
    source: str
    line: int  # where it begins in its file


Cell: TypeAlias = LessonText | Code


@dataclass(frozen=True)
class Lesson:
    number: int
    path: Path
    cells: tuple[Cell, ...]

    def title(self, lang: Language) -> str:
        first = self.cells[0]
        assert isinstance(first, LessonText)  # `read` sees to it
        return first.of(lang).splitlines()[0].lstrip("# ")


def lessons() -> list[Lesson]:
    """All of them, in order."""
    for place in PLACES:
        if paths := sorted(place.glob("[0-9][0-9]_*.py")):
            return [read(path) for path in paths]
    raise InputError("the lessons are not there", hint="install the package again")


def find(number: int) -> Lesson:
    known = lessons()
    for lesson in known:
        if lesson.number == number:
            return lesson
    raise InputError(
        f"there is no lesson {number}", hint=f"they are {known[0].number} to {known[-1].number}"
    )


def read(path: Path) -> Lesson:
    """A script becomes its cells."""
    lines = path.read_text(encoding="utf-8").splitlines()
    cells: list[Cell] = []
    at = 0
    while at < len(lines):
        if lines[at] == "# zh:":
            zh, at = _comment(lines, at + 1)
            if at == len(lines) or lines[at] != "# en:":
                raise InputError(
                    f"{path}, line {at + 1}: a text has no English", hint="write '# en:' and it"
                )
            en, at = _comment(lines, at + 1)
            cells.append(LessonText(_SOFT_BREAK.sub(r"\1\2\3", zh), en))
        else:
            start = at
            while at < len(lines) and lines[at] != "# zh:":
                at += 1
            source = "\n".join(lines[start:at])
            if source.strip():
                before = len(source) - len(source.lstrip("\n"))
                cells.append(Code(source.strip("\n"), start + before + 1))
    if not cells or not isinstance(cells[0], LessonText):
        raise InputError(f"{path} does not begin with a text", hint="write '# zh:' first")
    return Lesson(int(path.name[:2]), path, tuple(cells))


def _comment(lines: Sequence[str], at: int) -> tuple[str, int]:
    """The text of the comments from this line on, and where they end."""
    text = []
    while at < len(lines) and lines[at][:1] == "#" and lines[at] not in ("# zh:", "# en:"):
        text.append(lines[at][1:].removeprefix(" "))
        at += 1
    return "\n".join(text).strip("\n"), at


def tried(code: Code) -> Code | None:
    """The same code with the line in place that its `# try: ` names; None where there is none.

    >>> tried(Code("n = 2  # try: n = 4", 1))
    Code(source='n = 4', line=1)
    """
    source, changes = _TRY.subn(r"\1\2", code.source)
    return Code(source, code.line) if changes else None


def run(lesson: Lesson, code: Code, names: dict[str, Any]) -> None:
    """Run one cell among the names that the cells before it left."""
    names.setdefault("__name__", "__main__")
    names.setdefault("__file__", str(lesson.path))
    try:
        # Lines are counted as in the file.
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
            hint="an assert holds the text to its word"
            if isinstance(error, AssertionError)
            else "was the lesson changed?",
        ) from error


def out_folder() -> Path:
    """Where lessons write: GLASSHEAD_LESSON_OUT, or runs/lessons."""
    folder = Path(os.environ.get("GLASSHEAD_LESSON_OUT") or "runs/lessons")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make {folder}: {error.strerror}",
            hint="set GLASSHEAD_LESSON_OUT to a folder that can be written",
        ) from None
    return folder


def show_map(
    values: "ArrayLike", rows: Sequence[str], cols: Sequence[str], title: str, file: str
) -> None:
    """Print a map, rows looking at columns, and save it as a picture: `file` ends in .svg or .png.

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
    """A folder for a lesson's run that does not exist yet."""
    from glasshead.training.start import unused_path

    return unused_path(out_folder(), name)
