"""What the page's Look is told: the same numbers as observing in float64 gives."""

import json
import math

import httpx
import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from glasshead import load
from glasshead.generation.opening import open_inspectable
from glasshead.observe.ablation import Edge, ablating
from glasshead.observe.view import View, ViewConfig
from glasshead.observe.words import merge
from glasshead.page import predictions
from glasshead.serve.app import create_app
from glasshead.serve.config import ServeConfig
from glasshead.serve.library import Library
from glasshead.text.tinyworld import World

from .byte_gpt import byte_gpt

STORY = World.seed_story()
TEXT = STORY.text("zh")
IT = 26  # where the last 它 stands
CAT = 2


@pytest.fixture
def ask(served):
    with httpx.Client(base_url=served.url, timeout=60) as client:
        yield client


def look(ask, model="reader", text=TEXT, **options):
    answer = ask.post("/api/look", json={"model": model, "text": text, **options})
    assert answer.status_code == 200, answer.text
    return answer.json()


def numbers(answer):
    assert answer.status_code == 200, answer.text
    return np.frombuffer(answer.content, "<f4")


def exact(world_runs, model, text, layer, head):
    """The weights between tokens, from q and k in float64."""
    seen = open_inspectable(world_runs / model).record(text)
    q, k, _ = seen.layer_trace(layer).tensors()
    mask, scoring = seen.layer_trace(layer).mask_and_scoring()
    s = q[0, head].double() @ k[0, head].double().T * scoring.scale_for(q.shape[-1])
    allowed = mask.to_tensor(*s.shape)
    if allowed is not None:
        s = s.masked_fill(~allowed.expand(1, 1, *s.shape)[0, 0], -math.inf)
    return seen, s.softmax(-1)


def test_words_are_the_words_of_the_story(ask):
    found = look(ask)
    assert tuple(word["text"] for word in found["words"]) == STORY.tokens["zh"]
    assert found["words"][IT] == {"text": "它", "start": IT, "stop": IT + 1}
    assert [layer["rows"] for layer in found["layers"]] == ["words"] * 2


@pytest.mark.parametrize(("model", "layer", "head"), [("reader", 1, 2), ("translator", 3, 1)])
def test_weights_are_those_of_float64(ask, world_runs, model, layer, head):
    found = look(ask, model)
    answer = ask.get(f"/api/seen/{found['seen']}/weights", params={"layer": layer, "head": head})
    rows, cols = map(int, answer.headers["x-shape"].split(","))
    seen, wanted = exact(world_runs, model, TEXT, layer, head)
    view = View(seen)
    wanted = merge(wanted, *view.sides(layer))
    np.testing.assert_allclose(numbers(answer).reshape(rows, cols), wanted, atol=2e-6)


def test_weights_of_a_gpt_are_merged_to_words_and_causal(ask, world_runs):
    found = look(ask, "writer")
    layer = found["layers"][1]
    answer = ask.get(f"/api/seen/{found['seen']}/weights", params={"layer": 1, "head": 0})
    shown = numbers(answer).reshape(len(found["words"]), -1)
    seen, wanted = exact(world_runs, "writer", TEXT, 1, 0)
    np.testing.assert_allclose(shown, merge(wanted, *View(seen).sides(1)), atol=2e-6)
    assert layer["T"] >= len(found["words"])
    assert np.triu(shown, 1).max() == 0
    np.testing.assert_allclose(shown.sum(1), 1, atol=1e-5)


def test_without_the_first_word_rows_sum_to_one_again(ask):
    seen = look(ask)["seen"]
    params = {"layer": 0, "head": 0}
    plain = numbers(ask.get(f"/api/seen/{seen}/weights", params=params)).reshape(30, 30)
    hidden = numbers(
        ask.get(f"/api/seen/{seen}/weights", params={**params, "hide_sink": True})
    ).reshape(30, 30)
    assert np.isnan(hidden[:, 0]).all()
    np.testing.assert_allclose(
        hidden[:, 1:], plain[:, 1:] / plain[:, 1:].sum(1, keepdims=True), rtol=1e-4, atol=1e-7
    )


def test_ratio_is_how_many_times_equal_attention(ask):
    seen = look(ask)["seen"]
    params = {"layer": 1, "head": 0}
    plain = numbers(ask.get(f"/api/seen/{seen}/weights", params=params))
    ratio = numbers(ask.get(f"/api/seen/{seen}/weights", params={**params, "ratio": True}))
    np.testing.assert_allclose(ratio, plain * 30, rtol=1e-5)  # a reader sees all 30 words


