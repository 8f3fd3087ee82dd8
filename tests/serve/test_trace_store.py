"""What was recorded stays for a while."""

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glasshead.attention.hooks import Layer
from glasshead.errors import NotFoundError
from glasshead.observe.trace import Trace
from glasshead.observe.trace_storage import LayerTrace
from glasshead.serve.trace_store import TraceStore, tensor_bytes

from .made_up import long_atlas


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
    first = store.put(atlas(5), "poems", {"text": "春江", "tokens": True})
    assert store.put(atlas(5), "poems", {"tokens": True, "text": "春江"}) == first
    others = [
        store.put(atlas(5), "poems", {"text": "春江", "tokens": False}),
        store.put(atlas(5), "plays", {"text": "春江", "tokens": True}),
    ]
    assert len({first, *others}) == 3
    assert len(store) == 3


def test_what_is_put_comes_back_and_what_is_not_there_is_not_found():
    store, kept = TraceStore(10, 10**6), atlas(5)
    name = store.put(kept, "poems", "x")
    assert store.get(name) is kept
    assert store.entry(name).model == "poems"
    assert store.has("poems", "x") == name
    assert store.has("poems", "y") is None
    with pytest.raises(NotFoundError) as caught:
        store.get("../../etc/passwd")
    assert caught.value.hint


def test_the_one_not_used_for_longest_is_dropped_first():
    store = TraceStore(2, 10**6)
    first, second = store.put(atlas(5), "m", 1), store.put(atlas(5), "m", 2)
    store.get(first)
    third = store.put(atlas(5), "m", 3)
    assert [store.has("m", key) for key in (1, 2, 3)] == [first, None, third]
    with pytest.raises(NotFoundError):
        store.get(second)


def test_tensors_that_share_memory_are_counted_once():
    assert tensor_bytes(atlas(5)) == 4 * 2 * 5 * 3
    assert tensor_bytes(atlas(5, layers=7)) == 7 * tensor_bytes(atlas(5))


def test_one_that_is_larger_than_the_store_is_kept_alone():
    store = TraceStore(10, 100)
    small = store.put(atlas(1), "m", "small")
    large = store.put(atlas(1000), "m", "large")
    assert store.has("m", "small") is None
    assert store.get(large)
    assert small != large


def test_an_atlas_in_a_file_takes_no_room():
    store = TraceStore(10, 100)
    store.put(atlas(1), "m", "small")
    store.put(atlas(1000), "m", "large", size=0)
    assert len(store) == 2


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=60))
def test_those_not_asked_for_the_longest_are_forgotten_first(steps):
    store, order, names = TraceStore(5, 10**9), [], {}
    for put, number in steps:
        if put:
            names[number] = store.put(atlas(1), "m", number)
        elif number in order:
            store.get(names[number])
        else:
            continue
        order = [n for n in order if n != number] + [number]
        order = order[-5:]
    assert [n for n in range(13) if store.has("m", n)] == sorted(order)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_bytes_stay_within_the_limit(sizes):
    limit = 30 * tensor_bytes(atlas(1))
    store = TraceStore(1000, limit)
    for number, tokens in enumerate(sizes):
        store.put(atlas(tokens), "m", number)
        assert store.bytes <= limit or len(store) == 1
        assert store.has("m", number)


def test_many_threads_can_put_and_get_at_once():
    store, wrong = TraceStore(7, 10**9), []

    def use(worker: int) -> None:
        for n in range(200):
            name = store.put(atlas(1), f"m{worker}", n % 11)
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
    store.put(atlas(5), "m", "old")
    name = store.put(grown, "m", "grown", size=0)
    assert store.bytes == tensor_bytes(atlas(5))
    page = slice(0, 128)
    grown.cells(0, 1, 0, page, page)
    assert store.get(name) is grown
    assert store.bytes == tensor_bytes(atlas(5)) + 2 * 4 * 128**2
    grown.cells(0, 1, 0)
    assert store.get(name) is grown
    assert store.has("m", "old") is None
    assert store.bytes == grown.cached_bytes > 300_000
