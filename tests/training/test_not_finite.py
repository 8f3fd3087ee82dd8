"""Steps whose loss or gradient is not finite are skipped; many of them make the run go back."""

import math
from itertools import pairwise

import pytest
import torch

from glasshead.checkpoint import load, parameters
from glasshead.errors import NotFiniteError
from glasshead.training.loop import MOST_BAD, MOST_RETURNS, Trainer
from tests.training.cases import Heard, Numbers, metrics, new_model, same_ending, settings, trainer


class Spoil:
    """Makes the loss of some calls bad: by the number of the batch, or by the count of the call."""

    def __init__(self, *, numbers=(), calls=(), how="loss"):
        self.numbers, self.calls, self.how, self.call = set(numbers), set(calls), how, -1

    def __call__(self, number, loss):
        self.call += 1
        if number not in self.numbers and self.call not in self.calls:
            return loss
        if self.how == "raise":
            raise NotFiniteError("q holds NaN", hint="look upstream")
        if self.how == "gradient":  # the loss is finite, its gradient is not
            return loss + (loss - loss.detach()).abs().sqrt()
        return loss * math.nan


@pytest.mark.parametrize("how", ["loss", "gradient", "raise"])
def test_a_bad_step_is_skipped_and_counted(tmp_path, how):
    made = trainer(tmp_path / "run", spoil=Spoil(numbers=[4, 9, 10], how=how), log_every=1)
    outcome = made.train()
    assert outcome.progress.skipped == 3
    assert outcome.progress.returns == 0
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines if "loss" in line] == [
        step for step in range(1, 24) if step not in (5, 10, 11)
    ]
    assert lines[-2]["skipped"] == 3
    assert all(tensor.isfinite().all() for tensor in parameters(made.model).values())


def test_a_skipped_step_leaves_the_parameters_alone():
    seen = []

    class Looks(Heard):
        def on_step(self, status):
            seen.append({name: t.clone() for name, t in parameters(model).items()})

    model = new_model()
    Trainer(Numbers(model, Spoil(numbers=[4])), settings(), listener=Looks()).train()
    changed = [
        any(not torch.equal(before[name], after[name]) for name in before)
        for before, after in pairwise(seen)
    ]
    assert [step for step, moved in enumerate(changed, start=1) if not moved] == [4]


def test_many_bad_steps_bring_back_the_last_good_state_with_half_the_rate(tmp_path):
    heard = Heard()
    spoil = Spoil(calls=range(18, 18 + MOST_BAD))  # the second time round they are fine
    outcome = trainer(tmp_path / "run", heard, spoil).train()
    assert outcome.reason == "finished"
    assert (outcome.progress.returns, outcome.progress.rate) == (1, 0.5)
    assert outcome.progress.skipped == MOST_BAD
    [said] = [line for line in heard.said if "back to" in line]
    assert "up to step 23" in said
    assert "back to step 14" in said
    assert "0.5 of the learning rate" in said
    lines = metrics(tmp_path / "run")
    assert {"step": 14, "returned_from": 23, "rate": 0.5} in lines
    steps = [line["step"] for line in lines if "loss" in line]
    assert steps == [3, 6, 9, 12, 15, 18, 21]
    plain = tmp_path / "plain"
    trainer(plain).train()
    rates = {line["step"]: line["lr"] for line in lines if "lr" in line}
    usual = {line["step"]: line["lr"] for line in metrics(plain) if "lr" in line}
    assert rates[12] == usual[12]
    assert rates[18] == pytest.approx(usual[18] / 2)


def test_a_checkpoint_that_no_good_step_followed_is_not_trusted(tmp_path):
    heard = Heard()
    spoil = Spoil(calls=range(14, 14 + MOST_BAD))  # the checkpoint of step 14 may be the cause
    outcome = trainer(tmp_path / "run", heard, spoil).train()
    assert "back to step 7" in next(line for line in heard.said if "back to" in line)
    assert outcome.reason == "finished"