def test_thumbs_of_a_short_text_are_the_maps_themselves(ask):
    found = look(ask)
    answer = ask.get(f"/api/seen/{found['seen']}/thumbs")
    assert answer.headers["x-shapes"] == "4,30,30;4,30,30"
    thumbs = numbers(answer).reshape(2, 4, 30, 30)
    one = ask.get(f"/api/seen/{found['seen']}/weights", params={"layer": 1, "head": 3})
    np.testing.assert_array_equal(thumbs[1, 3], numbers(one).reshape(30, 30))


def test_thumbs_of_a_longer_text_are_the_largest_of_each_cell(ask):
    text = "\n".join(World(0).story("test", n).text("zh") for n in range(2))
    found = look(ask, "writer", text, tokens=True)
    n = len(found["words"])
    assert n > 40
    params = {"tokens": True}
    answer = ask.get(f"/api/seen/{found['seen']}/thumbs", params=params)
    whole = ask.get(f"/api/seen/{found['seen']}/weights", params={**params, "layer": 0, "head": 0})
    small = numbers(answer)[:1600].reshape(40, 40)
    large = numbers(whole).reshape(n, n)
    for r in (0, 17, 39):
        rows = slice(r * n // 40, -(-(r + 1) * n // 40))
        cols = slice(3 * n // 40, -(-4 * n // 40))
        assert small[r, 3] == large[rows, cols].max()


def test_it_looks_at_its_noun(ask):
    """The project's picture: of the heads that look at one word, most look at 小猫."""
    found = look(ask)
    answer = ask.get(f"/api/seen/{found['seen']}/from", params={"layer": 0, "query": IT})
    ranked = answer.json()["heads"]
    assert answer.json()["word"] == IT
    assert ranked[0]["at"] == CAT
    assert ranked[0]["most"] > 0.5
    assert [head["most"] for head in ranked] == sorted((h["most"] for h in ranked), reverse=True)


def test_from_and_to_are_rows_and_columns_of_the_weights(ask):
    seen = look(ask)["seen"]
    rows = ask.get(f"/api/seen/{seen}/from", params={"layer": 0, "query": IT}).json()["heads"]
    cols = ask.get(f"/api/seen/{seen}/to", params={"layer": 0, "key": IT}).json()["heads"]
    assert len(rows) == len(cols) == 8
    for way, ranked in (("row", rows), ("col", cols)):
        for one in ranked:
            params = {"layer": one["layer"], "head": one["head"]}
            whole = numbers(ask.get(f"/api/seen/{seen}/weights", params=params)).reshape(30, 30)
            wanted = whole[IT] if way == "row" else whole[:, IT]
            np.testing.assert_allclose(one["weights"], wanted, atol=3e-6)
            others = np.delete(wanted, IT)
            assert one["most"] == pytest.approx(others.max(), abs=3e-6)


def test_ranked_heads_look_from_the_same_text(ask):
    found = look(ask, "translator")
    cross = {one["index"] for one in found["layers"] if one["kind"] == "cross"}
    params = {"layer": min(cross), "query": 3}
    ranked = ask.get(f"/api/seen/{found['seen']}/from", params=params).json()["heads"]
    assert {one["layer"] for one in ranked} == cross
    assert len(ranked[0]["weights"]) == len(found["source_words"])


def test_statistics_are_those_of_the_view_with_a_sentence_each(ask, world_runs):
    found = look(ask)
    view = View(open_inspectable(world_runs / "reader").record(TEXT), ViewConfig())
    assert list(found["statistics"]) == view.statistic_names
    for name, told in found["statistics"].items():
        np.testing.assert_allclose(told["values"], view.statistic(name).values, atol=1e-5)
        assert told["explain"]["zh"] != told["explain"]["en"] != name


def test_after_a_cut_the_weights_are_those_of_the_model_without_it(ask, world_runs):
    edge = {
        "layer": 1,
        "head": 0,
        "query": IT,
        "query_stop": IT + 1,
        "key": CAT,
        "key_stop": CAT + 1,
    }
    before, after = look(ask), look(ask, edges=[edge], heads=[[0, 1]])
    assert before["seen"] != after["seen"]
    seen = open_inspectable(world_runs / "reader")
    with ablating(seen.model, heads=[(0, 1)], edges=[Edge(CAT, IT, layer=1, head=0)]):
        wanted = seen.record(TEXT).weights(layer=1)[0, 0]
    got = numbers(ask.get(f"/api/seen/{after['seen']}/weights?layer=1&head=0"))
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, atol=1e-6)
    assert got.reshape(wanted.shape)[IT, CAT] == 0
    was = numbers(ask.get(f"/api/seen/{before['seen']}/weights?layer=1&head=0"))
    assert was.reshape(wanted.shape)[IT, CAT] > 0.1


def test_the_same_text_is_recorded_once(ask):
    assert look(ask)["seen"] == look(ask, tokens=True)["seen"]
    assert look(ask)["seen"] != look(ask, text=STORY.flip().text("zh"))["seen"]


def test_examples_can_be_read_by_their_model(ask):
    for model in ("reader", "translator", "writer"):
        found = ask.get("/api/look/examples", params={"model": model}).json()["examples"]
        assert found or model == "writer"
        for one in found:
            look(ask, model, one["text"])
    told = ask.get("/api/look/examples", params={"model": "reader"}).json()["examples"]
    assert (told[2]["text"], told[2]["pin"], told[2]["ending"]) == (TEXT, "它", "饿坏了")
    assert told[2]["gloss"] == {"en": STORY.text("en")}
    assert told[2]["names"]["小猫"] == {"en": "kitten"}


def test_without_ablation_only_before_is_told(ask, world_runs):
    body = {"model": "reader", "text": TEXT, "at": IT}
    found = ask.post("/api/ablate", json=body).json()
    loaded = load(world_runs / "reader")
    ids = torch.tensor([loaded.tokenizer.prompt_ids(TEXT)])
    with torch.no_grad():
        wanted = loaded.model(ids)[0, IT].double().softmax(-1)
    best = found["words"][0]
    assert (found["kind"], best["text"], best["after"]) == ("answer", "小猫", None)
    assert best["before"] == pytest.approx(float(wanted[best["id"]]), abs=1e-6)


def test_ablation_of_reader_is_that_of_observe(ask, world_runs):
    edge = {"layer": 1, "query": IT, "query_stop": IT + 1, "key": CAT, "key_stop": CAT + 1}
    body = {"model": "reader", "text": TEXT, "at": IT, "heads": [[0, 1], [1, 2]], "edges": [edge]}
    found = ask.post("/api/ablate", json=body).json()
    loaded = load(world_runs / "reader")
    ids = torch.tensor([loaded.tokenizer.prompt_ids(TEXT)])
    cut = {"heads": [(0, 1), (1, 2)], "edges": [Edge(CAT, IT, layer=1)]}
    with torch.no_grad(), ablating(loaded.model, **cut):
        wanted = loaded.model(ids)[0, IT].double().softmax(-1)
    for word in found["words"]:
        assert word["after"] == pytest.approx(float(wanted[word["id"]]), abs=1e-6)
    assert any(abs(word["after"] - word["before"]) > 0.05 for word in found["words"])


def heads_of(*layers):
    return [[layer, head] for layer in layers for head in range(4)]


@pytest.mark.parametrize(
    ("model", "at", "heads"),
    [("reader", IT, heads_of(0)), ("writer", 11, heads_of(0)), ("translator", 3, heads_of(3, 5))],
)
def test_the_likeliest_words_before_and_after_a_cut_are_told(ask, monkeypatch, model, at, heads):
    body = {"model": model, "text": TEXT, "at": at}
    cut = {**body, "heads": heads}
    with monkeypatch.context() as patch:
        patch.setattr(predictions, "TOP", 10**6)
        whole = ask.post("/api/ablate", json=cut).json()["words"]
    ids = {
        when: [word["id"] for word in sorted(whole, key=lambda word: -word[when])][:6]
        for when in ("before", "after")
    }
    assert set(ids["after"]) - set(ids["before"])  # else this would prove nothing
    told = ask.post("/api/ablate", json=cut).json()["words"]
    assert told == [word for word in whole if word["id"] in ids["before"] + ids["after"]]
    assert [word["before"] for word in told] == sorted((w["before"] for w in told), reverse=True)
    alone = ask.post("/api/ablate", json=body).json()["words"]
    assert [word["id"] for word in alone] == ids["before"]


def test_cutting_its_noun_everywhere_takes_the_answer_away(ask):
    edges = [{"layer": layer, "query": IT, "query_stop": IT + 1, "key": CAT, "key_stop": CAT + 1}
             for layer in (0, 1)]  # fmt: skip
    body = {"model": "reader", "text": TEXT, "at": IT, "edges": edges}
    words = ask.post("/api/ablate", json=body).json()["words"]
    cat = next(word for word in words if word["text"] == "小猫")
    assert cat["before"] > 0.9
    assert cat["after"] < cat["before"] - 0.3


def test_ablation_of_a_gpt_changes_its_next_token(ask, world_runs):
    body = {"model": "writer", "text": TEXT[:9], "heads": [[0, 0], [1, 1]]}
    found = ask.post("/api/ablate", json=body).json()
    loaded = load(world_runs / "writer")
    ids = torch.tensor([loaded.tokenizer.prompt_ids(TEXT[:9])])
    with torch.no_grad(), ablating(loaded.model, heads=[(0, 0), (1, 1)]):
        wanted = loaded.model.logits(loaded.model.features(ids)[0, -1]).double().softmax(-1)
    assert (found["kind"], found["at"]) == ("next", ids.shape[1] - 1)
    for word in found["words"]:
        assert word["after"] == pytest.approx(float(wanted[word["id"]]), abs=1e-6)


def test_ablation_of_a_translator_tells_word_and_translation(ask):
    told = ask.post("/api/ablate", json={"model": "translator", "text": TEXT}).json()
    assert (told["kind"], told["changed"]) == ("word", None)
    assert told["translation"] == look(ask, "translator")["translation"]
    cross = [[layer["index"], head] for layer in look(ask, "translator")["layers"]
             if layer["kind"] == "cross" for head in range(layer["heads"])]  # fmt: skip
    found = ask.post("/api/ablate", json={"model": "translator", "text": TEXT, "heads": cross})
    assert found.json()["changed"] != told["translation"]  # it cannot read the source any more
    edge = {"layer": cross[0][0], "query": 0, "query_stop": 5, "key": 0, "key_stop": 30}
    body = {"model": "translator", "text": TEXT, "edges": [edge], "at": 1}
    one = ask.post("/api/ablate", json=body).json()
    assert isinstance(one["changed"], str)
    assert any(word["after"] != word["before"] for word in one["words"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("look", {"model": "nobody", "text": "x"}),
        ("look", {"model": "reader", "text": "Quatsch"}),
        ("look", {"model": "reader", "text": ""}),
        ("look", {"model": "../reader", "text": TEXT}),
        ("ablate", {"model": "reader", "text": TEXT, "heads": [[0, 99]]}),
        ("ablate", {"model": "reader", "text": TEXT, "heads": [[99, 0]]}),
        ("ablate", {"model": "reader", "text": TEXT, "at": 999}),
        ("ablate", {"model": "translator", "text": " "}),
    ],
)
def test_mistakes_are_told_in_one_line(ask, path, body):
    answer = ask.post(f"/api/{path}", json=body)
    assert answer.status_code in (400, 404), answer.text
    error = answer.json()["error"]
    assert error["message"]
    assert "\n" not in error["message"]


def test_of_what_was_never_recorded_nothing_is_told(ask):
    for path in ("weights?layer=0&head=0", "thumbs", "from?layer=0&query=0", "to?layer=0&key=0"):
        assert ask.get(f"/api/seen/0123/{path}").status_code == 404
    seen = look(ask)["seen"]
    for path in ("weights?layer=9&head=0", "weights?layer=0&head=9", "from?layer=0&query=30",
                 "to?layer=5&key=0"):  # fmt: skip
        assert ask.get(f"/api/seen/{seen}/{path}").status_code == 400, path


def test_a_text_that_is_too_long_is_refused(ask, server, world_runs):
    small = server(world_runs, max_text=20)
    body = {"model": "reader", "text": TEXT}
    for path in ("look", "ablate"):
        answer = httpx.post(f"{small.url}/api/{path}", json=body)
        assert answer.status_code == 400
        assert "takes 20 at most" in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def reads_anything(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    byte_gpt(folder / "bytes")
    with TestClient(
        create_app(Library(folder), ServeConfig()), base_url="http://127.0.0.1:8000"
    ) as client:
        yield client


@settings(max_examples=30, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_any_text_is_read_and_every_token_is_in_one_word(reads_anything, text):
    answer = reads_anything.post("/api/look", json={"model": "bytes", "text": text})
    assert answer.status_code == 200, answer.text
    found = json.loads(answer.text, parse_constant=no_number)
    stops = [word["stop"] for word in found["words"]]
    assert [word["start"] for word in found["words"]] == [0, *stops[:-1]]
    assert stops[-1] == found["layers"][0]["T"] == len(text.encode())


def no_number(name):
    raise AssertionError(f"the answer holds {name}, which JSON does not have")


def test_a_long_text_is_recorded_and_its_words_are_left_to_the_atlas(reads_anything):
    found = look(reads_anything, "bytes", "w " * 401)
    assert (found["long"], found["words"]) == (True, [])
    params = {"layer": 0, "head": 0}
    answer = reads_anything.get(f"/api/seen/{found['seen']}/weights", params=params)
    assert answer.status_code == 400
    assert "Atlas" in answer.json()["error"]["hint"]
    assert not look(reads_anything, "bytes", "w " * 400)["long"]
