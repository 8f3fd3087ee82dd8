"""docs/claims.md says what docs/claims.json holds, and the verdicts follow from its evidence."""

from dataclasses import asdict
from pathlib import Path

import pytest

from glasshead.lab.claims import load_claim
from glasshead.lab.claims.report import read_docs
from glasshead.lab.claims.report_docs import markdown
from glasshead.lab.claims.stats import Interval
from glasshead.lab.claims.verdict import VERDICTS, Verdict

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture(scope="module")
def found():
    if not (DOCS / "claims.json").exists():
        pytest.skip("docs/claims.json has not been written yet")
    return read_docs(DOCS)


def test_every_number_in_the_page_is_that_of_the_results(found):
    written = (DOCS / "claims.md").read_text(encoding="utf-8")
    assert written == markdown(found.claims, found.ladder)


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
        label = stored.finding.label
        if stored.finding.verdict is not Verdict.HOLDS_WHEN:
            assert label == VERDICTS[stored.finding.verdict], number
        else:
            condition = label.en.removeprefix("holds only when ").split()
            assert 1 <= len(condition) <= 12, number
            assert "…" not in label.en + label.zh, number


def plain(numbers):
    return {
        f"{name} {end}": part
        for name, value in numbers.items()
        for end, part in (asdict(value) if isinstance(value, Interval) else {"": value}).items()
    }


def test_the_page_is_of_a_full_run(found):
    assert [number for number, stored in found.claims.items() if stored.quick] == []


def test_every_figure_is_there(found):
    for number in found.claims:
        for lang in ("en", "zh"):
            path = DOCS / "img" / "claims" / f"{number:02}.{lang}.png"
            assert path.read_bytes().startswith(b"\x89PNG")
