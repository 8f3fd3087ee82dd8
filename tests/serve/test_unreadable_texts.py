"""What the page is told of a text that a model cannot read, or not at once."""

import httpx
import pytest

from glasshead.text.tinyworld import World

from .test_routes_look import look

STORY = World.seed_story()


@pytest.fixture
def ask(served):
    with httpx.Client(base_url=served.url) as client:
        yield client


def test_a_text_longer_than_the_model_reads_leads_to_the_atlas_or_its_beginning(ask):
    story, n = STORY.text("zh"), len(look(ask)["words"])
    body = {"model": "reader", "text": 5 * story}
    found = ask.post("/api/look", json=body).json()
    assert (found["long"], found["tokens"], found["reads"]) == (True, 5 * n, 64)
    assert found["atlas"]
    assert ask.post("/api/atlas", json=body).json()["layers"][0]["T"] == 5 * n
    assert found["beginning"] == 2 * story
    look(ask, "reader", found["beginning"])
    answer = ask.post("/api/look", json={"model": "writer", "text": "猫" * 5000}).json()
    assert answer["beginning"] == "猫" * answer["reads"]


def test_a_page_in_chinese_gets_messages_in_chinese(ask):
    body = {"model": "reader", "text": "我想吃苹果。"}
    for lang, wanted in (
        ("zh", "不在这个有 267 个词的词表里"),
        ("en", "one of the 267 words"),
    ):
        answer = ask.post("/api/look", json=body, headers={"accept-language": lang})
        assert wanted in answer.json()["error"]["message"]


def test_the_words_that_a_model_knows_are_told(ask):
    told = {model: ask.get("/api/look/examples", params={"model": model}).json()["knows"]
            for model in ("reader", "writer")}  # fmt: skip
    assert {"小猫", "饿坏"} < {*told["reader"]}
    assert {"猫", "饿"} < {*told["writer"]}


def test_a_text_too_long_for_a_transformers_model_has_a_beginning_and_names_no_flag(
    server, tmp_path
):
    hf = pytest.importorskip("transformers")
    from tests.model.foreign import save

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "ffn_dim": 8}
    ends = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    config = hf.OPTConfig(vocab_size=283, max_position_embeddings=31, word_embed_proj_dim=8,
                          **sizes, **ends)  # fmt: skip
    save(hf.OPTForCausalLM(config), tmp_path / "opt")
    live = server(tmp_path)
    body = {"model": "opt", "text": "It was. " * 9}
    with httpx.Client(base_url=live.url, timeout=60) as ask:
        found = ask.post("/api/look", json=body).json()
        assert (found["long"], found["reads"], found["atlas"]) == (True, 31, False)
        assert found["beginning"].endswith("It was.")
        assert look(ask, "opt", found["beginning"])["long"] is False
