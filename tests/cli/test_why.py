"""`glasshead why`: mistakes first, then tables and JSON."""

import json
from dataclasses import asdict

import pytest

from glasshead.checkpoint.run import RunConfig
from glasshead.checkpoint.run_folder import RunFolder
from tests.roles.circuits import TOKENIZER, induction_model

PLAIN, CHANGED = "315H17Q9A82B5", "315G17Q9A82B5"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose circuit is planted."""
    model, path = induction_model(), tmp_path_factory.mktemp("runs") / "planted"
    config = RunConfig("gpt", asdict(model.config), {}, {"task": "text"})
    RunFolder.create(path, config, TOKENIZER, model)
    return path


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--top", "0"], "--top (0) must be at least 1"),
        (["--at", "z"], "'z' is no token of the text"),
        (["--patch", "315"], "the texts have 13 and 3 tokens"),
        (["--answer", "1", "--smallest"], "'1' is not the answer of planted"),
    ],
)
def test_mistakes_are_one_line_and_a_hint(cli, run, args, message):
    code, out, err = cli("why", run, PLAIN, *args)
    assert (code, out) == (2, "")
    assert message in err
    assert "hint: " in err


def test_the_tables_show_the_planted_circuit(cli, run):
    code, out, err = cli("why", run, PLAIN, "--patch", CHANGED, "--smallest", "--top", "3")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "After '5', planted says 'H' (99.5%)."
    [total, logit] = [x for x in lines if x.startswith(("sum ", "logit of"))]
    assert total.split()[-1] == logit.split()[-1] == "+9.0000"
    assert any(x.startswith(("1:3    'H'#3", "1:3   'H'#3")) for x in lines)
    smallest = out[out.index("2 of 910 edges") :]
    assert "'H'#3 ← '5'#2" in smallest
    assert "'5'#12 ← 'H'#3" in smallest
    assert max(map(len, lines)) <= 120


def test_json_has_the_numbers(cli, run):
    _, out, _ = cli("why", run, PLAIN, "--answer", "H", "--against", "G", "--json", "--top", "2")
    found = json.loads(out)
    assert (found["answer"], found["against"], found["at"]) == ("H", "G", 12)
    assert found["sum"] == pytest.approx(found["logit"], abs=1e-4)
    assert found["heads"][0]["layer"] == 1
    assert found["edges"][0]["key_token"] == "H"
    assert [row["before"] for row in found["lens"]] == [0, 1, 2]
    _, out, _ = cli("why", run, PLAIN, "--patch", CHANGED, "--smallest", "--json")
    found = json.loads(out)
    assert found["patch"]["edges"][0]["place"] == [1, 3, 12, 3]
    assert found["patch"]["largest_error_of_estimates"]["heads"] < 1e-3
    assert found["smallest"]["keeps"] is True


def test_chinese(cli, run):
    _, out, _ = cli("why", run, PLAIN, "--patch", CHANGED, "--smallest", "--lang", "zh")
    assert "各头" in out
    assert "其中一条也不能少" in out


def test_both_languages_have_the_same_texts():
    from glasshead.causes.wording import TEXTS

    assert list(TEXTS["en"]) == list(TEXTS["zh"])
