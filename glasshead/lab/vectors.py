"""Vectors for words: a textbook's, computed from the spelling, or read from a file."""

import json
import math
import unicodedata
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

from glasshead.errors import InputError, NotFiniteError, did_you_mean, near_file

__all__ = ["QKV", "TEXTBOOK", "Table", "from_spelling", "read_vectors", "suggest"]

Table = Mapping[str, tuple[float, ...]]

# The two sentences that introductions to attention compute by hand.
TEXTBOOK: Table = {
    "Hello": (0.34, 0.22, 0.54),
    "shiny": (0.53, 0.34, 0.98),
    "sun": (0.29, 0.54, 0.93),
    "Your": (0.43, 0.15, 0.89),
    "journey": (0.55, 0.87, 0.66),
    "starts": (0.57, 0.85, 0.64),
    "with": (0.22, 0.58, 0.33),
    "one": (0.77, 0.25, 0.10),
    "step": (0.05, 0.80, 0.55),
}

_FORMS = 'write {"word": [0.1, 0.2], ...} or {"q": {"word": [...]}, "k": {...}, "v": {...}}'


class QKV(NamedTuple):
    """Queries, keys and values by word."""

    q: Table
    k: Table
    v: Table


def from_spelling(word: str) -> tuple[float, ...]:
    """Return three numbers that depend only on the spelling and mean nothing.

    >>> from_spelling("cat") == from_spelling("cat") != from_spelling("cats")
    True
    """
    digest = sha256(word.encode()).digest()
    return tuple(int.from_bytes(digest[i : i + 4]) % 100 / 100 for i in (0, 4, 8))


def read_vectors(path: Path) -> QKV:
    """Read vectors from JSON: `{"word": [...], ...}`, or one such object each for q, k and v."""
    data = _load(path)
    if not isinstance(data, dict):
        raise InputError(f"'{path}' holds {_kind(data)}, not a JSON object", hint=_FORMS)
    if not any(isinstance(value, dict) for value in data.values()):
        table = _table(path, "", data)
        return QKV(table, table, table)
    if set(data) != {"q", "k", "v"}:
        raise InputError(
            f"'{path}' holds objects under {_join_names(data)}, not under q, k and v", hint=_FORMS
        )
    return QKV(*(_table(path, f"{part}: ", data[part]) for part in "qkv"))


def suggest(word: str, choices: Iterable[str], most: int = 12) -> str:
    """Return a hint like `did_you_mean` for many choices: a similar one, or the first few."""
    known = list(dict.fromkeys(choices))
    return did_you_mean(word, get_close_matches(word, known, n=1) or known[:most])


def _load(path: Path) -> Any:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no file '{path}'", hint=_neighbours(path)) from None
    except IsADirectoryError:
        raise InputError(
            f"'{path}' is a folder, not a file", hint=_neighbours(path / "x")
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read '{path}': {reason}", hint="check the path") from None
    if not raw.strip():
        raise InputError(f"'{path}' is empty", hint=_FORMS)
    try:
        # As floats, very long integers become infinite instead of raising.
        return json.loads(raw, parse_int=float, object_pairs_hook=_check_unique)
    except json.JSONDecodeError as error:
        raise InputError(
            f"'{path}' is not JSON: {error.msg} at line {error.lineno}, column {error.colno}",
            hint=_FORMS,
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"'{path}' is not text: byte {error.start} is 0x{raw[error.start]:02x}",
            hint="save it as UTF-8",
        ) from None
    except RecursionError:
        raise InputError(f"'{path}' is nested too deeply", hint=_FORMS) from None


def _check_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        word = unicodedata.normalize("NFC", key)
        if word in found:
            raise InputError(f"{key!r} occurs twice in the vectors file", hint="keep one of them")
        found[word] = value
    return found


def _table(path: Path, part: str, data: Any) -> Table:
    if not isinstance(data, dict) or not data:
        what = f"{part}{_kind(data)}" if data != {} else f"{part}no words"
        raise InputError(f"'{path}' holds {what}, not words with vectors", hint=_FORMS)
    table = {word: _vector(path, f"{part}{word!r}", value) for word, value in data.items()}
    first, width = next((word, len(vector)) for word, vector in table.items())
    for word, vector in table.items():
        if len(vector) != width:
            raise InputError(
                f"'{path}': {part}{word!r} has {len(vector)} numbers but {first!r} has {width}",
                hint="all vectors must be equally long",
            )
    return table


def _vector(path: Path, name: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        what = "an empty list" if value == [] else _kind(value)
        raise InputError(f"'{path}': {name} is {what}, not a list of numbers", hint=_FORMS)
    for place, number in enumerate(value, start=1):
        if not isinstance(number, float):
            raise InputError(
                f"'{path}': number {place} of {name} is {_kind(number)}", hint="write it like 0.25"
            )
        if not math.isfinite(number):
            raise NotFiniteError(
                f"'{path}': number {place} of {name} is {number}", hint="use finite numbers"
            )
    return tuple(value)


def _kind(value: Any) -> str:
    """Describe a JSON value.

    >>> _kind("0.5"), _kind([1.0]), _kind(None)
    ("the string '0.5'", 'a list of 1', 'null')
    """
    match value:
        case None | True | False:
            return json.dumps(value)
        case str():
            return f"the string {short(value)}"
        case list():
            return f"a list of {len(value)}"
        case dict():
            return f"an object of {len(value)}"
        case _:
            return f"the number {value:g}"


def _join_names(words: Iterable[str]) -> str:
    names = [short(word) for word in words]
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def _neighbours(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return near_file(path, _FORMS)
    names = [str(file) for file in sorted(folder.glob("*.json"))]
    return suggest(str(path), names) if names else _FORMS
