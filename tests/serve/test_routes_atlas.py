"""What the page's Atlas is told: pages of cells, rows and text, the same as the whole map gives."""

import httpx
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glasshead.generation.opening import open_inspectable
from glasshead.observe.inspectable import RecordConfig
from glasshead.observe.trace import Trace, open_glass
from glasshead.page import atlas_answers
from glasshead.text.tinyworld import World, corpus
from tests.serve.made_up import SCRIPT, long_atlas

TEXT = "".join(corpus(24, "zh", 1))  # longer than what the models were trained on


@pytest.fixture(scope="module")
def ask(served):
    with httpx.Client(base_url=served.url, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def told(ask):
    answer = ask.post("/api/atlas", json={"model": "writer", "text": TEXT})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def dense(world_runs):
    """All weights, from a recording of its own."""
    seen = open_inspectable(world_runs / "writer").record(TEXT, RecordConfig(beyond=True))
    return torch.stack([seen.weights(layer.index)[0] for layer in seen.layers]).double()


def page(ask, told, **where):
    answer = ask.get(f"/api/seen/{told['seen']}/cells", params=where)
    assert answer.status_code == 200, answer.text
    shape = [int(n) for n in answer.headers["x-shape"].split(",")]
    return np.frombuffer(answer.content, "<f4").reshape(2, *shape)


def test_what_was_recorded_is_described(told, dense):
    assert told["model"] == told["name"] == "writer"
    assert told["tokens"] == len(TEXT)
    assert len(told["layers"]) == len(dense)
    for index, layer in enumerate(told["layers"]):
        assert (layer["index"], layer["heads"]) == (index, dense.shape[1])
        assert layer["T"] == layer["S"] == len(TEXT)
        assert layer["causal"]
        assert layer["exact"]
        assert 128 << layer["levels"] - 1 >= len(TEXT) > 64 << layer["levels"] - 1
    sink = told["statistics"]["first_weight"]
    assert np.allclose(sink["values"], dense[..., 0].mean(-1), atol=1e-5)
    assert set(sink["explain"]) == {"en", "zh"}


def test_the_tokens_of_an_atlas_are_those_of_its_longer_text(world_runs):
    text = World.seed_story().text("zh")
    about = atlas_answers.describe_atlas(open_inspectable(world_runs / "translator").record(text))
    sides = {n for layer in about["layers"] for n in (layer["T"], layer["S"])}
    assert len(sides) > 1
    assert (about["tokens"], about["texts"]) == (max(sides), 2)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_page_holds_mean_and_max_of_the_weights(ask, told, dense, data):
    layer = data.draw(st.integers(0, len(dense) - 1))
    head = data.draw(st.integers(0, dense.shape[1] - 1))
    level = data.draw(st.integers(0, told["layers"][0]["levels"] - 1))
    pages = -(-len(TEXT) // (128 << level))
    row, col = (data.draw(st.integers(0, pages - 1)) for _ in range(2))
    hide = data.draw(st.booleans())
    found = page(ask, told, layer=layer, head=head, level=level, row=row, col=col, hide_sink=hide)
    weights = dense[layer, head].clone()
    weights[:, : int(hide)] = 0
    side = 1 << level
    rows, cols = (slice(n * 128 * side, (n + 1) * 128 * side) for n in (row, col))
    part = weights[rows, cols].numpy()

    def cells(how, x):
        return how.reduceat(how.reduceat(x, range(0, len(x), side), 0), range(0, len(x.T), side), 1)

    wanted = cells(np.add, part) / cells(np.add, np.ones_like(part))
    np.testing.assert_allclose(found[0], wanted, atol=2e-6)
    np.testing.assert_allclose(found[1], cells(np.maximum, part), atol=2e-6)


def test_a_page_is_kept_by_the_browser_and_not_computed_twice(ask, told):
    path = f"/api/seen/{told['seen']}/cells?layer=0&head=1&level=1&row=0&col=0"
    first = ask.get(path)
    assert "immutable" in first.headers["cache-control"]
    again = ask.get(path, headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = ask.get(path + "&hide_sink=true", headers={"if-none-match": first.headers["etag"]})
    assert other.status_code == 200
    gone = ask.get(
        path.replace(told["seen"], "x"), headers={"if-none-match": first.headers["etag"]}
    )
    assert gone.status_code == 404


def test_a_row_names_its_strongest_keys_and_one_that_is_asked_for(ask, told, dense):
    where = {"layer": 1, "head": 0, "query": 300, "key": 17, "top": 5}
    found = ask.get(f"/api/seen/{told['seen']}/row", params=where).json()
    row = dense[1, 0, 300]
    assert found["weight"] == pytest.approx(float(row[17]), abs=1e-6)
    assert found["text"][1] == TEXT[300]
    assert found["text"][0] + found["text"][1] + found["text"][2] == TEXT[288:313]
    best = row.topk(5)
    assert [one["key"] for one in found["keys"]] == best.indices.tolist()
    assert np.allclose([one["weight"] for one in found["keys"]], best.values, atol=1e-6)
    for one in found["keys"]:
        assert one["text"][1] == TEXT[one["key"]]


@given(start=st.integers(0, len(TEXT) + 9), length=st.integers(0, 300))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pieces_of_text_say_where_they_stand(ask, told, start, length):
    params = {"start": start, "stop": start + length}
    found = ask.get(f"/api/seen/{told['seen']}/tokens", params=params).json()
    assert found["total"] == len(TEXT)
    assert "".join(text for _, _, text in found["pieces"]) == TEXT[start : start + length]
    assert [at for at, _, _ in found["pieces"]] == list(
        range(start, min(start + length, len(TEXT)))
    )


def test_a_translator_has_two_texts(ask):
    answer = ask.post("/api/atlas", json={"model": "translator", "text": TEXT[:60]}).json()
    kinds = {(layer["part"], layer["kind"]): layer for layer in answer["layers"]}
    cross = kinds["decoder", "cross"]
    assert answer["texts"] == 2
    assert not cross["causal"]
    for side, size in (("rows", cross["T"]), ("cols", cross["S"])):
        params = {"layer": cross["index"], "side": side, "start": 0, "stop": 999}
        found = ask.get(f"/api/seen/{answer['seen']}/tokens", params=params).json()
        assert found["total"] == size == found["pieces"][-1][1]
    whole = page(ask, answer, layer=cross["index"], head=0, level=0, row=0, col=0)
    assert whole.shape == (2, cross["T"], cross["S"])
    np.testing.assert_allclose(whole[0].sum(-1), 1, atol=1e-5)


def test_look_and_atlas_share_what_was_recorded(ask):
    text = TEXT[:31]
    looked = ask.post("/api/look", json={"model": "reader", "text": text}).json()
    mapped = ask.post("/api/atlas", json={"model": "reader", "text": text}).json()
    assert looked["seen"] == mapped["seen"]
    assert ask.get(f"/api/seen/{looked['seen']}/map").json() == mapped


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("cells?layer=0&head=0&level=0&row=999&col=0", 400),
        ("cells?layer=0&head=99&level=0&row=0&col=0", 400),
        ("cells?layer=9&head=0&level=0&row=0&col=0", 400),
        ("cells?layer=0&head=0&level=40&row=0&col=0", 400),
        ("cells?layer=0&head=0&level=-1&row=0&col=0", 422),
        ("row?layer=0&head=0&query=999999", 400),
        ("row?layer=0&head=0&query=0&key=999999", 400),
        ("row?layer=0&head=0&query=0&top=0", 422),
        ("tokens?start=0&stop=5&side=up", 422),
        ("tokens?start=0&stop=5&layer=77", 400),
    ],
)
def test_what_does_not_exist_is_said(ask, told, path, status):
    answer = ask.get(f"/api/seen/{told['seen']}/{path}")
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]


