"""Watching heads changes no bit of a run, survives kills, and says what heads do."""

import json
import sys

import pytest
import torch

import glasshead
from glasshead.errors import ConfigError
from glasshead.observe.recording import observing
from glasshead.training import head_watch
from glasshead.training.head_watch import HeadWatch, measure_heads, repeated_tokens
from glasshead.training.progress import ProgressListener
from glasshead.training.run_log import RunLog
from tests.roles.circuits import INDUCTION, PREVIOUS, T, V, induction_model
from tests.training.cases import Heard, Numbers, StepClock, new_model, same_ending, trainer
from tests.training.test_kill import forkserver

NUMBERS = {
    "sink", "previous", "self", "local", "lag", "broad", "duplicate", "induction", "entropy",
    "distance", "largest_score",
}  # fmt: skip


def lines(path):
    text = (path / "heads.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_a_watched_run_ends_with_the_same_bits(tmp_path):
    trainer(tmp_path / "plain").train()
    trainer(tmp_path / "watched", watch_heads=5).train()
    same_ending(tmp_path / "plain", tmp_path / "watched")
    assert not (tmp_path / "plain" / "heads.jsonl").exists()
    found = lines(tmp_path / "watched")
    assert [line["step"] for line in found] == [0, 5, 10, 15, 20, 23]
    assert set(found[0]) == NUMBERS | {"step"}
    assert all(len(found[0][name]) == 2 == len(found[0][name][0]) for name in NUMBERS)
    assert found[0] != {**found[-1], "step": 0}


def work(path, steps, calls=0):
    from tests.training.test_kill import CALLS, die_at_call

    if calls:
        die_at_call(path.parent, calls, CALLS)
    trainer(path, steps=steps, watch_heads=3, save_every=20, eval_every=50).train()


@pytest.mark.deep
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_500_steps_that_are_killed_and_resumed_end_as_if_nobody_had_watched(tmp_path):
    killed, plain, whole = (tmp_path / name for name in ("killed", "plain", "whole"))
    for calls in (60, 41, 70, 53):
        process = forkserver().Process(target=work, args=(killed, 500, calls))
        process.start()
        process.join()
        assert process.exitcode == -9, "it ended before it could be killed"
    work(killed, 500)
    work(whole, 500)
    trainer(plain, steps=500, save_every=20, eval_every=50).train()
    same_ending(killed, plain)
    same_ending(whole, plain)
    assert (killed / "heads.jsonl").read_bytes() == (whole / "heads.jsonl").read_bytes()
    assert [line["step"] for line in lines(whole)] == [*range(0, 500, 3), 500]


def test_an_interrupted_run_writes_each_step_once(tmp_path):
    clock = StepClock(1.0)
    whole = tmp_path / "whole"
    trainer(whole, watch_heads=4).train()
    one = tmp_path / "one"
    trainer(one, steps=23, watch_heads=4, spoil=clock.tick, clock=clock, save_every=6)
    first = trainer(one, watch_heads=4, save_every=6)
    steps = iter(range(11))
    first.listener.on_step = lambda status: next(steps)  # ends with StopIteration
    with pytest.raises(StopIteration):
        first.train()
    assert lines(one)[-1]["step"] in (8, 12)
    trainer(one, watch_heads=4, save_every=6).train()
    assert lines(one) == lines(whole)


def test_the_numbers_are_those_of_the_recorded_weights():
    model = induction_model()
    ids = torch.cat([repeated_tokens(2, T, V).flip(1), repeated_tokens(2, T, V)])
    state = torch.get_rng_state()
    found = measure_heads(model, ids)
    assert torch.equal(torch.get_rng_state(), state)
    assert found["previous"][PREVIOUS].item() > 0.9
    assert found["induction"][INDUCTION].item() > 0.9
    assert found["induction"].flatten().sort().values[-2].item() < 0.2
    with observing(model) as trace:
        model(ids)
    weights = trace.weights(1)[:2].double()  # of the text
    entropy = -(weights * weights.clamp(min=1e-300).log()).sum(-1).mean((0, 2))
    torch.testing.assert_close(found["entropy"][1], entropy, atol=1e-4, rtol=0)
    away = torch.arange(T)[:, None] - torch.arange(T)
    distance = (weights * away).sum(-1).mean((0, 2))
    torch.testing.assert_close(found["distance"][1], distance, atol=1e-3, rtol=1e-4)
    stored = trace.layer_trace(0)
    scores = (stored.q @ stored.k.mT / stored.q.shape[-1] ** 0.5).masked_fill(away < 0, -torch.inf)
    torch.testing.assert_close(
        found["largest_score"][0], scores.amax((0, 2, 3)).double(), atol=1e-3, rtol=1e-4
    )


def test_scores_that_run_away_are_reported_once_until_they_double(tmp_path, monkeypatch):
    heard, model = Heard(), new_model()
    watch = HeadWatch(1, Numbers(model), RunLog(None, False), heard)
    progress = trainer(tmp_path / "run").progress
    for step, largest in enumerate((99.0, 101.0, 201.0, 203.0)):
        progress.step = step
        scores = {"largest_score": torch.tensor([[1.0, 2.0], [largest, float("nan")]])}
        monkeypatch.setattr(head_watch, "measure_heads", lambda model, ids, found=scores: found)
        watch.measure(Numbers(model), progress)
    assert [line.split(":")[0] for line in heard.said] == ["step 1", "step 3"]
    assert "the largest score of head 1:0 is 101" in heard.said[0]


def test_heads_that_cannot_be_measured_do_not_end_a_run(tmp_path):
    heard, model = Heard(), new_model()
    with torch.no_grad():
        model.blocks[0].attention.qkv.weight[:] = float("nan")
    watch = HeadWatch(1, Numbers(model), RunLog(tmp_path, False), heard)
    watch.measure(Numbers(model), trainer(tmp_path / "run").progress)
    written = lines(tmp_path) if (tmp_path / "heads.jsonl").exists() else []
    assert heard.said or written[0]["entropy"][0] == [None, None]


def test_histograms_of_a_watched_run_are_in_its_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trainer(tmp_path / "run", watch_heads=10, tensorboard=True).train()
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"), {"histograms": 0}).Reload()
    assert set(events.Tags()["histograms"]) == {f"heads/{name}" for name in NUMBERS}
    assert [event.step for event in events.Histograms("heads/induction")] == [0, 10, 20, 23]


def test_only_language_models_are_watched(tmp_path):
    pairs = [(f"{i}", f"{i}") for i in range(30)]
    with pytest.raises(ConfigError, match="--watch-heads 5 has no effect on pairs"):
        glasshead.train(pairs, steps=1, watch_heads=5, out=tmp_path / "run", quiet=True)
    task = Numbers(new_model())
    task.watched_ids = lambda: None
    with pytest.raises(ConfigError, match="language models"):
        HeadWatch(5, task, RunLog(None, False), ProgressListener())
