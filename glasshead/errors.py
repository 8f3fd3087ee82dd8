"""Every mistake a user can make, one tree.

    GlassheadError            str(error) is one line that names the thing and its value;
    |                         error.hint says what to do about it
    +-- ConfigError           a setting that cannot work, alone or with the others
    +-- ShapeError            tensors that do not fit together, or of the wrong dtype
    +-- MaskError             a mask of the wrong dtype or shape
    +-- NotFiniteError        NaN where a number is needed
    +-- BackendError          a backend that does not exist or cannot serve the call
    +-- RecordingError        attention that cannot be recorded exactly, or was not recorded
    +-- AblationError         attention that cannot be changed as asked, or did not run
    +-- CheckpointError       a run's folder that cannot be read, written or gone on with
    +-- InputError            words, vectors or files that cannot be read as asked
    |   +-- UnknownCharacterError   a character that the training text did not have
    +-- NotFoundError         something that is not served, or no longer
    +-- BusyError             more requests than the server takes at once

The command line prints the line, a blank line and `hint: ...`, and exits with code 2.
"""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "AblationError",
    "BackendError",
    "BusyError",
    "CheckpointError",
    "ConfigError",
    "GlassheadError",
    "InputError",
    "MaskError",
    "NotFiniteError",
    "NotFoundError",
    "RecordingError",
    "ShapeError",
    "UnknownCharacterError",
    "did_you_mean",
]


class GlassheadError(ValueError):
    """A mistake that one line can explain and one hint can mend."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


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


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A hint for a word that is none of the choices.

    >>> did_you_mean("casual", ["causal", "window"])
    "did you mean 'causal'?"
    """
    known = list(choices)
    near = get_close_matches(word, known, n=1)
    return f"did you mean '{near[0]}'?" if near else f"choose one of: {', '.join(known)}"
