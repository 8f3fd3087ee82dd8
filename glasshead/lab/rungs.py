"""The twelve rungs: configs of one GPT, each with something added to the rung below."""

from dataclasses import dataclass
from typing import Any

from glasshead.errors import InputError
from glasshead.model.gpt import GPTConfig

__all__ = ["RUNGS", "Rung", "parse_rungs"]


@dataclass(frozen=True)
class Rung:
    number: int
    adds: dict[str, Any]  # settings that differ from the rung below
    model: dict[str, Any]  # all settings
    batch_size: int = 32
    lr: float = 1e-2
    steps: int = 2000
    large: bool = False  # needs a GPU
    uses_trainer: bool = False  # and so writes a run's folder

    def config(self, vocab_size: int) -> GPTConfig:
        return GPTConfig(vocab_size, **self.model)


def _rungs() -> dict[int, Rung]:
    model: dict[str, Any] = {
        "max_len": 8, "d_model": 32, "n_layers": 0, "n_heads": 1, "positions": "none",
        "feed_forward": "none", "norm_place": "none", "residual": False, "project": False,
    }  # fmt: skip
    additions: list[dict[str, Any]] = [
        {},  # an embedding and a head: a bigram table
        {"positions": "learned"},
        {"n_layers": 1},
        {"n_heads": 4},
        {"feed_forward": "linear-relu"},
        {"n_layers": 3},
        {"residual": True},
        {"project": True, "feed_forward": "relu"},
        {"norm_place": "pre"},
        {"dropout": 0.2},
        {"d_model": 384, "n_heads": 6, "n_layers": 6, "max_len": 256},
        {},  # nothing of the model: metrics and checkpoints
    ]
    scale: dict[str, Any] = {"batch_size": 64, "lr": 3e-4, "steps": 5000, "large": True}
    rungs = {}
    for number, adds in enumerate(additions, 1):
        model = {**model, **adds}
        large = scale if number >= 11 else {}
        rungs[number] = Rung(number, adds, model, **large, uses_trainer=number == 12)
    return rungs


RUNGS = _rungs()


def parse_rungs(text: str) -> list[int]:
    """Return the numbers of the rungs that the text names.

    >>> parse_rungs("1,3-5,4")
    [1, 3, 4, 5]
    """
    hint = f"write numbers from 1 to {len(RUNGS)} and spans of them, as in 1,3-7"
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = (end.strip() for end in part.partition("-"))
        last = last if "-" in part else first
        if not all(end.isascii() and end.isdigit() and len(end) < 9 for end in (first, last)):
            raise InputError(f"'{part.strip()}' in --rungs '{text}' is not a rung", hint=hint)
        low, high = int(first), int(last)
        for end in (low, high):
            if end not in RUNGS:
                raise InputError(f"there is no rung {end}", hint=hint)
        if low > high:
            raise InputError(f"the span {low}-{high} runs backwards", hint=f"write {high}-{low}")
        found.update(range(low, high + 1))
    return sorted(found)
