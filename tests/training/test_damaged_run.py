"""A run that is resumed finds damage, says so, and goes on where it can."""

import os
import shutil
import signal

import pytest

from glasshead.training.interrupt import catch_signals
from tests.training.cases import Heard, metrics, same_ending, trainer


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped after step 9 of 23, its best parameters from step 7."""
    path = tmp_path_factory.mktemp("stopped") / "run"

    def stop(number, loss):
        if number == 8:
            os.kill(os.getpid(), signal.SIGTERM)
        return loss

    assert trainer(path, spoil=stop).train().signal == signal.SIGTERM
    return path


@pytest.fixture(scope="module")
def whole(stopped, tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    shutil.copytree(stopped, path)
    trainer(path).train()
    return path


@pytest.fixture
def run(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "run")


def resume(run):
    heard = Heard()
    trainer(run, heard).train()
    return heard.said


@pytest.mark.parametrize("name", ["metrics.jsonl", "samples.txt"])
def test_a_damaged_log_is_copied_and_does_not_end_the_run(run, whole, name):
    data = bytearray((run / name).read_bytes())
    data[3:11] = bytes(8)
    (run / name).write_bytes(data)
    assert f"{name} is damaged" in "".join(resume(run))
    assert (run / f"damaged-{name}").read_bytes() == data
    shutil.copy(whole / name, run / name)
    same_ending(run, whole)


def test_logs_that_are_gone_are_named(run, whole):
    (run / "metrics.jsonl").unlink()
    assert "metrics.jsonl is missing" in "".join(resume(run))
    assert metrics(run)[-1] == metrics(whole)[-1]


def test_damaged_best_parameters_are_set_aside_and_written_anew(run, whole):
    file = run / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 8
    file.write_bytes(data)
    assert "model.safetensors is damaged" in "".join(resume(run))
    assert (run / "damaged-model.safetensors").read_bytes() == data
    assert file.read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_picture_that_cannot_be_drawn_does_not_end_the_run(run, whole):
    (run / "loss.png").mkdir()
    assert "cannot draw" in "".join(resume(run))
    same_ending(run, whole)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
def test_a_closed_terminal_saves_like_ctrl_c_unless_nohup_ignores_it():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with catch_signals() as received:
            os.kill(os.getpid(), signal.SIGHUP)
        assert received == [signal.SIGHUP]
        assert signal.signal(signal.SIGHUP, signal.SIG_IGN) == signal.SIG_DFL
        with catch_signals() as received:
            os.kill(os.getpid(), signal.SIGHUP)
        assert received == []
    finally:
        signal.signal(signal.SIGHUP, before)
