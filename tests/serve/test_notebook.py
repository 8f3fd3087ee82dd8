"""`seen.show()`: what the widget's page asks is answered by the kernel, in real numbers."""

import base64
import json
import re
import sys

import numpy as np
import pytest

from glasshead.errors import InputError
from glasshead.observe.trace import Trace, open_glass
from glasshead.serve.library import Library
from glasshead.text.tinyworld import World

from .made_up import SCRIPT, long_atlas

notebook = pytest.importorskip("glasshead.serve.notebook", reason="needs anywidget")

TEXT = World.seed_story().text("zh")


@pytest.fixture(scope="module")
def seen(world_runs):
    return Library(world_runs).open("reader").inspectable.record(TEXT)


@pytest.fixture(scope="module")
def book():
    return long_atlas(3001)


@pytest.fixture
def shown(monkeypatch):
    """`shown(seen)`: a widget, and `ask(method, path, body)` as a notebook's messages carry it."""

    def show(atlas, **how):
        widget = atlas.show(**how)
        sent = []
        monkeypatch.setattr(
            type(widget), "send", lambda self, content, buffers: sent.append((content, buffers))
        )

        def ask(method, path, body=None, number=7):
            body = None if body is None else json.dumps(body)
            widget._handle_custom_msg(
                {"frame": "a", "glasshead": number, "method": method, "path": path, "body": body},
                [],
            )
            content, [data] = sent.pop()
            assert (content["frame"], content["glasshead"]) == ("a", number)
            return content["status"], content["headers"], data

        return widget, ask

    return show


def embedded_data(widget):
    return json.loads(re.search('id="embedded">(.*)</script>\n', widget.html)[1])


def test_a_short_text_is_looked_at_and_its_weights_are_the_atlas(shown, seen):
    widget, ask = shown(seen)
    assert embedded_data(widget) == {"kind": "notebook", "views": ["look", "atlas"],
                               "state": {"view": "look"}}  # fmt: skip
    status, _, data = ask("POST", "/api/look", {"model": "atlas", "text": "", "tokens": True})
    told = json.loads(data)
    assert status == 200
    assert "".join(word["text"] for word in told["words"]) == TEXT
    assert [layer["heads"] for layer in told["layers"]] == [
        seen.shape(n)[1] for n in seen.layer_traces
    ]
    path = f"/api/seen/{told['seen']}/weights?layer=1&head=2&tokens=true"
    status, headers, data = ask("GET", path)
    found = np.frombuffer(data, "<f4").reshape([int(n) for n in headers["x-shape"].split(",")])
    np.testing.assert_allclose(found, seen.weights(1)[0, 2].numpy(), rtol=1e-6)


def test_tiles_and_rows_of_a_long_one_are_computed_when_asked_for(shown, book):
    widget, ask = shown(book, head=1, lang="zh")
    assert embedded_data(widget)["state"] == {"view": "atlas", "head": "1", "lang": "zh"}
    _, _, data = ask("POST", "/api/open", {"model": "atlas"})
    told = json.loads(data)
    assert (told["name"], told["tokens"]) == ("Made up", 3001)
    where = "layer=0&head=1&level=2&row=3&col=2"
    _, headers, data = ask("GET", f"/api/seen/{told['seen']}/cells?{where}")
    mean, top = np.frombuffer(data, "<f4").reshape(2, *map(int, headers["x-shape"].split(",")))
    exact = book.cells(0, 1, 2, slice(384, 512), slice(256, 384))
    np.testing.assert_array_equal(mean, exact.mean.numpy())
    np.testing.assert_array_equal(top, exact.max.numpy())
    _, _, data = ask("GET", f"/api/seen/{told['seen']}/row?layer=0&head=1&query=2001&top=3")
    keys, weights, _ = book.top(0, 1, 2001, 3)
    row = json.loads(data)["keys"]
    assert [one["key"] for one in row] == keys.tolist()
    assert [one["weight"] for one in row] == pytest.approx(weights.tolist())


def test_what_cannot_be_answered_is_told_as_on_the_server(shown, seen):
    _, ask = shown(seen)
    assert ask("GET", "/api/seen/none/map")[0] == 404
    assert ask("POST", "/api/look", {"model": "other", "text": ""})[0] == 404
    status, _, data = ask("POST", "/api/ablate", {"model": "atlas", "text": "它"})
    assert status == 400, data
    assert ask("GET", "/api/runs/atlas/config")[0] == 404
    assert ask("DELETE", "/api/models")[0] == 405
    assert ask("GET", "/../secret")[0] == 404


