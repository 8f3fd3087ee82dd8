"""Decoding: cached equals uncached, a batch equals one by one, and nothing is left behind."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glasshead.errors import ConfigError, GlassheadError, InputError
from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY, SamplingConfig
from tests.generation.models import MAX_LEN, POSITIONS, VOCAB, models, prompts, tiny
from tests.generation.reference import decode_plainly

SAMPLED = SamplingConfig(temperature=1.3, top_p=0.95, repetition_penalty=1.2)
# Every kind of positions and of heads once; all combinations are drawn by the property below.
KINDS = [
    {"positions": "none"},
    {"positions": "learned"},
    {"positions": "sinusoidal", "n_kv_heads": 2},
    {"positions": "rotary", "n_kv_heads": 1, "qk_norm": True},
    {"positions": "alibi"},
    {"positions": "rotary", "window": 4},
    {"positions": "alibi", "window": 4},
]


def texts(model, prompts, config=GREEDY, max_tokens=3 * MAX_LEN, **more):
    """The new ids of each text."""
    steps = list(generate(model, prompts, config, max_tokens=max_tokens, **more))
    return [[step[row] for step in steps if step[row] is not None] for row in range(len(prompts))]


def plainly(model, prompts, config=GREEDY, max_tokens=3 * MAX_LEN, **more):
    """The same by the reference, one text after the other."""
    more = {"max_tokens": max_tokens, **more}
    return [decode_plainly(model, p, config, row=row, **more) for row, p in enumerate(prompts)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_generated_ids_are_those_of_the_reference_past_max_len(kind):
    model = tiny(**kind)
    assert texts(model, [[3, 1, 4, 1, 5]]) == plainly(model, [[3, 1, 4, 1, 5]])


@settings(max_examples=20)
@given(models, st.lists(prompts, min_size=1, max_size=4), st.sampled_from([GREEDY, SAMPLED]))
def test_any_batch_of_any_model_gets_the_ids_of_the_reference(model, batch, config):
    assert texts(model, batch, config, 25, seed=3) == plainly(model, batch, config, 25, seed=3)


@settings(max_examples=20)
@given(models, st.lists(prompts, min_size=2, max_size=4), st.sampled_from([1.0, 1.5]))
def test_a_batch_of_prompts_of_any_lengths_equals_one_by_one(model, batch, penalty):
    """Also where some end before others, at one of several stop ids."""
    config = SamplingConfig(temperature=0, repetition_penalty=penalty)
    alone = [texts(model, [prompt], config, 20, stop_ids=range(3))[0] for prompt in batch]
    assert texts(model, batch, config, 20, stop_ids=range(3)) == alone


@settings(max_examples=20)
@given(models, st.lists(prompts, min_size=2, max_size=4), st.integers(0, 99))
def test_a_sample_depends_on_its_place_and_not_on_the_others(model, batch, seed):
    together = texts(model, batch, SAMPLED, 20, seed=seed)
    others = [batch[0], *([[7]] * (len(batch) - 1))]
    assert texts(model, others, SAMPLED, 20, seed=seed)[0] == together[0]
    assert texts(model, batch[:1], SAMPLED, 20, seed=seed)[0] == together[0]


def test_samples_of_one_prompt_and_of_other_seeds_differ():
    model = tiny()
    several = texts(model, [[3]] * 5, SAMPLED) + texts(model, [[3]], SAMPLED, seed=1)
    assert len({tuple(text) for text in several}) == 6


@pytest.mark.parametrize("positions", POSITIONS)
def test_float32_decoding_agrees_too(positions):
    model = tiny(positions=positions).float()
    batch = [[1, 2, 3], [4], [5] * 20]
    assert texts(model, batch) == plainly(model, batch)


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_prompt_longer_than_max_len_is_read_from_its_end(positions):
    model = tiny(positions=positions)
    long = list(range(VOCAB))
    new = texts(model, [long])
    assert new == texts(model, [long[-MAX_LEN:]])
    assert new == plainly(model, [long])


def test_a_model_of_one_position_goes_on():
    model = tiny(max_len=1)
    assert texts(model, [[5, 6]], max_tokens=7) == texts(model, [[6]], max_tokens=7)


def test_a_stop_id_ends_its_text_alone_and_is_not_given_out():
    model = tiny(1)
    batch = [[1], [2, 2], [3, 3, 3]]
    free = texts(model, batch)
    stop = free[1][3]
    expected = [text[: text.index(stop)] if stop in text else text for text in free]
    assert len({len(text) for text in expected}) > 1
    assert texts(model, batch, stop_ids={stop}) == expected


def test_steps_end_when_every_text_has_ended():
    model = tiny()
    first = texts(model, [[1]])[0][0]
    assert list(generate(model, [[1]], GREEDY, max_tokens=9, stop_ids=[first])) == [[None]]


def test_a_generator_that_is_dropped_leaves_nothing_behind():
    model = tiny(2)
    steps = generate(model, [[1], [2, 2]], GREEDY, max_tokens=8)
    first = next(steps)
    steps.close()
    assert list(steps) == []
    assert next(generate(model, [[1], [2, 2]], GREEDY, max_tokens=8)) == first


def test_dropout_is_off_and_every_flag_is_as_it_was_after_each_step():
    model = tiny().train()
    model.blocks[0].eval()
    before = [module.training for module in model.modules()]
    expected = decode_plainly(tiny(), [1], GREEDY, max_tokens=5)
    got = []
    for step in generate(model, [[1]], GREEDY, max_tokens=5):
        assert [module.training for module in model.modules()] == before
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
        got += step
    assert got == expected


def test_flags_are_restored_when_the_model_fails():
    model = tiny()
    with torch.no_grad():
        model.head.bias[3] = torch.nan
    with pytest.raises(GlassheadError, match="NaN"):
        texts(model, [[1]])
    assert all(module.training for module in model.modules())


def test_the_largest_penalty_never_repeats_while_there_are_others():
    config = SamplingConfig(temperature=0, repetition_penalty=10)
    model = tiny()
    with torch.no_grad():
        model.head.bias.fill_(50.0)  # all logits positive: the penalty lowers all that it meets
    new = texts(model, [[4, 5]], config, max_tokens=VOCAB - 2)[0]
    assert sorted([4, 5, *new]) == list(range(VOCAB))


def test_the_global_random_state_is_untouched():
    model = tiny()
    state = torch.get_rng_state()
    texts(model, [[1]], SAMPLED)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "there is no prompt"),
        ([[1], []], "prompt 1 is empty"),
        ([[1, VOCAB]], f"prompt 0 holds id {VOCAB}, but the vocabulary has {VOCAB}"),
        ([[1, -1]], "prompt 0 holds id -1"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_named(prompts, message):
    with pytest.raises(InputError, match=message) as caught:
        texts(tiny(), prompts)
    assert caught.value.hint


def test_max_tokens_must_be_positive():
    with pytest.raises(ConfigError, match=r"max_tokens \(0\)"):
        texts(tiny(), [[1]], max_tokens=0)
