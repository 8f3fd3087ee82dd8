"""The loop: what a step does, when it evaluates and saves, how it ends and goes on."""

import itertools
import json
import math
import os
import signal
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from glasshead.checkpoint import load, parameters
from glasshead.errors import CheckpointError, ConfigError
from glasshead.files.tensors import read_tensors
from glasshead.training.config import TrainConfig
from glasshead.training.loop import Trainer
from glasshead.training.schedule import SCHEDULES
from tests.training.cases import (
    Heard,
    Numbers,
    StepClock,
    metrics,
    new_model,
    same_ending,
    settings,
    trainer,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with the usual settings that was never stopped."""
    path = tmp_path_factory.mktemp("never") / "stopped"
    trainer(path).train()
    return path


class Interrupts(Heard):
    """Sends this process a signal once a step is done."""

    def __init__(self, step: int, number: signal.Signals = signal.SIGTERM) -> None:
        super().__init__()
        self.step, self.number = step, number

    def on_step(self, status):
        if status.step == self.step:
            os.kill(os.getpid(), self.number)


def test_a_step_is_what_plain_torch_does():
    """Accumulation, clipping, weight decay and the schedule, written out with torch alone."""
    config = settings(
        optimizer="adamw", lr=0.01, weight_decay=0.3, accumulate=3, clip=0.5, steps=6, log_every=1
    )
    model, heard = new_model(dropout=0.0), Heard()
    Trainer(Numbers(model), config, listener=heard).train()

    other = new_model(dropout=0.0)
    task = Numbers(other)
    by_decay = [
        {"params": [p for p in other.parameters() if p.dim() >= 2], "weight_decay": 0.3},
        {"params": [p for p in other.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(by_decay, lr=0.01, betas=(0.9, 0.95))
    lines = [line for line in heard.lines if "loss" in line]
    for step in range(6):
        rate = 0.01 * SCHEDULES["trapezoid"]((step + 0.5) / 6, 0.02, 0.4, 0.0)
        for group in adamw.param_groups:
            group["lr"] = rate
        adamw.zero_grad()
        loss = sum(task.loss(task.batch(3 * step + i)) for i in range(3)) / 3
        loss.backward()
        norm = nn.utils.clip_grad_norm_(other.parameters(), 0.5)
        adamw.step()
        assert lines[step]["step"] == step + 1
        assert lines[step]["loss"] == pytest.approx(loss.item(), abs=1e-5)
        assert lines[step]["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
        assert lines[step]["lr"] == pytest.approx(rate)
        assert lines[step]["tokens"] == (step + 1) * 3 * 5 * 13
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_training_learns_and_is_the_same_twice(tmp_path, optimizer):
    for name in ("one", "two"):
        trainer(tmp_path / name, optimizer=optimizer, steps=60, lr=0.01).train()
    same_ending(tmp_path / "one", tmp_path / "two")
    losses = [line["val_loss"] for line in metrics(tmp_path / "one") if "val_loss" in line]
    assert losses[-1] < losses[0] - 0.5


def test_evaluations_lines_and_samples_come_when_they_are_due(whole):
    lines = metrics(whole)
    assert [line["step"] for line in lines if "val_loss" in line] == [0, 7, 14, 21, 23]
    assert [line["step"] for line in lines if "loss" in line] == [3, 6, 9, 12, 15, 18, 21]
    samples = (whole / "samples.txt").read_text()
    assert samples.count("a\nsample") == 5
    assert "step 21" in samples
    assert (whole / "loss.png").read_bytes()[:4] == b"\x89PNG"


def test_a_line_holds_the_mean_loss_since_the_line_before():
    fine, coarse = Heard(), Heard()
    for heard, every in ((fine, 1), (coarse, 4)):
        Trainer(Numbers(new_model()), settings(steps=8, log_every=every), listener=heard).train()
    each = [line["loss"] for line in fine.lines if "loss" in line]
    means = [line["loss"] for line in coarse.lines if "loss" in line]
    assert means == pytest.approx([sum(each[:4]) / 4, sum(each[4:]) / 4])


@pytest.mark.parametrize(
    ("step", "number"),
    [*((step, signal.SIGTERM) for step in (1, 6, 7, 22)), (13, signal.SIGINT)],
)
def test_a_signal_saves_at_once_and_the_run_goes_on_exactly(tmp_path, whole, step, number):
    before = signal.getsignal(number)
    outcome = trainer(tmp_path / "run", Interrupts(step, number)).train()
    assert (outcome.reason, outcome.signal) == ("interrupted", number)
    assert signal.getsignal(number) == before
    about = read_tensors(tmp_path / "run" / "state" / "last.safetensors")[1]
    assert about["step"] == str(step)
    assert trainer(tmp_path / "run").train().reason == "finished"
    same_ending(tmp_path / "run", whole)


def test_many_stops_with_accumulation_and_adamw_change_nothing(tmp_path):
    changes = {"accumulate": 2, "optimizer": "adamw", "schedule": "cosine", "patience": 3}
    whole = tmp_path / "whole"
    trainer(whole, **changes).train()
    for step in (2, 3, 9, 14, 21):
        assert trainer(tmp_path / "run", Interrupts(step), **changes).train().signal
    trainer(tmp_path / "run", **changes).train()
    same_ending(tmp_path / "run", whole)


def test_a_finished_run_ends_the_same_when_it_is_resumed(tmp_path, whole):
    for _ in range(2):
        trainer(tmp_path / "run").train()
    same_ending(tmp_path / "run", whole)


def test_what_a_kill_left_in_the_files_is_cut_off(tmp_path, whole):
    trainer(tmp_path / "run", Interrupts(10)).train()
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 12, "loss": 1.0}\n{"step": 15, "lo')
    with (tmp_path / "run" / "samples.txt").open("a") as file:
        file.write("--- step 14\nhalf")
    trainer(tmp_path / "run").train()
    same_ending(tmp_path / "run", whole)


def test_a_torn_line_before_the_checkpoint_is_cut_off_too(tmp_path):
    trainer(tmp_path / "run", Interrupts(10)).train()
    file = tmp_path / "run" / "metrics.jsonl"
    os.truncate(file, file.stat().st_size - 5)  # a disk that lost what it had promised
    trainer(tmp_path / "run").train()
    steps = [line["step"] for line in metrics(tmp_path / "run") if "loss" in line]
    assert steps == [3, 6, 12, 15, 18, 21]


@pytest.mark.parametrize("damage", ["cut", "bit", "zeros"])
def test_a_damaged_last_state_costs_only_the_steps_since_the_previous(
    tmp_path, whole, capsys, damage
):
    trainer(tmp_path / "run", Interrupts(17)).train()
    last = tmp_path / "run" / "state" / "last.safetensors"
    data = last.read_bytes()
    middle = len(data) * 2 // 3
    one = bytes([data[middle] ^ 1])
    damaged = {
        "cut": data[:-1],
        "bit": data[:middle] + one + data[middle + 1 :],
        "zeros": data[:middle] + bytes(512) + data[middle + 512 :],
    }
    last.write_bytes(damaged[damage])
    trainer(tmp_path / "run").train()
    assert "last.safetensors is damaged" in (said := capsys.readouterr().err)
    assert "going back to step" in said
    same_ending(tmp_path / "run", whole)


def test_a_run_killed_before_its_first_save_starts_as_it_would_have(tmp_path, whole):
    trainer(tmp_path / "run")  # made, and never trained
    trainer(tmp_path / "run").train()
    same_ending(tmp_path / "run", whole)


def test_a_state_that_does_not_fit_is_refused(tmp_path):
    trainer(tmp_path / "run", Interrupts(10)).train()
    (tmp_path / "run" / "checksums.json").unlink()
    about = json.loads((tmp_path / "run" / "config.json").read_text())
    about["model"]["d_model"] = 28
    (tmp_path / "run" / "config.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match="shape"):
        trainer(tmp_path / "run").train()


def test_the_checkpoint_is_on_disk_before_the_evaluation(tmp_path):
    made = trainer(tmp_path / "run")
    seen = []

    def evaluate():
        about = read_tensors(tmp_path / "run" / "state" / "last.safetensors")[1]
        seen.append((made.progress.step, int(about["step"])))
        return {"val_loss": 1.0}

    made.task.evaluate = evaluate
    made.train()
    assert seen == [(step, step) for step in (0, 7, 14, 21, 23)]


def test_the_best_parameters_are_kept_and_loaded(tmp_path):
    made = trainer(tmp_path / "run")
    losses, kept = iter([5.0, 4.0, 3.0, 3.5, math.nan]), {}

    def evaluate():
        loss = next(losses)
        kept[loss] = {name: t.clone() for name, t in parameters(made.model).items()}
        return {"val_loss": loss}

    made.task.evaluate = evaluate
    outcome = made.train()
    assert (outcome.progress.best["val_loss"], outcome.progress.best_step) == (3.0, 14)
    loaded = load(tmp_path / "run")
    assert loaded.step == 14
    assert all(torch.equal(t, kept[3.0][n]) for n, t in parameters(loaded.model).items())
    best = [line["step"] for line in metrics(tmp_path / "run") if line.get("best")]
    assert best == [0, 7, 14]


def test_without_evaluations_the_last_parameters_are_the_model(tmp_path):
    made = trainer(tmp_path / "run")
    made.task.evaluate = dict
    made.train()
    loaded = load(tmp_path / "run")
    assert loaded.step == 23
    assert all(
        torch.equal(t, parameters(made.model)[n]) for n, t in parameters(loaded.model).items()
    )


def test_a_run_without_progress_stops_early_and_again_when_resumed(tmp_path):
    for _ in range(2):
        made = trainer(tmp_path / "run", steps=1000, patience=2)
        made.task.evaluate = lambda: {"val_loss": 2.0}
        outcome = made.train()
        assert (outcome.reason, outcome.progress.step) == ("stopped early", 14)
    assert [line["step"] for line in metrics(tmp_path / "run") if "val_loss" in line] == [0, 7, 14]


def by_clock(path, seconds, listener=None, **changes):
    """A run whose steps take so many seconds each, and nothing else takes any."""
    clock = StepClock(seconds)
    return trainer(path, listener, spoil=clock.tick, clock=clock, **changes)


BY_TIME = {"steps": None, "eval_every": None, "log_every": 1}


def test_minutes_end_a_run_and_more_minutes_go_on(tmp_path):
    first = by_clock(tmp_path / "run", 0.5, minutes=0.2, cooldown=0.5, **BY_TIME).train()
    assert (first.reason, first.progress.step, first.progress.seconds) == ("finished", 24, 12.0)
    rates = [line["lr"] for line in metrics(tmp_path / "run") if "lr" in line]
    assert rates[1:13] == pytest.approx([max(rates)] * 12)  # it falls after half the time
    assert rates[12:] == sorted(rates[12:], reverse=True)
    assert rates[-1] < 0.1 * max(rates)
    second = by_clock(tmp_path / "run", 0.5, minutes=0.4, cooldown=0.5, **BY_TIME).train()
    assert (second.reason, second.progress.step, second.progress.seconds) == ("finished", 48, 24.0)


def test_a_run_by_time_is_evaluated_twenty_times(tmp_path):
    by_clock(tmp_path / "run", 1.0, minutes=1.0, **BY_TIME).train()
    evaluated = [line["step"] for line in metrics(tmp_path / "run") if "val_loss" in line]
    assert evaluated == list(range(0, 61, 3))


class Steps(Heard):
    def __init__(self):
        super().__init__()
        self.steps = []

    def on_step(self, status):
        self.steps.append(status)


def test_the_time_left_and_the_speed_are_told(tmp_path):
    listener = Steps()
    by_clock(tmp_path / "run", 3.0, listener).train()
    left = [now.seconds_left for now in listener.steps]
    assert left[:-1] == pytest.approx([3.0 * (23 - step) for step in range(1, 23)])
    assert left[-1] is None
    lines = [line for line in listener.lines if "loss" in line]
    assert [line["seconds"] for line in lines] == [3.0 * line["step"] for line in lines]
    assert {line["tokens_per_s"] for line in lines} == {round(5 * 13 / 3, 1)}


def test_a_checkpoint_is_saved_after_five_minutes_without_one(tmp_path):
    made, saved = by_clock(tmp_path / "run", 70.0, eval_every=1000), []
    save = made.run.save_state
    made.run.save_state = lambda state, rotate: (saved.append(state.progress["step"]), save(state))
    made.train()
    assert saved == [0, 5, 10, 15, 20, 23]


def test_zero_steps_evaluate_once(tmp_path):
    trainer(tmp_path / "run", steps=0).train()
    assert [line["step"] for line in metrics(tmp_path / "run")] == [0]


def test_without_a_run_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    heard = Heard()
    outcome = Trainer(Numbers(new_model()), settings(), listener=heard).train()
    assert outcome.progress.step == 23
    assert [line["step"] for line in heard.lines if "val_loss" in line] == [0, 7, 14, 21, 23]
    assert list(tmp_path.iterdir()) == []


def test_saves_every_so_many_steps(tmp_path):
    made, saved = trainer(tmp_path / "run", save_every=5), []
    save = made.run.save_state
    made.run.save_state = lambda state, rotate: (saved.append(state.progress["step"]), save(state))
    made.train()
    assert saved == [0, 5, 7, 10, 14, 15, 20, 21, 23]


def test_two_trainers_cannot_have_one_run(tmp_path):
    made = trainer(tmp_path / "run")
    with made.run.lock(), pytest.raises(CheckpointError, match="another process"):
        trainer(tmp_path / "run").train()


def test_tensorboard_shows_every_step_once_after_resuming(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # TensorBoard names its files by the second, and sorts those of one second in no useful order.
    seconds = itertools.count(1_000_000_000)
    clock = SimpleNamespace(time=lambda: next(seconds))
    monkeypatch.setattr("tensorboard.summary.writer.event_file_writer.time", clock)
    for listener in (Interrupts(5), Interrupts(12), None):
        trainer(tmp_path / "run", listener, tensorboard=True).train()
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    steps = [event.step for event in events.Scalars("loss/training")]
    assert steps == [3, 6, 9, 12, 15, 18, 21]
    validation = {event.step: event.value for event in events.Scalars("loss/validation")}
    expected = {x["step"]: x["val_loss"] for x in metrics(tmp_path / "run") if "val_loss" in x}
    assert validation == pytest.approx(expected)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": None},
        {"minutes": 1.0},
        {"steps": -1},
        {"batch_size": 0},
        {"lr": math.nan},
        {"warmup": 1.5},
        {"optimizer": "moun"},
        {"schedule": "cosin"},
        {"precision": "fp8"},
        {"log_every": 0},
        {"threads": 0},
        {"threads": 100_000},
        {"seed": 2**64},
        {"lr": math.inf},
        {"weight_decay": math.inf},
        {"beta1": 1.0},
        {"beta2": 1.0},
        {"momentum": 1.0},
    ],
)
def test_settings_that_cannot_work_are_named(wrong):
    with pytest.raises(ConfigError) as caught:
        TrainConfig(**wrong)
    [(name, value)] = wrong.items()
    assert name in str(caught.value)
    assert str(value) in str(caught.value)
    assert caught.value.hint
