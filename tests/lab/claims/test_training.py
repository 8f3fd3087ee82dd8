"""The loop, the search of rates and the recurrent opponents that the claims share."""

import json
import math

import pytest
import torch
from torch import nn

from glasshead.errors import NotFiniteError
from glasshead.lab.claims.claim import SEARCH_SEEDS, Budget, Words
from glasshead.lab.claims.rnn import LSTMReader, LSTMSeq2Seq, count, equal
from glasshead.lab.claims.training import BURST, Course, TextTask, at_edge, fit, searched, shown
from glasshead.model.gpt import GPT, GPTConfig


def test_the_loop_lowers_a_loss_and_ends_when_told():
    model = nn.Linear(3, 1)
    losses = []

    def loss(step):
        value = (model(torch.ones(2, 3)) - 5).square().mean()
        losses.append(value.item())
        return value

    assert fit(model, loss, lr=0.1, steps=50, done=lambda step: losses[-1] < 1) < 50
    assert losses[-1] < 1 < losses[0]


def test_the_search_takes_the_best_rate_of_each_side_and_no_seed_of_the_results():
    seen = []

    def run(side, lr, seed):
        seen.append((side, lr, seed))
        return {"fast": abs(lr - 0.01), "slow": abs(lr - 0.001)}[side]

    found = searched(Budget(quick=True, seeds=(3, 5)), ("fast", "slow"), run, lambda score: score)
    assert (found["fast"].lr, found["slow"].lr) == (0.01, 0.001)
    assert [lr for side, lr, seed in seen if seed in (3, 5)] == [0.01, 0.01, 0.001, 0.001]
    assert {seed for _, _, seed in seen} == {SEARCH_SEEDS[0], 3, 5}
    assert shown(found)["slow"]["best"] == 0.001


def test_a_rate_that_bursts_is_never_the_best():
    found = searched(
        Budget(quick=True, seeds=(0,)),
        ("one",),
        lambda side, lr, seed: math.nan if lr < 0.005 else 7.0,
        lambda score: score,
    )
    assert found["one"].lr == 0.01


def test_the_search_is_stored_without_infinities_and_says_what_lies_at_the_edge():
    scores = {"inner": {0.001: 3.0, 0.003: 1.0, 0.01: math.inf}, "outer": {0.003: 2.0, 0.01: 1.0}}
    found = {
        side: searched(
            Budget(quick=True, seeds=(0,)),
            (side,),
            lambda s, lr, seed: lr,
            some.__getitem__,
            [*some],
        )[side]
        for side, some in scores.items()
    }
    stored = shown(found)
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored
    assert stored["inner"]["tried"]["0.01"] is None
    words = at_edge(stored, {"inner": Words("one", "一"), "outer": Words("two", "二")})
    assert words.en.endswith("may lie beyond: two (0.01).")
    assert "二（0.01）" in words.zh
    assert at_edge(stored, {"inner": Words("one", "一")}) == Words("", "")


def test_one_rate_is_taken_without_a_search():
    seen = []
    found = searched(
        Budget(quick=True, seeds=(3, 5)),
        ("one",),
        lambda side, lr, seed: seen.append((lr, seed)) or 0.0,
        lambda score: score,
        (0.02,),
    )
    assert seen == [(0.02, 3), (0.02, 5)]
    assert shown(found)["one"] == {"best": 0.02, "edge": False, "tried": {"0.02": None}}


def test_a_training_that_bursts_ends_at_a_number():
    task = TextTask(block=8, batch_size=8, characters=2_000)
    model = task.gpt(5, n_layers=1, n_heads=2, d_model=16)
    course = task.train(model, lr=math.inf, seed=5, steps=3, points=3, seen=True)
    assert course == Course([1, 2, 3], [BURST] * 3, [BURST] * 3)


def test_a_rate_at_which_attention_meets_nan_is_never_the_best():
    def run(side, lr, seed):
        if lr > 0.005:
            raise NotFiniteError("q holds NaN", hint="")
        return 7.0

    found = searched(Budget(quick=True, seeds=(0,)), ("one",), run, lambda score: score)
    assert found["one"].lr == 0.001
    assert shown(found)["one"]["tried"]["0.01"] is None


def test_progress_goes_from_nothing_to_almost_all():
    told = []
    budget = Budget(quick=True, seeds=(0, 1), progress=lambda done, what: told.append(done))
    searched(budget, ("a", "b"), lambda side, lr, seed: 0.0, lambda score: score)
    assert told == [n / 10 for n in range(10)]


@pytest.mark.parametrize("parameters", [20_011, 50_021, 97_001])
def test_recurrent_models_are_as_large_as_what_they_are_compared_with(parameters):
    for kind in (LSTMReader, LSTMSeq2Seq):
        made = equal(lambda width, kind=kind: kind(13, width), parameters)
        assert abs(count(made) / parameters - 1) < 0.02


def test_a_size_that_no_width_comes_near_to_is_refused():
    with pytest.raises(ValueError, match="within 2%"):
        equal(lambda width: LSTMReader(13, width), 100)


def test_open_gates_keep_a_state_and_shut_ones_do_not():
    kept = {}
    for forget in (-9.0, 9.0):
        torch.manual_seed(0)
        model = LSTMReader(13, 7, forget)
        ends = [
            model.lstm(torch.zeros(1, 5, 7), (torch.zeros(1, 1, 7), torch.full((1, 1, 7), start)))[
                1
            ][1]
            for start in (0.0, 1.0)
        ]
        kept[forget] = (ends[1] - ends[0]).mean().item()
    assert kept[9.0] > 0.8
    assert kept[-9.0] < 0.01


def test_the_seq2seq_knows_the_source_by_its_last_state_only():
    torch.manual_seed(0)
    model = LSTMSeq2Seq(13, 7)
    source, target = torch.randint(13, (2, 5)), torch.randint(13, (2, 3))
    _, state = model.encoder(model.embedding(source))
    again = model.head(model.decoder(model.embedding(target), state)[0])
    assert torch.equal(model(source, target), again)


def test_a_text_task_learns_and_repeats_itself():
    task = TextTask(block=8, batch_size=8, characters=2_000)
    runs = [
        task.train(
            task.gpt(5, n_layers=1, n_heads=2, d_model=16, dropout=0.1),
            lr=1e-2,
            seed=5,
            steps=30,
            points=3,
        )
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert runs[0].steps == [10, 20, 30]
    assert runs[0].val[-1] < runs[0].val[0]


def test_knowing_frequencies_beats_knowing_nothing():
    task = TextTask(block=8, batch_size=8)
    untrained = GPT(GPTConfig(task.vocab_size, max_len=8, n_layers=0, d_model=8))
    assert task.unigram() < math.log(untrained.config.vocab_size) - 0.5
