"""`glasshead look -o x.html` writes the page that the server saves, with the same answers."""

import base64
import json
import re
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

from glasshead.generation.opening import open_inspectable
from glasshead.observe.trace import PAGE
from glasshead.observe.view import ViewConfig
from glasshead.page import saved_look
from glasshead.page.bundle import WEB
from glasshead.page.look_answers import LookView
from glasshead.page.saved_look import _AtlasRequests
from glasshead.text.tinyworld import World

from .byte_gpt import byte_gpt
from .conftest import until

TEXT = World.seed_story().text("zh")
LONG = " ".join(f"w{n % 7}" for n in range(650))


def data_of(html):
    return json.loads(re.search('id="embedded">(.*)</script>\n', html)[1])


@pytest.fixture
def look(cli, tmp_path):
    """Run `glasshead look ... -o x.html`; return the data in the page, and the last line said."""

    def run(model, *words):
        code, out, err = cli("look", model, *words, "-o", tmp_path / "x.html")
        assert (code, out) == (0, ""), err
        return data_of((tmp_path / "x.html").read_text("utf-8")), err

    return run


@pytest.fixture(scope="module")
def long_reader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long") / "bytes"
    byte_gpt(folder)
    return folder


def asked_of(client, data):
    """(request, answer in the file, answer of the server) of every request."""
    first = next((key for key in data["answers"] if key.startswith("POST /api/look ")), None)
    seen = ""
    if first is not None:
        body = json.loads(first.split(" ", 2)[2])
        seen = client.post("/api/look", json=body).json()["seen"]
    for key, saved in data["answers"].items():
        method, path, *body = key.split(" ", 2)
        path = path.replace("/api/seen/recorded", f"/api/seen/{seen}")
        if method == "GET":
            reply = client.get(path)
        else:
            reply = client.post(path, content=body[0].encode(),
                                headers={"content-type": "application/json"})  # fmt: skip
        assert reply.status_code == 200, (key, reply.text)
        yield key, saved, reply


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("reader", ()),
        ("reader", ("--from", "小猫", "--hide-sink")),
        ("reader", ("--query", "4", "--ratio")),
        ("writer", ("--layer", "1", "--head", "2", "--log")),
        ("translator", ()),
        ("translator", ("--layer", "encoder.1", "--from", "公园")),
        ("translator", ("--tokens", "--from", "es")),
    ],
)
def test_every_answer_in_the_file_is_the_servers(look, served, world_runs, model, options):
    data, _ = look(world_runs / model, TEXT, *options)
    kinds = set()
    with httpx.Client(base_url=served.url, timeout=60) as client:
        for key, saved, reply in asked_of(client, data):
            kinds.add(re.sub(r"/seen/\w+|\?.*| .*", "", key.split(" ", 1)[1]))
            assert saved["headers"]["content-type"] == reply.headers["content-type"]
            if "base64" in saved:
                assert base64.b64decode(saved["base64"]) == reply.content
                assert {**reply.headers, **saved["headers"]} == dict(reply.headers)
                continue
            told = reply.json()
            if "/api/models" in key:
                told = {"models": [m for m in told["models"] if m["id"] == model],
                        "version": told["version"]}  # fmt: skip
            assert saved["json"] == {**told, **({"seen": "recorded"} if "seen" in told else {})}
    assert kinds == {"/api/models", "/api/look", "/api/look/examples", "/api/thumbs",
                     "/api/weights", "/api/from", "/api/to", "/api/ablate"}  # fmt: skip


def test_the_file_has_every_head_every_word_and_every_switch(look, world_runs):
    data, said = look(world_runs / "reader", TEXT)
    for hide_sink in ("false", "true"):
        for ratio in ("false", "true"):
            end = f"tokens=false&hide_sink={hide_sink}&ratio={ratio}"
            wanted = {f"weights?layer={n}&head={h}&{end}" for n in range(2) for h in range(4)}
            wanted |= {f"{way}&{end}" for n in range(30)
                       for way in (f"from?layer=0&query={n}", f"to?layer=0&key={n}")}  # fmt: skip
            assert {f"GET /api/seen/recorded/{one}" for one in wanted} <= data["answers"].keys()
    assert "note" not in said


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ((), {}),
        (("--lang", "zh"), {"lang": "zh"}),
        (("--layer", "1", "--head", "3"), {"layer": "1", "head": "3"}),
        (("--layer", "1"), {"layer": "1"}),
        (("--from", "它#1"), {"query": "4"}),
        (("--query", "-1"), {"query": "29", "tokens": "1"}),
        (("--statistic", "sink"), {"stat": "first_weight"}),
        (("--log", "--hide-sink"), {"log": "1", "nosink": "1"}),
        (("--ratio", "--tokens"), {"ratio": "1", "tokens": "1"}),
    ],
)
def test_the_options_are_where_the_page_begins(look, world_runs, options, state):
    data, _ = look(world_runs / "reader", TEXT, *options)
    begin = {"view": "look", "model": "reader", "lang": "en", "text": TEXT}
    assert data["state"] == begin | state
    assert (data["kind"], data["views"]) == ("saved", ["look"])


