"""Pictures, page and reports take their colours from one table."""

import re
from pathlib import Path

import glasshead
from glasshead.observe.colours import COLOURS, DIVERGING, SEQUENTIAL
from glasshead.page.bundle import WEB
from glasshead.page.colour_files import colour_files, css_variables

PACKAGE = Path(glasshead.__file__).parent
TABLE = {
    colour
    for table in (COLOURS, SEQUENTIAL, DIVERGING)
    for theme in table.values()
    for colour in (theme.values() if isinstance(theme, dict) else theme)
}


def test_the_files_of_the_page_are_those_of_the_table():
    for name, text in colour_files().items():
        assert (WEB / name).read_text("utf-8") == text, "run python -m glasshead.page.colour_files"


def test_no_colour_of_the_table_is_written_anywhere_else():
    files = [
        *(file for file in WEB.rglob("*") if file.suffix in {".js", ".css"}),
        *(PACKAGE / "observe").glob("*.py"),
        *(PACKAGE / "page").glob("*.py"),
        *(PACKAGE / "lab").glob("*.py"),
    ]
    sources = {PACKAGE / "observe/colours.py", WEB / "colours.js", WEB / "colours.css"}
    found = {
        (file.name, colour)
        for file in files
        if file not in sources
        for colour in re.findall(r"#[0-9a-f]{6}\b", file.read_text("utf-8"))
        if colour in TABLE
    }
    assert len(files) > 60
    assert found == set()


def test_both_themes_have_the_same_names_and_every_variable_of_the_page_is_in_the_table():
    assert COLOURS["light"].keys() == COLOURS["dark"].keys()
    styles = "".join(file.read_text("utf-8") for file in WEB.rglob("*.css"))
    scripts = "".join(file.read_text("utf-8") for file in WEB.rglob("*.js"))
    defined = set(re.findall(r"(--[\w-]+):", styles)) | set(re.findall(r"\"(--[\w-]+)\"", scripts))
    assert set(re.findall(r"var\((--[\w-]+)", styles)) <= defined
    report = (PACKAGE / "lab/report.css").read_text("utf-8")
    known = set(re.findall(r"(--[\w-]+):", css_variables()))
    assert set(re.findall(r"var\((--[\w-]+)", report)) <= known
