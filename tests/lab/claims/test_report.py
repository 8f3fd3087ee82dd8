"""The report says what was found, in both languages, and nothing else."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from glasshead.errors import InputError
from glasshead.lab.claims import claim_modules, report
from glasshead.lab.claims.errata import ERRATA
from glasshead.lab.claims.report_docs import format_number, pages
from glasshead.lab.claims.store import write_result
from tests.lab.claims.cases import make_result


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Results of three claims, and of a ladder of two rungs."""
    claims, ladder = tmp_path_factory.mktemp("claims"), tmp_path_factory.mktemp("ladder")
    for n in (3, 4, 13):
        write_result(claims, make_result(n), {})
    climb = {"rung": 1, "seed": 0, "steps": 9, "parameters": 1234, "train": 5.5, "val": 5.25,
             "tokens_per_s": 9.0, "curve": [{"step": 9, "train": 5.5, "val": 5.25}]}  # fmt: skip
    row = {"rung": 1, "parameters": 1234, "train": 5.5, "train_sd": 0.01, "val": 5.25,
           "val_sd": 0.02, "best_val": 5.25, "tokens_per_s": 9.0, "climbs": [climb, climb],
           "adds": "x", "model": {}, "lr": 0.1, "batch_size": 3}  # fmt: skip
    rungs = [row, {**row, "rung": 2, "val": 5.125, "climbs": [{**climb, "rung": 2}]}]
    text = {"name": "some.txt", "characters": 12345, "vocabulary": 67}
    (ladder / "ladder.json").write_text(json.dumps({"text": text, "rungs": rungs}))
    return claims, ladder


@pytest.fixture(scope="module")
def found(folders):
    return report.read_results(*folders)


@pytest.fixture(scope="module")
def page(found, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "deep" / "report.html"
    report.write_page(found, path, "zh")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def docs(found, tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    report.write_docs(found, folder)
    return folder


@pytest.fixture(scope="module")
def text(docs):
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(docs.rglob("*.md")))


class Text(HTMLParser):
    """What is shown of each language, tags balanced."""

    def __init__(self):
        super().__init__()
        self.open, self.shown, self.sources = [], {"en": "", "zh": ""}, []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "img":
            self.sources.append(attrs["src"])
        if tag not in ("img", "meta", "input", "br"):
            self.open.append((tag, attrs.get("lang")))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        langs = [lang for tag, lang in self.open if lang and tag != "html"]
        for lang in langs[-1:] or ("en", "zh"):
            self.shown[lang] += data


def test_the_page_shows_every_claim_in_both_languages(found, page):
    source, page = page, Text()
    page.feed(source)
    assert page.open == []
    for one in found.claims.values():
        assert one.finding.words.en in page.shown["en"]
        assert one.finding.words.zh in page.shown["zh"]
        assert one.finding.words.zh not in page.shown["en"]
    assert "5.250 ± 0.020" in page.shown["en"]
    assert "−0.125" in page.shown["en"]  # what rung 2 adds
    assert len(page.sources) == 2 * 4
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in page.sources)


def test_the_page_loads_nothing(page):
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)
    assert "url(" not in page
    assert "<script" not in page


def test_docs_can_be_read_back(found, docs):
    assert report.read_docs(docs) == found


def test_docs_have_their_pictures_and_links(docs):
    pictures = 0
    for page in docs.rglob("*.md"):
        for place in re.findall(r"\]\((.+?)\)", page.read_text(encoding="utf-8")):
            path = page.parent / place
            assert path.exists(), (page.name, place)
            pictures += path.suffix == ".png"
            # A Chinese page leads to Chinese pages.
            assert path.suffix != ".md" or (".zh." in path.name) == (".zh." in page.name)
    assert pictures == 2 * 4


def test_each_claim_has_a_page_whose_figure_comes_first(docs, found):
    for number, one in found.claims.items():
        for end in ("md", "zh.md"):
            lines = (
                (docs / "claims" / f"{number:02}.{end}").read_text(encoding="utf-8").split("\n\n")
            )
            assert lines[1].startswith(f"# {number}. ")
            assert lines[2].startswith("![")
            assert lines[4].startswith(f"**{one.finding.label['zh' if end == 'zh.md' else 'en']}**")


def test_the_table_fits_on_one_screen(docs):
    text = (docs / "claims.md").read_text(encoding="utf-8")
    table = text.split("\n## ")[0].splitlines()
    assert len(table) < 50
    assert "**" not in text


def test_docs_hold_every_finding_in_both_languages(found, text):
    for one in found.claims.values():
        assert one.finding.words.en in text
        assert one.finding.words.zh in text
        for value in one.finding.numbers.values():
            assert text.count(format_number(value)) >= 2


def test_claims_that_were_not_measured_are_named(text):
    [line] = [line for line in text.splitlines() if line.startswith("Not yet measured")]
    named = {int(n) for n in re.findall(r"\d+", line)}
    assert named == set(claim_modules()) - {3, 4, 13}


def test_all_sixteen_errors_are_named_in_both_languages(text):
    assert len(ERRATA) == 17
    for one in ERRATA:
        for words in (one.says, one.correct):
            assert words.en in text
            assert words.zh in text


def test_without_a_ladder_there_is_no_ladder(folders, tmp_path):
    found = report.read_results(folders[0], tmp_path)
    assert found.ladder is None
    assert not [name for name in pages(found.claims, None) if "ladder" in name]


def test_nothing_to_report_and_a_damaged_ladder_are_named(folders, tmp_path):
    with pytest.raises(InputError, match="no claim has been measured"):
        report.read_results(tmp_path, tmp_path)
    (tmp_path / "ladder.json").write_text("{}")
    with pytest.raises(InputError, match=r"ladder\.json is not a result of the ladder"):
        report.read_results(folders[0], tmp_path)


def test_a_result_of_other_code_that_cannot_be_drawn_is_named(found, tmp_path):
    old = replace(found.claims[4], evidence={}, code="of another day")
    with pytest.raises(InputError, match="claim 4 was measured by another version"):
        report.write_docs(replace(found, claims={4: old}), tmp_path)
