"""What 'auto' picks, and what is on a GPU as on a CPU."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from glasshead import machine
from glasshead.checkpoint.processes import Processes
from glasshead.errors import ConfigError, InputError
from glasshead.machine import pick_device
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.transformer import TransformerConfig
from glasshead.training import auto_settings, memory
from glasshead.training.memory import check_training_memory
from glasshead.training.presets import find_preset, presets_for
from glasshead.training.start import Context, find_dataset, start_run
from tests.training.cases import Heard, Numbers, metrics, new_model, settings, trainer

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CPU = torch.device("cpu")


def test_small_models_use_one_thread_and_large_ones_all():
    small, large = new_model(), new_model(d_model=256, n_heads=2)
    assert auto_settings.pick_threads(None, small) == 1
    assert auto_settings.pick_threads(None, large) == torch.get_num_threads()
    assert auto_settings.pick_threads(3, small) == 3


def test_compiling_without_a_compiler_is_refused_before_training(monkeypatch):
    monkeypatch.setattr(auto_settings, "find_compiler", lambda: None)
    with pytest.raises(ConfigError, match=r"--compile on needs a C\+\+ compiler"):
        auto_settings.pick_compile("on", CPU, is_long=False)
    assert auto_settings.pick_compile("auto", CPU, is_long=True) == "off"


def test_what_is_asked_for_is_not_overruled(monkeypatch):
    model = new_model()
    for name in ("float32", "bf16"):
        assert auto_settings.pick_precision(name, CPU, model) == name
    monkeypatch.setattr(auto_settings, "find_compiler", lambda: "c++")
    for name in ("on", "off"):
        assert auto_settings.pick_compile(name, CPU, is_long=True) == name
    assert auto_settings.pick_compile("auto", CPU, is_long=True) == "off"


@pytest.mark.parametrize(
    ("flags", "limit", "crashes", "picked"),
    [
        ({"amx_bf16"}, None, False, "bf16"),
        ({"avx512_bf16"}, None, False, "bf16"),
        ({"avx512f"}, None, False, "float32"),
        ({"avx512_bf16"}, "AVX512_CORE", False, "float32"),
        ({"amx_bf16", "avx512_bf16"}, "AVX512_CORE_FP16", False, "float32"),
        ({"amx_bf16", "avx512_bf16"}, None, True, "float32"),
    ],
)
def test_bf16_is_picked_on_a_cpu_that_is_good_at_it(monkeypatch, flags, limit, crashes, picked):
    monkeypatch.setattr(auto_settings, "cpu_flags", lambda: frozenset(flags))
    monkeypatch.setattr(auto_settings, "amx_crashes", lambda: crashes)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if limit:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    large = new_model(d_model=512, n_heads=2)
    assert auto_settings.pick_precision("auto", CPU, large) == picked
    assert auto_settings.pick_precision("auto", CPU, new_model()) == "float32"


def test_a_device_that_is_not_there_is_named():
    for name in ("cuda:99", "abacus", "meta", "meta:0"):
        with pytest.raises(ConfigError, match=name) as caught:
            pick_device(name)
        assert caught.value.hint


def test_what_was_picked_is_in_the_config(tmp_path):
    config = settings(threads=None, precision="auto", compile="auto", eval_every=None, steps=40)
    settled = config.resolve_auto(new_model())
    assert (settled.threads, settled.compile, settled.eval_every) == (1, "off", 40)
    assert "auto" not in json.dumps([settled.precision, settled.compile, settled.device])


def test_training_uses_its_own_threads_and_gives_them_back(tmp_path):
    before, during = torch.get_num_threads(), []

    def note(number, loss):
        during.append(torch.get_num_threads())
        return loss

    trainer(tmp_path / "run", spoil=note, threads=before + 1, steps=1).train()
    assert set(during) == {before + 1}
    assert torch.get_num_threads() == before


def test_bf16_learns_too(tmp_path):
    trainer(tmp_path / "run", precision="bf16", steps=40, lr=0.01).train()
    losses = [line["val_loss"] for line in metrics(tmp_path / "run") if "val_loss" in line]
    assert losses[-1] < losses[0] - 0.3


class OnGPU(Numbers):
    def batch(self, number):
        batch = super().batch(number)
        return type(batch)(batch.ids.cuda(), batch.targets.cuda())

    def evaluate(self):
        return {"val_loss": self.loss(self.batch(10**6)).item()}


@cuda
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
@pytest.mark.parametrize("compile", ["off", "on"])
@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_gpu_learns_and_skips_bad_steps_without_a_look(compile, optimizer):
    from glasshead.training.loop import Trainer

    def spoil(number, loss):
        return loss * (float("nan") if number in (11, 17) else 1.0)

    heard, model = Heard(), new_model()
    task = OnGPU(model, spoil)
    config = settings(
        device="cuda", precision="auto", compile=compile, optimizer=optimizer, steps=60, lr=0.01,
        graph="off",  # a record would hold the batch that is spoilt, or none
    )  # fmt: skip
    outcome = Trainer(task, config, listener=heard).train()
    assert outcome.progress.skipped == 2
    assert all(p.isfinite().all() for p in model.parameters())
    losses = [line["val_loss"] for line in heard.lines if "val_loss" in line]
    assert losses[-1] < losses[0] - 0.3


@cuda
def test_a_run_on_a_gpu_is_saved_and_goes_on(tmp_path):
    from glasshead.training.loop import Trainer
    from tests.training.cases import new_run

    config = settings(device="cuda", precision="float32", compile="off", steps=20)
    run = new_run(tmp_path / "run", config=config)
    Trainer(OnGPU(new_model()), config, run).train()
    longer = settings(device="cuda", precision="float32", compile="off", steps=30)
    outcome = Trainer(OnGPU(new_model()), longer, run).train()
    assert outcome.progress.step == 30
    steps = [line["step"] for line in metrics(tmp_path / "run") if "val_loss" in line]
    assert steps == [0, 7, 14, 21, 28, 30]


@cuda
@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_recorded_step_learns_what_the_step_itself_learns(optimizer):
    from glasshead.training.loop import Trainer

    curves = []
    for graph in ("off", "on"):
        heard = Heard()
        config = settings(
            device="cuda", precision="float32", compile="off", optimizer=optimizer, steps=40,
            log_every=1, graph=graph,
        )  # fmt: skip
        Trainer(OnGPU(new_model()), config, listener=heard).train()
        curves.append([line["loss"] for line in heard.lines if "loss" in line])
    assert curves[1] == pytest.approx(curves[0], rel=1e-4)
    assert curves[0][-1] < curves[0][0] - 0.3


def test_a_step_is_recorded_on_a_gpu_alone():
    from glasshead.training.auto_settings import pick_graph

    assert pick_graph("auto", torch.device("cpu"), new_model()) == "off"
    assert pick_graph("auto", torch.device("cuda"), new_model()) == "on"
    with pytest.raises(ConfigError, match="--graph on needs a GPU, but the device is cpu"):
        pick_graph("on", torch.device("cpu"), new_model())


@pytest.mark.parametrize(
    ("name", "processes", "why"),
    [
        ("pairs", 1, "batches of pairs differ in shape"),
        ("refer", 1, "batches of refer differ in shape"),
        ("text", 2, "2 processes train together"),
    ],
)
def test_a_step_that_cannot_be_recorded_is_refused_before_anything_is_read(
    tmp_path, name, processes, why
):
    context = Context(tmp_path, Heard(), processes=Processes(size=processes))
    preset = find_preset(presets_for(name)[0], name)

    def begin(graph):
        start_run(find_dataset(name), {}, preset, {"graph": graph}, tmp_path / "run", context)

    with pytest.raises(ConfigError, match=f"--graph on is not possible: {why}") as caught:
        begin("on")
    assert caught.value.hint == "leave --graph out"
    if name != "refer":  # which needs no files
        with pytest.raises(InputError, match=f"no {name} to train on"):
            begin("auto")


@pytest.mark.parametrize("steps", [3, 20, 137, 800, 2000, 20_000])
def test_evaluations_are_at_most_a_tenth_of_a_run(steps):
    settled = settings(steps=steps, eval_every=None, eval_batches=None).resolve_auto(new_model())
    times = 1 + -(-steps // settled.eval_every)  # the first is before the first step
    of_steps = times * settled.eval_batches / 3  # a batch without its gradient is a third of a step
    assert of_steps <= 0.1 * steps or (times, settled.eval_batches) == (2, 1)
    assert (times == 21) if steps >= 2000 else (times < 21)


def test_evaluations_that_were_asked_for_are_made():
    given = {"steps": 7, "eval_every": 2, "eval_batches": 5}
    settled = settings(**given).resolve_auto(new_model())
    assert (settled.eval_every, settled.eval_batches) == (2, 5)


def test_a_model_that_does_not_fit_is_refused_with_the_bytes_and_what_fits(monkeypatch):
    shape = GPTConfig(vocab_size=11, d_model=32, n_layers=7, max_len=13)
    model = GPT(shape)
    n = sum(p.numel() for p in (*model.parameters(), *model.buffers()))
    config = settings(steps=3, optimizer="adamw", device="cpu", batch_size=5)
    free = [16 * n + 4 * 12 * 32 * 7 * 5 * 13]
    monkeypatch.setattr(machine, "free_memory", lambda device: free[0])
    monkeypatch.setattr(memory, "free_memory", lambda device: free[0])
    check_training_memory("gpt", shape, config, 5 * 13)  # not a byte too much
    free[0] -= 1
    with pytest.raises(ConfigError, match="a batch of 65 tokens needs") as found:
        check_training_memory("gpt", shape, config, 5 * 13)
    assert "--batch-size 4 would fit" in found.value.hint
    free[0] = 16 * n - 1
    with pytest.raises(ConfigError, match=f"training {n:,} parameters needs") as found:
        check_training_memory("gpt", shape, config, 5 * 13)
    assert "--n-layers 6 would fit" in found.value.hint
    for endless in ({"n_layers": 10**9}, {"d_model": 2 * 10**10}):
        with pytest.raises(ConfigError, match="GB of memory"):
            check_training_memory("gpt", replace(shape, **endless), config, 1)
    wide = TransformerConfig(vocab_size=11, d_model=32, n_layers=1, n_decoder_layers=10**9)
    with pytest.raises(ConfigError, match="GB of memory"):
        check_training_memory("transformer", wide, config, 1)


def test_this_machine_says_how_much_memory_is_free():
    assert 1e6 < machine.free_memory() < 1e14


def test_threads_that_wait_sleep_unless_the_user_has_decided(monkeypatch):
    script = (
        "import os, sys, glasshead.machine as m; m.wait_passively(); "
        "print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    )
    for given, found in ((None, "PASSIVE"), ("ACTIVE", "ACTIVE")):
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        if given:
            monkeypatch.setenv("OMP_WAIT_POLICY", given)
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert ended.stdout.split() == [found, "False"]