def test_a_word_of_the_source_opens_the_encoder(look, world_runs):
    data, _ = look(world_runs / "translator", TEXT, "--from", "小猫")
    assert (data["state"]["layer"], data["state"]["query"]) == ("0", "2")
    assert "layer" not in look(world_runs / "translator", TEXT, "--from", "es")[0]["state"]


def test_what_was_recorded_gives_the_same_maps_from_its_file(look, world_runs, tmp_path):
    trace = open_inspectable(world_runs / "reader").record(TEXT)
    trace.save(tmp_path / "x.glass")
    data, _ = look(tmp_path / "x.glass")
    assert "text" not in data["state"]
    assert not [key for key in data["answers"] if "ablate" in key or "examples" in key]
    maps = {key: one for key, one in data["answers"].items() if "/weights?" in key}
    assert len(maps) == 8 * 4
    for hide_sink in (False, True):
        view = LookView(trace, ViewConfig(hide_sink=hide_sink))
        for layer, head in view.heads():
            path = f"GET /api/seen/recorded/weights?layer={layer}&head={head}&tokens=false"
            found = maps[f"{path}&hide_sink={str(hide_sink).lower()}&ratio=false"]
            values = np.frombuffer(base64.b64decode(found["base64"]), "<f4")
            np.testing.assert_array_equal(values, view.map((layer, head)).flatten())


@pytest.mark.parametrize(
    ("lang", "note"), [("en", "of 8 heads; --layer L puts"), ("zh", "只放得下 8 个头中")]
)
def test_what_has_no_room_is_said_and_the_chosen_layer_comes_first(
    look, world_runs, monkeypatch, lang, note
):
    monkeypatch.setattr(saved_look, "ROOM", 75_000)
    data, said = look(world_runs / "reader", TEXT, "--layer", "1", "--lang", lang)
    heads = re.findall(r"weights\?layer=(\d)&head=(\d)&", " ".join(data["answers"]))
    assert 0 < len(heads) < 8
    assert {layer for layer, _ in heads[:4]} == {"1"}
    assert (data["state"]["layer"], data["state"]["head"]) == heads[0]
    assert note in said
    assert {"from", "to"} <= set(re.findall(r"recorded/(\w+)\?", " ".join(data["answers"])))
    size = sum(len(one.get("base64", "")) for one in data["answers"].values())
    assert size < 75_000


