"""What a rung changes against the one below, and what it writes."""

import pytest

from glasshead.lab import ladder, ladder_samples
from glasshead.lab.ladder import climb, read_text, summaries
from glasshead.lab.ladder_figure import as_json, tables
from glasshead.lab.rungs import RUNGS


@pytest.fixture
def text(tmp_path):
    """A small text with something to learn, of 29 characters."""
    path = tmp_path / "small.txt"
    path.write_text("".join(chr(0x4E00 + n**3 % 29) for n in range(4001)), encoding="utf-8")
    return read_text(str(path))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(ladder, "FINAL_BATCHES", 5)
    monkeypatch.setattr(ladder, "CURVE_BATCHES", 2)


def test_a_rung_shows_its_change_and_samples(text):
    [one] = climb([4], text, steps=3)
    [sample] = one.samples  # none of the prompts is in this text
    assert len(sample) == ladder_samples.LENGTH
    assert sample.startswith(text.start)
    shown = "\n".join(str(p) for p in tables(summaries([one]), text, "en"))
    assert "- n_heads = 1\n  + n_heads = 4" in shown
    assert sample.replace("\n", "↵") in shown
    again = as_json(summaries([one]), text)["rungs"][0]
    assert again["changes"] == ["- n_heads = 1", "+ n_heads = 4"]


def test_the_prompts_of_ci_are_continued_where_the_text_has_them(tmp_path):
    path = tmp_path / "ci.txt"
    path.write_text("春江花月夜往事知多少" * 30, encoding="utf-8")
    [one] = climb([10], read_text(str(path)), steps=2)
    assert [sample[:2] for sample in one.samples] == ["春江", "往事"]
    [again] = climb([10], read_text(str(path)), steps=2)
    assert again.samples == one.samples  # dropout is off


def test_each_rung_is_told_from_the_one_below_by_its_diff():
    for number in range(2, 12):
        lines = ladder_samples.changes(number)
        assert {line.split()[1] for line in lines} == set(RUNGS[number].adds)
    assert ladder_samples.changes(12) == []
    assert len(ladder_samples.changes(1)) == len(RUNGS[1].model)
