"""How well plans agree with what an H200 (torch 2.11, bf16) and two cores of a CPU measured."""

import json
import re
from pathlib import Path

import pytest
import torch

from glasshead.lab.plan import measuring
from glasshead.lab.plan.counting import count_reading, count_training
from glasshead.lab.plan.devices import DEVICES
from glasshead.lab.plan.generating import plan_generating
from glasshead.lab.plan.meta_device import Target
from glasshead.lab.plan.observing import look_seconds, plan_observing
from glasshead.lab.plan.scenario import Scenario
from glasshead.lab.plan.shapes import find_shape
from glasshead.lab.plan.tables import amount, duration
from glasshead.lab.plan.training import plan_training
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.loss import next_token_loss
from tests.lab.calls import Calls
from tests.lab.test_plan import GPT2, PAPER

ROOT = Path(__file__).resolve().parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "bench" / "results"
H200, CPU = DEVICES["h200"], DEVICES["cpu"]
OWN_LSE = 1.78  # times as long a GPU measures a layer that has no lse to give
CALLS_ALONE = 350  # of torch to measure one layer, without a model and its check


class Works:
    """What `python -m bench.growth` measures, planned: seconds and bytes beyond the parameters."""

    def __init__(self, device, n_layers, vocab):
        self.device, self.n_layers, self.vocab = device, n_layers, vocab
        self.itemsize = 2 if device.on_gpu else 4

    def shape(self, length, width, room=0):
        return GPTConfig(
            vocab_size=self.vocab, max_len=length + room, n_layers=self.n_layers,
            n_heads=width // 64, d_model=width, feed_forward="gelu-tanh", tied=True,
            head_bias=False, init="gpt2",
        )  # fmt: skip

    def train(self, length, width=768, batch=1, compiled=False):
        plan = plan_training(
            Scenario(
                self.shape(length, width), self.device.name, batch_size=batch,
                compiled=compiled, optimizer="adamw",
            ),
            self.device,
        )  # fmt: skip
        return plan.step, plan.memory.peak - plan.memory.params

    def _generating(self, config, batch, prompt):
        return plan_generating(Scenario(config, self.device.name, texts=batch), self.device, prompt)

    def prompt(self, length, width=768, batch=1):
        plan = self._generating(self.shape(length, width), batch, length)
        return plan.prefill, plan.peak - plan.memory["params"]

    def token(self, length, width=768, batch=1, room=98):
        """With room for what follows: 32 first, 64 clocked and 2 to spare; or 60 first."""
        return self._generating(self.shape(length, width, room), batch, length).decode, None

    def observe(self, length, width=768, batch=1, head=64, lse_given=False):
        seconds = look_seconds(self.device, width // head, length, head, itemsize=self.itemsize)
        if self.device.on_gpu and not lse_given:
            seconds *= OWN_LSE
        return batch * seconds + CALLS_ALONE * self.device.calibration.call, None

    def observing(self, length):
        """All layers of GPT-2, and the model itself."""
        config = find_shape("gpt2", {"max_len": length, "vocab_size": self.vocab})
        plan = plan_observing(Scenario(config), self.device)
        return plan.forward + plan.look, plan.peak - plan.memory["params"]


def on_h200(vocab):
    return Works(H200, 12, vocab)


# Of `python -m bench`, by name; not its tokens, whose time has their prompts' and recording in it.
BENCH = {
    "124M, 64 x 1024 tokens, bf16, compiled": on_h200(50304).train(1024, batch=64, compiled=True),
    "124M, 12 x 1024 tokens, bf16, compiled": on_h200(50304).train(1024, batch=12, compiled=True),
    "one layer of 12 heads, all statistics, T = 8,192": on_h200(8).observe(8192),
    "one layer of 12 heads, all statistics, T = 32,768": on_h200(8).observe(32768),
    "12 layers of 12 heads, all statistics, T = 2,048": on_h200(5000).observing(2048),
    "12 layers of 12 heads, all statistics, T = 8,192": on_h200(5000).observing(8192),
} | {
    f"{768 // D} heads of {D}, T = 131,072, bf16: all statistics, {lse}": on_h200(8).observe(
        131072, head=D, lse_given=lse == "lse given"
    )
    for D in (64, 128)
    for lse in ("lse given", "its own lse")
}
# Of single runs that no file keeps: `bench.plan`, and tokens without their prompt, the mean of 256
# or 512 after 32, which is as long as halfway.
BY_HAND = {
    "gpt2": (on_h200(50257).train(1024, batch=16), 45.6),
    "gpt2, observed": (on_h200(50257).observing(1024), 70.1),
    "256 tokens": (on_h200(50257).token(32, room=128), 0.335),
    "256 of 16": (on_h200(50257).token(32, room=128, batch=16), 0.639),
    "256 of 64": (on_h200(50257).token(32, room=128, batch=64), 0.644),
    "512 of 64": (on_h200(50257).token(32, room=256, batch=64), 0.757),
}


def growth(file, device):
    """By name: (planned, measured) seconds and bytes of what `bench.growth` stored."""
    kept = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
    base, seconds, memory = kept["base"], {}, {}
    works = Works(device, base["n_layers"], base["vocab_size"])
    for p in kept["points"]:
        sizes = {name: base[name] for name in ("length", "width", "batch")} | {p["axis"]: p["at"]}
        if p["work"] == "observe" and device.on_gpu and sizes["batch"] > 1:
            continue  # the plan is for one text
        name = f"{p['work']}, {p['axis']} {p['at']}"
        planned, needed = getattr(works, p["work"])(**sizes)
        seconds[name] = planned, p["ms"] / 1e3
        if needed is not None:
            memory[name] = needed, p["mb"] * 1e6
    return seconds, memory


GPU_SECONDS, GPU_MEMORY = growth("growth-nvidia-h200", H200)
CPU_SECONDS, CPU_MEMORY = growth("growth-cpu-2-cores", CPU)


def add_single_runs():
    compared = json.loads((RESULTS / "nvidia-h200.json").read_text(encoding="utf-8"))
    for row in (row for area in compared["areas"].values() for row in area):
        if row["name"] not in BENCH:
            continue
        planned, needed = BENCH[row["name"]]
        if row["unit"] == "memory MB" and needed is not None:
            GPU_MEMORY[row["name"]] = needed, row["ours"] * 1e6
        elif row["unit"] == "tokens/s":
            tokens = 1024 * int(row["name"].split()[1])
            GPU_SECONDS[row["name"]] = planned, tokens / row["ours"]
        elif row["unit"] in ("seconds", "ms"):
            scale = 1e3 if row["unit"] == "ms" else 1
            GPU_SECONDS[row["name"]] = planned, row["ours"] / scale
    for name, ((planned, _), ms) in BY_HAND.items():
        GPU_SECONDS[name] = planned, ms / 1e3
    config = find_shape("gpt2", {})
    scenario = Scenario(config, batch_size=16, compiled=False, optimizer="adamw")
    GPU_MEMORY["gpt2"] = plan_training(scenario, H200).memory.peak, 9.25e9


add_single_runs()
# Those that are not planned within 15 %, as docs/scaling.md says.
OFF = {
    # The first of a process, before all was warm; along length the same took 5.75 and 4.47 ms.
    "prompt, batch 1",
    "observe, batch 1",
    # Wait for the host, as long as it happens to take.
    "prompt, batch 4",
    "observe, width 4096",
    # Planned as recorded, measured before there was a recording.
    "train, width 256",
    # Took 0.401 ms along length.
    "token, batch 1",
    # Several texts at a time: kernels of attention and of products that a plan knows nothing of.
    "token, batch 4",
    "token, batch 16",
    "token, batch 64",
    "256 of 16",
    # One run; the check of a layer needed more calls for long texts then, 8 ms of the difference.
    "12 layers of 12 heads, all statistics, T = 8,192",
}


def beyond(points, share):
    return {name for name, (planned, real) in points.items() if abs(planned / real - 1) > share}


def test_each_point_of_the_gpu_is_planned_within_15_percent_or_named():
    assert beyond(GPU_SECONDS, 0.15) == OFF


def test_memory_of_a_gpu_is_planned_within_15_percent():
    # At width 256 the recorded step's own memory was measured too; statistics of 12 layers were
    # measured while their overviews were larger, up to a million cells a head.
    statistics = {f"12 layers of 12 heads, all statistics, T = {n}" for n in ("2,048", "8,192")}
    assert beyond(GPU_MEMORY, 0.16) == {"train, width 256", *statistics}
    training = {name: point for name, point in GPU_MEMORY.items() if name.startswith("train")}
    assert beyond(training, 0.035) == {"train, width 256"}


def test_seconds_of_a_cpu_are_planned_within_half():
    assert beyond(CPU_SECONDS, 0.5) == {"train, width 64"}
    assert len(beyond(CPU_SECONDS, 0.15)) <= len(CPU_SECONDS) // 3


def rows_of(points, show):
    return {
        name: (show(planned), show(real), f"{planned / real:.2f}")
        for name, (planned, real) in points.items()
    }


@pytest.mark.parametrize("page", ["scaling.md", "scaling.zh.md"])
def test_the_page_shows_planned_beside_measured(page):
    """The same points in both languages: each row has what is planned, measured, and the ratio."""
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = set(re.findall(r"\| ([\d.]+ \w+) \| ([\d.]+ \w+) \| ([\d.]+) \|", text))
    times = rows_of(GPU_SECONDS, duration)
    known = {*times.values(), *rows_of(GPU_MEMORY, lambda n: amount(n, "B")).values()}
    assert rows <= known
    assert len(rows) > 20
    assert {times[name] for name in OFF} <= rows
    # How many are within 15 % and within 30 %, by device and kind.
    table = re.findall(r"\| (\d+) \| (\d+) \| (\d+) \| \d+ \| \d+ \|", text)
    assert table == [
        tuple(str(n) for n in (len(points), len(points) - len(beyond(points, 0.15)),
                               len(points) - len(beyond(points, 0.3))))
        for points in groups()
    ]  # fmt: skip


def groups():
    """As the page lists them: time and memory on the H200, time on the CPU."""
    for points, works in (
        (GPU_SECONDS, ("train", "prompt", "token", "observe")),
        (GPU_MEMORY, ("train", "prompt")),
        (CPU_SECONDS, ("train", "prompt", "token", "observe")),
    ):
        for work in works:
            yield {name: point for name, point in points.items() if work_of(name) == work}


def work_of(name):
    """
    >>> work_of("train, length 1024"), work_of("256 of 16"), work_of("gpt2, observed")
    ('train', 'token', 'observe')
    """
    if "statistics" in name or name.startswith(("observe", "gpt2, obs")):
        return "observe"
    if name.startswith(("token", "256", "512")):
        return "token"
    return "prompt" if name.startswith("prompt") else "train"


@pytest.mark.parametrize("config", [GPT2, PAPER], ids=["gpt2", "paper"])
def test_calls_of_a_gpu_are_about_those_of_bf16_on_a_cpu(config):
    """Where the norm is LayerNorm: RMSNorm is one kernel on a GPU, and a dozen calls here."""
    ids = torch.zeros(3, config.max_len, dtype=torch.int64)
    model = GPT(config)
    with Calls() as training:
        with torch.autocast("cpu", torch.bfloat16):
            loss = next_token_loss(model, ids, ids)
        loss.backward()
    model = model.bfloat16().eval()
    with torch.inference_mode(), Calls() as reading:
        model.features(ids)
    planned = count_training(config, 3, Target(True, 2)).calls
    assert planned == pytest.approx(training.n, rel=0.15)
    planned = count_reading(config, 3, Target(True, 2), config.max_len, cached=False).calls
    assert planned == pytest.approx(reading.n, rel=0.15)


def test_the_fastest_of_some_runs_counts_and_those_that_warm_up_do_not(monkeypatch):
    now, taken = 0.0, iter([1.0, 5.0, 7.0, 3.0, 4.0, 6.0, 5.0])  # two to warm up, then five

    def run():
        nonlocal now
        now += next(taken)

    monkeypatch.setattr(measuring, "_clock", lambda device: now)
    assert measuring._time(run, torch.device("cpu")) == 3.0
    assert list(taken) == []


def test_a_measured_device_has_the_speed_of_its_products_and_of_its_memory(monkeypatch):
    monkeypatch.setattr(measuring, "_time", lambda run, device: run() is None or 0.5)
    found = measuring.measure_device(torch.device("cpu"), 4)
    assert found.single == found.half == 2 * 2 * 1024**3
    assert found.bandwidth == 2 * 4 * 8 * 1024**2
    assert found.memory == CPU.memory
