"""What was recorded stays for a while."""

import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glasshead.attention.hooks import Layer
from glasshead.errors import NotFoundError
from glasshead.observe.trace import Trace
from glasshead.observe.trace_storage import LayerTrace
from glasshead.serve.trace_store import TraceStore, tensor_bytes

from .byte_gpt import byte_gpt
from .conftest import HUNG, until
from .made_up import long_atlas


def token_bytes(trace: Trace) -> int:
    return sum(map(sys.getsizeof, trace.tokens[0]))


def atlas(tokens: int, layers: int = 1) -> Trace:
    found = Trace([Layer(i, f"layer{i}", "self", None) for i in range(layers)])
    for layer in found.layers:
        q = torch.zeros(1, 2, tokens, 3)
        found.layer_traces[layer.index] = LayerTrace(
            layer, (1, 2, tokens, tokens), q=q, k=q, lse=q[..., 0]
        )
    return found


def test_the_same_question_has_the_same_id_and_another_one_another():
    store = TraceStore(10, 10**6)
    first = store.add(atlas(5), "poems", {"text": "春江", "tokens": True}).id
    assert store.add(atlas(5), "poems", {"tokens": True, "text": "春江"}).id == first
    others = [
        store.add(atlas(5), "poems", {"text": "春江", "tokens": False}).id,
        store.add(atlas(5), "plays", {"text": "春江", "tokens": True}).id,
    ]
    assert len({first, *others}) == 3
    assert len(store) == 3


def test_what_is_put_comes_back_and_what_is_not_there_is_not_found():
    store, kept = TraceStore(10, 10**6), atlas(5)
    name = store.add(kept, "poems", "x").id
    assert store.get(name) is kept
    assert store.entry(name).model == "poems"
    assert store.find("poems", "x") is store.entry(name)
    assert store.find("poems", "y") is None
    with pytest.raises(NotFoundError) as caught:
        store.get("../../etc/passwd")
    assert caught.value.hint


def test_the_one_not_used_for_longest_is_dropped_first():
    store = TraceStore(2, 10**6)
    first, second = store.add(atlas(5), "m", 1).id, store.add(atlas(5), "m", 2).id
    store.get(first)
    store.add(atlas(5), "m", 3)
    assert [bool(store.find("m", key)) for key in (1, 3, 2)] == [True, True, False]
    with pytest.raises(NotFoundError):
        store.get(second)


def test_tensors_that_share_memory_are_counted_once():
    assert tensor_bytes(atlas(5)) == 4 * 2 * 5 * 3
    assert tensor_bytes(atlas(5, layers=7)) == 7 * tensor_bytes(atlas(5))


def test_one_that_is_larger_than_the_store_is_kept_alone():
    store = TraceStore(10, 100)
    small = store.add(atlas(1), "m", "small").id
    large = store.add(atlas(1000), "m", "large").id
    assert store.find("m", "small") is None
    assert store.get(large)
    assert small != large


def test_an_atlas_in_a_file_takes_no_room():
    store = TraceStore(10, 100)
    store.add(atlas(1), "m", "small")
    store.add(atlas(1000), "m", "large", in_file=True)
    assert len(store) == 2


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=60))
def test_those_not_asked_for_the_longest_are_forgotten_first(steps):
    store, order, names = TraceStore(5, 10**9), [], {}
    for put, number in steps:
        if put:
            names[number] = store.add(atlas(1), "m", number).id
        elif number in order:
            store.get(names[number])
        else:
            continue
        order = [n for n in order if n != number] + [number]
        order = order[-5:]
    assert [n for n in range(13) if store.find("m", n)] == sorted(order)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_bytes_stay_within_the_limit(sizes):
    limit = 30 * tensor_bytes(atlas(1))
    store = TraceStore(1000, limit)
    for number, tokens in enumerate(sizes):
        store.add(atlas(tokens), "m", number)
        assert store.bytes <= limit or len(store) == 1
        assert store.find("m", number)


def test_many_threads_can_put_and_get_at_once():
    store, wrong = TraceStore(7, 10**9), []

    def use(worker: int) -> None:
        for n in range(200):
            name = store.add(atlas(1), f"m{worker}", n % 11).id
            try:
                store.get(name)
            except NotFoundError:
                pass  # others were quicker
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=use, args=(w,)) for w in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(store) == 7


def test_what_is_looked_at_counts_too():
    store, grown = TraceStore(10, 300_000), long_atlas(311)
    store.add(atlas(5), "m", "old")
    name = store.add(grown, "m", "grown", in_file=True).id
    assert store.bytes == tensor_bytes(atlas(5)) + token_bytes(grown)
    page = slice(0, 128)
    grown.cells(0, 1, 0, page, page)
    assert store.get(name) is grown
    assert store.bytes == tensor_bytes(atlas(5)) + token_bytes(grown) + 2 * 4 * 128**2
    grown.cells(0, 1, 0)
    store.make_room()
    assert store.get(name) is grown
    assert store.find("m", "old") is None
    assert store.bytes == token_bytes(grown) + grown.cached_bytes > 300_000


@pytest.mark.parametrize("in_file", [False, True])
def test_statistics_count_as_soon_as_they_are_measured(in_file):
    store, trace = TraceStore(10, 10**9), long_atlas(137)
    store.add(trace, "m", "x", in_file=in_file)
    before = store.bytes
    trace.statistics(0)
    found = trace.layer_trace(0).statistics
    assert store.bytes - before >= found.overview_mean.nbytes + found.entropy.nbytes
    assert found.overview_mean.nbytes == 4 * 2 * 9**2  # cells of 16 x 16


def test_what_grew_while_it_was_used_makes_room_at_the_end_of_the_request(server, tmp_path):
    byte_gpt(tmp_path / "gpt")
    mine = server(tmp_path, seen_bytes=500_000)
    for text in ("a" * 197, "b" * 197, "c" * 197):  # 0.27 MB each, most of it statistics
        reply = httpx.post(f"{mine.url}/api/atlas", json={"model": "gpt", "text": text})
        assert reply.status_code == 200
        assert len(mine.app.state.traces) == 1
    held = httpx.get(f"{mine.url}/metrics").text
    seen = float(re.search(r"^glasshead_seen_bytes (\S+)", held, re.M)[1])
    assert 200_000 < seen < 500_000


def test_a_text_that_two_ask_for_at_once_is_read_once(server, tmp_path, monkeypatch):
    mine = server(byte_gpt(tmp_path / "gpt"))
    model, traces = mine.app.state.library.open("gpt"), mine.app.state.traces
    looked, read = [], []

    def find(*asked):
        looked.append(asked)
        return find.real(*asked)

    def record(*asked):
        read.append(asked)
        return record.real(*asked)

    find.real, record.real = traces.find, model.inspectable.record
    monkeypatch.setattr(traces, "find", find)
    monkeypatch.setattr(model.inspectable, "record", record)
    ask = {"model": "gpt", "text": "abc"}
    with ThreadPoolExecutor() as pool:
        with model.lock:
            replies = [
                pool.submit(httpx.post, f"{mine.url}/api/look", json=ask, timeout=HUNG)
                for _ in range(2)
            ]
            until(lambda: len(looked) == 2)
        assert [reply.result().status_code for reply in replies] == [200, 200]
    assert len(read) == 1
