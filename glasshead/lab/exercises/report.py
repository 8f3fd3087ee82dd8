"""What a check found: the report, the check that makes it, and how it is printed."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from glasshead.lab.exercises.catalog import Exercise, find_exercise
from glasshead.lab.texts import Language, Words, read_texts

__all__ = ["ExerciseReport", "check_file", "from_json", "show_report"]

TEXTS = read_texts(__file__)
_NUMBERED = ("got", "expected", "printed", "yours")


@dataclass(frozen=True)
class ExerciseReport:
    exercise: str
    path: str
    trouble: Mapping[str, Any] | None  # of the fields of Trouble
    printed: tuple[Mapping[str, str], ...] = ()  # of the fields of PrintedNumbers

    @property
    def ok(self) -> bool:
        return self.trouble is None

    def as_json(self) -> dict[str, Any]:
        out = {**asdict(self), "right": self.ok}
        if self.trouble is not None:
            out["title"] = self.words("title").en
            out["why"] = self.words("why").en
        return out

    def words(self, part: str) -> Words:
        """Return the "title" or the "why" of the trouble."""
        assert self.trouble is not None
        values = {**_DEFAULTS, **self.trouble["values"]}
        if source := values.get("source"):
            values["source"] = self._text(f"printed.{source}")
        found = [self._text(f"mistake.{n}.{part}") for n in self.trouble["name"].split("+")]
        filled = [words.format(**values) for words in found]
        if len(filled) == 1:
            return filled[0]
        both = Words(
            "; ".join(w.en.rstrip(".") for w in filled),
            "；".join(w.zh.rstrip("。") for w in filled),
        )
        return both if part == "title" else Words(*(both[lang] + dot for lang, dot in _DOTS))

    def _text(self, name: str) -> Words:
        from glasshead.lab.check.report import TEXTS as OF_CHECK

        own = find_exercise(self.exercise).texts
        return own.get(name) or TEXTS.get(name) or OF_CHECK[name]


_DOTS = (("en", "."), ("zh", "。"))
_DEFAULTS = {"p": 0.5, "of": "x", "dtype": "float16", "error": "", "calls": 0, "more": 0,
             "case": "", "cause": ""}  # fmt: skip


def check_file(exercise: Exercise, path: Path) -> ExerciseReport:
    """Check a file in this process. It is executed; `child.run_check` does that in another one."""
    from glasshead.lab.exercises.learner import TroubleFound, load_file, reproducible

    printed: list[Mapping[str, str]] = []
    trouble = None
    with reproducible():
        try:
            for each in exercise.module.check(load_file(path)):
                printed.append(asdict(each))
        except TroubleFound as error:
            trouble = asdict(error.trouble)
    return ExerciseReport(exercise.name, str(path), trouble, tuple(printed))


def from_json(data: Mapping[str, Any]) -> ExerciseReport:
    return ExerciseReport(
        data["exercise"], data["path"], data["trouble"], tuple(data.get("printed", ()))
    )


def show_report(report: ExerciseReport, lang: Language) -> Iterator[Text]:
    """Yield the lines of a report."""
    for each in report.printed:
        yield Text(report._text(f"printed.{each['source']}")[lang], style="dim")
        for label in ("theirs", "yours"):
            yield Text(f"  {_label('printed' if label == 'theirs' else label, lang)}{each[label]}")
    trouble = report.trouble
    if trouble is None:
        yield Text(TEXTS["right"].format(name=Path(report.path).name)[lang], style="bold green")
        return
    yield Text(f"✗ {report.words('title')[lang]}  [{trouble['name']}]", style="bold red")
    yield Text("  " + report.words("why")[lang])
    if trouble["line"]:
        yield Text(f"  {Path(report.path).name}:{trouble['line']}: {trouble['code']}", style="cyan")
    for label, numbers in trouble["example"]:
        style = {"got": "red", "yours": "red", "expected": "green"}.get(label, "")
        yield Text(f"  {_label(label, lang)}{numbers}", style=style)


def _label(name: str, lang: Language) -> str:
    """Write a label in a column; names of arguments as they are."""
    from rich.cells import cell_len

    text = TEXTS[f"label.{name}"][lang] if name in _NUMBERED else name
    return text + " " * max(1, 11 - cell_len(text))


def child_trouble(exercise: Exercise, path: Path, name: str, **values: Any) -> ExerciseReport:
    """Return the report for a check that did not come to an end."""
    from glasshead.lab.exercises.learner import Trouble

    line, code = values.pop("line", 0), ""
    with suppress(OSError, IndexError, UnicodeDecodeError):
        code = path.read_text(encoding="utf-8").splitlines()[line - 1].strip() if line else ""
    return ExerciseReport(exercise.name, str(path), asdict(Trouble(name, values, line, code)))
