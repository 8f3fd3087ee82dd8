"""A plan is arithmetic about a model: here it is held against the model itself."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from glasshead.attention.mask import Mask
from glasshead.errors import ConfigError
from glasshead.lab.plan.devices import DEVICES, find_device
from glasshead.lab.plan.generating import plan_generating
from glasshead.lab.plan.layout import Layout, collective
from glasshead.lab.plan.measuring import trained
from glasshead.lab.plan.observing import statistics_bytes
from glasshead.lab.plan.operations import Setting, operations, pairs
from glasshead.lab.plan.plans import Wanted, as_json, make_plan, what_fits
from glasshead.lab.plan.shapes import count, find_shape
from glasshead.lab.plan.training import plan_training
from glasshead.lab.plan.update import muon_flops
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.layers import FeedForward
from glasshead.model.loss import next_token_loss
from glasshead.observe.statistics import observe
from glasshead.training import optim
from glasshead.training.config import TrainConfig
from glasshead.training.optim import OPTIMIZERS

CPU = DEVICES["cpu"]
GPT2 = GPTConfig(
    vocab_size=211, max_len=61, n_layers=3, n_heads=3, d_model=51, feed_forward="gelu-tanh",
    qkv_bias=True, head_bias=False, tied=True,
)  # fmt: skip
LLAMA = GPTConfig(
    vocab_size=223, max_len=53, n_layers=2, n_heads=6, n_kv_heads=2, d_model=84, d_ff=137,
    positions="rotary", norm="rms", feed_forward="swiglu", bias=False, head_bias=False,
)  # fmt: skip
NANO = GPTConfig(
    vocab_size=67, max_len=71, n_layers=4, n_heads=2, d_model=52, positions="rotary", norm="rms",
    feed_forward="relu2", qk_norm=True, bias=False, head_bias=False,
)  # fmt: skip
PAPER = GPTConfig(
    vocab_size=97, max_len=43, n_layers=2, n_heads=2, d_model=46, positions="sinusoidal",
    feed_forward="relu", norm_place="post",
)  # fmt: skip
SHAPES = pytest.mark.parametrize(
    "config", [GPT2, LLAMA, NANO, PAPER], ids=["gpt2", "llama", "nano", "paper"]
)
B = 5


def batch(config):
    ids = torch.randint(config.vocab_size, (B, config.max_len + 1))
    return ids[:, :-1], ids[:, 1:]


@SHAPES
def test_parameters_are_those_of_the_model(config):
    model, counts = GPT(config), count(config)
    assert counts.total == sum(p.numel() for p in model.parameters())
    assert counts.total == sum(
        getattr(counts, part) for part in ("embedding", "positions", "blocks", "head")
    ) + sum(p.numel() for p in model.norm.parameters())


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("gpt2", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        ("llama-1b", 1_235_814_400),
        ("llama-8b", 8_030_261_248),
        ("llama-70b", 70_553_706_496),
    ],
)
def test_known_shapes_have_as_many_parameters_as_is_published(name, published):
    assert count(find_shape(name, {})).total == published


@SHAPES
def test_arithmetic_is_what_torch_counts(config):
    config = replace(config, backend="explicit")  # torch does not count fused attention on a CPU
    model = GPT(config)
    counter = FlopCounterMode(display=False)
    with counter:
        next_token_loss(model, *batch(config)).backward()
    # The written-out path makes the pairs that the mask hides, too.
    T = config.max_len
    expected = sum(
        3 * op.flops * (T * T / pairs(T, T) if op.kind == "attention" else 1)
        for op in operations(Setting(config, B, T))
    )
    assert counter.get_total_flops() == pytest.approx(expected, rel=1e-12)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Where Muon works in bf16, so that wide matrices get no shorter way."""
    monkeypatch.setattr(optim, "WIDE", math.inf)


@SHAPES
def test_muon_s_arithmetic_is_what_torch_counts(config, as_on_a_gpu):
    assert counted_for_muon(config) == muon_flops(config)


def counted_for_muon(config) -> int:
    model = GPT(config)
    next_token_loss(model, *batch(config)).backward()
    optimizers = OPTIMIZERS["muon"](model, TrainConfig())
    with FlopCounterMode(display=False) as counter:
        optimizers.step(bad=torch.tensor(False))
    return counter.get_total_flops()


