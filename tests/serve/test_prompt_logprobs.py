"""The log-probabilities of a prompt, as programs that evaluate models ask for them; and its ids."""

from dataclasses import asdict

import httpx
import pytest
import torch

from glasshead.checkpoint import RunConfig, RunFolder, load
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.text.tokenizer import ByteTokenizer

from .byte_gpt import byte_gpt
from .conftest import HUNG

PROMPT = "小猫饿了。"


@pytest.fixture(scope="module")
def writer(world_runs):
    return load(world_runs / "writer")


def ask(mine, **settings):
    settings = {"model": "writer", "prompt": PROMPT, "temperature": 0, **settings}
    reply = httpx.post(f"{mine.url}/v1/completions", json=settings, timeout=HUNG)
    assert reply.status_code == 200, reply.text
    return reply.json()


def log_probs(run, ids):
    """(T - 1, V) in float64 of what follows each id but the last."""
    model = run.model.double()
    found = model(torch.tensor([ids]))[0, :-1].log_softmax(-1)
    model.float()
    return found.detach()


@pytest.mark.parametrize("max_tokens", [0, 1, 5])
@pytest.mark.parametrize("as_ids", [False, True])
def test_the_prompt_is_repeated_with_its_log_probabilities(served, writer, max_tokens, as_ids):
    ids = writer.tokenizer.prompt_ids(PROMPT)
    prompt = ids if as_ids else PROMPT
    found = ask(served, prompt=prompt, echo=True, logprobs=3, max_tokens=max_tokens)
    [choice] = found["choices"]
    told = choice["logprobs"]
    expected = log_probs(writer, ids)
    assert told["token_logprobs"][0] is told["top_logprobs"][0] is None
    own = expected[torch.arange(len(ids) - 1), ids[1:]]
    assert told["token_logprobs"][1 : len(ids)] == pytest.approx(own.tolist(), abs=1e-4)
    for row, others in zip(expected, told["top_logprobs"][1 : len(ids)], strict=True):
        best = [float(p) for p in row.topk(3).values]
        assert sorted(others.values(), reverse=True) == pytest.approx(best, abs=1e-4)
    assert choice["text"].startswith(PROMPT)
    assert "".join(told["tokens"]) == choice["text"]
    assert told["text_offset"] == [n for n, _ in enumerate(choice["text"])]  # of characters
    assert found["usage"]["completion_tokens"] == max_tokens
    assert (choice["finish_reason"], len(told["tokens"])) == ("length", len(ids) + max_tokens)
    alone = ask(served, prompt=prompt, logprobs=3, max_tokens=5)["choices"][0]
    assert choice["text"] == PROMPT + alone["text"][:max_tokens]
    rest = told["token_logprobs"][len(ids) :]
    assert rest == pytest.approx(alone["logprobs"]["token_logprobs"][:max_tokens], abs=1e-5)


def test_streams_repeat_it_in_their_first_chunk(served):
    settings = {"echo": True, "logprobs": 2, "max_tokens": 3, "prompt": [PROMPT, "小狗"]}
    whole = ask(served, **settings)["choices"]
    body = {"model": "writer", "temperature": 0, "stream": True, **settings}
    with httpx.stream("POST", f"{served.url}/v1/completions", json=body, timeout=HUNG) as reply:
        lines = [line[6:] for line in reply.iter_lines() if line.startswith("data: {")]
    chunks = [httpx.Response(200, text=line).json()["choices"][0] for line in lines]
    for index, choice in enumerate(whole):
        mine = [chunk for chunk in chunks if chunk["index"] == index]
        assert "".join(chunk["text"] for chunk in mine) == choice["text"]
        told = [chunk["logprobs"] for chunk in mine if chunk["logprobs"]]
        assert len(told[0]["tokens"]) == len(choice["logprobs"]["tokens"]) - 3
        for name in ("tokens", "text_offset"):
            joined = [one for each in told for one in each[name]]
            assert joined == choice["logprobs"][name]
        assert mine[-1]["finish_reason"] == "length"


def test_so_many_tokens_are_not_scored_at_once(server, tmp_path):
    byte_gpt(tmp_path / "gpt", max_len=67)
    mine = server(tmp_path, max_tokens=100)
    for prompts, status in ((2, 200), (3, 400)):
        body = {"model": "gpt", "prompt": ["a" * 50] * prompts, "echo": True, "max_tokens": 0}
        reply = httpx.post(f"{mine.url}/v1/completions", json={**body, "logprobs": 0})
        assert (reply.status_code, "150 tokens" in reply.text) == (status, status == 400)
        assert httpx.post(f"{mine.url}/v1/completions", json=body).status_code == 200


