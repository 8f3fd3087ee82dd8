"""The official client of OpenAI against a live server, with a model that was really trained."""

import asyncio
import json
import socket
import threading

import httpx
import pytest

from glasshead.checkpoint import load
from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY, SamplingConfig
from glasshead.generation.stream import stream
from tests.serve.conftest import HUNG, awaited, until

openai = pytest.importorskip("openai", reason="needs openai")

PROMPT = "小猫"


@pytest.fixture
def client(served):
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as found:
        yield found


@pytest.fixture(scope="module")
def writer(world_runs):
    return load(world_runs / "writer")


def text_alone(loaded, prompt, config=GREEDY, **more):
    """What `glasshead generate` gives."""
    ids = [loaded.tokenizer.prompt_ids(prompt)]
    return "".join(
        piece.text for piece in stream(loaded.model, loaded.tokenizer, ids, config, **more)
    )


def test_models_that_write_are_listed_and_found(client):
    names = [model.id for model in client.models.list()]
    assert "writer" in names
    assert "reader" not in names
    assert client.models.retrieve("writer").owned_by == "glasshead"
    for name in ("reader", "nothing/here", "../writer"):
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve(name)


def test_a_completion_is_what_generate_gives(client, writer):
    found = client.completions.create(model="writer", prompt=PROMPT, temperature=0, max_tokens=40)
    [choice] = found.choices
    assert choice.text == text_alone(writer, PROMPT, max_tokens=40)
    assert found.usage.prompt_tokens == len(writer.tokenizer.prompt_ids(PROMPT))
    assert found.usage.completion_tokens == len(writer.tokenizer.encode_ids(choice.text))
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    assert (found.object, found.model, choice.finish_reason) == (
        "text_completion",
        "writer",
        "length",
    )


def test_a_stream_is_the_same_text_piece_by_piece(client, writer):
    settings = {"model": "writer", "prompt": PROMPT, "temperature": 0, "max_tokens": 30}
    chunks = list(
        client.completions.create(**settings, stream=True, stream_options={"include_usage": True})
    )
    pieces = [chunk.choices[0].text for chunk in chunks[:-1]]
    assert len([piece for piece in pieces if piece]) == 30
    assert "".join(pieces) == text_alone(writer, PROMPT, max_tokens=30)
    assert [chunk.choices[0].finish_reason for chunk in chunks[-3:-1]] == [None, "length"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 30
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_asynchronous_client_works_too(served, writer):
    async def said():
        url = f"{served.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            several = [
                client.completions.create(
                    model="writer", prompt=PROMPT, temperature=0, max_tokens=n, stream=True
                )
                for n in (5, 11, 17)
            ]
            streams = await asyncio.gather(*several)
            return ["".join([c.choices[0].text async for c in each]) for each in streams]

    assert awaited(said()) == [text_alone(writer, PROMPT, max_tokens=n) for n in (5, 11, 17)]


def test_samples_of_a_seed_are_those_of_generate_and_others_differ(client, writer):
    settings = {"model": "writer", "prompt": PROMPT, "max_tokens": 20, "n": 3}
    found = client.completions.create(**settings, seed=7, temperature=1.5, top_p=0.9)
    ids = [writer.tokenizer.prompt_ids(PROMPT)] * 3
    config = SamplingConfig(1.5, top_p=0.9)
    steps = list(
        generate(
            writer.model,
            ids,
            config,
            max_tokens=20,
            seed=7,
            stop_ids=writer.tokenizer.specials.values(),
        )
    )
    expected = [
        writer.tokenizer.decode([s[row] for s in steps if s[row] is not None]) for row in range(3)
    ]
    assert [choice.text for choice in found.choices] == expected
    assert [choice.index for choice in found.choices] == [0, 1, 2]
    assert found.usage.prompt_tokens == len(ids[0])
    free = [client.completions.create(**settings, temperature=1.5) for _ in range(2)]
    assert free[0].choices[0].text != free[1].choices[0].text
    ours = client.completions.create(**settings, temperature=1.5, extra_body={"top_k": 1})
    assert {choice.text for choice in ours.choices} == {text_alone(writer, PROMPT, max_tokens=20)}


def test_several_prompts_as_texts_and_as_ids_and_their_echo(client, writer):
    prompts = [PROMPT, "小狗", ""]
    settings = {"model": "writer", "temperature": 0, "max_tokens": 9}
    found = client.completions.create(**settings, prompt=prompts, echo=True, n=2)
    texts = [choice.text for choice in found.choices]
    assert texts[:2] == [PROMPT + text_alone(writer, PROMPT, max_tokens=9)] * 2
    assert texts[2].startswith("小狗")
    ids = [writer.tokenizer.prompt_ids(text) for text in prompts[:2]]
    again = client.completions.create(**settings, prompt=ids)
    assert [PROMPT + again.choices[0].text, "小狗" + again.choices[1].text] == texts[::2][:2]
    one = client.completions.create(**settings, prompt=ids[1])
    assert one.choices[0].text == again.choices[1].text
    streamed = client.completions.create(**settings, prompt=prompts, echo=True, stream=True)
    heard = {0: "", 1: "", 2: ""}
    for chunk in streamed:
        heard[chunk.choices[0].index] += chunk.choices[0].text
    assert list(heard.values()) == texts[::2]


