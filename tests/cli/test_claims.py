"""`glasshead claims`, as it is typed."""

import json
import os
import re
import shutil

import pytest

from glasshead.cli import run
from tests.cli.test_cli import is_a_mistake


@pytest.fixture
def out(tmp_path):
    return tmp_path / "claims"


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A folder with claim 4, measured."""
    folder = tmp_path_factory.mktemp("measured") / "claims"
    assert run(["claims", "4", "--quick", "--jobs", "1", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def measured(once, out):
    """A folder of the test's own with claim 4, measured."""
    shutil.copytree(once, out)
    return out


def test_measuring_prints_the_verdict_and_its_numbers_and_keeps_them(cli, out):
    code, text, err = cli("claims", "4", "13", "--quick", "--jobs", "1", "--out", out)
    assert code == 0
    assert re.search(r"^ 4  Mask before softmax, not after: holds  \(quick, seeds 3", text, re.M)
    assert re.search(r"\d\.\d\d\s\[\d\.\d\d,\s\d\.\d\d\]", text)
    assert "13  Splitting the width keeps the cost constant: holds" in text
    assert err.splitlines() == ["claim 4 ...", "claim 13 ..."]
    kept = json.loads((out / "04.json").read_text())
    assert kept["finding"]["verdict"] == "holds"
    assert " ".join(kept["finding"]["words"]["en"].split()) in " ".join(text.split())


def test_what_is_stored_is_shown_and_not_measured_again(cli, measured):
    before = (measured / "04.json").read_bytes()
    code, text, err = cli("claims", "4", "--quick", "--out", measured)
    assert (code, err) == (0, "")
    assert "(measured 20" in text
    assert (measured / "04.json").read_bytes() == before
    assert cli("claims", "4", "--quick", "--again", "--out", measured).err == "claim 4 ...\n"


def test_seeds_can_be_chosen(cli, out):
    args = ("claims", "4", "--quick", "--seed-list", "21,5", "--search-seed-list", "2003")
    assert cli(*args, "--out", out).code == 0
    kept = json.loads((out / "04.json").read_text())
    assert (kept["seeds"], kept["search_seeds"]) == ([21, 5], [2003])
    assert cli(*args, "--out", out).err == ""  # it is stored
    # Other seeds have to be measured.
    assert cli("claims", "4", "--quick", "--seed-list", "5,6", "--out", out).err == "claim 4 ...\n"


def test_alone_it_lists_what_there_is(cli, measured):
    code, text, err = cli("claims", "--out", measured)
    assert code == 0
    lines = {int(line[:3]): line for line in text.splitlines() if line[:3].strip().isdigit()}
    assert "holds" in lines[4]
    assert "quick" in lines[4]
    assert "not yet" in lines[3]
    assert "glasshead claims --quick" in err


def test_results_of_other_code_are_marked(cli, measured):
    assert "since" not in cli("claims", "--out", measured).out
    path = measured / "04.json"
    path.write_text(path.read_text().replace('"code": "', '"code": "0'))
    text = cli("claims", "--out", measured).out
    assert "since" in text


def test_it_speaks_chinese(cli, measured):
    text = cli("claims", "4", "--quick", "--lang", "zh", "--out", measured).out
    assert "掩码要放在 softmax 之前: 成立" in text
    assert "尚未测量" in cli("claims", "--lang", "zh", "--out", measured).out


def test_the_report_is_one_file_or_a_page_of_the_docs(cli, measured, tmp_path):
    page = tmp_path / "page.html"
    assert cli("claims", "report", "-o", page, "--out", measured) == (0, f"{page}\n", "")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert cli("claims", "report", "--out", measured).out == f"{measured / 'report.html'}\n"
    docs = tmp_path / "docs"
    written = cli("claims", "report", "--docs", docs, "--out", measured).out.split()
    assert str(docs / "claims.md") in written
    assert (docs / "img" / "claims" / "04.zh.png").exists()


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["0"], "there is no claim '0'"),
        (["99"], "there is no claim '99'"),
        (["4", "scale"], "there is no claim 'scale'"),
        (["²"], "there is no claim '²'"),
        (["9" * 30], "there is no claim '999"),
        (["report"], "no claim has been measured"),
        (["4", "--seeds", "1"], "--seeds '1'"),
        (["4", "--seed-list", "1,x"], "--seed-list '1,x' is not a list of seeds"),
        (["4", "--seed-list", "5,5"], "has 1 different seeds, but 2 are needed"),
        (["4", "--seed-list", "1009,5"], "seed 1009 is both for results and for choosing rates"),
        (["4", "--jobs", "0"], "--jobs '0'"),
    ],
)
def test_a_bad_command_line(cli, args, error, out):
    first, _ = is_a_mistake(cli("claims", *args, "--out", out))
    assert error in first
    assert not out.exists()


@pytest.mark.skipif(os.name == "nt", reason="a folder in place of a file")
def test_a_folder_that_cannot_be_is_a_mistake(cli, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    first, hint = is_a_mistake(cli("claims", "4", "--quick", "--out", file))
    assert "cannot write to" in first
    assert "--out" in hint
