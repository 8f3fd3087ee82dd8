"""The routes of Write: tokens as they are drawn, what else could have been, what was looked at."""

import json
import math

import httpx
import pytest
import torch
import torch.nn.functional as F

from glasshead.checkpoint import load
from glasshead.generation.decode import generate
from glasshead.generation.opening import open_inspectable
from glasshead.generation.sampling import SamplingConfig

from .conftest import until

TEXT = "那只小狗昨天在公园里"


@pytest.fixture(scope="module")
def run(world_runs):
    return load(world_runs / "writer")


def ask(live, path="", **body):
    return httpx.post(f"{live.url}/api/write{path}", json={"model": "writer", **body}, timeout=60)


def events(reply):
    assert reply.headers["content-type"].startswith("text/event-stream")
    blocks = [block.split("\n") for block in reply.text.split("\n\n") if block]
    return [(e.removeprefix("event: "), json.loads(d.removeprefix("data: "))) for e, d in blocks]


def log_probs(run, ids):
    with torch.no_grad():
        return F.log_softmax(run.model(torch.tensor([ids])).float(), -1)[0]


def test_a_text_is_read_with_what_each_token_cost(served, run):
    found = ask(served, "/read", text=TEXT, alternatives=5).json()
    ids = [token["id"] for token in found["tokens"]]
    assert ids == run.tokenizer.encode_ids(TEXT).tolist()
    assert "".join(token["text"] for token in found["tokens"]) == TEXT
    assert "logprob" not in found["tokens"][0]  # nothing stood before it
    told = log_probs(run, ids)
    for place, token in enumerate(found["tokens"][1:]):
        assert token["logprob"] == pytest.approx(told[place, token["id"]].item(), abs=1e-4)
        best = told[place].topk(5)
        assert [one["logprob"] for one in token["alternatives"]] == pytest.approx(
            best.values.tolist(), abs=1e-4
        )
    assert [one["id"] for one in found["next"]] == told[-1].topk(5).indices.tolist()
    assert found["from"] == 0
    assert ask(served, "/read", ids=ids, alternatives=5).json() == found


def test_an_empty_text_is_what_the_model_begins_with(served):
    found = ask(served, "/read", text="").json()
    assert len(found["tokens"]) == 1
    assert sum(math.exp(one["logprob"]) for one in found["next"]) <= 1


@pytest.mark.parametrize("temperature", [0, 0.9])
def test_tokens_are_those_that_the_command_draws(served, run, temperature):
    ids = run.tokenizer.encode_ids(TEXT).tolist()
    config = SamplingConfig(temperature, top_k=7)
    drawn = [step[0] for step in generate(run.model, [ids], config, max_tokens=23, seed=5)]
    body = {"temperature": temperature, "top_k": 7, "max_tokens": 23, "seed": 5}
    *tokens, (last, end) = events(ask(served, ids=ids, alternatives=3, **body))
    assert [data["id"] for _, data in tokens] == drawn
    assert "".join(data["text"] for _, data in tokens) == run.tokenizer.decode(drawn)
    assert (last, end["finish"]) == ("end", "length")
    told = log_probs(run, [*ids, *drawn])
    for place, (event, data) in enumerate(tokens, len(ids) - 1):
        assert event == "token"
        assert data["logprob"] == pytest.approx(told[place, data["id"]].item(), abs=1e-4)
        assert [one["id"] for one in data["alternatives"]] == told[place].topk(3).indices.tolist()


def test_another_token_is_taken_and_the_text_goes_on_from_it(served, run):
    ids = run.tokenizer.encode_ids(TEXT).tolist()
    *tokens, _ = events(ask(served, ids=ids, max_tokens=5, temperature=0))
    other = tokens[0][1]["alternatives"][1]
    taken = [*ids, other["id"]]
    *after, _ = events(ask(served, ids=taken, max_tokens=4, temperature=0))
    alone = generate(run.model, [taken], SamplingConfig(0), max_tokens=4)
    assert [data["id"] for _, data in after] == [step[0] for step in alone]


def test_what_was_looked_at_is_what_the_recording_says(served, run, world_runs):
    ids = run.tokenizer.encode_ids(TEXT).tolist()
    at = 7
    found = ask(served, "/look", ids=ids, at=at).json()
    seen = open_inspectable(world_runs / "writer").record(run.tokenizer.decode(ids[:at]))
    assert [layer["index"] for layer in found["layers"]] == [0, 1]
    for layer in found["layers"]:
        assert len(layer["heads"]) == 4
        for head, keys in enumerate(layer["heads"]):
            row = seen.row(layer["index"], head, query=-1)
            assert dict(map(tuple, keys)) == pytest.approx(dict(enumerate(row.tolist())), abs=1e-5)
            weights = [weight for _, weight in keys]
            assert weights == sorted(weights, reverse=True)
            assert sum(weights) == pytest.approx(1, abs=1e-4)


def test_of_a_long_text_only_what_the_model_sees_is_judged(served):
    text = (TEXT + "追逐一只蝴蝶，") * 5
    found = ask(served, "/read", text=text).json()
    n = len(found["tokens"])
    assert n > 64
    assert found["from"] == n - 64
    judged = ["logprob" in token for token in found["tokens"]]
    assert judged == [False] * (n - 63) + [True] * 63
    ids = [token["id"] for token in found["tokens"]]
    looked = ask(served, "/look", ids=ids, at=n).json()
    keys = {key for layer in looked["layers"] for head in layer["heads"] for key, _ in head}
    assert min(keys) >= looked["from"] == n - 64


def test_who_leaves_stops_the_writing(served, run):
    ids = run.tokenizer.encode_ids(TEXT).tolist()
    body = {"model": "writer", "ids": ids, "max_tokens": 8000, "seed": 1}
    with httpx.stream("POST", f"{served.url}/api/write", json=body, timeout=60) as reply:
        lines = reply.iter_lines()  # letting go of it closes the connection
        assert next(lines) == "event: token"
        assert served.app.state.engine.n_running == 1
    until(lambda: served.app.state.engine.n_running == 0)


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("", {"ids": [10**6]}, "id 1000000"),
        ("", {"ids": [1] * 9000}, "9,000 tokens"),
        ("", {"ids": [1], "max_tokens": 9000}, "max_tokens (9,000)"),
        ("", {"ids": [1], "model": "translator"}, "translator is of kind translator"),
        ("/read", {"text": "<img src=x>"}, "'<' (U+003C)"),
        ("/read", {"text": "猫" * 200_000}, "200,000 characters"),
        ("/look", {"ids": [1, 2], "at": 3}, "at (3) is beyond the text"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(served, path, body, says):
    reply = ask(served, path, **body)
    assert reply.status_code == 400
    assert says in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {"ids": []}),
        ("", {"ids": [1], "temperature": -1}),
        ("", {"ids": [1], "top_p": 0}),
        ("", {"ids": [1], "seed": -1}),
        ("/read", {}),
        ("/read", {"text": "", "ids": [1]}),
        ("/look", {"ids": [1], "at": 0}),
    ],
)
def test_numbers_out_of_bounds_are_refused(served, path, body):
    assert ask(served, path, **body).status_code == 422


def test_a_model_that_is_not_there_is_not_found(served):
    assert ask(served, ids=[1], model="none").status_code == 404
