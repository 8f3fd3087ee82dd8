"""Pictures show what was recorded: the numbers in them are parsed and compared."""

import io
import re
import struct
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from rich.cells import cell_len
from rich.console import Console

from glasshead.errors import InputError
from glasshead.observe import picture_png
from glasshead.observe.colours import COLOURS, Scale, palette
from glasshead.observe.fonts import chinese_font
from glasshead.observe.picture import (
    grid_sheet,
    head_sheet,
    looks_sheet,
    save,
    statistic_sheet,
)
from glasshead.observe.picture_svg import svg
from glasshead.observe.picture_terminal import print_sheet
from glasshead.observe.trace import open_glass
from glasshead.observe.view import View, ViewConfig
from glasshead.observe.wording import ROLES, STATISTICS, TEXTS
from tests.observe import recordings

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    return recordings.read(tmp_path_factory.mktemp("runs"))


def console(color=None, width=100):
    return Console(file=io.StringIO(), color_system=color, width=width, force_terminal=bool(color),
                   highlight=False, markup=False)  # fmt: skip


def printed(sheet, screen):
    print_sheet(sheet, screen)
    return screen.file.getvalue()


def titles(picture):
    """What the cells of an SVG say when pointed at."""
    root = ElementTree.fromstring(picture)
    return [title.text for title in root.findall(f".//{SVG}g/{SVG}rect/{SVG}title")]


# -- numbers in pictures --


def test_every_cell_of_an_svg_says_its_number(seen):
    sheet = head_sheet(View(seen), (1, 2))
    [shown] = sheet.maps
    expected = {
        f"{row} → {col}: {shown.values[i, j]:.6g}"
        for i, row in enumerate(shown.rows)
        for j, col in enumerate(shown.cols)
        if shown.values[i, j] != 0
    }
    assert set(titles(svg(sheet))) == expected