@pytest.mark.parametrize("config", [NANO, replace(NANO, feed_forward="swiglu", n_kv_heads=1)])
def test_on_a_cpu_wide_matrices_cost_muon_less(config):
    assert counted_for_muon(config) == muon_flops(config, on_cpu=True) < muon_flops(config)


def kept_for_the_backward_pass(model, ids, targets) -> int:
    """Bytes of all distinct storages that autograd keeps, parameters left out."""
    params = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def keep(x):
        storage = x.untyped_storage()
        if storage.data_ptr() not in params:
            kept[storage.data_ptr()] = storage  # held, so that its place is not given away
        return x

    with saved_tensors_hooks(keep, lambda x: x):
        loss = next_token_loss(model, ids, targets)
    assert loss.requires_grad
    return sum(storage.nbytes() for storage in kept.values())


@SHAPES
def test_activations_are_what_autograd_keeps(config):
    model = GPT(config)
    ids, targets = batch(config)
    real = kept_for_the_backward_pass(model, ids, targets)
    plan = plan_training(
        config, count(config), CPU, Layout(), batch_size=B, itemsize=4, compiled=False
    )
    # The head's gradient is made with the loss.
    head = sum(p.nbytes for p in model.head.parameters())
    assert plan.memory.activations == pytest.approx(real - head - 2 * ids.nbytes, rel=0.02)


@pytest.mark.parametrize(("compiled", "of_C", "of_F"), [(True, 12, 2), (False, 20, 4)])
def test_a_block_on_a_gpu_keeps_what_the_page_says(compiled, of_C, of_F):
    """docs/scaling.md: bytes a token, but for a few numbers a head."""
    config = find_shape("gpt2", {})
    s = Setting(config, 1, 1, itemsize=2, compiled=compiled, cuda=True)
    without = operations(replace(s, config=replace(config, n_layers=11)))
    block = sum(op.saves for op in operations(s)) - sum(op.saves for op in without)
    assert block == pytest.approx(of_C * 768 + of_F * 3072, rel=0.01)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@SHAPES
def test_parameters_gradients_and_state_take_exactly_their_bytes(config, optimizer):
    model = GPT(config)
    next_token_loss(model, *batch(config)).backward()
    optimizers = OPTIMIZERS[optimizer](model, TrainConfig())
    optimizers.step(bad=torch.tensor(False))
    plan = plan_training(
        config, count(config), CPU, Layout(), batch_size=B, itemsize=4, optimizer=optimizer
    )
    assert plan.memory.params == sum(p.nbytes for p in model.parameters())
    assert plan.memory.gradients == sum(p.grad.nbytes for p in model.parameters())
    assert plan.memory.optimizer == sum(t.nbytes for t in optimizers.tensors().values())


@pytest.mark.parametrize("config", [replace(GPT2, vocab_size=1511), LLAMA], ids=["gpt2", "llama"])
def test_the_worst_moment_of_real_training_is_as_planned(config):
    config = replace(config, d_model=2 * config.d_model, max_len=127)
    wanted = Wanted(config, gpu="cpu", batch_size=7, optimizer="adamw")
    _, peak = trained(wanted, torch.device("cpu"), steps=2)
    assert make_plan(wanted).training.memory.peak == pytest.approx(peak, rel=0.15)


@pytest.mark.parametrize("T", [1021, 1031])  # an overview of single weights, and of cells
def test_statistics_take_exactly_their_bytes(T):
    q, k = torch.randn(2, 1, 3, T, 5)
    seen = observe(q, k, Mask(causal=True))
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for t in vars(seen).values()
        if isinstance(t, torch.Tensor)
    }
    assert statistics_bytes(1, 3, T) == sum(storages.values())


def test_the_cache_takes_exactly_its_bytes():
    caches, model = [], GPT(LLAMA)
    caches = model.new_caches()
    model(torch.zeros(3, LLAMA.max_len, dtype=torch.int64), caches=caches)
    plan = plan_generating(LLAMA, count(LLAMA), CPU, texts=3, itemsize=4)
    assert plan.memory["cache"] == sum(c.k.nbytes + c.v.nbytes for c in caches)


