"""Which numbers the page shows, and what it saves: its functions on small data, in a browser."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from glasshead.observe.colours import palette
from tests.serve import test_page_look as look


def of_module(page, served, module, expression):
    """What a JavaScript expression gives; `m` is the module of that name."""
    if page.url == "about:blank":
        look.opened(page, served)
    return page.evaluate(f"async () => {{ const m = await import('/web/{module}.js'); "
                         f"return {expression}; }}")  # fmt: skip


def test_surprise_is_told_in_bits(page, served):
    told = of_module(page, served, "views/write_paper", "m.bits({logprob: Math.log(1 / 8)})")
    assert told == pytest.approx(3)


def test_the_mean_of_heads_is_their_mean(page, served):
    map_of = """[...m.mapOf({ shape: [2, 1, 3], source: [], target: [],
        weights: Float32Array.of(1, 0, 0, 0.5, 0.25, 0.25) }, "mean").weights]"""
    assert of_module(page, served, "views/translate_heads", map_of) == [0.75, 0.125, 0.125]


def test_a_cell_without_a_weight_has_the_colour_of_paper(page, served):
    pixels = """(() => { const scale = new m.Scale("linear", 0, 1);
        return [...scale.pixels(Float32Array.of(NaN, 1), "dark")]; })()"""
    paper = """(await import("/web/colours.js")).COLOURS.dark.paper"""
    got = of_module(page, served, "scale", pixels)
    wanted = of_module(page, served, "scale", paper)
    assert "#" + bytes(got[:3]).hex() == wanted.lower()
    assert got[4:7] != got[:3]


def test_lines_read_the_row_that_looks_or_the_column_that_is_looked_at(page, served):
    painted = """await (async () => {
        const { SvgPainter } = await import("/web/paint.js");
        const { Scale } = await import("/web/scale.js");
        const weights = Float32Array.of(0.9, 0.1, 0, 0.2, 0.3, 0.5, 0, 0.4, 0.6);
        const words = ["a", "b", "c"].map((text) => ({ text }));
        const box = (x, y) => ({ x, y, w: 90, h: 30 });
        const boxes = { rows: [0, 99, 198].map((x) => box(x, 0)),
                        cols: [0, 99, 198].map((x) => box(x, 200)) };
        return [{ row: 1, col: null }, { row: null, col: 1 }].map((focus) => {
          const painter = new SvgPainter().size(300, 300);
          const scale = Scale.of(weights, 3, "linear");
          m.paintLines(painter, { boxes, size: 19, same: false },
                       { rows: words, cols: words, weights, scale, ...focus, pinned: focus });
          return painter.toString();
        });
      })()"""
    row, col = of_module(page, served, "views/look_lines", painted)
    assert re.findall(r">(\d+)%<", row) == ["50", "30", "20"]
    assert re.findall(r">(\d+)%<", col) == ["40", "30", "10"]


def test_the_map_asks_for_cells_of_about_a_pixel_by_row_and_column(page, served):
    levels = """[2, 1, 0.6, 0.5, 0.3, 0.0001].map((px) => Object.assign(
        Object.create(m.AtlasMap.prototype), { layer: { finest: 0, levels: 5 }, camera: { px } }
      ).level)"""
    assert of_module(page, served, "views/atlas_map", levels) == [0, 0, 1, 1, 2, 4]
    path = "new m.Tiles(null, 'x', 256, {}).path({layer: 1, head: 2, hideSink: true}, 3, 5, 7)"
    wanted = "/api/seen/x/cells?layer=1&head=2&level=3&row=5&col=7&hide_sink=true"
    assert of_module(page, served, "views/atlas_tiles", path) == wanted


def test_a_cell_of_the_matrix_tells_the_weight_of_its_row_at_its_column(page, served):
    look.opened(page, served, "model=reader&lang=en&shape=matrix&layer=1&head=0")
    page.wait_for_selector(".result tbody tr")
    told = page.locator(".head-card [aria-live]").last
    words = [one["text"] for one in page.evaluate(
        """async text => (await (await import("/web/api.js")).post(
            "/api/look", { model: "reader", text })).words""", look.TEXT)]  # fmt: skip
    noun = words.index("小猫")
    page.focus(".cells-over")
    for key in ["ArrowUp", *["ArrowRight"] * noun, "ArrowDown"]:
        page.keyboard.press(key)
    found = re.fullmatch(r"它 → 小猫: ([\d.]+)", told.inner_text())
    assert found, told.inner_text()
    assert float(found[1]) > 0.5  # it looks at its noun; the noun does not look at it


def test_colours_are_those_of_the_theme(page, served):
    ramps = "['light', 'dark'].map((theme) => [...m.palette('linear', theme)])"
    for theme, ramp in zip(("light", "dark"), of_module(page, served, "scale", ramps), strict=True):
        assert np.abs(np.reshape(ramp, (256, 3)) - palette("linear", theme).astype(int)).max() <= 1


# A saved page: its text as a browser reads it, and what it would hold.

SAVED = """await (async () => {{
    const blobs = [];
    HTMLAnchorElement.prototype.click = () => {{}};
    URL.createObjectURL = (blob) => `blob:${{blobs.push(blob)}}`;
    const handle = {{ kept: () => ({kept}) }};
    const view = {{ id: "look", title: () => "" }};
    await m.save("html", {{ view, entry: null, handle, about: {{}} }}, document.body);
    return blobs[0].text();
  }})()"""


class Scripts(HTMLParser):
    """The scripts of a page: their ids and what stands inside."""

    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        if tag == "script":
            self.found.append((dict(attrs).get("id"), ""))

    def handle_data(self, data):
        if self.cdata_elem == "script":
            name, before = self.found.pop()
            self.found.append((name, before + data))


def test_a_saved_page_holds_what_was_typed_as_data_and_not_as_its_own_code(page, served):
    kept = [
        {"text": text}
        for text in (
            "plain",
            "</script><script>alert(1)</script>",
            "<!-- <script> -->",
            "&lt;\u2028",
        )
    ]
    names = set()
    for one in kept:
        scripts = Scripts(of_module(page, served, "save", SAVED.format(kept=json.dumps(one)))).found
        data = dict(scripts)["embedded"]
        assert json.loads(data)["kept"] == one
        assert "<" not in data  # or it could end the script
        names.add(tuple(name for name, _ in scripts))
    assert len(names) == 1  # no text adds a script
