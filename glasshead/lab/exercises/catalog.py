"""The exercises in order: the text, the starter and the solution of each.

They are scripts like the lessons: a text cell, the solution, and what to look at afterwards. The
starter is the solution without what stands between `# solution` and `# end`; of comments that start
with `# en:` or `# zh:` only those in the learner's language are kept.
"""

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from glasshead.errors import InputError, did_you_mean
from glasshead.lab.lessons import PLACES, Code, read_lesson
from glasshead.lab.texts import Language, Words, read_texts

__all__ = ["HINTS", "Exercise", "exercises", "find_exercise"]

HINTS = 3  # of each exercise
_TEXTS = read_texts(__file__)
_REGION = re.compile(r"^( *)# solution\n.*?^ *# end\n", re.MULTILINE | re.DOTALL)
_MARKS = re.compile(r"^ *# (?:solution|end)\n", re.MULTILINE)


@dataclass(frozen=True)
class Exercise:
    number: int
    name: str
    why: Words
    after: Words  # what to look at once it is right
    code: str

    @property
    def file_name(self) -> str:
        return f"{self.number:02}_{self.name.replace('-', '_')}.py"

    @property
    def module(self) -> Any:
        """Return the module that checks it."""
        return importlib.import_module(f"{__package__}.checks.{self.name.replace('-', '_')}")

    @property
    def texts(self) -> dict[str, Words]:
        return read_texts(self.module.__file__)

    def title(self, lang: Language) -> str:
        return self.why[lang].splitlines()[0].lstrip("# ")

    def starter(self, lang: Language) -> str:
        """Return the file that the learner fills in."""
        head = _TEXTS["head"].format(n=self.number, title=Words(self.title("en"), self.title("zh")))
        code = _REGION.sub(r"\1raise NotImplementedError\n", self.code)
        return f"{head[lang]}\n\n{_in_language(code, lang)}"

    def solution(self, lang: Language) -> str:
        return _in_language(_MARKS.sub("", self.code), lang)


def _in_language(code: str, lang: Language) -> str:
    other = "en" if lang == "zh" else "zh"
    code = re.sub(rf"^ *# {other}: .*\n", "", code, flags=re.MULTILINE)
    return re.sub(rf"^( *# ){lang}: ", r"\1", code, flags=re.MULTILINE)


@cache
def exercises() -> tuple[Exercise, ...]:
    """Return all exercises, in order."""
    for place in PLACES:
        if paths := sorted((place / "exercises").glob("[0-9][0-9]_*.py")):
            return tuple(_read(path) for path in paths)
    raise InputError("no exercises found", hint="install the package again")


def _read(path: Path) -> Exercise:
    lesson = read_lesson(path)
    why, *codes, after = lesson.cells
    assert isinstance(why, Words)
    assert isinstance(after, Words)
    code = "\n\n\n".join(cell.source for cell in codes if isinstance(cell, Code))
    name = path.stem[3:].replace("_", "-")
    return Exercise(lesson.number, name, why, after, code + "\n")


def find_exercise(which: str) -> Exercise:
    """Return an exercise by its number or its name."""
    known = exercises()
    for each in known:
        if which.lower().replace("_", "-") in (each.name, str(each.number), f"{each.number:02}"):
            return each
    if which.isdigit():
        raise InputError(
            f"there is no exercise {which}", hint=f"they are {known[0].number} to {len(known)}"
        )
    raise InputError(
        f"there is no exercise '{which}'", hint=did_you_mean(which, [e.name for e in known])
    )


def hints(exercise: Exercise) -> Iterator[Words]:
    """Yield the hints of an exercise, from a nudge to nearly the answer."""
    texts = exercise.texts
    for n in range(1, HINTS + 1):
        yield texts[f"hint.{n}"]