@given(st.integers(1, 40), st.integers(0, 40), st.none() | st.integers(1, 60))
def test_pairs_are_those_of_the_mask(T, past, window):
    allowed = Mask(causal=True, window=window).to_tensor(T, T + past)
    everything = T * (T + past)
    assert pairs(T, T + past, window) == (everything if allowed is None else int(allowed.sum()))


@given(st.integers(2, 512), st.floats(1, 1e12))
def test_an_all_reduce_is_a_scatter_and_a_gather(group, size):
    sent = {
        name: collective(name, "", 1, size, group, min(group, 8), DEVICES["h100"]).bytes
        for name in ("all-reduce", "reduce-scatter", "all-gather")
    }
    assert sent["all-reduce"] == pytest.approx(sent["reduce-scatter"] + sent["all-gather"])
    # Nobody sends its own share to itself.
    assert sent["all-gather"] == pytest.approx(size - size / group)


class Messages(TorchDispatchMode):
    """Counts collectives and the bytes of the tensors that they are about."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func)
        if "c10d" in name and "wait" not in name and "wrap" not in name:
            sizes = [x.nbytes for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
            self.found.append((name.split(".")[1].strip("_"), max(sizes)))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def alone_among_four():
    """A group of four processes of which the others only seem to be there."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield init_device_mesh("cpu", (4,))
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_fsdp_sends_exactly_what_is_planned(alone_among_four):
    config = replace(NANO, d_model=48, vocab_size=64)  # nothing is padded
    model, (ids, _) = GPT(config), batch(config)
    for part in (*model.blocks, model):
        fully_shard(part, mesh=alone_among_four)
    with Messages() as sent:
        model(ids).sum().backward()
    planned = training(config, Layout(4, "fsdp"), batch_size=4, itemsize=4).collectives
    for name, real in (("all-gather", "allgather_base"), ("reduce-scatter", "reduce_scatter_base")):
        sizes = [size for what, size in sent.found if what == real]
        mine = [c for c in planned if c.name == name]
        assert len(sizes) == sum(c.count for c in mine)
        assert sum(sizes) * 3 / 4 == pytest.approx(sum(c.bytes for c in mine))


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
@pytest.mark.parametrize("n_layers", [4, 5])  # of which four processes have as many, or not
def test_muon_of_shards_does_and_sends_what_is_planned(alone_among_four, as_on_a_gpu, n_layers):
    """The first process, which has most where not all have as many."""
    config = replace(NANO, d_model=48, vocab_size=64, n_layers=n_layers)
    model, (ids, _) = GPT(config), batch(config)
    for part in (*model.blocks, model):
        fully_shard(part, mesh=alone_among_four)
    model(ids).sum().backward()
    optimizers = OPTIMIZERS["muon"](model, TrainConfig())
    with Messages() as sent, FlopCounterMode(display=False) as counter:
        optimizers.step(bad=torch.tensor(False))
    plan = training(config, Layout(4, "fsdp"), batch_size=4, itemsize=4, optimizer="muon")
    planned = [c for c in plan.collectives if c.name == "all-to-all"]
    assert {what for what, _ in sent.found} == {"alltoall_base"}
    assert len(sent.found) == sum(c.count for c in planned)
    assert sum(size for _, size in sent.found) * 3 / 4 == pytest.approx(
        sum(c.bytes for c in planned)
    )
    assert counter.get_total_flops() == plan.optimizer_flops


def test_muon_s_work_is_divided_by_shards_and_not_by_copies():
    big = find_shape("llama-8b", {})
    copies, shards = (training(big, Layout(32, way), optimizer="muon") for way in ("ddp", "fsdp"))
    assert copies.optimizer_flops == muon_flops(big)
    assert shards.optimizer_flops == pytest.approx(muon_flops(big) / 32)  # 32 layers
    # Nor do more shards than matrices of a shape help.
    most = training(big, Layout(64, "fsdp"), optimizer="muon").optimizer_flops
    assert muon_flops(big) / 64 < most < muon_flops(big) / 32


def test_from_all_to_all_each_has_its_own_port_alone():
    h100 = DEVICES["h100"]
    inside = collective("all-to-all", "", 1, 8e9, 8, 8, h100)
    across = collective("all-to-all", "", 1, 8e9, 64, 8, h100)
    assert inside.seconds == pytest.approx(7e9 / (0.8 * h100.link), rel=0.01)
    assert across.seconds == pytest.approx(7e9 / (0.8 * h100.network), rel=0.01)


