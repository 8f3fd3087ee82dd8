"""Each edit of a right implementation is found and named; the right ones are not blamed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from glasshead.attention import steps
from glasshead.errors import InputError
from glasshead.lab.check.cases import key_mask, pair_mask
from glasshead.lab.check.mistakes import MISTAKES
from glasshead.lab.check.pipeline import Case, Projections, run
from glasshead.lab.check.report import _LESSONS, TEXTS, check, show
from tests.lab.check.sources import MUTANTS, STYLES, load


@pytest.mark.parametrize("style", STYLES)
def test_right_implementations_are_right(style, tmp_path):
    source, name, _ = STYLES[style]
    report = check(load(source, name, tmp_path))
    assert report.ok, [each.name for each in report.mistakes]
    assert len(report.compared) >= 3


@pytest.mark.parametrize(("style", "n"), MUTANTS, ids=lambda x: str(x))
def test_a_mistake_is_found_and_named(style, n, tmp_path):
    source, name, edits = STYLES[style]
    old, new, mistake = edits[n]
    assert old in source
    report = check(load(source.replace(old, new), name, tmp_path))
    found = report.warnings if mistake == "softmax-overflow" else report.mistakes
    assert [each.name for each in found][:1] == [mistake]
    if report.counterexample is not None:
        example = report.counterexample
        assert not np.allclose(example.got, example.expected, atol=1e-4)


def test_the_steps_are_those_of_the_reference():
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(3, 2, n, 5)) for n in (5, 7, 7))
    allowed, keys = pair_mask(3, 5, 7), key_mask(3, 7)
    case = Case("", q, k, v, causal=True, allowed=allowed, keys=keys)
    want = steps.attend(q, k, v, (allowed & keys[:, None] & steps.causal(5, 7))[:, None])
    got = run(case, Projections(), {})
    assert np.allclose(got.context, want.context)
    assert np.allclose(got.weights, want.weights)


def test_no_mistake_computes_what_is_right():
    """Each named mistake changes the result of some case."""
    rng = np.random.default_rng(2)
    draw = lambda *shape: rng.normal(size=shape)  # noqa: E731
    params = Projections(4, 2, draw(24, 24), draw(24, 12), draw(24, 12), draw(24, 24))
    same = Projections(4, 4, *(draw(24, 24) for _ in range(4)))
    x, y = draw(3, 5, 24), draw(3, 7, 24)
    cases = [
        (Case("", x, x, x, True, pair_mask(3, 5, 5)), same),
        (Case("", x, x, x, False, None, key_mask(3, 5)), same),
        (Case("", x, y, y, True), same),
        (Case("", x, draw(3, 5, 24), draw(3, 5, 24)), same),
        (Case("", x, x, x, True, options={"window": 3}), params),
        (Case("", x, x, x, True, options={"softcap": 1.5}), params),
        (Case("", x, x, x), params),
        (Case("", x, x, x), Projections(4, 4, *(draw(24, 24) for _ in range(3)))),
        (Case("", x, x, x, options={"sinks": draw(4), "relative": draw(4, 9)}), same),
        (Case("", y[:, 4:], y, y, True, past=4), same),
        (Case("", x, x, x), replace(same, q_bias=draw(24), k_bias=draw(24), v_bias=draw(24))),
    ]
    for mistake in MISTAKES:
        changes = []
        for case, some in cases:
            try:
                wrong, right = run(case, some, mistake.steps), run(case, some, {})
            except ValueError:
                continue
            changes.append(wrong.context.shape != right.context.shape
                           or not np.allclose(wrong.context, right.context))  # fmt: skip
        assert any(changes), mistake.name


def test_each_mistake_has_texts_in_both_languages():
    names = {mistake.name for mistake in MISTAKES} | {"unknown", "nan-empty-row", "slow-loop"}
    for name in names:
        for part in ("title", "why"):
            words = TEXTS[f"mistake.{name}.{part}"]
            assert words.en
            assert words.zh != words.en
    assert set(_LESSONS.values()) <= set(range(1, 13))


def test_what_cannot_be_called_is_said():
    with pytest.raises(InputError, match="cannot be called"):
        check(lambda q, k, v, colour: q)
    with pytest.raises(InputError, match="cannot be called"):
        check(3)


def test_a_report_fits_on_a_screen(tmp_path):
    source, name, edits = STYLES["module"]
    report = check(load(source.replace(*edits[0][:2]), name, tmp_path))
    for lang in ("en", "zh"):
        lines = [line.plain for line in show(report, lang)]
        assert len(lines) < 24
    line = report.as_json()["mistakes"][0]["line"]
    assert "math.sqrt(C)" in Path(report.path).read_text().splitlines()[line - 1]


def test_polarity_is_found_out_unless_it_is_stated(tmp_path):
    source, name, _ = STYLES["function"]
    inverted = source.replace("~mask, float", "mask, float")
    report = check(load(inverted.replace("mask: bool, True = may attend.", ""), name, tmp_path))
    assert report.ok
    assert report.facts["mask"] == "True = hidden"