def test_texts_that_are_too_long_are_refused_with_a_way_out(server, world_runs):
    mine = server(world_runs, max_tokens=50, max_text=200)
    for text, said in (
        (TEXT[:51], "51 tokens, but writer reads 50"),
        (TEXT[:201], "201 characters"),
    ):
        answer = httpx.post(f"{mine.url}/api/atlas", json={"model": "writer", "text": text})
        assert answer.status_code == 400
        assert said in answer.json()["error"]["message"]
        assert ".glass" in answer.json()["error"]["hint"]
    answer = httpx.post(f"{mine.url}/api/atlas", json={"model": "writer", "text": ""})
    assert answer.status_code == 400


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    path = tmp_path_factory.mktemp("books") / "<b>long.glass"
    long_atlas(10_007).save(path)
    return path


def test_a_glass_file_is_opened_without_being_measured(server, book, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("it was measured, which takes minutes for a long text")

    monkeypatch.setattr(atlas_answers, "SOON", 10_000**2)  # as if it were one of them
    monkeypatch.setattr(Trace, "statistics", never)
    mine = server(book.parent)
    told = httpx.post(f"{mine.url}/api/open", json={"model": "<b>long.glass"}, timeout=60).json()
    assert (told["tokens"], told["statistics"], told["page"]) == (10_007, {}, 128)
    assert told["layers"][0]["levels"] == 8
    seen = open_glass(book)
    with httpx.Client(base_url=mine.url, timeout=60) as ask:
        where = {"layer": 0, "head": 1, "level": 2, "row": 17, "col": 7}
        found = page(ask, told, **where)
        tile = seen.tile(0, 1, slice(17 * 512, 18 * 512), slice(7 * 512, 8 * 512))
        wanted = tile.unflatten(0, (-1, 4)).unflatten(2, (-1, 4))
        np.testing.assert_allclose(found[0][: len(wanted)], wanted.mean((1, 3)), rtol=2e-4)
        np.testing.assert_allclose(found[1], wanted.amax((1, 3)), rtol=2e-4)
        params = {"layer": 0, "start": 5, "stop": 6}
        pieces = ask.get(f"/api/seen/{told['seen']}/tokens", params=params).json()["pieces"]
        assert pieces == [[5, 6, SCRIPT]]
        model = ask.post("/api/atlas", json={"model": "<b>long.glass", "text": "x"})
        assert model.status_code == 400
        assert ask.post("/api/open", json={"model": "none.glass"}).status_code == 404


def test_statistics_of_a_long_text_are_told_once_they_are_measured(monkeypatch):
    monkeypatch.setattr(atlas_answers, "SOON", 100)
    trace = long_atlas(137)
    assert atlas_answers.describe_atlas(trace)["statistics"] == {}
    trace.statistics(0)
    assert "entropy" in atlas_answers.describe_atlas(trace)["statistics"]
