"""Every number that the documents print is printed beside ours, and every slip is marked."""

import json

import pytest

from glasshead.lab.claims.errata import ERRATA
from glasshead.lab.examples import EXAMPLES, compute
from glasshead.lab.examples.example import Number
from glasshead.lab.examples.slips import FIGURES
from glasshead.lab.texts import Words

# The list of the documents' numbers, copied from them again: example, decimals, rows of numbers.
PRINTED = [
    ("shiny", 4, ".7842 1.3569 1.2487"),
    ("shiny", 6, ".229134 .406265 .364602"),
    ("shiny", 4, ".0779 .0504 .1237; .2156 .1382 .3983; .1057 .1972 .3390; .3992 .3858 .8610"),
    ("journey", 4, ".1385 .2379 .2333 .1240 .1082 .1581; .4419 .6515 .5683"),
    ("self-attention", 4, "-.0739 .0713; -.0748 .0703; -.0749 .0702; -.0760 .0685"),
    ("self-attention", 4, "-.0763 .0679; -.0754 .0693"),
    ("self-attention", 4, "-.4519 .2216; -.5874 .0058; -.6300 -.0632; -.5675 -.0843"),
    ("self-attention", 4, "-.5526 -.0981; -.5299 -.1081"),
    (
        "two-heads",
        4,
        ".3190 .4858; .2943 .3897; .2856 .3593; .2693 .3873; .2639 .3928; .2575 .4028",
    ),
    ("numpy-q1", 2, ".19 .29 .39"),
    ("numpy-q1", 5, ".31428 .33296 .35275; 4.11541 5.11541 6.11541"),
    ("ladder", 0, "399620; 399876; 402948; 402948; 404004; 412260; 412260; 437316; 437764; 437764"),
    ("ladder", 0, "15466756; 15466756"),
]
SLIPS = {(0.2156, 0.1382, 0.3983), (0.1057, 0.1972, 0.3390), (0.3992, 0.3858, 0.8610)}


@pytest.fixture(scope="module")
def examples():
    return {name: compute(name) for name in EXAMPLES}


@pytest.mark.parametrize(("name", "decimals", "rows"), PRINTED)
def test_each_printed_number_stands_beside_ours(examples, name, decimals, rows):
    shown = {number.document: number for number in examples[name].numbers}
    for row in rows.split(";"):
        document = tuple(map(float, row.split()))
        number = shown[document]
        assert number.decimals == decimals
        rounded = tuple(round(x, decimals) for x in number.ours)
        assert (rounded == document) is (document not in SLIPS), (rounded, document)
        assert number.agrees is (document not in SLIPS)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "slips"])
def test_the_command_prints_each_number_and_marks_the_slips(cli, examples, monkeypatch, name, lang):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = cli("steps", "--example", name, "--lang", lang)
    assert code == 0
    for number in examples[name].numbers:
        for x in (*number.document, *number.ours):
            assert f"{x:,.{number.decimals}f}" in out
    wrong = sum(not number.agrees for number in examples[name].numbers)
    mark = {"en": "slip", "zh": "有误"}[lang]
    assert sum(line.rstrip().endswith(mark) for line in out.splitlines()) == wrong
    assert wrong == (3 if name == "shiny" else 0)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_slip_of_the_documents_is_shown_in_numbers(cli, lang):
    out = "".join(cli("steps", "--example", "slips", "--lang", lang).out.split())
    assert {one.name for one in ERRATA} == set(FIGURES)
    for one in ERRATA:
        assert "".join(one.correct[lang].split()) in out
    assert "RuntimeError" in out
    assert "IndentationError" in out


def test_what_the_slips_do_is_computed(examples):
    found = {
        (slip.erratum.name, at): (figure.document, figure.ours)
        for slip in examples["slips"].slips
        for at, figure in enumerate(slip.figures)
    }
    assert found["nan-mask", 0] == ("21", "0")
    assert found["nan-mask", 1] == ("36", "0")
    assert found["query-matrix", 0] == ("12", "18")
    assert found["unused-projections", 0][0] == "None"
    assert float(found["unused-projections", 0][1]) > 0
    assert found["minus-1e10", 0] == ("0.25  0.25  0.25  0.25", "0.00  0.00  0.00  0.00")
    assert found["minus-1e10", 1][0].split() == ["nan"] * 4
    assert found["minus-1e10", 2][0] in ("overflow", "-inf")
    assert float(found["keys-transposed", 1][0]) > 1
    assert found["feed-forward", 0][1] == "404,004"
    assert float(found["dropout-inference", 0][0]) > 0
    assert float(found["dropout-inference", 0][1]) == 0
    assert float(found["no-mask", 0][0]) > float(found["no-mask", 0][1]) == 0
    assert set(found["dropout-weights", 0][1].split()) == {"1.00"}


def test_in_the_kitten_example_the_second_pronoun_looks_at_the_kitten(examples):
    weights = {
        number.label.en.split()[-1]: number.ours[0]
        for number in examples["kitten"].numbers
        if number.part == "weights"
    }
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["小猫"] > 0.5 > weights["蝴蝶"] > weights["公园"]


def test_a_number_that_differs_in_its_last_digit_does_not_agree():
    def one(theirs, ours, shown="text"):
        return Number(Words("a", "甲"), theirs, ours, 2, shown).agrees

    assert one((0.19,), (0.1949,))
    assert not one((0.19,), (0.1951,))
    assert not one((0.19,), (0.19, 0.2))
    assert one((), (0.3,), "ours")


def test_json_has_the_numbers_in_full_precision(cli):
    found = json.loads(cli("steps", "--example", "numpy-q1", "--json").out)
    last = found["numbers"][-1]
    assert last["document"] == [4.11541, 5.11541, 6.11541]
    assert last["ours"] != last["document"]
    assert last["agrees"] is True
    assert [slip["name"] for slip in found["slips"]] == ["keys-transposed", "no-mask"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--example", "kiten"], "did you mean 'kitten'"),
        (["--example", "shiny", "Hello"], "glasshead steps --example shiny"),
        (["--example", "shiny", "--no-scale"], "glasshead steps --example shiny"),
        ([], "glasshead steps --example shiny"),
    ],
)
def test_mistakes_say_what_helps(cli, args, says):
    code, out, err = cli("steps", *args)
    assert (code, out) == (2, "")
    assert says in err
