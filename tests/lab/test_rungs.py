"""What rungs learn at other rates than those of the ladder."""

from dataclasses import replace

import pytest

from glasshead.lab import ladder
from glasshead.lab.ladder import climb, read_text
from glasshead.lab.rungs import RUNGS
from glasshead.text.tinyworld import corpus


@pytest.mark.deep
def test_three_layers_without_residuals_learn_at_a_lower_rate(tmp_path, monkeypatch):
    """What lesson 7 says: at the ladder's rate they fail, at 0.003 they beat the bigram table."""
    book = tmp_path / "ladder.txt"
    book.write_text("\n".join(corpus(1500, "zh")), encoding="utf-8")
    monkeypatch.setitem(ladder.RUNGS, 6, replace(RUNGS[6], lr=3e-3))
    losses = {one.rung: one.val for one in climb([1, 6], read_text(str(book)), steps=2000)}
    assert losses[6] < losses[1] - 0.1
