"""What becomes of a call that was caught: checked in parts, measured where the model ran."""

from dataclasses import fields

import pytest
import torch

from glasshead.observe import exactness, recording, unchecked_calls
from glasshead.observe.recording import observing
from tests.observe.test_recording import GPTS, PAD, ids, new_gpt, new_transformer


def same(found, wanted):
    for field in fields(wanted):
        a, b = getattr(found, field.name), getattr(wanted, field.name)
        if torch.is_tensor(b):
            torch.testing.assert_close(a, b, msg=lambda text, name=field.name: f"{name}: {text}")
        else:
            assert a == b


@pytest.fixture
def calls(monkeypatch):
    """On a CPU too, layers wait for one another; how many are measured in each call."""
    found = []

    def counted(layer, q, *rest):
        found.append(len(q))
        return measure(layer, q, *rest)

    measure = unchecked_calls.measure
    monkeypatch.setattr(unchecked_calls, "measure", counted)
    monkeypatch.setitem(unchecked_calls.PAIRS, "cpu", 2**20)
    monkeypatch.setitem(recording.HELD, "cpu", 2**20)
    return found


@torch.no_grad()
@pytest.mark.parametrize("name", GPTS)
def test_layers_that_wait_for_one_another_are_measured_as_each_alone(name, calls):
    model, text = new_gpt(**GPTS[name]), ids(2, 29)
    with observing(model, ids=text) as kept:
        model(text)
    assert calls == []
    wanted = kept.statistics(1)
    with observing(model, ids=text, keep="statistics") as trace:
        model(text)
        assert calls == [6]  # asked for one layer, all were measured
        same(trace.statistics(1), wanted)
    assert calls == [6, 6]
    for layer in range(3):
        same(trace.statistics(layer), kept.statistics(layer))


@torch.no_grad()
def test_layers_wait_for_their_like_only_and_padding_is_theirs(calls):
    model, source, target = new_transformer(), ids(3, 17), ids(3, 11)
    source[1, 13:] = source[2, 5:] = target[0, 7:] = PAD
    with observing(model) as kept:
        model(source, target)
    with observing(model, keep="statistics") as trace:
        model(source, target)
    assert sum(calls) == 3 * len(trace.layers)
    assert max(calls) == 3 * 2  # both layers of the encoder
    for layer in trace.layers:
        same(trace.statistics(layer.index), kept.statistics(layer.index))


@torch.no_grad()
def test_no_more_layers_wait_than_there_is_room_for(calls, monkeypatch):
    model, text = new_gpt(), ids(1, 23)
    for pairs, wanted in ((2 * 4 * 23 * 23, [2, 1]), (4 * 23 * 23 - 1, [1, 1, 1])):
        monkeypatch.setitem(unchecked_calls.PAIRS, "cpu", pairs)
        with observing(model, keep="statistics"):
            model(text)
        assert calls == wanted
        calls.clear()
    monkeypatch.setitem(unchecked_calls.PAIRS, "cpu", 2**20)
    for name, limit in (("BYTES", 2 * 2 * 4 * 23 * 10 * 4), ("CELLS", 2 * 4 * 23 * 23)):
        with monkeypatch.context() as less, observing(model, keep="statistics"):
            less.setattr(unchecked_calls, name, limit)
            model(text)
        assert calls == [2, 1]
        calls.clear()


@pytest.mark.parametrize("S", [5, 7, 97, 105])
def test_the_check_adds_up_long_texts_in_parts(S, monkeypatch):
    monkeypatch.setattr(exactness, "PART", 7)
    monkeypatch.setattr(exactness, "PARTS", 5)
    weights, v = torch.rand(2, 6, 3, S, dtype=torch.float64), torch.randn(2, 2, S, 11).double()
    wanted = weights @ v.repeat_interleave(3, 1)
    torch.testing.assert_close(exactness._weigh_values(weights, v), wanted)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@torch.no_grad()
def test_what_is_kept_is_measured_where_the_model_ran():
    model, text = new_gpt(), ids(1, 29)
    with observing(model) as trace:
        model(text)
    with observing(model.cuda()) as there:
        model(text.cuda())
    for i in range(3):
        ours, found = trace.statistics(i), there.statistics(i)
        assert (ours.engine, found.engine) == ("tiles", "triton")
        assert found.entropy.is_cpu
        assert found.overview_max is found.overview_mean
        torch.testing.assert_close(found.entropy, ours.entropy, atol=1e-4, rtol=0)
