"""How long a plan says things take, beside an H200 (torch 2.11, bf16) that did them."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from glasshead.lab.plan import probing
from glasshead.lab.plan.devices import DEVICES
from glasshead.lab.plan.generating import plan_generating
from glasshead.lab.plan.layout import Layout
from glasshead.lab.plan.observing import look_seconds, plan_observing
from glasshead.lab.plan.operations import Setting, operations
from glasshead.lab.plan.shapes import count, find_shape
from glasshead.lab.plan.tables import duration
from glasshead.lab.plan.training import plan_training
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.loss import next_token_loss
from tests.lab.calls import Calls, calls_of
from tests.lab.test_plan import CPU, GPT2, LLAMA, NANO, PAPER

ROOT = Path(__file__).resolve().parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "bench" / "results"
H200 = DEVICES["h200"]


def shape(length=1024, width=768, vocab=8192):
    return GPTConfig(
        vocab_size=vocab, max_len=length, n_layers=12, n_heads=width // 64, d_model=width,
        feed_forward="gelu-tanh", tied=True, head_bias=False, init="gpt2",
    )  # fmt: skip


def train(batch=1, compiled=False, **sizes):
    config = shape(**sizes)
    plan = plan_training(config, count(config), H200, Layout(), batch_size=batch, compiled=compiled)
    return plan.step


def generating(batch, prompt, **sizes):
    config = shape(**sizes)
    return plan_generating(config, count(config), H200, texts=batch, prompt=prompt)


def prompt(batch=1, length=1024, **sizes):
    return generating(batch, length, length=length, **sizes).prefill


def token(batch=1, length=1024, room=98, **sizes):
    """With room for what follows: of the stored points 32 first, 64 clocked and 2 to spare.

    Of some of them 60 went first.
    """
    return generating(batch, length, length=length + room, **sizes).decode


def observe(batch=1, length=1024, width=768, head=64, lse_given=False):
    return look_seconds(H200.rates(2), length, width // head, head, B=batch, lse_given=lse_given)


def observing(length=1024, vocab=50257):
    """All layers of GPT-2, and the model itself."""
    config = find_shape("gpt2", {"max_len": length, "vocab_size": vocab})
    plan = plan_observing(config, count(config), H200)
    return plan.forward + plan.look


WORKS = {work.__name__: work for work in (train, prompt, token, observe)}
# Of `python -m bench`, by name; not its tokens, whose time has their prompts' and recording in it.
BENCH = {
    "124M, 64 x 1024 tokens, bf16, compiled": (
        train, {"batch": 64, "vocab": 50304, "compiled": True}
    ),
    "124M, 12 x 1024 tokens, bf16, compiled": (
        train, {"batch": 12, "vocab": 50304, "compiled": True}
    ),
    "one layer of 12 heads, all statistics, T = 8,192": (observe, {"length": 8192}),
    "one layer of 12 heads, all statistics, T = 32,768": (observe, {"length": 32768}),
    "12 layers of 12 heads, all statistics, T = 2,048": (
        observing, {"length": 2048, "vocab": 5000}
    ),
    "12 layers of 12 heads, all statistics, T = 8,192": (
        observing, {"length": 8192, "vocab": 5000}
    ),
    "12 heads of 64, T = 131,072, bf16: all statistics, lse given": (
        observe, {"length": 131072, "lse_given": True}
    ),
    "12 heads of 64, T = 131,072, bf16: all statistics, its own lse": (
        observe, {"length": 131072}
    ),
    "6 heads of 128, T = 131,072, bf16: all statistics, lse given": (
        observe, {"length": 131072, "head": 128, "lse_given": True}
    ),
    "6 heads of 128, T = 131,072, bf16: all statistics, its own lse": (
        observe, {"length": 131072, "head": 128}
    ),
}  # fmt: skip
# Of single runs that no file keeps: `bench.plan`, and tokens without their prompt, the mean of 256
# or 512 after 32, which is as long as halfway.
BY_HAND = {
    "gpt2": (train, {"batch": 16, "vocab": 50257}, 45.6),
    "gpt2, observed": (observing, {}, 70.1),
    "256 tokens": (token, {"length": 32, "room": 128, "vocab": 50257}, 0.335),
    "256 of 16": (token, {"length": 32, "room": 128, "vocab": 50257, "batch": 16}, 0.639),
    "256 of 64": (token, {"length": 32, "room": 128, "vocab": 50257, "batch": 64}, 0.644),
    "512 of 64": (token, {"length": 32, "room": 256, "vocab": 50257, "batch": 64}, 0.757),
}
# Those that are not planned within 15 %, as docs/scaling.md says.
OFF = {
    # Waits for the host, and was slow on both days.
    "prompt, length 4096",
    # The first of a process, before all was warm; along length the same took 5.75 and 4.47 ms.
    "prompt, batch 1",
    "observe, batch 1",
    # Wait for the host, as long as it happens to take: 16 texts took 6.42 ms, these 6.12 and 7.67.
    "observe, batch 4",
    "observe, width 4096",
    # Planned as recorded, measured before there was a recording.
    "train, width 256",
    # Kernels on so little take less than is planned for one.
    "token, width 256",
    # One run; the check of a layer needed more calls for long texts then, 8 ms of the difference.
    "12 layers of 12 heads, all statistics, T = 8,192",
}


def points():
    """By name: seconds that are planned, and that were measured."""
    grown, compared = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("growth-nvidia-h200", "nvidia-h200")
    )
    found = {}
    for p in grown["points"]:
        planned = WORKS[p["work"]](**{p["axis"]: p["at"]})
        found[f"{p['work']}, {p['axis']} {p['at']}"] = planned, p["ms"] / 1e3
    rows = [row for area in compared["areas"].values() for row in area]
    for name, (what, sizes) in BENCH.items():
        row = next(row for row in rows if row["name"] == name)
        tokens = sizes.get("batch", 1) * 1024
        seconds = {
            "seconds": row["ours"],
            "ms": row["ours"] / 1e3,
            "tokens/s": tokens / row["ours"],
        }
        found[name] = what(**sizes), seconds[row["unit"]]
    return found | {name: (what(**sizes), ms / 1e3) for name, (what, sizes, ms) in BY_HAND.items()}


POINTS = points()


def test_each_point_of_the_files_is_planned_within_15_percent_or_said_to_be_off():
    beyond = {name for name, (planned, s) in POINTS.items() if abs(planned - s) > 0.15 * s}
    assert beyond == OFF


@pytest.mark.parametrize("page", ["scaling.md", "scaling.zh.md"])
def test_the_page_shows_planned_beside_measured(page):
    """The same points in both languages: each row has what is planned, measured, and the ratio."""
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = set(re.findall(r"\| ([\d.]+ \w+) \| ([\d.]+ \w+) \| ([\d.]+) \|", text))
    known = {
        name: (duration(planned), duration(measured), f"{planned / measured:.2f}")
        for name, (planned, measured) in POINTS.items()
    }
    assert rows <= set(known.values())
    assert len(rows) > 20
    assert {known[name] for name in OFF} <= rows
    numbers = re.search(r"\*\*(\d+) (?:of|/) (\d+)\*\*", text)
    assert numbers
    assert numbers.groups() == (str(len(POINTS) - len(OFF)), str(len(POINTS)))


@pytest.mark.parametrize(
    "config", [GPT2, LLAMA, NANO, PAPER], ids=["gpt2", "llama", "nano", "paper"]
)
def test_python_calls_torch_as_often_as_is_planned(config):
    ids = torch.zeros(3, config.max_len, dtype=torch.int64)
    model = GPT(config)
    with Calls() as training:
        with torch.autocast("cpu", torch.bfloat16):
            loss = next_token_loss(model, ids, ids)
        loss.backward()
    model = model.bfloat16().eval()
    with torch.inference_mode(), Calls() as reading:
        model.features(ids, caches=model.new_caches())
    planned = Setting(config, 3, config.max_len, itemsize=2, cuda=True)
    both = sum(op.host_calls() + op.host_calls(back=True) for op in operations(planned))
    assert both == pytest.approx(training.n, rel=0.15)
    planned = Setting(config, 3, config.max_len, itemsize=2, cuda=True, training=False)
    once = sum(
        op.host_calls() for op in operations(planned) if op.name not in ("copies of k, v", "loss")
    )
    assert once == pytest.approx(reading.n, rel=0.15)


@pytest.fixture
def counting_clock(monkeypatch):
    """A clock that goes on by a second whenever it is read: how fast this machine is plays no part.

    `python -m bench.plan` compares what is probed with what this machine does.
    """
    seconds = itertools.count()
    monkeypatch.setattr(probing, "_clock", lambda device: float(next(seconds)))


def test_the_fastest_of_some_runs_counts_and_those_that_warm_up_do_not(monkeypatch):
    now, taken = 0.0, iter([1.0, 5.0, 7.0, 3.0, 4.0, 6.0, 5.0])  # two to warm up, then five

    def run():
        nonlocal now
        now += next(taken)

    monkeypatch.setattr(probing, "_clock", lambda device: now)
    assert probing.timed(run, torch.device("cpu")) == 3.0
    assert list(taken) == []


def test_the_speed_of_writing_on_a_gpu_is_that_of_its_memory(monkeypatch, counting_clock):
    monkeypatch.setattr(probing, "LARGE", 2**20)
    writing = Setting(GPT2, 1, 1, S=61, itemsize=2, cuda=True, training=False, last_only=True)
    rates = probing.probe(writing, torch.device("cpu"))
    plan = plan_generating(GPT2, count(GPT2), H200, rates=rates)
    assert rates.stream == 2 * 2**20
    assert plan.decode > plan.decode_bytes / rates.stream


@pytest.mark.parametrize("T", [1, 53])
def test_a_pass_on_a_cpu_is_timed_in_its_order(monkeypatch, T):
    """Products and attention share one rate; together they take what the whole pass took."""
    seen = []

    def beyond(*runs):
        for run in runs[:2]:
            with torch.inference_mode():
                seen.append(calls_of(run))
        return 7.0

    monkeypatch.setattr(probing, "_beyond", beyond)
    config = replace(GPT2, n_layers=3, n_heads=2, d_model=34, vocab_size=41, max_len=61)
    s = Setting(config, 2, T, S=61 if T == 1 else None, training=False, last_only=True)
    rate = probing._in_order(s, torch.device("cpu"), torch.float32)
    products = [op for op in operations(s) if op.kind != "pointwise"]
    assert sum(op.work() for op in products) / rate == pytest.approx(7.0)
    assert len(products) == 3 * 5 + 1
    # Norms, activations and sums stand between them; as many calls are made on next to nothing.
    assert seen[0] >= len(products) + 3 * 5 + 1
    assert seen[1] == pytest.approx(seen[0], rel=0.05)


@pytest.mark.parametrize("name", ["bigram", "head"])
def test_the_smallest_models_can_be_probed(counting_clock, name):
    """No layer, or no feed-forward, and a text of one token."""
    shape = {"bigram": {"n_layers": 0}, "head": {"n_layers": 1, "feed_forward": "none"}}[name]
    config = replace(GPT2, n_heads=1, d_model=6, vocab_size=11, max_len=2, **shape)
    for training, T in ((True, 1), (True, 2), (False, 2), (False, 1)):
        s = Setting(config, 3, T, training=training, last_only=not training)
        rates = probing.probe(s, torch.device("cpu"))
        assert rates.matmul > 0
        assert rates.memory > 0


def test_a_token_takes_its_calls_and_what_its_pass_takes_beyond_them(counting_clock):
    config = replace(GPT2, n_layers=2, n_heads=2, d_model=34, vocab_size=41, max_len=61)
    s = Setting(config, 1, 1, S=61, training=False, last_only=True)
    rates = probing.probe(s, torch.device("cpu"))
    plan = plan_generating(config, count(config), DEVICES["cpu"], itemsize=4, rates=rates)
    ops = operations(s)
    calls = sum(op.host_calls() for op in ops) * rates.call
    work = sum(op.work() for op in ops) / rates.matmul
    assert min(calls, work) > 0
    assert plan.decode == pytest.approx(calls + work, rel=0.01)


def test_a_token_reads_the_head_even_where_it_is_the_table():
    tied, apart = (
        plan_generating(config, count(config), CPU, itemsize=4)
        for config in (GPT2, replace(GPT2, tied=False))
    )
    assert tied.decode_bytes == apart.decode_bytes
