"""The learner's folder: one file an exercise, never overwritten, and what was done so far."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from glasshead.errors import InputError
from glasshead.files.writing import atomic_write
from glasshead.lab.exercises.catalog import Exercise, exercises, find_exercise
from glasshead.lab.texts import Language

__all__ = ["ExerciseFolder", "ExerciseState"]

State = Literal["new", "started", "changed", "passed"]


@dataclass
class ExerciseState:
    checks: int = 0
    hints: int = 0
    passed: str = ""  # a digest of the file that was right


class ExerciseFolder:
    """A folder of exercise files with `progress.json`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._states: dict[str, ExerciseState] | None = None

    def file(self, exercise: Exercise) -> Path:
        return self.path / exercise.file_name

    @property
    def progress(self) -> Path:
        return self.path / "progress.json"

    def states(self) -> dict[str, ExerciseState]:
        if self._states is None:
            self._states = self._read()
        return self._states

    def _read(self) -> dict[str, ExerciseState]:
        try:
            data = json.loads(self.progress.read_text(encoding="utf-8"))
            return {name: ExerciseState(**fields) for name, fields in data.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError, OSError) as error:
            raise InputError(
                f"{self.progress} cannot be read: {error}",
                hint=f"remove it: rm {self.progress}; your files stay, "
                "and a check marks them as passed again",
            ) from None

    def of(self, exercise: Exercise) -> ExerciseState:
        return self.states().setdefault(exercise.name, ExerciseState())

    def state(self, exercise: Exercise) -> State:
        if not self.file(exercise).is_file():
            return "new"
        passed = self.of(exercise).passed
        if not passed:
            return "started"
        return "passed" if passed == self._digest(exercise) else "changed"

    def start(self, exercise: Exercise, lang: Language) -> bool:
        """Write the starter unless there is a file; say whether it was written."""
        path = self.file(exercise)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with open(path, "x", encoding="utf-8") as file:
                file.write(exercise.starter(lang))
        except FileExistsError:
            if self.path.is_dir():
                return False
            raise InputError(
                f"{self.path} is a file", hint="give another folder with --folder"
            ) from None
        except OSError as error:
            raise InputError(
                f"cannot write {path}: {error.strerror}", hint="give another folder with --folder"
            ) from None
        return True

    def require(self, exercise: Exercise) -> Path:
        """Return the path of a file; raise InputError if it was not started."""
        path = self.file(exercise)
        if not path.is_file():
            raise InputError(
                f"there is no file {path}",
                hint=f"glasshead exercise start {exercise.number} writes it",
            )
        return path

    def note(self, exercise: Exercise, *, right: bool | None = None, hint: bool = False) -> None:
        """Count a check (with its result) or a hint."""
        state = self.of(exercise)
        if right is not None:
            state.checks += 1
            state.passed = self._digest(exercise) if right else ""
        if hint:
            state.hints += 1
        self._save()

    def current(self, which: str | None) -> Exercise:
        """Return the exercise that is named, or the first that is not passed."""
        if which is not None:
            return find_exercise(which)
        for each in exercises():
            if self.state(each) != "passed":
                return each
        raise InputError(
            "all exercises are passed", hint="name one, as in glasshead exercise look 4"
        )

    def _digest(self, exercise: Exercise) -> str:
        return hashlib.sha256(self.file(exercise).read_bytes()).hexdigest()[:16]

    def _save(self) -> None:
        data = {name: asdict(state) for name, state in self.states().items()}
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.progress) as file:
                file.write(json.dumps(data, indent=1).encode())
        except OSError as error:
            raise InputError(
                f"cannot write {self.progress}: {error.strerror}",
                hint="give another folder with --folder",
            ) from None
