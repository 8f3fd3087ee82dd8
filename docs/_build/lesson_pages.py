"""Lessons as pages: the text in one language, the code, and what it printed and drew."""

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from docs._build.markdown import fence
from glasshead.lab.lessons import Lesson, lessons, run_cell, show_map
from glasshead.lab.texts import Words

WORDS = {
    "en": ("Lessons", "A short course on attention. Each lesson is a script that runs in seconds:"),
    "zh": ("课程", "关于注意力的一门短课。每一课都是一个几秒钟就能跑完的脚本："),
}


@dataclass
class Shown:
    """What the code cells of a lesson left, by the number of the cell."""

    printed: dict[int, str] = field(default_factory=dict)
    pictures: dict[int, list[str]] = field(default_factory=dict)


def played(lesson: Lesson) -> tuple[Shown, dict[str, bytes]]:
    """Run a lesson; what it showed, and its pictures by name."""
    shown, names, files = Shown(), {}, {}
    with TemporaryDirectory() as folder, _environment(folder):
        for number, cell in enumerate(lesson.cells):
            if not isinstance(cell, Words):
                said = io.StringIO()
                with redirect_stdout(said), redirect_stderr(io.StringIO()):
                    run_cell(lesson, cell, names)
                shown.printed[number] = said.getvalue().rstrip()
                drawn = [p for p in sorted(Path(folder).glob("*.*")) if p.name not in files]
                drawn = [p for p in drawn if p.suffix in {".svg", ".png"}]
                shown.pictures[number] = [path.name for path in drawn]
                files |= {path.name: path.read_bytes() for path in drawn}
    return shown, files


@contextmanager
def _environment(out: str) -> Iterator[None]:
    """Maps are drawn into the folder `out` and not printed: a page shows the drawing."""

    def draw(*args: Any) -> None:
        with redirect_stdout(io.StringIO()):
            show_map(*args)

    plain = {"GLASSHEAD_LESSON_OUT": out, "NO_COLOR": "1", "COLUMNS": "88"}
    with patch.dict(os.environ, plain), patch("glasshead.lab.lessons.show_map", draw):
        yield


def name_of(lesson: Lesson) -> str:
    return lesson.path.stem.replace("_", "-")


def page(lesson: Lesson, language: Any, shown: Shown) -> str:
    out = []
    for number, cell in enumerate(lesson.cells):
        if isinstance(cell, Words):
            out.append(cell[language])
            continue
        out.append(fence(cell.source, "python"))
        if said := shown.printed.get(number):
            # attr_list gives the fence a class of its own: what was said, not what to type.
            out.append(f"``` {{ .text .said }}\n{said}\n```")
        out += [f"![{name}](img/{name})" for name in shown.pictures.get(number, [])]
        if number == 1:
            out.insert(1, f"`glasshead lesson {lesson.number}`")
    return "\n\n".join(out) + "\n"


def contents(language: Any) -> str:
    title, intro = WORDS[language]
    listed = [f"{n.number}. [{n.title(language)}]({name_of(n)}.md)" for n in lessons()]
    code = fence("glasshead lesson 1", "bash")
    return "\n\n".join([f"# {title}", intro, code, "\n".join(listed)]) + "\n"


def pages(results: Mapping[int, Shown]) -> Iterator[tuple[str, str]]:
    """Every lesson in both languages, and the list of them, by place."""
    for language, suffix in (("en", ".md"), ("zh", ".zh.md")):
        yield f"lessons/index{suffix}", contents(language)
        for lesson in lessons():
            shown = results.get(lesson.number, Shown())
            yield f"lessons/{name_of(lesson)}{suffix}", page(lesson, language, shown)
