"""Answers to many at once are those to each alone, and who goes away is gone."""

import asyncio
import gc
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glasshead import complete, load
from glasshead.errors import BusyError, ConfigError, GlassheadError, InputError, NotFiniteError
from glasshead.generation import batch as batch_module
from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY, SamplingConfig
from glasshead.generation.text_stream import TextStream
from glasshead.serve import writer as writer_module
from glasshead.serve.engine import Ask, Engine
from glasshead.serve.library import Library, ServedModel
from glasshead.serve.token_buffer import Token, TokenBuffer
from glasshead.text.tokenizer import BPETokenizer, ByteTokenizer
from tests.generation.runs import make_run
from tests.generation.test_look_ahead import HostAhead
from tests.serve.conftest import awaited, until

WILD = SamplingConfig(temperature=1.4)
EOS = ByteTokenizer(["<eos>"])
ENDLESS = Ask([1], WILD, max_tokens=100_000, end_ids=())  # no id ends it


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> ServedModel:
    """A model that says any bytes at all, half characters among them."""
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "bytes", EOS)
    return Library(folder).open("bytes")


@pytest.fixture
def engine():
    found = Engine(batch=4, waiting=3)
    yield found
    found.close()
    assert found.n_running == found.n_waiting == 0


async def heard(stream) -> list[Token]:
    return [token async for token in stream]


def expected(served, ask) -> tuple[str, str]:
    """The text and the end, by `generate` and the tokenizer alone."""
    loaded = served.run
    steps = generate(
        loaded.model, [ask.ids], ask.sampling, max_tokens=ask.max_tokens, seed=ask.seed,
        stop_ids=[256],
    )  # fmt: skip
    ids = [token for [token] in steps if token is not None]
    text = TextStream(loaded.tokenizer, ask.stop)
    said = ""
    for token in ids:
        said += text.push(token)
        if text.done:
            return said, "stop"
    said += text.flush()
    return said, "length" if len(ids) == ask.max_tokens and not text.done else "stop"


def test_many_answers_at_once_are_those_to_each_alone(served, engine):
    asks = [
        Ask([i, 2 * i], WILD, max_tokens=20 + i, seed=i, stop=["\n"] * (i % 2)) for i in range(1, 8)
    ]

    async def talk():
        return await asyncio.gather(*(heard(engine.stream(served, ask)) for ask in asks))

    for ask, tokens in zip(asks, awaited(talk()), strict=True):
        text, finish = expected(served, ask)
        assert "".join(token.text for token in tokens) == text
        assert tokens[-1].finish == finish
        assert [token.finish for token in tokens[:-1]] == [None] * (len(tokens) - 1)
        assert [token.id is None for token in tokens] == [False] * (len(tokens) - 1) + [True]


def test_answers_are_the_same_when_ids_are_picked_ahead(served, engine, monkeypatch):
    """As on a GPU: some texts end before others, and more come than there is room for."""
    monkeypatch.setattr(batch_module, "pick_step", HostAhead)
    asks = [
        Ask([i, 2 * i], WILD, max_tokens=9 * i, seed=i, stop=["\n"] * (i % 2)) for i in range(1, 8)
    ]

    async def talk():
        return await asyncio.gather(*(heard(engine.stream(served, ask)) for ask in asks))

    found = awaited(talk())
    monkeypatch.undo()
    for ask, tokens in zip(asks, found, strict=True):
        said = "".join(token.text for token in tokens)
        assert (said, tokens[-1].finish) == expected(served, ask)


def test_alternatives_come_with_their_texts(served, engine):
    async def talk():
        return await heard(engine.stream(served, Ask([7], GREEDY, max_tokens=5, alternatives=3)))

    *tokens, _ = awaited(talk())
    assert len(tokens) == 5
    for token in tokens:
        (best, text, logprob), *others = token.alternatives
        assert (best, logprob) == (token.id, token.logprob)
        assert text == EOS.decode([best])
        assert len(others) == 2


def test_a_stream_that_is_let_go_of_leaves_the_batch(served, engine):
    async def talk():
        async for _ in engine.stream(served, Ask([1], WILD, max_tokens=10_000)):
            break  # forgotten
        gone = asyncio.ensure_future(heard(engine.stream(served, Ask([2], WILD, 10_000))))
        closed = engine.stream(served, Ask([3], WILD, 10_000))
        await anext(closed)  # by then `gone` is in the batch too
        gone.cancel()
        closed.close()
        never = engine.stream(served, Ask([4], WILD, 10_000))
        del never
        gc.collect()
        last = await heard(engine.stream(served, Ask([5], GREEDY, 3)))
        while engine.n_running or engine.n_waiting:
            await asyncio.sleep(0.01)
        return last

    assert awaited(talk())[-1].finish == "length"


