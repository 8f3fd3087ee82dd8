"""The page's Steps: numbers that go together, against attention written out in float64."""

import math

import httpx
import numpy as np
import pytest
import torch

from glasshead import load
from glasshead.attention.steps import mask as masked
from glasshead.attention.steps import softmax
from glasshead.generation.opening import open_inspectable
from glasshead.serve.routes.steps import record_values
from glasshead.serve.workers import CancelToken
from glasshead.text.tinyworld import World
from glasshead.text.tokenizer import ByteTokenizer
from tests.generation.runs import make_run

TEXT = World.seed_story().text("zh")
IT = 26


@pytest.fixture
def ask(served):
    with httpx.Client(base_url=served.url, timeout=60) as client:
        yield client


def steps(ask, model, layer, head, query):
    seen = ask.post("/api/look", json={"model": model, "text": TEXT}).json()["seen"]
    params = {"layer": layer, "head": head, "query": query}
    answer = ask.get(f"/api/seen/{seen}/steps", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("model", "layer", "head", "query"),
    [("reader", 1, 2, IT), ("writer", 0, 1, 11), ("translator", 1, 3, 5), ("translator", 3, 0, 7)],
)
def test_the_steps_lead_to_the_weights_and_the_context(ask, model, layer, head, query):
    found = steps(ask, model, layer, head, query)
    q, k, v = (np.array(found[name]) for name in "qkv")
    products = k @ q
    np.testing.assert_allclose(found["products"], products, rtol=1e-12)
    allowed = np.array(found["allowed"]) if found["allowed"] else np.ones(len(k), bool)
    weights = softmax(masked(products[None] / math.sqrt(found["d"]), allowed[None]))[0]
    np.testing.assert_allclose(found["weights"], weights, atol=2e-6)
    np.testing.assert_allclose(found["context"], weights @ v, atol=1e-5)
    assert found["scale"] == pytest.approx(1 / math.sqrt(found["d"]))


def test_a_gpt_sees_no_key_after_the_query(ask):
    found = steps(ask, "writer", 1, 0, 7)
    assert found["causal"]
    assert found["allowed"] == [place <= 7 for place in range(len(found["keys"]))]
    assert found["weights"][8:] == [0] * (len(found["keys"]) - 8)


def test_values_are_those_that_the_model_mixes(ask, world_runs):
    """The context of all heads, projected, is what the layer gives."""
    loaded = load(world_runs / "reader")
    attention = loaded.model.encoder.blocks[0].attention
    caught = []
    hook = attention.register_forward_hook(lambda _, __, out: caught.append(out.out))
    with torch.no_grad():
        loaded.model(torch.tensor([loaded.tokenizer.prompt_ids(TEXT)]))
    hook.remove()
    heads = [steps(ask, "reader", 0, head, IT)["context"] for head in range(attention.n_heads)]
    merged = torch.tensor(heads, dtype=torch.float32).flatten()
    with torch.no_grad():
        wanted = attention.out(merged)
    torch.testing.assert_close(caught[0][0, IT], wanted, atol=1e-4, rtol=1e-4)


def test_names_are_the_tokens(ask, world_runs):
    found = steps(ask, "translator", 5, 0, 0)  # cross-attention
    seen = open_inspectable(world_runs / "translator").record(TEXT)
    assert seen.layer(5).kind == "cross"
    assert found["keys"] == seen.source_tokens[0]
    assert len(found["queries"]) == seen.shape(5)[2]


def test_what_does_not_exist_is_refused(ask):
    seen = ask.post("/api/look", json={"model": "reader", "text": TEXT}).json()["seen"]
    for layer, head, query in ((9, 0, 0), (0, 9, 0), (0, 0, 30)):
        params = {"layer": layer, "head": head, "query": query}
        assert ask.get(f"/api/seen/{seen}/steps", params=params).status_code == 400
    params = {"layer": 0, "head": 0, "query": 0}
    assert ask.get("/api/seen/nobody/steps", params=params).status_code == 404
    assert ask.get(f"/api/seen/{seen}/steps", params={**params, "head": -1}).status_code == 422


def test_the_heads_of_a_group_mix_the_same_values(tmp_path):
    subject = open_inspectable(make_run(tmp_path / "run", ByteTokenizer(), n_heads=4, n_kv_heads=2))
    merged = []
    out = subject.model.blocks[1].attention.out
    with out.register_forward_pre_hook(lambda _, given: merged.append(given[0])):
        seen = subject.record("abcabda")
    contexts = merged[-1][0, -1].double().view(4, -1)  # of the last token, (H, D)
    for head, context in enumerate(contexts):
        v = record_values(subject, "abcabda", 1, head, CancelToken())
        torch.testing.assert_close(seen.row(1, head, 6).double() @ v, context, rtol=0, atol=1e-5)