def test_a_state_that_fails_again_at_once_gives_way_to_the_one_before(tmp_path):
    heard = Heard()
    outcome = trainer(tmp_path / "run", heard, Spoil(calls=range(18, 18 + 2 * MOST_BAD))).train()
    first, second = (line for line in heard.said if "back to" in line)
    assert "back to step 14, with 0.5 of" in first
    assert "back to step 7, with 0.25 of" in second
    assert outcome.reason == "finished"


def test_going_back_does_not_lose_the_best_model(tmp_path):
    made = trainer(tmp_path / "run", spoil=Spoil(calls=range(14, 14 + MOST_BAD)))
    losses = iter([5.0, 4.0, 1.0, 4.5, 4.4, 4.3, 4.2])  # 1.0 at step 14, before it went back to 7
    made.task.evaluate = lambda: {"val_loss": next(losses)}
    outcome = made.train()
    assert outcome.progress.returns == 1
    assert (outcome.progress.best["val_loss"], outcome.progress.best_step) == (1.0, 14)
    assert load(tmp_path / "run").step == 14


def test_a_run_that_went_back_is_resumed_exactly(tmp_path):
    def life(path, spoil):
        trainer(path, spoil=spoil, steps=40).train()

    class Stop(BaseException):
        pass

    spoil = Spoil(calls=range(18, 18 + MOST_BAD))

    def dies(number, loss):
        if spoil.call == 26:  # before another checkpoint
            raise Stop
        return spoil(number, loss)

    life(tmp_path / "whole", Spoil(calls=range(18, 18 + MOST_BAD)))
    with pytest.raises(Stop):
        life(tmp_path / "run", dies)
    life(tmp_path / "run", Spoil())
    same_ending(tmp_path / "run", tmp_path / "whole")


def test_a_run_that_is_bad_for_ever_ends_with_an_error_and_keeps_its_best(tmp_path):
    heard = Heard()
    with pytest.raises(NotFiniteError, match=f"after {MOST_RETURNS} returns") as caught:
        trainer(tmp_path / "run", heard, Spoil(numbers=range(10, 99))).train()
    assert "--lr" in caught.value.hint
    assert len([line for line in heard.said if "back to" in line]) == MOST_RETURNS
    assert load(tmp_path / "run").step == 7


def test_without_a_run_there_is_nothing_to_go_back_to():
    with pytest.raises(NotFiniteError, match="not finite"):
        Trainer(Numbers(new_model(), Spoil(numbers=range(3, 99))), settings()).train()


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_model_that_really_diverges_goes_back_or_says_so(tmp_path, optimizer):
    """A rate so high that the numbers overflow by themselves, even with half of it, and half."""
    heard = Heard()
    made = trainer(
        tmp_path / "run",
        heard,
        optimizer=optimizer,
        lr=1e36,
        muon_lr=1e36,
        steps=40,
    )
    with pytest.raises(NotFiniteError, match="not finite"):
        made.train()
    assert any("back to step 0" in line for line in heard.said)
    assert load(tmp_path / "run").step == 0


def test_a_loss_that_explodes_for_a_while_is_survived(tmp_path):
    heard = Heard()
    made = trainer(tmp_path / "run", heard, steps=60, lr=0.01, log_every=1)
    loss, calls = made.task.loss, iter(range(10**6))

    def explodes(batch):
        if made.model.training and next(calls) in range(20, 20 + MOST_BAD + 3):
            return loss(batch) * 1e38 * 1e38  # inf, as a real explosion ends
        return loss(batch)

    made.task.loss = explodes
    outcome = made.train()
    assert outcome.progress.returns == 1
    losses = [line["val_loss"] for line in metrics(tmp_path / "run") if "val_loss" in line]
    assert losses[-1] < losses[0]


def test_an_evaluation_that_is_not_finite_is_not_the_best(tmp_path):
    heard = Heard()
    made = trainer(tmp_path / "run", heard)
    evaluate, calls = made.task.evaluate, iter(range(99))

    def sometimes():
        if next(calls) == 2:
            raise NotFiniteError("q holds NaN", hint="look upstream")
        return evaluate()

    made.task.evaluate = sometimes
    outcome = made.train()
    assert outcome.reason == "finished"
    assert [x["step"] for x in metrics(tmp_path / "run") if "val_loss" in x] == [0, 7, 21, 23]
    assert any("the evaluation failed" in line for line in heard.said)
