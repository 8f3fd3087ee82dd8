"""The loop, the text and the recurrent opponents that the claims share."""

import math

import pytest
import torch
from torch import nn

from glasshead.errors import NotFiniteError
from glasshead.lab.claims.models import LSTMReader, LSTMSeq2Seq, count_parameters, match_parameters
from glasshead.lab.claims.search import BURST
from glasshead.lab.claims.training import LossCurve, TextTask, fit
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


def test_a_loss_that_is_no_number_ends_the_training():
    model = nn.Linear(3, 1)
    with pytest.raises(NotFiniteError, match="the loss is nan at step 2"):
        fit(
            model, lambda step: model(torch.ones(2, 3)).sum() * (1, math.nan)[step], lr=0.1, steps=5
        )


def test_a_training_that_bursts_ends_at_a_number():
    task = TextTask(block=8, batch_size=8, characters=2_000)
    model = task.gpt(5, n_layers=1, n_heads=2, d_model=16)
    course = task.train(model, lr=math.inf, seed=5, steps=3, points=3, seen=True)
    assert course == LossCurve([1, 2, 3], [BURST] * 3, [BURST] * 3)


@pytest.mark.parametrize("parameters", [20_011, 50_021, 97_001])
def test_recurrent_models_are_as_large_as_what_they_are_compared_with(parameters):
    for kind in (LSTMReader, LSTMSeq2Seq):
        made = match_parameters(lambda width, kind=kind: kind(13, width), parameters)
        assert abs(count_parameters(made) / parameters - 1) < 0.02


def test_a_size_that_no_width_comes_near_to_is_refused():
    with pytest.raises(ValueError, match="within 2%"):
        match_parameters(lambda width: LSTMReader(13, width), 100)


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
    assert task.unigram_loss() < math.log(untrained.config.vocab_size) - 0.5