def test_an_atlas_without_words_is_shown_as_a_map(book, shown):
    bare = Trace(book.layers, model="bare")
    bare.layer_traces = book.layer_traces
    assert embedded_data(shown(bare)[0])["views"] == ["atlas"]


def test_a_file_is_shown_like_what_was_recorded(tmp_path, seen, shown):
    seen.save(tmp_path / "x.glass")
    widget, ask = shown(open_glass(tmp_path / "x.glass"))
    assert embedded_data(widget)["views"] == ["look", "atlas"]
    assert ask("POST", "/api/look", {"model": "atlas", "text": ""})[0] == 200


def test_without_anywidget_one_line_says_how_to_get_it(seen, monkeypatch):
    monkeypatch.delitem(sys.modules, "glasshead.serve.notebook")
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(InputError, match="showing needs anywidget, which is not installed") as told:
        seen.show()
    assert 'pip install -e ".[notebook]" -c constraints.txt' in told.value.hint


HOLD = """
async ({ esm, html }) => {
  const listeners = new Set();
  const model = {
    get: (name) => ({ html, height: 700 })[name],
    on: (_, fn) => listeners.add(fn),
    off: (_, fn) => listeners.delete(fn),
    send: async (content) => {
      const { told, data } = await toKernel(content);
      const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
      for (const fn of listeners) fn(told, [new DataView(bytes.buffer)]);
    },
  };
  const widget = await import("data:text/javascript;base64," + esm);
  for (const id of ["one", "two"]) {
    const el = document.body.appendChild(document.createElement("div"));
    el.id = id;
    widget.default.render({ model, el });
  }
}
"""


@pytest.fixture
def held(page, shown):
    """The widget's own script in a page, shown twice, with this test as the kernel."""

    def hold(atlas, **how):
        widget, ask = shown(atlas, **how)
        asked = []

        def to_kernel(content):
            asked.append(content["path"])
            body = None if content["body"] is None else json.loads(content["body"])
            status, headers, data = ask("POST" if body else "GET", content["path"], body)
            told = {"frame": content["frame"], "glasshead": content["glasshead"],
                    "status": status, "headers": headers}  # fmt: skip
            return {"told": told, "data": base64.b64encode(data).decode()}

        page.expose_function("toKernel", to_kernel)
        esm = base64.b64encode(widget._esm.encode()).decode()
        page.evaluate(HOLD, {"esm": esm, "html": widget.html})
        return page.frame_locator("#one iframe"), page.frame_locator("#two iframe"), asked

    return hold


@pytest.mark.deep
def test_the_widget_shows_the_look_of_the_page(page, held, seen):
    one, two, asked = held(seen, lang="en")
    for frame in (one, two):
        chosen = frame.locator(".strip[aria-pressed=true]")
        assert chosen.get_attribute("data-word") == "小猫"
    assert one.locator("textarea").count() == 0  # there is no model to read another text
    assert one.locator(".cut-card").is_hidden()
    before, shown = len(asked), two.locator(".head-name").inner_text()
    layer, head = (0, 0) if shown == "Layer 1 · head 3" else (1, 3)
    one.locator(f".thumb[data-head='{layer}:{head}']").click()
    one.locator(".head-name", has_text=f"Layer {layer} · head {head}").wait_for()
    assert any(f"weights?layer={layer}&head={head}" in path for path in asked[before:])
    assert two.locator(".head-name").inner_text() == shown
    assert page.locator("iframe").first.get_attribute("sandbox") == "allow-scripts allow-downloads"
    one.locator("#save").click()
    with page.expect_download() as download:
        one.locator("#save-menu [data-kind=html]").click()
    assert download.value.suggested_filename.endswith(".html")


@pytest.mark.deep
def test_the_widget_pans_a_map_whose_tiles_the_kernel_computes(page, held, book):
    one, _, asked = held(book, lang="en", at="2900,2900,4")
    one.locator(".map[data-missing='0'][data-level='0']").wait_for()
    assert any("/cells?" in path and "level=0" in path for path in asked)
    sheet = one.locator(".sheet").bounding_box()
    page.mouse.move(sheet["x"] + 360, sheet["y"] + 300)
    one.locator(".note ol li").first.wait_for()
    row = int(re.search(r"row ([\d,]+)", one.locator(".note").inner_text())[1].replace(",", ""))
    weight = float(one.locator(".note ol .number").first.inner_text())
    assert weight == pytest.approx(float(book.top(0, 0, row, 1).weights[0]), abs=6e-4)
    one.locator(".zooms button").last.click()
    one.locator(".map[data-missing='0']:not([data-level='0'])").wait_for()
    assert SCRIPT not in page.content().replace("\\u003c", "")
