"""Texts that are continued together get the ids that each gets alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glasshead.errors import ConfigError, InputError, NotFiniteError
from glasshead.generation.batch import GenerationBatch, NewToken
from glasshead.generation.decode import generate
from glasshead.generation.kv_slots import SPARE
from glasshead.generation.sampling import GREEDY, SamplingConfig
from tests.generation.models import MAX_LEN, POSITIONS, VOCAB, models, prompts, tiny
from tests.generation.reference import decode_plainly

SAMPLED = SamplingConfig(temperature=1.3, top_p=0.95, repetition_penalty=1.2)
WILD = SamplingConfig(temperature=2.0, top_k=13)
asks = st.fixed_dictionaries(
    {
        "ids": prompts,
        "config": st.sampled_from([GREEDY, SAMPLED, WILD]),
        "max_tokens": st.integers(1, 3 * MAX_LEN),
        "seed": st.integers(0, 99),
        "end_ids": st.sampled_from([(), (1, 2), (5, 7, 11)]),
    }
)


def alone(model, ids, config=GREEDY, *, end_ids=(), **more):
    return decode_plainly(model, ids, config, stop_ids=end_ids, **more)


def finished(batch, most=10_000):
    """The ids of all texts until every one has ended, and how they ended."""
    ids, ends = {}, {}
    for _ in range(most):
        if not batch.texts:
            return ids, ends
        for new in batch.step():
            assert new.key not in ends
            if new.id is not None:
                ids.setdefault(new.key, []).append(new.id)
            if new.finish:
                ends[new.key] = new.finish
    raise AssertionError(f"{batch.texts} never end")


# Every kind of positions and of heads once; all combinations are drawn by the property below.
KINDS = [
    {"positions": "none"},
    {"positions": "learned", "n_kv_heads": 2},
    {"positions": "sinusoidal"},
    {"positions": "rotary", "n_kv_heads": 1, "qk_norm": True},
    {"positions": "alibi"},
    {"positions": "rotary", "window": 4},
    {"positions": "alibi", "window": 4},
    {"n_layers": 0},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_texts_of_all_lengths_get_the_ids_they_get_alone_past_max_len(kind):
    model = tiny(**kind)
    texts = [[3, 1, 4, 1, 5], [2], list(range(VOCAB)), [7] * MAX_LEN, [9, 9, 8]]
    batch = GenerationBatch(model, chunk=5)
    keys = [batch.join(ids, GREEDY, max_tokens=2 * MAX_LEN) for ids in texts]
    ids, ends = finished(batch)
    assert [ids[key] for key in keys] == [alone(model, p, max_tokens=2 * MAX_LEN) for p in texts]
    assert set(ends.values()) == {"length"}


@settings(max_examples=30)
@given(
    models,
    st.lists(
        st.tuples(st.integers(0, 9), asks, st.none() | st.integers(0, 25)), min_size=1, max_size=7
    ),
    st.sampled_from([2, 17, 64]),
)
def test_texts_that_come_and_go_at_any_moment_get_the_ids_they_get_alone(model, plan, chunk):
    """Each has its own sampling, seed, stop ids and limit; some are taken out half-way."""
    batch = GenerationBatch(model, chunk=chunk)
    got, ends, entered, keys = {}, {}, {}, {}
    step = 0
    while len(keys) < len(plan) or batch.texts:
        for number, (start, ask, _) in enumerate(plan):
            if start == step:
                key = batch.join(**ask)
                keys[key], entered[key], got[key] = number, step, []
        for key in list(batch.texts):
            stay = plan[keys[key]][2]
            if stay is not None and step - entered[key] >= stay:
                batch.leave(key)
                ends[key] = "left"
                assert key not in batch.texts
        for new in batch.step():
            assert new.key not in ends
            got[new.key] += [] if new.id is None else [new.id]
            if new.finish:
                ends[new.key] = new.finish
        step += 1
    for key, number in keys.items():
        _, ask, _ = plan[number]
        expected = alone(model, **ask)
        if ends[key] == "left":
            assert got[key] == expected[: len(got[key])]
        else:
            assert got[key] == expected
            assert ends[key] == ("length" if len(expected) == ask["max_tokens"] else "stop")


def test_float32_gives_the_same_ids_too():
    for positions in POSITIONS:
        model = tiny(positions=positions).float()
        texts = [[1, 2, 3], [4], [5] * 20, [6, 7]]
        batch = GenerationBatch(model)
        keys = [batch.join(p, SAMPLED, max_tokens=20, seed=3) for p in texts]
        ids, _ = finished(batch)
        expected = [alone(model, p, SAMPLED, max_tokens=20, seed=3) for p in texts]
        assert [ids[key] for key in keys] == expected


def test_samples_of_one_prompt_are_those_of_a_batch_of_generate():
    model = tiny()
    steps = list(generate(model, [[3, 4]] * 5, SAMPLED, max_tokens=9, seed=8))
    batch = GenerationBatch(model)
    keys = [batch.join([3, 4], SAMPLED, max_tokens=9, seed=8, place=place) for place in range(5)]
    ids, _ = finished(batch)
    assert [ids[key] for key in keys] == [[step[row] for step in steps] for row in range(5)]


class Counted:
    """How many positions the model is asked for, call by call."""

    def __init__(self, model):
        self.calls, embed = [], model.embedding.forward

        def counted(ids):
            self.calls.append(tuple(ids.shape))
            return embed(ids)

        model.embedding.forward = counted


def test_who_joins_or_leaves_makes_nobody_compute_again():
    model = tiny(max_len=97)
    counted, batch = Counted(model), GenerationBatch(model)
    for ids in ([1, 2, 3], [4] * 20):
        batch.join(ids, max_tokens=50)
        batch.step()
    assert counted.calls == [(1, 3), (1, 1), (1, 20)]
    batch.step()
    first, _ = batch.texts
    batch.leave(first)
    batch.step()
    assert counted.calls[3:] == [(2, 1), (1, 1)]


def test_a_long_prompt_is_read_in_chunks_while_the_others_go_on():
    model = tiny(max_len=97)
    counted, batch = Counted(model), GenerationBatch(model, chunk=10)
    going = batch.join([1, 2], max_tokens=90)
    batch.step()
    long = batch.join([3] * 35, max_tokens=5)
    short = batch.join([4, 5], max_tokens=5)
    given = [{new.key for new in batch.step()} for _ in range(6)]
    assert given[:4] == [{going}, {going, short}, {going, short}, {going, short}]
    assert given[4] == {going, short, long}
    assert max(rows * width for rows, width in counted.calls) <= 10


def test_equal_prompts_are_read_once_and_short_ones_at_once():
    model = tiny(max_len=97)
    counted, batch = Counted(model), GenerationBatch(model, chunk=64)
    for ids in [[7] * 40] * 4 + [[1], [2, 2], [3]]:
        batch.join(ids, max_tokens=1)
    assert len(batch.step()) == 4
    assert len(batch.step()) == 3
    assert counted.calls == [(1, 40), (3, 2)]
    for _ in range(3):
        batch.join([8] * 90, max_tokens=1)
    batch.step()
    assert len(batch.step()) == 3
    assert counted.calls[2:] == [(1, 64), (1, 26)]


def test_room_is_used_again_and_given_back():
    model = tiny(max_len=5 * SPARE)
    batch = GenerationBatch(model)
    batch.join([1] * 50, max_tokens=4 * SPARE)
    rooms = set()
    for step in range(4 * SPARE):
        if step % 7 == 0:
            batch.join([step % VOCAB] * 11, max_tokens=3)
        batch.step()
        slots = batch._step.slots
        rooms.add((slots.rows, slots.columns))
    rows, columns = max(rows for rows, _ in rooms), max(columns for _, columns in rooms)
    assert rows <= 2
    assert columns <= 50 + 5 * SPARE
    finished(batch)
    assert slots.layers == []


def test_logprobs_are_the_models_own_whatever_the_sampling():
    model = tiny(3)
    batch = GenerationBatch(model)
    key = batch.join([3, 1], SamplingConfig(0.3, top_k=2), max_tokens=6, alternatives=VOCAB + 5)
    plain = batch.join([3, 1], max_tokens=6)
    text = [3, 1]
    while batch.texts:
        for new in batch.step():
            if new.key == plain:
                assert new.alternatives == ()
                continue
            assert new.key == key
            with torch.no_grad():
                logprobs = model.eval()(torch.tensor([text]))[0, -1].log_softmax(-1)
            best = logprobs.sort(descending=True)
            assert [token for token, _ in new.alternatives] == best.indices.tolist()
            assert [p for _, p in new.alternatives] == pytest.approx(best.values.tolist())
            assert new.logprob == pytest.approx(logprobs[new.id].item())
            text.append(new.id)


def test_what_goes_wrong_with_one_text_ends_that_text_alone():
    """An id whose embedding is NaN: in the prompt of one, and met on the way by another."""
    starts = (2, 3, 4)
    for seed in range(99):
        model = tiny(seed)
        free = {start: alone(model, [start], max_tokens=12) for start in starts}
        others = {*free[3], *free[4], *starts}
        met = [place for place, token in enumerate(free[2]) if token not in others]
        if met and 3 <= met[0] <= 9:
            break
    poison = free[2][met[0]]
    with torch.no_grad():
        model.embedding.weight[poison] = torch.nan
    batch = GenerationBatch(model)
    bad = batch.join([1, poison, 1], GREEDY, max_tokens=12)
    keys = {start: batch.join([start], GREEDY, max_tokens=12) for start in starts}
    ids, ends = {}, {}
    while batch.texts:
        for new in batch.step():
            if new.id is not None:
                ids.setdefault(new.key, []).append(new.id)
            if new.finish:
                ends[new.key] = new
    for key in (bad, keys[2]):
        assert isinstance(ends[key].error, NotFiniteError)
        assert (ends[key].finish, ends[key].id) == ("error", None)
    assert bad not in ids
    assert ids[keys[2]] == free[2][: met[0] + 1]
    for start in (3, 4):
        assert ends[keys[start]].finish == "length"
        assert ids[keys[start]] == free[start]


def test_logits_that_are_not_finite_end_the_text_that_has_them():
    model = tiny(n_layers=0, positions="none", d_model=24)
    with torch.no_grad():
        model.embedding.weight[5] = torch.inf
    batch = GenerationBatch(model)
    bad, good = (batch.join([start], GREEDY, max_tokens=3) for start in (5, 6))
    _, ends = finished(batch)
    assert ends == {bad: "error", good: "length"}


def test_leaving_twice_and_leaving_what_has_ended_is_harmless():
    batch = GenerationBatch(tiny())
    one, two = (batch.join([i], max_tokens=2) for i in (1, 2))
    batch.leave(two)
    batch.leave(two)
    assert batch.texts == [one]
    finished(batch)
    batch.leave(one)
    assert batch.step() == []


def test_the_model_is_left_as_it_was_and_no_random_state_is_touched():
    model = tiny().train()
    state = torch.get_rng_state()
    batch = GenerationBatch(model)
    batch.join([1], SAMPLED, max_tokens=3)
    assert [type(new) for new in batch.step()] == [NewToken]
    assert all(module.training for module in model.modules())
    assert torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        ({"ids": [], "max_tokens": 1}, InputError, "empty"),
        ({"ids": [VOCAB], "max_tokens": 1}, InputError, f"id {VOCAB}"),
        ({"ids": [1], "max_tokens": 0}, ConfigError, r"max_tokens \(0\)"),
    ],
)
def test_a_text_that_cannot_be_read_does_not_join(ask, error, message):
    batch = GenerationBatch(tiny())
    with pytest.raises(error, match=message) as caught:
        batch.join(**ask)
    assert caught.value.hint
    assert batch.texts == []