def test_who_comes_first_is_served_first_and_too_many_are_refused(served, engine):
    ends = []

    async def talk():
        long = [engine.stream(served, Ask([1], GREEDY, 10_000)) for _ in range(4)]
        for stream in long:
            await anext(stream)
        line = [engine.stream(served, Ask([2], GREEDY, 2)) for _ in range(3)]
        with pytest.raises(BusyError, match="4 texts are being written and 3 are waiting") as busy:
            engine.stream(served, Ask([3], GREEDY, 2))
        assert 1 <= busy.value.retry_after <= 60
        assert (engine.n_running, engine.n_waiting) == (4, 3)

        async def wait(number, stream):
            await heard(stream)
            ends.append(number)

        waits = [asyncio.ensure_future(wait(number, each)) for number, each in enumerate(line)]
        long[0].close()
        await asyncio.gather(*waits)
        assert ends == [0, 1, 2]
        again = await heard(engine.stream(served, Ask([3], GREEDY, 2)))
        for stream in long:
            stream.close()
        return again

    assert len(awaited(talk())) == 3


def test_texts_that_would_fill_the_memory_together_wait_for_each_other(served, engine, monkeypatch):
    monkeypatch.setattr(writer_module, "CACHE", 1)
    most = 0

    async def counted(stream):
        nonlocal most
        async for _ in stream:
            most = max(most, engine.n_running)

    async def talk():
        streams = [engine.stream(served, Ask([n], GREEDY, 9)) for n in (1, 2, 3)]
        await asyncio.gather(*map(counted, streams))

    awaited(talk())
    assert most == 1


def test_an_error_of_one_text_is_told_to_that_one_alone(tmp_path, engine):
    make_run(tmp_path / "bytes", EOS)
    served = Library(tmp_path).open("bytes")
    with torch.no_grad():
        served.run.model.embedding.weight[77] = torch.nan
    good = Ask([1, 2], GREEDY, 12)

    async def talk():
        asks = [good, Ask([77], GREEDY, 12), good]
        streams = [heard(engine.stream(served, ask)) for ask in asks]
        return await asyncio.gather(*streams, return_exceptions=True)

    one, error, other = awaited(talk())
    assert isinstance(error, NotFiniteError)
    for tokens in (one, other):
        assert "".join(token.text for token in tokens) == expected(served, good)[0]


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (Ask([]), InputError, "empty"),
        (Ask([257]), InputError, "257"),
        (Ask([1], max_tokens=-1), ConfigError, "max_tokens"),
        (Ask([1], stop=["a", ""]), ConfigError, "stop"),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_request_is_said_at_once(served, engine, ask, error, message):
    async def talk():
        engine.stream(served, ask)

    with pytest.raises(error, match=message):
        awaited(talk())


def test_a_thread_ends_when_there_is_nothing_to_do_and_another_begins(served, engine, monkeypatch):
    monkeypatch.setattr(writer_module, "IDLE", 0.0)

    async def talk():
        return await heard(engine.stream(served, Ask([1], GREEDY, 2)))

    first = awaited(talk())
    until(lambda: not engine._writers)
    assert awaited(talk()) == first


def test_closing_tells_those_who_are_not_done(served):
    engine = Engine(batch=1, waiting=5)

    async def talk():
        streams = [engine.stream(served, ENDLESS) for _ in range(3)]
        await anext(streams[0])
        await asyncio.to_thread(engine.close)
        return await asyncio.gather(*map(heard, streams), return_exceptions=True)

    for error in awaited(talk()):
        assert isinstance(error, GlassheadError)
        assert "shutting down" in str(error)

    async def more():
        engine.stream(served, Ask([1]))

    with pytest.raises(BusyError, match="shutting down"):
        awaited(more())


def test_others_can_use_the_model_while_a_batch_is_written(served, engine, monkeypatch):
    """A busy batch takes the lock again and again; others must get it before the batch ends."""
    monkeypatch.setattr(writer_module, "UNREAD", 10**9)  # nobody reads these texts

    def look():
        for _ in range(10):
            with served.lock:
                written = engine.tokens
            until(lambda written=written: engine.tokens > written)

    async def talk():
        streams = [engine.stream(served, ENDLESS) for _ in range(4)]
        await anext(streams[0])
        await asyncio.to_thread(look)
        assert engine.n_running == 4
        for stream in streams:
            stream.close()

    awaited(talk())


