"""Several processes train as one does: the same losses, the same checkpoints, the same end."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed import TCPStore

from glasshead.attention.functional import allow_nan, attend
from glasshead.checkpoint import RunFolder, load
from glasshead.checkpoint.processes import Processes
from glasshead.checkpoint.sharded import read_shards
from glasshead.errors import CheckpointError, ConfigError, NotFiniteError
from glasshead.training.presets import Preset
from glasshead.training.progress import ProgressListener
from glasshead.training.start import (
    Context,
    check_same_settings,
    find_dataset,
    resume_run,
    start_run,
)
from tests.training.cases import metrics
from tests.training.distributed_cases import (
    BRIEF,
    FLAGS,
    PAIRS,
    STEPS,
    STOPS,
    WAYS,
    Stops,
    spoilt_trainer,
    text_trainer,
    work_briefly,
)
from tests.training.pair_cases import pair_trainer
from tests.training.test_kill import forkserver

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="torchrun with gloo needs Linux")


def torchrun(*words: str | Path, cwd: Path = ROOT) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.Popen(
        [*command, "--nproc-per-node", "2", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a run of one process."""
    made = tmp_path_factory.mktemp("distributed")
    text_trainer(made, "one").train()
    return made


@pytest.fixture(scope="module")
def folder(made):
    """Runs of two processes, and of one: by one alone, and by one after two."""
    for way in WAYS:
        outcome = text_trainer(made, f"one-{way}", listener=Stops()).train()
        assert (outcome.reason, outcome.progress.step) == ("interrupted", STOPS)
    two = torchrun("-m", "tests.training.distributed_cases", made)
    pair_trainer(made, "pairs-one", **PAIRS).train()
    spoilt_trainer(made / "spoilt-one").train()
    text_trainer(made, "half-one", precision="bf16", steps=5).train()
    _, said = two.communicate(timeout=600)  # or it hangs
    assert two.returncode == 0, said
    assert "Warning" not in said
    return made


def same(one: Path, other: Path, within: float = 1e-5) -> None:
    """Two runs have the same lines, the losses nearly the same."""
    lines, others = metrics(one), metrics(other)
    assert [line.keys() for line in lines] == [line.keys() for line in others]
    for line, another in zip(lines, others, strict=True):
        for name in line:
            limit = 100 * within if name == "grad_norm" else within
            assert abs(line[name] - another[name]) <= limit, (line, another)


def found(folder: Path, rank: int) -> dict:
    return json.loads((folder / f"found-{rank}.json").read_text())


def test_two_processes_have_the_losses_and_the_checkpoints_of_one(made):
    text_trainer(made, "brief-one", **BRIEF).train()
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    start = forkserver().Process
    two = [start(target=work_briefly, args=(made, store.port, rank)) for rank in range(2)]
    for process in two:
        process.start()
    while alive := [process for process in two if process.is_alive()]:
        ended = wait([process.sentinel for process in alive], timeout=600)  # or they hang
        if not ended or any(process.exitcode for process in two):
            for process in alive:
                process.kill()
    assert [process.exitcode for process in two] == [0, 0]
    for way in WAYS:
        same(made / f"brief-{way}", made / "brief-one")
        steps = []
        run = RunFolder.open(made / f"brief-{way}")
        assert run.states[0].is_dir()  # in parts, which one process can read
        assert run.load_state(lambda state, _, to=steps: to.append(state.progress["step"]))
        assert steps == [BRIEF["steps"]]
    parts = [load(made / f"brief-{way}").model.state_dict() for way in ("one", *WAYS)]
    for name, whole in parts[0].items():
        for other in parts[1:]:
            torch.testing.assert_close(other[name], whole, rtol=1e-4, atol=1e-5)


deep = pytest.mark.deep  # needs the runs of `folder`, or starts torchrun, which takes long


@deep
@pytest.mark.parametrize("way", WAYS)
def test_fifty_steps_of_two_processes_have_the_losses_of_one(folder, way):
    same(folder / way, folder / "one")
    assert len([line for line in metrics(folder / way) if "loss" in line]) == STEPS
    ours, theirs = (load(folder / name).model.state_dict() for name in (way, "one"))
    assert all((ours[name] - theirs[name]).abs().max() < 1e-3 for name in ours)


@deep
@pytest.mark.parametrize("way", WAYS)
def test_batches_of_pairs_of_any_size_are_divided_exactly(folder, way):
    same(folder / f"pairs-{way}", folder / "pairs-one")
    assert "bleu" in metrics(folder / f"pairs-{way}")[0]


@deep
@pytest.mark.parametrize("way", WAYS)
def test_what_one_process_saved_two_go_on_with(folder, way):
    same(folder / f"one-{way}", folder / "one")


