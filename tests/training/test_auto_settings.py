"""What 'auto' picks, and what is on a GPU as on a CPU."""

import json

import pytest
import torch

from glasshead.checkpoint.processes import Processes
from glasshead.errors import ConfigError, InputError
from glasshead.machine import pick_device
from glasshead.training import auto_settings
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
    assert (settled.threads, settled.compile, settled.eval_every) == (1, "off", 2)
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