def test_without_echo_no_token_is_no_text(served):
    [choice] = ask(served, max_tokens=0, logprobs=1)["choices"]
    assert (choice["text"], choice["finish_reason"], choice["logprobs"]) == ("", "length", None)


def test_an_end_id_is_listed_with_its_log_probability(server, tmp_path):
    """Else a client that cuts the list by the number of new tokens cuts one too many."""
    torch.manual_seed(0)
    tokenizer = ByteTokenizer(["<eos>"])
    config = GPTConfig(vocab_size=257, max_len=67, n_layers=1, n_heads=2, d_model=14)
    model = GPT(config)
    with torch.no_grad():
        model.head.bias[256] = 50.0
    RunFolder.create(tmp_path / "gpt", RunConfig("gpt", asdict(config), {}, {}), tokenizer, model)
    found = ask(server(tmp_path), model="gpt", prompt="abc", echo=True, logprobs=1, max_tokens=4)
    [choice] = found["choices"]
    told = choice["logprobs"]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "stop")
    assert told["tokens"] == ["a", "b", "c", "<eos>"]
    assert told["token_logprobs"][-1] == pytest.approx(0, abs=1e-3)
    assert list(told["top_logprobs"][-1]) == ["<eos>"]
    assert told["text_offset"] == [0, 1, 2, 3]
    assert found["usage"]["completion_tokens"] == 0


# Ids


def test_ids_of_a_text_and_back(served, writer):
    ask = {"model": "writer", "prompt": PROMPT}
    found = httpx.post(f"{served.url}/tokenize", json=ask).json()
    ids = writer.tokenizer.prompt_ids(PROMPT)
    assert found == {
        "tokens": ids, "count": len(ids), "max_model_len": writer.model.config.max_len,
    }  # fmt: skip
    back = httpx.post(f"{served.url}/detokenize", json={"model": "writer", "tokens": ids})
    assert back.json() == {"prompt": PROMPT}
    for path, body in (("tokenize", {"prompt": "☃"}), ("detokenize", {"tokens": [99999]})):
        reply = httpx.post(f"{served.url}/{path}", json={"model": "writer", **body})
        assert reply.status_code == 400, reply.text
    nameless = httpx.post(f"{served.url}/tokenize", json={"prompt": PROMPT})
    assert (nameless.status_code, "models" in nameless.text) == (400, True)


def test_the_only_model_need_not_be_named(server, tmp_path):
    mine = server(byte_gpt(tmp_path / "gpt"))
    found = httpx.post(f"{mine.url}/tokenize", json={"prompt": "ab猫"}).json()["tokens"]
    assert found == list("ab猫".encode())
    back = httpx.post(f"{mine.url}/detokenize", json={"tokens": found})
    assert back.json() == {"prompt": "ab猫"}
    marked = {"prompt": "a", "add_special_tokens": False}
    assert httpx.post(f"{mine.url}/tokenize", json=marked).json()["tokens"] == [97]


# Errors


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"model": None}, "model", "model"),
        ({"model": "nobody"}, "model", "nobody"),
        ({"model": "translator"}, "model", "translator"),
        ({"temperature": 3}, "temperature", "temperature: "),
        ({"max_tokens": 9999}, "max_tokens", "max_tokens"),
        ({"prompt": {"a": 1}}, "prompt", "prompt: "),
        ({"prompt": [1, "a"]}, "prompt", "prompt.1: "),
        ({"prompt": [[1, -1]]}, "prompt", "prompt.0.1: "),
        ({"prompt": "小" * 5000}, "prompt", "tokens"),
        ({"prompt": "小" * 100_001}, "prompt", "characters"),
        ({"stop": ["a"] * 5}, "stop", "stop: "),
        ({"stop": [""]}, "stop", "stop.0: "),
        ({"best_of": 2}, "best_of", "best_of"),
        ({"n": 99}, "n", "99 samples"),
        ({"prompts": "a"}, "prompts", "prompts: "),
        ({"stream_options": {"x": 1}}, "stream_options", "stream_options.x: "),
    ],
    ids=str,
)
def test_errors_name_the_field(served, change, field, says):
    body = {"model": "writer", "prompt": PROMPT, **change}
    reply = httpx.post(f"{served.url}/v1/completions", json=body, timeout=HUNG)
    error = reply.json()["error"]
    assert reply.status_code in (400, 404)
    assert error["param"] == field
    assert says in error["message"]


def test_a_body_that_is_not_json_is_said_to_be(served):
    for path in ("/v1/completions", "/api/look"):
        headers = {"content-type": "application/json"}
        reply = httpx.post(f"{served.url}{path}", content=b'{"model": ', headers=headers)
        assert "the body is not JSON: " in reply.json()["error"]["message"]