def test_a_long_text_opens_in_the_atlas(look, long_reader):
    data, _ = look(long_reader, LONG, "--layer", "1", "--head", "2", "--statistic", "sink")
    assert data["views"] == ["atlas"]
    assert data["state"] == {"view": "atlas", "model": "bytes", "seen": "recorded", "lang": "en",
                             "layer": "1", "head": "2", "by": "first_weight"}  # fmt: skip
    told = data["answers"]["GET /api/seen/recorded/map"]["json"]
    top = told["layers"][0]["levels"] - 1
    trace = open_inspectable(long_reader).record(LONG)
    for layer in range(2):
        for head in range(3):
            path = f"cells?layer={layer}&head={head}&level={top}&row=0&col=0"
            found = data["answers"][f"GET /api/seen/recorded/{path}"]
            values = np.frombuffer(base64.b64decode(found["base64"]), "<f4")
            cells = trace.cells(layer, head, top)
            np.testing.assert_allclose(values, np.stack(cells).flatten(), rtol=1e-5)
    pages = [sum(f"layer=1&head=2&level={n}&" in key for key in data["answers"]) for n in range(5)]
    assert pages == [0, 8 * 9 // 2, 4 * 5 // 2, 2 * 3 // 2, 1]  # below the diagonal, while they fit
    rows = [key for key in data["answers"] if "tokens?layer=1&side=rows" in key]
    assert len(rows) == -(-len(LONG) // 128)


def test_the_page_of_a_long_text_has_its_own_limits(cli, long_reader, tmp_path):
    code, _, err = cli("look", long_reader, LONG, "--ratio", "-o", tmp_path / "x.html")
    assert code == 2
    assert "--ratio needs a text of at most 400 words" in err


def test_no_text_can_end_the_script(look, long_reader, tmp_path):
    text = "a</script><script>x"
    data, _ = look(long_reader, text)
    html = (tmp_path / "x.html").read_text("utf-8")
    assert html.count("<script") == 2
    assert "default-src 'none'" in html
    assert data["state"]["text"] == text


def test_the_limits_are_those_of_the_page():
    recorded, view, text = (
        (WEB / name).read_text("utf-8")
        for name in ("answers.js", "views/look.js", "views/atlas_text.js")
    )
    assert float(re.search(r"ROOM = ([\de]+);", recorded)[1]) == saved_look.ROOM
    assert int(re.search(r"MOST = (\d+);", view)[1]) == saved_look.MAX_ANSWERS
    assert int(re.search(r"CHUNK = (\d+);", text)[1]) == saved_look.CHUNK


@pytest.mark.deep
@pytest.mark.parametrize("model", ["reader", "writer", "translator"])
def test_it_is_what_the_page_itself_saves(page, served, look, world_runs, tmp_path, model):
    page.goto(f"{served.url}/#view=look&model={model}&text={TEXT}&lang=en")
    page.wait_for_selector(".result tbody tr")
    page.wait_for_function("() => !document.querySelector('.view.busy')")
    page.wait_for_load_state("networkidle")
    page.click("#save")
    with page.expect_download() as download:
        page.click("#save-menu [data-kind=html]")
    download.value.save_as(tmp_path / "saved.html")
    saved = data_of((tmp_path / "saved.html").read_text("utf-8"))
    mine, _ = look(world_runs / model, TEXT)
    [seen] = {m for key in saved["answers"] for m in re.findall(r"/api/seen/(\w+)/", key)}
    saved = json.loads(json.dumps(saved).replace(seen, "recorded"))
    del saved["answers"]["GET /api/models"]["json"]["limits"]
    assert saved["answers"].keys() == mine["answers"].keys()
    assert saved["answers"] == mine["answers"]
    assert {**mine["state"], "theme": "light"} == saved["state"]
    assert {name: saved[name] for name in ("kind", "views", "kept")} == {
        "kind": "saved", "views": ["look"], "kept": None,
    }  # fmt: skip


@pytest.mark.deep
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_file_opens_without_a_server(page, look, world_runs, long_reader, tmp_path, theme):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.context.set_offline(True)
    page.emulate_media(color_scheme=theme)
    look(world_runs / "reader", TEXT, "--from", "它", "--layer", "1", "--head", "2")
    page.goto((tmp_path / "x.html").as_uri())
    page.wait_for_selector(".head-name:text-is('Layer 1 · head 2')")
    page.wait_for_selector(".result tbody tr")
    assert page.evaluate("() => document.documentElement.dataset.theme") == theme
    assert page.inner_text(".settings .chip") == "Saved page"
    page.locator(".thumb").first.click()
    page.wait_for_selector(".head-name:text-is('Layer 0 · head 0')")
    page.click("#language")
    page.wait_for_selector(".head-name:text-is('第 0 层 · 第 0 头')")
    assert page.locator(".problem").count() == 0
    look(long_reader, LONG)
    page.goto((tmp_path / "x.html").as_uri())
    page.wait_for_selector(".map[data-missing='0']:not(.busy)")
    page.wait_for_selector(".strip span[data-at]")
    until(lambda: page.locator(".problem").count() == 0)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    page.troubles.clear()  # a file is no server


@pytest.mark.parametrize(("T", "S"), [(1409, 1409), (701, 2111)])
def test_pages_are_left_out_only_where_the_causal_mask_hides_all_of_them(T, S):
    level, side = 1, 2 * PAGE
    made = SimpleNamespace(layer={"T": T, "S": S, "causal": True}, page=lambda *place: place)
    places = [(row, col) for row in range(-(-T // side)) for col in range(-(-S // side))]
    seen = {
        (level, row, col)
        for row, col in places
        if any(col * side <= query + S - T for query in range(row * side, (row + 1) * side))
    }
    assert set(_AtlasRequests._visible(made, level, places)) == seen
    assert 0 < len(seen) < len(places)