def test_a_feed_forward_cut_in_four_adds_up_once_in_each_direction(alone_among_four):
    cut = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    block = parallelize_module(FeedForward(24, 96, True, F.gelu), alone_among_four, cut)
    x = torch.randn(5, 7, 24, requires_grad=True)
    with Messages() as sent:
        block(x).sum().backward()
    assert sent.found == [("all_reduce", x.nbytes)] * 2


def training(config, layout, **more):
    return plan_training(
        config, count(config), DEVICES["h100"], layout, **{"batch_size": 64, **more}
    )


def test_shards_divide_the_state_and_send_half_as_much_again():
    big = find_shape("llama-1b", {"max_len": 2048})
    copies, shards = (training(big, Layout(16, way), itemsize=4) for way in ("ddp", "fsdp"))
    for kind in ("params", "gradients", "optimizer"):
        assert getattr(copies.memory, kind) == pytest.approx(16 * getattr(shards.memory, kind))
    sent = [sum(c.bytes for c in plan.collectives) for plan in (copies, shards)]
    inside = count(big).blocks / count(big).total  # what is outside is gathered once, not twice
    assert sent[1] == pytest.approx(sent[0] * (2 + inside) / 2)


@pytest.mark.parametrize("way", ["tensor", "context"])
def test_sharing_divides_the_work_and_keeps_the_sum(way):
    big = find_shape("llama-8b", {})
    one, shared = training(big, Layout(8)), training(big, Layout(8, **{way: 8}))
    assert shared.flops == pytest.approx(one.flops)
    assert shared.tokens == one.tokens
    seconds = shared.seconds["matmul"], one.seconds["matmul"]
    assert seconds[0] == pytest.approx(seconds[1], rel=0.05)


def test_a_step_is_recorded_by_one_process_alone():
    """Others wait for Python, unless what they run is compiled."""
    one, two = (training(GPT2, Layout(n), compiled=False).seconds["host"] for n in (1, 2))
    assert one == 0 < two
    assert training(GPT2, Layout(2), compiled=True).seconds["host"] == 0


def test_gradients_are_sent_once_however_many_batches_make_a_step():
    once, often = (
        training(GPT2, Layout(4), batch_size=8, accumulate=n).collectives for n in (1, 6)
    )
    assert once == often


def test_what_does_not_fit_is_said_with_what_would():
    plan = make_plan(Wanted(find_shape("llama-8b", {}), gpu="h100", batch_size=16))
    assert not plan.fits(plan.training.memory.peak)
    better = what_fits(plan)
    assert better.layout.gpus > 1
    assert plan.fits(make_plan(better).training.memory.peak)
    assert as_json(plan)["training"]["would_fit"]["gpus"] == better.layout.gpus


def test_the_share_of_the_peak_is_that_of_the_step():
    plan = make_plan(Wanted(find_shape("gpt2", {}), batch_size=64, optimizer="adamw"))
    assert np.isclose(plan.training.share, plan.training.flops / plan.training.step / 989e12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: find_device("h20"), "no data sheet of 'h20'"),
        (lambda: Layout(parallel="dpp"), "unknown parallel 'dpp'"),
        (lambda: Layout(gpus=6, tensor=4), r"gpus \(6\) must be divisible by tensor \(4\)"),
        (lambda: Layout(gpus=0), r"gpus \(0\)"),
        (lambda: training(GPT2, Layout(65)), r"batch_size \(64\) is less than the 65 GPUs"),
        (lambda: training(GPT2, Layout(2, tensor=2)), r"n_heads \(3\) cannot be shared"),
        (lambda: find_shape("nano", {}), "vocabulary of nano is not known"),
        (lambda: find_shape("lama-8b", {}), "'lama-8b' is no preset"),
        (lambda: Wanted(GPT2, optimizer="sgd"), "unknown optimizer 'sgd'"),
        (lambda: Wanted(GPT2, texts=0), r"texts \(0\)"),
    ],
)
def test_bad_settings_are_named_with_a_hint(call, message):
    with pytest.raises(ConfigError, match=message) as error:
        call()
    assert error.value.hint
