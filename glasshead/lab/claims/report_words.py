"""What report.html and the pages of docs/ say around the claims, in both languages."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glasshead.lab.claims import load_claim
from glasshead.lab.claims.claim import SEARCH_SEEDS
from glasshead.lab.claims.store import StoredResult
from glasshead.lab.claims.verdict import VERDICTS
from glasshead.lab.ladder import Summary
from glasshead.lab.ladder_figure import ADDS
from glasshead.lab.texts import LANGUAGES, Words, join_words, read_texts

__all__ = [
    "LADDER_COLUMNS",
    "TEXTS",
    "Ladder",
    "describe_ladder",
    "describe_rules",
    "describe_run",
    "ladder_rows",
    "lead",
]

TEXTS = read_texts(__file__)
LADDER_COLUMNS = ("rung", "adds", "parameters", "training", "validation", "change")


@dataclass(frozen=True)
class Ladder:
    """The results of `glasshead ladder`."""

    text: Mapping[str, Any]  # name, characters, vocabulary
    rows: tuple[Summary, ...]


def lead(claims: Mapping[int, StoredResult]) -> Words:
    """Return the first paragraph, with the number of claims of each verdict."""
    found = [result.finding.verdict for result in claims.values()]
    counts = [
        TEXTS["count"].format(n=found.count(verdict), verdict=name)
        for verdict, name in VERDICTS.items()
        if verdict in found
    ]
    return TEXTS["lead"].format(total=len(claims), counts=join_words(counts, zh="，"))


def describe_rules(claims: Mapping[int, StoredResult]) -> list[Words]:
    """Return how claims are measured and judged, and which results are of earlier rules."""
    changed = [number for number in claims if load_claim(number).tried is not None]
    found = [
        TEXTS["intervals"],
        TEXTS["searching"].format(seeds=join_words(SEARCH_SEEDS)),
        TEXTS["changed"].format(n=len(changed), total=len(claims), which=join_words(changed)),
    ]
    earlier = [
        number
        for number, one in claims.items()
        if not one.search_seeds and '"tried":' in json.dumps(one.evidence)
    ]
    coarse = [number for number, one in claims.items() if one.quick]
    if coarse:
        found.append(TEXTS["coarse"].format(which=join_words(coarse)))
    if earlier:
        found.append(TEXTS["one_seed"].format(which=join_words(earlier), seed=SEARCH_SEEDS[0]))
    return found


def describe_run(result: StoredResult) -> Words:
    """Say when, where and with what a claim was measured."""
    v = result.versions
    return TEXTS["run_details"].format(
        kind=TEXTS["quick" if result.quick else "full"],
        seeds=" ".join(map(str, result.seeds)),
        search=_describe_search(result),
        seconds=result.seconds,
        when=result.when,
        software=f"glasshead {v['glasshead']}, torch {v['torch']}, Python {v['python']}",
        machine=result.machine,
    )


def _describe_search(result: StoredResult) -> Words:
    if '"tried":' not in json.dumps(result.evidence):  # nothing was searched
        return Words("", "")
    seeds = result.search_seeds or SEARCH_SEEDS[:1]  # earlier results had one
    return TEXTS["rates_chosen"].format(seeds=" ".join(map(str, seeds)))


def describe_ladder(ladder: Ladder) -> Words:
    seeds = max(len(row.climbs) for row in ladder.rows)
    return TEXTS["ladder_lead"].format(
        text=TEXTS["ladder_text"].format(**ladder.text, seeds=seeds)
    )  # fmt: skip


def ladder_rows(ladder: Ladder) -> Sequence[tuple[Words, ...]]:
    """Return the cells of each row, in the order of `LADDER_COLUMNS`."""

    def loss(value: float, sd: float | None) -> str:
        return f"{value:.3f}" + ("" if sd is None else f" ± {sd:.3f}")

    rows, below = [], None
    for row in ladder.rows:
        follows = below is not None and row.rung == below.rung + 1
        change = f"{row.val - below.val:+.3f}".replace("-", "−") if follows and below else ""
        adds = Words(*(ADDS[lang][row.rung - 1] for lang in LANGUAGES))
        losses = loss(row.train, row.train_sd), loss(row.val, row.val_sd)
        cells = (str(row.rung), adds, f"{row.parameters:,}", *losses, change)
        rows.append(tuple(join_words([cell]) for cell in cells))
        below = row
    return rows