@pytest.mark.parametrize("streamed", [False, True])
def test_text_ends_before_a_stop_string_and_nothing_of_it_is_told(client, writer, streamed):
    whole = text_alone(writer, PROMPT, max_tokens=60)
    stop = whole[20:23]  # of three tokens: characters
    assert len(writer.tokenizer.encode_ids(stop)) > 1
    expected = whole[: whole.index(stop)]
    settings = {"model": "writer", "prompt": PROMPT, "temperature": 0, "max_tokens": 60}
    found = client.completions.create(
        **settings, stop=[stop, "春江潮水"], logprobs=1, stream=streamed
    )
    chunks = list(found) if streamed else [found]
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected
    assert chunks[-1].choices[0].finish_reason == "stop"
    told = [c.choices[0].logprobs for c in chunks if c.choices[0].logprobs is not None]
    assert "".join(token for each in told for token in each.tokens) == expected


def test_logprobs_are_the_models_and_offsets_lead_into_the_text(client, writer):
    settings = {"model": "writer", "prompt": PROMPT, "temperature": 0, "max_tokens": 8}
    [choice] = client.completions.create(**settings, logprobs=3).choices
    told = choice.logprobs
    assert "".join(told.tokens) == choice.text
    for token, logprob, others, offset in zip(
        told.tokens, told.token_logprobs, told.top_logprobs, told.text_offset, strict=True
    ):
        assert choice.text[offset:].startswith(token)
        assert len(others) == 3
        assert max(others, key=others.get) == token  # greedy
        assert others[token] == logprob
        assert logprob <= 0
    assert client.completions.create(**settings).choices[0].logprobs is None
    streamed = list(client.completions.create(**settings, logprobs=0, stream=True))
    heard = [c.choices[0].logprobs for c in streamed if c.choices[0].logprobs]
    assert [each.tokens[0] for each in heard] == told.tokens
    assert [each.text_offset[0] for each in heard] == told.text_offset


def refused(call, status):
    """The error of a request, which has OpenAI's shape."""
    with pytest.raises(openai.APIStatusError) as caught:
        call()
    assert caught.value.status_code == status
    body = caught.value.response.json()["error"]
    assert {"message", "type", "param", "code"} <= body.keys()
    return body["message"]


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"model": "nobody"}, 404, "nobody"),
        ({"model": "translator"}, 400, "does not generate text"),
        ({"temperature": 3}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"max_tokens": -1}, 400, "max_tokens"),
        ({"max_tokens": 9999}, 400, "8,192"),
        ({"max_tokens": 5000, "n": 2}, 400, "2 answers of 5,000 tokens"),
        ({"max_tokens": 2731, "prompt": ["小"] * 3}, 400, "8,192 at most"),
        ({"n": 129}, 400, "n: "),
        ({"prompt": ["小"] * 65, "n": 2}, 400, "80 answers"),
        ({"prompt": [99999]}, 400, "99999"),
        ({"prompt": "小" * 5000}, 400, "tokens"),
        ({"prompt": "☃"}, 400, "U+2603"),
        ({"stop": [""]}, 400, "stop"),
        ({"stop": list("abcde")}, 400, "stop"),
        ({"presence_penalty": 1}, 400, "presence_penalty"),
        ({"suffix": "x"}, 400, "suffix"),
        ({"best_of": 2}, 400, "best_of"),
        ({"extra_body": {"tools": []}}, 400, "tools"),
    ],
    ids=str,
)
@pytest.mark.parametrize("streamed", [False, True])
def test_what_cannot_be_answered_is_refused_in_their_shape(
    client, change, status, message, streamed
):
    ask = {"model": "writer", "prompt": PROMPT, "max_tokens": 4, "stream": streamed, **change}
    assert message in refused(lambda: client.completions.create(**ask), status)


def test_a_model_without_a_template_says_what_to_do_instead(client):
    messages = [{"role": "user", "content": PROMPT}]
    said = refused(lambda: client.chat.completions.create(model="writer", messages=messages), 400)
    assert "chat template" in said
    assert "/v1/completions" in said


def test_requests_past_the_limit_get_429_and_a_time_to_come_again(server, world_runs):
    found = server(world_runs, batch=2, waiting=1, grace=0.5)
    body = {"model": "writer", "prompt": PROMPT, "max_tokens": 8000, "stream": True}
    ends = threading.Event()

    def hold():
        url = f"{found.url}/v1/completions"
        with httpx.stream("POST", url, json=body, timeout=HUNG) as reply:
            assert reply.status_code == 200
            ends.wait(HUNG)

    threads = [threading.Thread(target=hold) for _ in range(3)]
    for thread in threads:
        thread.start()
    engine = found.app.state.engine
    until(lambda: engine.n_running == 2 and engine.n_waiting == 1)
    for streamed in (True, False):
        reply = httpx.post(f"{found.url}/v1/completions", json={**body, "stream": streamed})
        assert reply.status_code == 429
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.json()["error"]["type"] == "rate_limit_error"
    ends.set()  # all three leave half-way
    for thread in threads:
        thread.join()
    until(lambda: engine.n_running == engine.n_waiting == 0)


@pytest.mark.parametrize("streamed", [False, True])
def test_who_goes_away_leaves_the_batch(served, streamed):
    engine = served.app.state.engine
    ask = {"model": "writer", "prompt": PROMPT, "max_tokens": 8000, "stream": streamed}
    body = json.dumps(ask).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", served.port), timeout=HUNG) as sock:
        sock.sendall(head.encode() + body)
        until(lambda: engine.n_running == 1)
    before = engine.tokens
    until(lambda: engine.n_running == 0)
    assert engine.tokens < before + 8000
