"""Asking for several ids at once changes no id, whatever texts come and go meanwhile."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glasshead.errors import NotFiniteError
from glasshead.generation import batch as batch_module
from glasshead.generation.batch import GenerationBatch
from glasshead.generation.decode import generate
from glasshead.generation.kv_slots import KVSlots
from glasshead.generation.look_ahead import AheadStep
from glasshead.generation.sampling import GREEDY, SamplingConfig, choose
from glasshead.generation.step import ModuleStep
from tests.generation.models import MAX_LEN, VOCAB, models, prompts, tiny
from tests.generation.reference import decode_plainly
from tests.generation.test_batch import finished

SAMPLED = SamplingConfig(temperature=1.3, top_p=0.95, repetition_penalty=1.2)


class Ids:
    def __init__(self, ids):
        self.steps, self._ids = len(ids), ids

    def wait(self):
        return self._ids


class HostAhead(ModuleStep):
    """Does on the host what `CudaGraphStep` does on a GPU."""

    launched: list[tuple[int, int]]  # steps and rows of each launch

    def __init__(self, model):
        super().__init__(model, KVSlots(model.embedding.weight.device, fixed=True))
        self.launched = []

    def start(self, ids, config, seen):
        self._last, self._config, self._seen = list(ids), config, seen
        self._reached = self.slots.stop

    def launch(self, steps, uniform):
        slots, found = self.slots, []
        saved = slots.stop, slots.width, slots.lengths
        while slots.stop < self._reached:
            slots.advance()
        for row in uniform:
            logits = self(self._last, slice(0, len(self._last)))
            finite = logits.isfinite().all(-1)
            ids = choose(logits.nan_to_num(), self._config, row, self._seen)
            self._last = ids.tolist()
            if self._seen is not None:
                self._seen.scatter_(1, ids[:, None], True)
            found.append(ids.where(finite, -1).tolist())
            slots.advance()
        self._reached = slots.stop
        slots.stop, slots.width, slots.lengths = saved
        self.launched.append((steps, len(self._last)))
        return Ids(found)


@pytest.fixture
def steps(monkeypatch):
    """All steps that were picked; each picks ids ahead."""
    found = []

    def pick(model):
        found.append(HostAhead(model))
        return found[-1]

    monkeypatch.setattr(batch_module, "pick_step", pick)
    return found


def plainly(model, prompts, config=GREEDY, **more):
    return [decode_plainly(model, p, config, row=row, **more) for row, p in enumerate(prompts)]


def texts(model, prompts, config=GREEDY, **more):
    columns = list(generate(model, prompts, config, **more))
    return [[step[row] for step in columns if step[row] is not None] for row in range(len(prompts))]


@pytest.mark.parametrize("config", [GREEDY, SAMPLED])
def test_ids_are_those_of_the_reference_past_max_len_and_few_launches_are_needed(steps, config):
    model = tiny(max_len=47)
    batch = [[3, 1, 4, 1, 5], [9, 2], [6] * 60]
    more = {"max_tokens": 90, "stop_ids": [1], "seed": 5}
    assert texts(model, batch, config, **more) == plainly(model, batch, config, **more)
    [step] = steps
    assert isinstance(step, AheadStep)
    assert len(step.launched) < 30


def test_one_text_is_asked_for_in_ever_larger_parts_and_no_further_than_it_goes(steps):
    [text] = texts(tiny(max_len=211), [[3, 1]], max_tokens=100)
    assert len(text) == 100
    assert steps[0].launched == [(4, 1), (8, 1), (16, 1), (32, 1), (32, 1), (7, 1)]


def test_a_text_that_joins_others_does_not_make_the_parts_small_again(steps):
    batch = GenerationBatch(tiny(max_len=211))
    batch.join([3, 1], GREEDY, max_tokens=150)
    for _ in range(47):
        batch.step()
    batch.join([5], GREEDY, max_tokens=40)
    while batch.active:
        batch.step()
    joined = next(n for n, (_, rows) in enumerate(steps[0].launched) if rows == 2)
    assert steps[0].launched[joined] == (32, 2)


ask = st.fixed_dictionaries(
    {
        "ids": prompts,
        "config": st.sampled_from([GREEDY, SAMPLED]),
        "max_tokens": st.integers(1, 3 * MAX_LEN),
        "seed": st.integers(0, 9),
        "end_ids": st.sampled_from([(), (1, 2), (5, 7, 11)]),
        "alternatives": st.sampled_from([None, None, 2]),
    }
)


@settings(max_examples=30)
@given(
    models,
    st.lists(st.tuples(st.integers(0, 30), ask, st.none() | st.integers(0, 25)), max_size=7),
    st.sampled_from([None, 2, 17]),
)
def test_texts_that_come_and_go_at_any_moment_get_the_ids_they_get_alone(model, plan, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "pick_step", HostAhead)
        batch = GenerationBatch(model, chunk=chunk)
        got, left, since = {}, set(), {}
        step = 0
        while step <= 30 or batch.texts:
            for number, (start, one, _) in enumerate(plan):
                if start == step:
                    key = batch.join(**one)
                    got[key], since[key] = (number, []), step
            for key in batch.texts:
                stay = plan[got[key][0]][2]
                if stay is not None and step - since[key] >= stay:
                    batch.leave(key)
                    left.add(key)
            for new in batch.step():
                assert new.key not in left
                got[new.key][1].extend([] if new.id is None else [new.id])
            step += 1
    for key, (number, ids) in got.items():
        one = plan[number][1]
        more = {name: one[name] for name in ("max_tokens", "seed")}
        whole = decode_plainly(model, one["ids"], one["config"], stop_ids=one["end_ids"], **more)
        assert ids == (whole[: len(ids)] if key in left else whole)


def test_texts_of_several_kinds_are_continued_one_step_at_a_time(steps):
    model, batch = tiny(), GenerationBatch(tiny())
    keys = [batch.join([3, 1], config, max_tokens=9) for config in (GREEDY, SAMPLED)]
    ids, _ = finished(batch)
    assert steps[0].launched == []
    for key, config in zip(keys, (GREEDY, SAMPLED), strict=True):
        assert ids[key] == decode_plainly(model, [3, 1], config, max_tokens=9)


def test_a_text_that_joins_is_read_when_the_ids_at_hand_are_used(steps):
    model = tiny(max_len=211)
    batch = GenerationBatch(model)
    batch.join([3, 1], GREEDY, max_tokens=200)
    for _ in range(6):
        batch.step()
    second = batch.join([4], GREEDY, max_tokens=20)
    waited = 0
    while all(new.key != second for new in batch.step()):
        waited += 1
    assert waited <= 4 + 8 + 16 - 5  # two parts are asked for at a time
    ids, _ = finished(batch)
    assert ids[second] == decode_plainly(model, [4], GREEDY, max_tokens=20)[1:]


def test_not_finite_logits_end_the_text_that_has_them(steps):
    for seed in range(99):
        model = tiny(seed, n_layers=0, positions="none")
        free = plainly(model, [[2], [3]], max_tokens=12)
        met = [token for token in free[0][3:] if token not in {*free[0][:3], *free[1], 2, 3}]
        if met:
            break
    poison = met[0]
    with torch.no_grad():
        model.embedding.weight[poison] = torch.nan
    batch = GenerationBatch(model)
    keys = [batch.join([start], GREEDY, max_tokens=12) for start in (2, 3)]
    ids, errors = {key: [] for key in keys}, {}
    while batch.texts:
        for new in batch.step():
            ids[new.key] += [] if new.id is None else [new.id]
            if new.error is not None:
                errors[new.key] = new.error
    assert isinstance(errors.pop(keys[0]), NotFiniteError)
    assert errors == {}
    assert ids == {
        keys[0]: free[0][: free[0].index(poison) + 1],
        keys[1]: free[1],
    }


def test_fixed_room_is_kept_and_used_again(steps):
    """So that a captured graph stays valid."""
    model = tiny(max_len=700)
    batch = GenerationBatch(model)
    batch.join([1] * 30, GREEDY, max_tokens=600)
    for number in range(600):
        if number % 7 == 0:
            batch.join([number % VOCAB] * 11, GREEDY, max_tokens=3)
        batch.step()
    slots = steps[0].slots
    assert slots.allocations <= slots.rows.bit_length()  # rows double, and are never given back
    finished(batch)
    assert slots.lengths == []
    assert slots.layers != []