def test_the_bars_are_ranked(seen):
    view = View(seen)
    sheet = looks_sheet(view, [(2, 0)], "它")
    root = ElementTree.fromstring(svg(sheet))
    bars = [r for r in root.findall(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
    widths = [float(bar.get("width")) for bar in bars]
    values = [float(bar.find(f"{SVG}title").text.rpartition(": ")[2]) for bar in bars]
    assert len(values) > 3
    assert values == sorted(values, reverse=True)
    assert widths == sorted(widths, reverse=True)
    lines = printed(sheet, console()).splitlines()[2:]
    shown = [float(line.split()[1]) for line in lines]
    assert shown == sorted(shown, reverse=True)
    assert shown[0] == pytest.approx(values[0], abs=5e-4)


def test_bars_of_any_head_have_one_scale_or_say_theirs(seen):
    view, lengths = View(seen), {}
    for head in view.heads():
        sheet = looks_sheet(view, [head], "它")
        told = [note for note in sheet.notes if "full bar" in note]
        root = ElementTree.fromstring(svg(sheet))
        first = next(r for r in root.findall(f"{SVG}rect") if r.find(f"{SVG}title") is not None)
        value = float(first.find(f"{SVG}title").text.rpartition(": ")[2])
        full = float(told[0].split()[-1].rstrip(".")) if told else 1.0
        assert full / 10 < value <= full * 1.001
        lengths[head] = float(first.get("width")) * full / value
    assert max(lengths.values()) == pytest.approx(min(lengths.values()), rel=0.01)
    times = looks_sheet(View(seen, ViewConfig(ratio=True)), [(2, 0)], "它").notes[-1]
    assert times in ("A full bar is 10.", "A full bar is 100.")


@pytest.mark.parametrize("option", ["log", "ratio", "hide_sink", "tokens"])
@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_title_says_what_was_done_to_the_numbers(seen, option, lang):
    sheet = head_sheet(View(seen, ViewConfig(**{option: True})), (0, 1), lang)
    assert TEXTS[lang][option] in sheet.notes
    assert TEXTS[lang][option] in unescape(svg(sheet).decode())


def test_a_heat_map_has_the_statistics(seen):
    sheet = statistic_sheet(View(seen), "sink")
    [shown] = sheet.maps
    assert shown.name == "first_weight"
    expected = torch.stack([seen.statistics(n).means()["first_weight"][0] for n in range(3)])
    assert torch.equal(shown.values, expected)
    assert len(titles(svg(sheet))) == 12
    assert titles(svg(sheet))[5] == f"1 → 1: {expected[1, 1]:.6g}"


def test_each_language_says_everything():
    for table in (TEXTS, ROLES, STATISTICS):
        assert table["zh"].keys() == table["en"].keys()
    for key, english in TEXTS["en"].items():
        assert re.findall(r"{\w+}", english) == re.findall(r"{\w+}", TEXTS["zh"][key]), key


# -- the terminal --


def test_columns_are_straight_whatever_is_in_the_labels(seen):
    sheet = head_sheet(View(seen), (1, 2))
    lines = printed(sheet, console()).splitlines()
    cells = lines[-len(sheet.maps[0].rows) - 2 : -2]
    side = max(map(cell_len, sheet.maps[0].rows)) + 1
    assert {cell_len(line) for line in cells} == {side + 2 * len(sheet.maps[0].cols)}
    above = lines[-len(sheet.maps[0].rows) - 3]
    assert [above[j] for j in range(side, side + 3)] == ["那", "只", "小"]


def test_without_colours_shades_tell_the_weight(seen):
    out = printed(head_sheet(View(seen), (1, 2)), console())
    assert "\x1b" not in out
    assert "那" in out
    first = next(line for line in out.splitlines() if re.match(r"那\s+█", line))
    assert first.split()[1] == "██"


def test_colours_of_cells_are_those_of_the_palette(seen):
    sheet = head_sheet(View(seen), (1, 2))
    out = printed(sheet, console("truecolor"))
    [shown] = sheet.maps
    shade = Scale.of(shown.values, "linear").shades(shown.values)[4, 2]
    red, green, blue = palette("linear")[shade]
    row = next(line for line in out.splitlines() if line.startswith("看"))
    assert f"48;2;{red};{green};{blue}m" in row


def test_a_wide_map_is_split_and_small_maps_stand_side_by_side(seen):
    view = View(seen)
    for width in (30, 61, 100):
        for sheet in (head_sheet(view, (0, 0)), grid_sheet(view, view.heads(1))):
            for colour in (None, "truecolor"):
                screen = console(colour, width)
                plain = re.sub(r"\x1b\[[\d;]*m", "", printed(sheet, screen))
                body = plain.split("\n\n", 1)[1]
                assert max(map(cell_len, body.splitlines())) <= max(width, 46)


# -- files --


def test_a_png_is_as_large_as_its_layout_and_not_blank(seen, tmp_path):
    view = View(seen)
    if chinese_font() is None:
        pytest.skip("no font with Chinese characters")
    for name, sheet in {
        "head": head_sheet(view, (1, 2), "zh"),
        "grid": grid_sheet(view, view.heads(), "en"),
        "bars": looks_sheet(view, [(1, 2)], "它", "zh"),
        "looks": looks_sheet(view, view.heads(), "它", "zh"),
        "heat": statistic_sheet(view, "entropy"),
    }.items():
        save(sheet, tmp_path / f"{name}.png")
        data = (tmp_path / f"{name}.png").read_bytes()
        width, height = struct.unpack(">II", data[16:24])
        drawn = picture_png.layout(sheet)
        assert abs(width - 2 * drawn.width) <= 2
        assert abs(height - 2 * drawn.height) <= 2
        assert len(data) > 5000


def test_without_a_chinese_font_a_png_is_refused_and_an_svg_is_not(seen, tmp_path, monkeypatch):
    monkeypatch.setattr("glasshead.observe.fonts.chinese_font", lambda text="": None)
    sheet = head_sheet(View(seen), (1, 2))
    with pytest.raises(InputError, match=r"no installed font has '[^']', so") as caught:
        save(sheet, tmp_path / "head.png")
    assert ".svg or .html" in caught.value.hint
    save(sheet, tmp_path / "head.svg")
    assert len(titles((tmp_path / "head.svg").read_bytes())) > 100


def test_a_recording_looks_the_same_from_its_file(seen, tmp_path):
    seen.save(tmp_path / "x.glass")
    again = open_glass(tmp_path / "x.glass")
    view, other = View(seen), View(again)
    assert svg(head_sheet(view, (1, 2))) == svg(head_sheet(other, (1, 2)))


# -- colours --


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_more_weight_is_always_further_from_the_paper(theme):
    paper = int(COLOURS[theme]["paper"][1:3], 16)
    brightness = palette("linear", theme).astype(float) @ [0.3, 0.6, 0.1]
    steps = np.diff(np.abs(brightness - paper))
    assert (steps >= -0.75).all()  # rounding to whole numbers
    assert abs(brightness[-1] - brightness[0]) > 150


def test_a_row_without_a_choice_does_not_make_others_pale():
    scale = Scale.of([[1, 0, 0], [0.25, 0.5, 0], [0.25, 0.25, 0.25]], "linear")
    assert scale.high == 0.5
    assert scale.shades([[0, 0.5, 1, np.nan]]).tolist() == [[0, 255, 255, 0]]
    assert scale.ends([[1.0]]) == ("0", "≥0.500")
    assert Scale.of([[1.0, 0.0]], "linear").high == 1
    logarithmic = Scale.of([[1e-6, 1e-2, 1.0]], "log").shades([1e-6, 1e-2, 1.0])
    assert logarithmic.tolist() == [0, 128, 255]