def test_a_busy_batch_frees_the_model_once_in_a_turn(served, engine, monkeypatch):
    """By a clock on which each reading takes a tenth of a turn."""
    ticks, pauses = itertools.count(), []

    def is_free():
        free = served.lock.acquire(blocking=False)
        if free:
            served.lock.release()
        return free

    def pause(seconds):
        assert seconds > 0
        with ThreadPoolExecutor(1) as other:  # a thread could take its own lock again
            pauses.append((other.submit(is_free).result(), engine.tokens))

    clock = SimpleNamespace(monotonic=lambda: next(ticks) * writer_module.TURN / 10, sleep=pause)
    monkeypatch.setattr(writer_module, "time", clock)

    async def talk():
        return await heard(engine.stream(served, Ask([1], WILD, 100, end_ids=())))

    assert len(awaited(talk())) == 101
    assert len(pauses) > 5
    assert all(free for free, _ in pauses)
    written = [tokens for _, tokens in pauses]
    assert all(b - a <= 10 for a, b in itertools.pairwise(written))


def test_the_eos_token_id_of_an_imported_model_ends_a_text_everywhere(tmp_path, engine, cli):
    make_run(tmp_path / "free", ByteTokenizer())
    free = generate(load(tmp_path / "free").model, [b"a"], GREEDY, max_tokens=9)
    ids = [token for [token] in free]
    eos = next(token for token in ids[2:] if token not in ids[:2])  # an id like any other
    imported = {"imported": {"ids": {"eos_token_id": [eos, 999]}}}
    path = make_run(tmp_path / "imported", ByteTokenizer(), data=imported)
    expected = ByteTokenizer().decode(ids[: ids.index(eos)])
    assert complete(path, "a", max_tokens=9, temperature=0) == expected
    args = (str(path), "a", "--max-tokens", "9", "--temperature", "0", "--json")
    [sample] = cli("generate", *args).out.splitlines()
    assert json.loads(sample)["text"] == expected
    assert json.loads(sample)["finish"] == "stop"
    served = Library(tmp_path).open("imported")

    async def talk():
        return await heard(engine.stream(served, Ask(b"a", GREEDY, max_tokens=9)))

    tokens = awaited(talk())
    assert "".join(token.text for token in tokens) == expected
    assert tokens[-1].finish == "stop"


MERGED = BPETokenizer.train("ab春aab春春bba春" * 5, vocab_size=290)
letters = st.text("ab春", max_size=20)
stops = st.lists(st.text("ab春", min_size=1, max_size=4), max_size=3)


@given(letters, stops, st.sampled_from([ByteTokenizer(), MERGED]))
def test_tokens_are_the_text_before_the_first_stop_string_and_nothing_of_it(text, stop, tokenizer):
    buffer = TokenBuffer(tokenizer, stop)
    said, told = "", []
    for token in tokenizer.encode_ids(text).tolist():
        said += buffer.stream.push(token)
        told += buffer.push(Token(token))
        assert said.startswith("".join(each.text for each in told))
        if buffer.stream.done:
            break
    else:
        said += buffer.stream.flush()
    *rest, last = buffer.end("length")
    told += rest
    assert (last.id, last.text, last.finish) == (None, "", "length")
    assert "".join(each.text for each in told) == said
    # Of the ids that are told, only the last may reach into the stop string.
    ids = [each.id for each in told]
    assert tokenizer.decode_bytes(ids).startswith(said.encode())
    assert said.encode().startswith(tokenizer.decode_bytes(ids[:-1]))


def test_half_a_character_is_never_told(served):
    buffer = TokenBuffer(EOS)

    def texts(data):
        found = []
        for byte in data:
            buffer.stream.push(byte)
            found += buffer.push(Token(byte))
        return [token.text for token in found]

    assert texts("春a".encode()) == ["", "", "春", "a"]
    assert texts("春".encode()[:2]) == ["", ""]
    buffer.stream.flush()
    assert buffer.end("stop") == [Token(None, finish="stop")]


def test_a_model_that_does_not_write_is_named(world_runs, engine):
    served = Library(world_runs).open("reader")

    async def talk():
        engine.stream(served, Ask([1]))

    with pytest.raises(InputError, match="reader writes no text"):
        awaited(talk())
