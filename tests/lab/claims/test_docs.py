"""The pages of docs/ say what docs/claims.json holds; the verdicts follow from its evidence."""

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from glasshead.lab.claims import load_claim
from glasshead.lab.claims.report import read_docs
from glasshead.lab.claims.report_docs import pages
from glasshead.lab.claims.stats import Interval
from glasshead.lab.claims.verdict import CANNOT_TELL, VERDICTS, Verdict

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture(scope="module")
def found():
    if not (DOCS / "claims.json").exists():
        pytest.skip("docs/claims.json has not been written yet")
    return read_docs(DOCS)


def test_every_number_in_the_pages_is_that_of_the_results(found):
    wanted = pages(found.claims, found.ladder)
    written = {name: (DOCS / name).read_text(encoding="utf-8") for name in wanted}
    assert written == wanted
    there = {f"claims/{path.name}" for path in (DOCS / "claims").glob("*.md")}
    assert there == {name for name in wanted if name.startswith("claims/")}


def test_every_verdict_follows_from_the_evidence(found):
    for number, stored in found.claims.items():
        finding = load_claim(number).judge(stored.evidence)
        assert finding.verdict is stored.finding.verdict, number
        assert finding.words == stored.finding.words, number
        assert finding.label == stored.finding.label, number
        # Another machine's logarithms may end in another digit.
        again, kept = (plain(one.numbers) for one in (finding, stored.finding))
        assert again == pytest.approx(kept, rel=1e-9), number


def test_a_verdict_with_a_condition_names_it_in_at_most_twelve_words(found):
    for number, stored in found.claims.items():
        label, verdict = stored.finding.label, stored.finding.verdict
        if verdict not in (Verdict.HOLDS_WHEN, Verdict.UNCLEAR):
            assert label == VERDICTS[verdict], number
            continue
        before = "holds only when " if verdict is Verdict.HOLDS_WHEN else "cannot tell: "
        assert label.en.startswith(before), number
        condition = label.en.removeprefix(before).split()
        assert 1 <= len(condition) <= 12, number
        assert "…" not in label.en + label.zh, number
        assert "在在" not in label.zh, number


def test_a_verdict_that_cannot_be_told_gives_a_reason(found):
    for number, stored in found.claims.items():
        if stored.finding.verdict is Verdict.UNCLEAR:
            assert stored.finding.label != CANNOT_TELL.format(why=""), number


def test_what_was_changed_after_a_look_has_a_date(found):
    for number in found.claims:
        tried = load_claim(number).tried
        for text in (tried.en, tried.zh) if tried else ():
            assert re.match(r"(By )?20\d\d-\d\d-\d\d", text), number


def test_no_seed_of_a_search_measures_a_result(found):
    for number, stored in found.claims.items():
        assert not set(stored.search_seeds) & set(stored.seeds), number


def plain(numbers):
    return {
        f"{name} {end}": part
        for name, value in numbers.items()
        for end, part in (asdict(value) if isinstance(value, Interval) else {"": value}).items()
    }


def test_the_textbooks_claims_are_of_a_full_run_and_coarse_results_are_named(found):
    coarse = [number for number, stored in found.claims.items() if stored.quick]
    assert all(number > 19 for number in coarse)
    text = (DOCS / "claims.md").read_text(encoding="utf-8")
    assert ("were measured coarsely" in text) is bool(coarse)


def test_every_figure_is_there(found):
    for number in found.claims:
        for lang in ("en", "zh"):
            path = DOCS / "img" / "claims" / f"{number:02}.{lang}.png"
            assert path.read_bytes().startswith(b"\x89PNG")