@deep
@pytest.mark.parametrize("way", WAYS)
def test_a_signal_to_one_of_two_ends_both_and_one_alone_goes_on(folder, way):
    for rank in range(2):
        reason, step = found(folder, rank)[f"{way}-one"]
        assert reason == "interrupted"
        assert STOPS <= step <= STOPS + 1
    assert RunFolder.open(folder / f"{way}-one").states[0].is_dir()
    text_trainer(folder, f"{way}-one").train()
    same(folder / f"{way}-one", folder / "one")
    last, previous = RunFolder.open(folder / f"{way}-one").states
    assert (last.name, previous.name) == ("last.safetensors", "previous.safetensors")


@deep
@pytest.mark.parametrize("way", WAYS)
def test_a_loss_that_is_nan_in_one_process_is_skipped_by_both(folder, way):
    same(folder / f"spoilt-{way}", folder / "spoilt-one")
    assert found(folder, 0)[f"spoilt-{way}"] == found(folder, 1)[f"spoilt-{way}"]
    assert [line for line in metrics(folder / "spoilt-one") if "returned_from" in line]


def test_processes_that_compute_together_do_not_stop_at_nan():
    q = torch.full((1, 2, 3, 5), torch.nan)
    with allow_nan():
        assert attend(q, q, q).context.isnan().all()
    with pytest.raises(NotFiniteError):
        attend(q, q, q)


@deep
def test_dropout_differs_between_processes(folder):
    assert found(folder, 0)["seed"] != found(folder, 1)["seed"]


@deep
def test_half_precision_in_parts_computes_in_bf16_and_keeps_float32(folder):
    assert found(folder, 0)["half"] == "torch.float32"
    same(folder / "half", folder / "half-one", within=0.02)
    assert metrics(folder / "half") != metrics(folder / "half-one")


@deep
def test_parts_that_are_damaged_give_way_to_the_previous_ones(folder, tmp_path, capsys):
    shutil.copytree(folder / "fsdp", tmp_path / "run")
    metadata = tmp_path / "run" / "state" / "last" / ".metadata"
    metadata.write_bytes(metadata.read_bytes()[:-20])
    steps = []
    run = RunFolder.open(tmp_path / "run")
    assert run.load_state(lambda state, file: steps.append((state.progress["step"], file.name)))
    assert steps == [(STEPS - STEPS % FLAGS["save_every"], "previous")]
    assert "last is damaged" in capsys.readouterr().err
    assert run.states[0].name == "last.safetensors"  # which is not there: the damaged one is aside
    assert (tmp_path / "run" / "state" / "damaged").is_dir()


@deep
def test_metadata_cannot_run_anything(folder, tmp_path):
    shutil.copytree(folder / "ddp" / "state" / "last", tmp_path / "last")

    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    (tmp_path / "last" / "digests.json").unlink()
    (tmp_path / "last" / ".metadata").write_bytes(pickle.dumps(Harm()))
    with pytest.raises(CheckpointError, match=r"asks for posix\.mkdir"):
        read_shards(tmp_path / "last")
    assert not (tmp_path / "harm").exists()


@deep
def test_a_worker_that_is_killed_costs_nothing(folder, tmp_path):
    """By the command line, and torchrun starts it again."""
    words = [word for name, value in FLAGS.items() for word in _flag(name, value)]
    command = ["-m", "glasshead", "train", folder / "text.txt", "--out", tmp_path / "run"]
    started = torchrun(
        "--max-restarts", 3, *command, "--cache", folder / "cache", *words, cwd=tmp_path
    )
    wait_for(lambda: len(metrics(tmp_path / "run")) > STOPS, started)
    os.kill(worker(started.pid, rank=1), signal.SIGKILL)
    out, said = started.communicate(timeout=600)  # or it hangs
    assert started.returncode == 0, said
    assert out == f"{tmp_path / 'run'}\n"
    assert said.count(f"{tmp_path / 'run'}: GPT of") == 2
    assert metrics(tmp_path / "run") == metrics(folder / "ddp")


def _flag(name, value):
    flag = name.replace("_", "-")
    return [f"--no-{flag}"] if value is False else [f"--{flag}", str(value)]


def wait_for(true, process):
    end = time.monotonic() + 600
    while process.poll() is None and time.monotonic() < end:
        try:
            if true():
                return
        except OSError:  # not there yet
            pass
        time.sleep(0.002)
    process.kill()
    pytest.fail(f"it hangs: {process.communicate()}")


def worker(parent, rank):
    """The process of that rank, which `parent` started."""
    for entry in Path("/proc").iterdir():
        try:
            status = (entry / "stat").read_text().rpartition(")")[2].split()
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if status[1] == str(parent) and f"RANK={rank}".encode() in environment:
            return int(entry.name)
    raise AssertionError("no such worker")


