"""The routes of Translate: the same as the command gives, and where each word looked."""

import base64
from itertools import islice

import httpx
import numpy as np
import pytest
import torch

from glasshead.checkpoint import load
from glasshead.generation.alignment import align
from glasshead.generation.beam import SearchConfig
from glasshead.generation.translate import Translator
from glasshead.page.examples import story_pairs
from glasshead.text.tinyworld import World

SEED = World.seed_story()


@pytest.fixture(scope="module")
def run(world_runs):
    return load(world_runs / "translator")


def ask(live, path="", **body):
    return httpx.post(
        f"{live.url}/api/translate{path}", json={"model": "translator", **body}, timeout=60
    )


def examples(live, **query):
    reply = httpx.get(
        f"{live.url}/api/translate/examples", params={"model": "translator", **query}, timeout=60
    )
    return reply.json()


def weights_of(found):
    return np.frombuffer(base64.b64decode(found["weights"]), "<f4").reshape(found["shape"])


def test_translations_and_scores_are_those_of_the_command(served, run):
    text = SEED.text("zh")
    found = ask(served, text=text, beam=5, n_best=3, alpha=0.7).json()
    [translation] = Translator(run.model, run.tokenizer, SearchConfig(5, 0.7), n_best=3)([text])
    [part] = found["parts"]
    assert [one["text"] for one in part["candidates"]] == [
        one.text for one in translation.candidates
    ]
    for one, wanted in zip(part["candidates"], translation.candidates, strict=True):
        assert one["score"] == pytest.approx(wanted.score, abs=1e-6)
        assert one["log_prob"] == pytest.approx(wanted.log_prob, abs=1e-6)
        assert tuple(one["target"]) == wanted.parts[0][1]
    assert found["text"] == translation.best.text
    assert part["words"] == list(SEED.tokens["zh"])
    assert (found["layers"], found["heads"], found["usual_layer"]) == (2, 4, 0)


@pytest.mark.parametrize("layer", [0, 1, None])
def test_cross_attention_is_that_of_every_head(served, run, layer):
    [part] = ask(served, text=SEED.text("zh")).json()["parts"]
    source, target = part["source"], part["candidates"][0]["target"]
    found = ask(served, "/look", source=source, target=target, layer=layer).json()
    wanted = align(run.model, run.tokenizer, source, target, layer)
    assert (found["source"], found["target"]) == (wanted.source, wanted.target)
    assert found["layer"] == (layer or 0)
    weights = weights_of(found)
    torch.testing.assert_close(torch.from_numpy(weights.copy()), wanted.weights)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


def test_both_endings_of_the_documents_story_are_translated_apart(served):
    told = examples(served)
    assert told["langs"] == ["zh", "de"]
    kitten, butterfly = told["pairs"][0]
    assert kitten["text"] == SEED.text("zh")
    assert (kitten["stands_for"], butterfly["stands_for"]) == ("小猫", "蝴蝶")
    assert (kitten["wanted_pronoun"], butterfly["wanted_pronoun"]) == ("es", "er")
    for one in (kitten, butterfly):
        found = ask(served, text=one["text"]).json()
        words = found["parts"][0]["words"]
        assert words[one["index"]] == one["pronoun"] == "它"
        assert words[one["referent"]] == one["stands_for"]
        assert found["text"] == one["wanted"]


def test_further_stories_go_on_where_the_last_ended(served):
    first = examples(served, n=2)
    then = examples(served, start=first["next"], n=2)
    texts = [one["text"] for both in first["pairs"] + then["pairs"] for one in both]
    assert len(set(texts)) == 8
    assert then == examples(served, start=first["next"], n=2)
    far = examples(served, start=10**9 - 1, n=1)  # at once, without all that come before
    assert far["next"] >= 10**9


@pytest.mark.parametrize("langs", [("zh", "de"), ("zh", "en"), ("en", "de"), ("de", "zh")])
def test_variants_differ_in_what_the_last_pronoun_stands_for(langs):
    source, target = langs
    for _, (one, other) in islice(story_pairs(source, target), 23):
        assert one.referent != other.referent
        assert one.pronouns[source][-1].index < len(one.tokens[source])
        said = [s.tokens[target][s.pronouns[target][-1].index] for s in (one, other)]
        if target == "de":
            assert said[0] != said[1]
            assert {*said} <= {"er", "sie", "es"}


def test_a_text_longer_than_the_model_reads_comes_in_parts(served):
    story, other = SEED.text("zh"), SEED.flip().text("zh")
    found = ask(served, text=story + other + story, beam=1, n_best=1).json()
    assert [len(part["candidates"]) for part in found["parts"]] == [1, 1, 1]
    alone = [ask(served, text=text, beam=1).json()["text"] for text in (story, other)]
    assert found["text"] == " ".join([*alone, alone[0]])


def test_nothing_to_translate_is_no_mistake(served):
    assert ask(served, text=" \n ").json()["parts"] == []


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("", {"text": "<b>猫</b>"}, "'<b>猫</b>' (index 0)"),
        ("", {"text": "猫" * 200_000}, "200,000 characters"),
        ("", {"model": "reader", "text": "它"}, "reader is not a translator"),
        ("/look", {"source": [5], "target": [10**6]}, "id 1000000"),
        ("/look", {"source": [5] * 65, "target": [5]}, "65 tokens"),
        ("/look", {"source": [5], "target": [5] * 115}, "115 tokens"),
        ("/look", {"source": [5], "target": [5], "layer": 2}, "layer (2)"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(served, path, body, says):
    reply = ask(served, path, **body)
    assert reply.status_code == 400
    assert says in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {"text": "它", "beam": 0}),
        ("", {"text": "它", "beam": 33}),
        ("", {"text": "它", "alpha": -1}),
        ("/look", {"source": [], "target": [1]}),
        ("/look", {"source": [-1], "target": [1]}),
    ],
)
def test_numbers_out_of_bounds_are_refused(served, path, body):
    assert ask(served, path, **body).status_code == 422


def test_a_model_that_is_not_there_is_not_found(served):
    assert ask(served, model="../translator", text="它").status_code == 404
