"""All errors that a user can cause, as one tree.

    GlassheadError            str(error) is one line that says what is wrong, with the value;
    |                         error.hint says what to do about it
    +-- ConfigError           a setting that cannot work, alone or with the others
    +-- ShapeError            tensors that do not fit together, or of the wrong dtype
    +-- MaskError             a mask of the wrong dtype or shape
    +-- NotFiniteError        NaN where a number is needed
    +-- BackendError          a backend that does not exist or cannot run the call
    +-- RecordingError        attention that cannot be recorded exactly, or was not recorded
    +-- AblationError         attention that cannot be changed as requested, or did not run
    +-- CheckpointError       a run's folder that cannot be read, written or continued
    +-- InputError            words, vectors or files that cannot be used
    |   +-- UnknownCharacterError   a character that is not in the training text
    +-- NotFoundError         something that the server does not have (any more)
    +-- BusyError             more requests than the server accepts at once
        +-- ClosingError      the server stops before it handles a request

The command line prints the line, a blank line and `hint: ...`, and exits with code 2.
"""

import os
from collections.abc import Collection, Iterable
from dataclasses import MISSING, fields
from difflib import get_close_matches
from itertools import islice
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any

__all__ = [
    "AblationError",
    "BackendError",
    "BusyError",
    "CheckpointError",
    "ClosingError",
    "ConfigError",
    "GlassheadError",
    "InputError",
    "MaskError",
    "NotFiniteError",
    "NotFoundError",
    "RecordingError",
    "ShapeError",
    "UnknownCharacterError",
    "check_choices",
    "check_range",
    "did_you_mean",
    "install_command",
    "install_hint",
    "near_file",
    "nearest",
]


class GlassheadError(ValueError):
    """An error that a user can fix: one line that explains it, and a hint.

    >>> import glasshead
    >>> try:
    ...     glasshead.train(preset="reeder")
    ... except glasshead.GlassheadError as error:
    ...     print(error, error.hint, sep="; ")
    unknown preset 'reeder'; did you mean 'reader'?
    """

    def __init__(self, message: str, hint: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.field = field  # of a request to the server: what has the wrong value
        if hint:
            self.add_note(f"hint: {hint}")  # below the message of a traceback


class ConfigError(GlassheadError):
    pass


class ShapeError(GlassheadError):
    pass


class MaskError(GlassheadError):
    pass


class NotFiniteError(GlassheadError):
    pass


class BackendError(GlassheadError):
    pass


class RecordingError(GlassheadError):
    pass


class AblationError(GlassheadError):
    pass


class InputError(GlassheadError):
    pass


class UnknownCharacterError(InputError):
    pass


class CheckpointError(GlassheadError):
    pass


class NotFoundError(GlassheadError):
    pass


class BusyError(GlassheadError):
    """`retry_after` is in seconds."""

    def __init__(self, message: str, hint: str = "", retry_after: int = 1) -> None:
        super().__init__(message, hint)
        self.retry_after = retry_after


class ClosingError(BusyError):
    pass


def check_range(
    config: Any,
    names: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> None:
    """Raise ConfigError for the first of the fields, named in one string, that is out of range.

    None, and a field that the config does not have, is in every range; NaN is in none.
    """
    limits = {"at least": least, "more than": above, "at most": most, "less than": below}
    tests = {"at least": ge, "more than": gt, "at most": le, "less than": lt}
    given = {words: limit for words, limit in limits.items() if limit is not None}
    defaults = {field.name: field.default for field in fields(config)}
    for name in names.split():
        value = getattr(config, name, None)
        if value is None or all(tests[words](value, limit) for words, limit in given.items()):
            continue
        must = " and ".join(f"{words} {limit}" for words, limit in given.items())
        option, default = f"--{name.replace('_', '-')}", defaults.get(name, MISSING)
        hint = f"the default is {option} {default}"
        if default in (None, MISSING):
            hint = f"leave {option} out" if default is None else f"change {option}"
        raise ConfigError(f"{name} ({value}) must be {must}", hint=hint)


def check_choices(config: Any, **choices: Collection[str]) -> None:
    """Raise ConfigError for the first field whose value is not among its choices."""
    for name, known in choices.items():
        if (value := getattr(config, name)) not in known:
            raise ConfigError(f"unknown {name} '{value}'", hint=did_you_mean(str(value), known))


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return a hint for a word that is not one of the choices.

    >>> did_you_mean("CASUAL", ["causal", "window"])
    "did you mean 'causal'?"
    """
    known = list(choices)
    near = nearest(word, known)
    return f"did you mean '{near}'?" if near else f"choose one of: {', '.join(known)}"


def install_command(extra: str, clone: bool | None = None) -> str:
    """Return the command that installs an extra: in the clone that this code is in, or anywhere.

    >>> install_command("hf", clone=False)
    'pip install "glasshead[hf]"'
    >>> install_command("hf", clone=True)
    'pip install -e ".[hf]" -c constraints.txt'
    """
    if in_clone() if clone is None else clone:
        return f'pip install -e ".[{extra}]" -c constraints.txt'
    return f'pip install "glasshead[{extra}]"'


def install_hint(extra: str) -> str:
    command = install_command(extra)
    return f"in the clone of Glasshead: {command}" if in_clone() else command


def in_clone() -> bool:
    """Return whether this code is that of a clone, not that of an installed wheel."""
    return Path(__file__).parents[1].joinpath("constraints.txt").is_file()


def near_file(path: str | Path, otherwise: str) -> str:
    """Return a hint for a path that does not exist: a similar name, or `otherwise`.

    >>> near_file(Path(__file__).with_name("erors.py"), "").endswith("errors.py'?")
    True
    """
    path = Path(path)
    try:
        with os.scandir(path.parent) as entries:
            found = {entry.name for entry in islice(entries, 10_000)}
    except OSError:
        if not path.parent.name:
            return otherwise
        return f"there is no folder {path.parent} either; {near_file(path.parent, otherwise)}"
    names = sorted(found - {path.name})
    # The name of a file without its ending means that file.
    same_stem = (name for name in names if name.partition(".")[0] == path.name)
    near = next(same_stem, None) or nearest(path.name, names)
    return f"did you mean '{path.parent / near}'?" if near else otherwise


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the choice that starts with the word, or is most similar to it, ignoring case.

    >>> nearest("--temp", ["--stop", "--temperature"])
    '--temperature'
    """
    lower, word = {choice.casefold(): choice for choice in known}, word.casefold()
    longer = [choice for choice in lower if choice.startswith(word) and len(word.strip("-")) > 2]
    near = longer[:1] or get_close_matches(word, lower, n=1)
    return lower[near[0]] if near else None
