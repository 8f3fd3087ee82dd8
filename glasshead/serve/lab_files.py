"""Read the lab's results in a served folder: the losses of a ladder, the verdicts on claims.

Files may have been edited since, so they are validated, and only the fields that the page shows are
passed on.
"""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from glasshead.errors import CheckpointError
from glasshead.serve.run_files import read_json

__all__ = ["read_claim", "read_ladder"]


class PointFile(BaseModel):
    step: int
    train: float | None
    val: float | None


class ClimbFile(BaseModel):
    seed: int
    steps: int
    curve: list[PointFile] = Field(max_length=10_000)


class RungFile(BaseModel):
    rung: int
    adds: str = ""
    adds_zh: str = ""
    parameters: int
    train: float | None  # None where it diverged
    train_sd: float | None = None
    val: float | None
    val_sd: float | None = None
    tokens_per_s: float | None = None
    climbs: list[ClimbFile] = Field(max_length=1000)


class About(BaseModel):
    name: str = ""
    characters: int = 0
    vocabulary: int = 0


class LadderFile(BaseModel):
    text: About
    rungs: list[RungFile] = Field(max_length=100)


def read_ladder(file: Path) -> dict[str, Any]:
    try:
        ladder = LadderFile.model_validate(read_json(file))
    except (OSError, ValueError) as error:  # pydantic raises ValueErrors
        raise CheckpointError(
            f"{file.parent.name}/{file.name} is not a valid ladder: {_reason(error)}",
            hint="write it again with `glasshead ladder`",
        ) from None
    ladder.text.name = Path(ladder.text.name).name  # do not send paths of this machine
    return ladder.model_dump()


class WordsFile(BaseModel):
    en: str = ""
    zh: str = ""


class FindingFile(BaseModel):
    verdict: str
    words: WordsFile = WordsFile()


class ClaimFile(BaseModel):
    title: WordsFile = WordsFile()
    claim: WordsFile = WordsFile()
    finding: FindingFile
    quick: bool = False
    seeds: list[int] = []
    seconds: float | None = None


def read_claim(number: int, file: Path) -> dict[str, Any]:
    """Return a stored claim; if it cannot be read, only its number and the reason."""
    try:
        found = ClaimFile.model_validate(read_json(file))
    except (OSError, ValueError) as error:
        return {"number": number, "reason": _reason(error)}
    return {"number": number, "reason": "", **found.model_dump()}


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"
    return str(getattr(error, "strerror", None) or error)