@deep
def test_a_mistake_is_told_once_and_nobody_waits(tmp_path):
    started = torchrun("-m", "glasshead", "train", "no.txt", cwd=tmp_path)
    out, said = started.communicate(timeout=600)  # or it hangs
    assert started.returncode == 1  # torchrun's own
    assert (out, said.count("no.txt")) == ("", 1)
    assert "exitcode  : 2" in said


def test_processes_after_the_first_say_nothing_of_a_mistake_that_all_make(cli, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert cli("train", "my.txt", "--lr", "high") == (2, "", "")


def test_every_process_must_have_a_device_of_its_own():
    two = Processes(rank=1, size=2, local_rank=1, local_size=2)
    two.check_device("cpu")
    with pytest.raises(
        ConfigError, match=r"device \(cuda:1\) is a single one, but there are 2 processes"
    ):
        two.check_device("cuda:1")
    many = replace(two, local_size=torch.cuda.device_count() + 1)
    with pytest.raises(ConfigError, match=f"{many.local_size} processes need as many GPUs"):
        many.check_device("cuda")


def test_parallel_is_refused_where_there_is_one_process(cli):
    code, out, err = cli("train", "my.txt", "--parallel", "fsdp")
    assert (code, out) == (2, "")
    assert "--parallel fsdp is for several processes" in err
    assert "hint: torchrun" in err


def test_torchrun_must_be_able_to_find_the_run_again(cli, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "some")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    code, _, err = cli("train", "my.txt")
    assert code == 2
    assert "hint: add --out runs/my-nano" in err


def test_under_torchrun_a_run_of_the_same_settings_is_gone_on_with(made, cli, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "some")
    words = [word for name, value in FLAGS.items() for word in _flag(name, value)]
    command = ["train", made / "text.txt", "--out", made / "one", *words]
    code, out, err = cli(*command)
    assert (code, out) == (0, f"{made / 'one'}\n")
    assert f"finished at step {STEPS}" in err
    code, out, err = cli(*command, "--lr", "0.5")
    assert (code, out) == (2, "")
    assert "exists already, with --lr 0.003 instead of 0.5" in err


def test_a_setting_that_is_younger_than_a_run_has_its_default(made):
    shutil.copytree(made / "one", made / "older")
    (made / "older" / "checksums.json").unlink()
    file = made / "older" / "config.json"
    config = json.loads(file.read_text())
    assert config["data"]["text"].pop("portable") is False
    file.write_text(json.dumps(config))
    text, preset = find_dataset("text"), Preset("toy", data={"portable": False})
    check_same_settings(text, preset, FLAGS, made / "older")
    with pytest.raises(CheckpointError, match="with --portable False instead of True"):
        check_same_settings(text, preset, {**FLAGS, "portable": True}, made / "older")
    context = Context(made / "cache", ProgressListener())
    assert resume_run(made / "older", {}, {"portable": False}, context)
    with pytest.raises(ConfigError, match="--portable True differs from the run's False"):
        resume_run(made / "older", {}, {"portable": True}, context)


@pytest.fixture(scope="module")
def tasks(made):
    context = Context(made / "cache", ProgressListener())
    small = {"stories": 31, "val_stories": 7, "batch_size": 5, "n_layers": 1}
    refer, preset = find_dataset("refer"), Preset("toy", task="refer")
    trainers = {
        "text": text_trainer(made, "text"),
        "pairs": pair_trainer(made, "pairs", label_smoothing=0.1),
        "refer": start_run(refer, {}, preset, small, made / "refer", context),
    }
    for made in trainers.values():
        made.model.eval()
    return {name: made.task for name, made in trainers.items()}


def test_a_step_is_recorded_where_all_batches_are_alike(made, tasks):
    assert {name: find_dataset(name).same_shapes for name in tasks} == {
        name: task.same_shapes for name, task in tasks.items()
    }
    with pytest.raises(ConfigError, match="batches of pairs differ in shape"):
        resume_run(made / "pairs", {}, {"graph": "on"}, Context(made / "cache", ProgressListener()))


@pytest.mark.parametrize("name", ["text", "pairs", "refer"])
@given(number=st.integers(0, 40), size=st.integers(1, 7))
@settings(max_examples=20)
def test_the_shares_of_a_batch_add_up_to_its_loss(tasks, name, number, size):
    task = tasks[name]
    batch = task.batch(number)
    with torch.no_grad():
        shares = [task.share(batch, rank, size) for rank in range(size)]
        total = sum(task.loss(part) * share for part, share in shares)
        assert total.item() == pytest.approx(task.loss(batch).item(), rel=1e-5)
