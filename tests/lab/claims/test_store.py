"""Results are kept whole, and known for what they are when code changes."""

import math
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.errors import InputError, NotFiniteError
from glasshead.lab import claims
from glasshead.lab.claims import store
from glasshead.lab.claims.claim import Finding
from glasshead.lab.claims.stats import Interval
from glasshead.lab.claims.store import code_hash, from_json, read_result, to_json, write_result
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.texts import Words
from tests.lab.claims.cases import make_result

floats = st.floats(allow_nan=False)


SOME = make_result(4)


@given(floats, floats, st.sampled_from(Verdict), st.text())
def test_json_gives_back_what_went_in(value, low, verdict, text):
    finding = Finding(verdict, Words(text, "中文"), {"a": value, "b": Interval(value, low, 1.0)})
    one = replace(SOME, finding=finding)
    assert from_json(to_json(one)) == one


def test_what_is_written_is_read(tmp_path):
    one = SOME
    write_result(tmp_path, one, {"en": b"picture", "zh": "图".encode()})
    assert read_result(tmp_path, 4) == one
    assert (tmp_path / "04.zh.png").read_bytes() == "图".encode()
    assert read_result(tmp_path, 3) is None


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_number_that_json_does_not_know_is_named_and_nothing_is_written(tmp_path, value):
    evidence = {**SOME.evidence, "sums": {"after": [0.5, value]}}
    with pytest.raises(NotFiniteError, match=f"claim 4 contains {value} at /evidence/sums/after/1"):
        write_result(tmp_path, replace(SOME, evidence=evidence), {"en": b"picture"})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"number": 4}'])
def test_a_damaged_result_is_named(tmp_path, damage):
    (tmp_path / "04.json").write_text(damage)
    with pytest.raises(InputError, match=r"04\.json is not the result of a claim") as error:
        read_result(tmp_path, 4)
    assert "glasshead claims 4" in error.value.hint


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """The folder of claims, to be changed."""
    folder = tmp_path / "claims"
    shutil.copytree(store.FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(store, "FOLDER", folder)
    return folder


def touch(path):
    path.write_text(path.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("changed", "claim", "is_other"),
    [
        ("c03_causal.py", 3, True),  # its own file
        ("models.py", 3, True),  # what it imports
        ("stats.py", 3, True),
        ("claim.py", 3, True),
        ("c01_scale.py", 2, True),  # claim 2 takes the scale from claim 1
        ("training.py", 7, True),
        ("drawing.py", 3, False),  # figures are drawn anew
        ("training.py", 3, False),  # what it does not import
        ("c04_mask_order.py", 3, False),
        ("report.py", 3, False),
    ],
)
def test_the_hash_is_that_of_the_code_that_matters(copy, changed, claim, is_other):
    before = code_hash(claim)
    touch(copy / changed)
    assert (code_hash(claim) != before) is is_other


def test_a_result_of_other_code_is_not_current(copy):
    one = make_result(3)
    assert one.is_current
    touch(copy / "c03_causal.py")
    assert not one.is_current


def test_every_claim_says_who_it_is_in_both_languages():
    for number in claims.claim_modules():
        claim = claims.load_claim(number)
        assert claim.number == number
        for words in (claim.title, claim.claim, claim.how, claim.counts_for, claim.counts_against):
            assert any("a" <= c <= "z" for c in words.en)
            assert any("\u4e00" <= c <= "\u9fff" for c in words.zh)


def test_listing_claims_imports_none_of_them():
    code = "import sys; from glasshead.lab.claims import claim_modules; claim_modules()\n"
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
