"""Plans for several GPUs: what they send, what they share, whether it fits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
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

from glasshead.errors import ConfigError
from glasshead.lab.plan.communication import plan_collective
from glasshead.lab.plan.counting import count_muon
from glasshead.lab.plan.devices import DEVICES, find_device
from glasshead.lab.plan.layout import Layout
from glasshead.lab.plan.meta_device import Target
from glasshead.lab.plan.plans import as_json, find_fitting, make_plan
from glasshead.lab.plan.scenario import Scenario
from glasshead.lab.plan.shapes import count, find_shape
from glasshead.lab.plan.training import plan_training
from glasshead.model.gpt import GPT
from glasshead.model.layers import FeedForward
from glasshead.training import optim
from glasshead.training.config import TrainConfig
from glasshead.training.optim import OPTIMIZERS
from tests.lab.test_plan import GPT2, LLAMA, NANO, batch


@given(st.integers(2, 512), st.floats(1, 1e12))
def test_an_all_reduce_is_a_scatter_and_a_gather(group, size):
    sent = {
        name: plan_collective(name, "", 1, size, group, 1, DEVICES["h100"]).bytes
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
    planned = training(config, Layout(4, "fsdp"), batch_size=4, precision="float32").collectives
    for name, real in (("all-gather", "allgather_base"), ("reduce-scatter", "reduce_scatter_base")):
        sizes = [size for what, size in sent.found if what == real]
        mine = [c for c in planned if c.name == name]
        assert len(sizes) == sum(c.count for c in mine)
        assert sum(sizes) * 3 / 4 == pytest.approx(sum(c.bytes for c in mine))


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
@pytest.mark.parametrize("n_layers", [4, 5])  # of which four processes have as many, or not
def test_muon_of_shards_does_and_sends_what_is_planned(alone_among_four, monkeypatch, n_layers):
    """The first process, which has most where not all have as many."""
    monkeypatch.setattr(optim, "WIDE", float("inf"))  # as in bf16, on a GPU
    config = replace(NANO, d_model=48, vocab_size=64, n_layers=n_layers)
    model, (ids, _) = GPT(config), batch(config)
    for part in (*model.blocks, model):
        fully_shard(part, mesh=alone_among_four)
    model(ids).sum().backward()
    optimizers = OPTIMIZERS["muon"](model, TrainConfig())
    with Messages() as sent, FlopCounterMode(display=False) as counter:
        optimizers.step(torch.tensor(False))
    plan = training(config, Layout(4, "fsdp"), batch_size=4, precision="float32", optimizer="muon")
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
    alone = count_muon(big, Target(True, 2, True)).flops
    assert copies.optimizer_flops == alone
    assert shards.optimizer_flops == pytest.approx(alone / 32)  # 32 layers
    # Nor do more shards than matrices of a shape help.
    most = training(big, Layout(64, "fsdp"), optimizer="muon").optimizer_flops
    assert alone / 64 < most < alone / 32


def test_from_all_to_all_each_has_its_own_port_alone():
    h100 = DEVICES["h100"]
    inside = plan_collective("all-to-all", "", 1, 8e9, 8, 1, h100)
    across = plan_collective("all-to-all", "", 1, 8e9, 64, 1, h100)
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
    settings = {"optimizer": "adamw", "batch_size": 64, **more}
    return plan_training(Scenario(config, "h100", layout, **settings), DEVICES["h100"])


def test_shards_divide_the_state_and_send_half_as_much_again():
    big = find_shape("llama-1b", {"max_len": 2048})
    copies, shards = (
        training(big, Layout(16, way), precision="float32") for way in ("ddp", "fsdp")
    )
    for kind in ("params", "gradients", "optimizer"):
        assert getattr(copies.memory, kind) == pytest.approx(16 * getattr(shards.memory, kind))
    sent = [sum(c.bytes for c in plan.collectives) for plan in (copies, shards)]
    inside = count(big).blocks / count(big).total  # what is outside is gathered once, not twice
    assert sent[1] == pytest.approx(sent[0] * (2 + inside) / 2)


@pytest.mark.parametrize("way", ["tensor", "context"])
def test_sharing_divides_the_work_and_keeps_the_sum(way):
    big = find_shape("llama-8b", {})
    one, shared = training(big, Layout(8)), training(big, Layout(8, **{way: 8}))
    assert shared.flops == pytest.approx(one.flops, rel=0.002)  # parts of the head are padded
    assert shared.tokens == one.tokens
    seconds = shared.seconds["matmul"], one.seconds["matmul"]
    assert seconds[0] == pytest.approx(seconds[1], rel=0.05)


def test_only_a_single_process_records_a_cuda_graph():
    """Others wait for Python, unless what they run is compiled."""
    one, two = (training(GPT2, Layout(n), compiled=False).seconds["host"] for n in (1, 2))
    assert one == 0 < two
    assert training(GPT2, Layout(2), compiled=True).seconds["host"] == 0


def test_gradients_are_sent_once_however_many_batches_make_a_step():
    once, often = (
        training(GPT2, Layout(4), batch_size=8, accumulate=n).collectives for n in (1, 6)
    )
    assert once == often


@pytest.mark.parametrize(
    "layout",
    [Layout(6, tensor=3), Layout(3, context=3), Layout(4, "fsdp"), Layout(18, "fsdp", 3, 3)],
)
def test_what_travels_for_each_batch_travels_as_often_as_there_are_batches(layout):
    config = replace(GPT2, max_len=69)
    once, often = (
        training(config, layout, batch_size=8, accumulate=n, optimizer="muon").collectives
        for n in (1, 7)
    )
    assert [each.what for each in once] == [each.what for each in often]
    at_the_end = ("gradients", "Muon's matrices, sent", "Muon's matrices, back")
    for one, many in zip(once, often, strict=True):
        times = 1 if one.what in at_the_end else 7
        assert many.count == times * one.count, one.what
        assert many.seconds == pytest.approx(times * one.seconds)
    assert any(one.what not in at_the_end for one in once)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_shared_layers_and_texts_send_activations_and_keys_of_the_part_of_each_gpu(precision):
    """Counted by hand: 24 GPUs are 4 replicas of 2 that share each layer times 3 each text."""
    config = replace(LLAMA, max_len=69, d_ff=138)
    layout = Layout(24, tensor=2, context=3)
    plan = training(config, layout, batch_size=20, accumulate=7, precision=precision)
    found = {each.what: each for each in plan.collectives}
    size = 4 if precision == "float32" else 2
    sequences, positions = 20 // 4, 69 // 3  # of a GPU
    activations = size * sequences * positions * 84
    for way in ("forward", "backward"):
        one = found[f"activations, {way}"]
        assert (one.name, one.group) == ("all-reduce", 2)
        assert one.count == 7 * (2 * 2 + 1)  # twice in each of 2 layers, and at the vocabulary
        assert one.bytes == pytest.approx(one.count * 2 * activations / 2)  # there and back
    # A GPU has one of the two heads of keys, of width 14; texts are gathered whole.
    keys_and_values = 2 * size * sequences * 69 * 14
    for what in ("keys and values, forward", "keys and values, backward",
                 "keys' and values' gradients"):  # fmt: skip
        assert (found[what].count, found[what].group) == (7 * 2, 3)
        assert found[what].bytes == pytest.approx(7 * 2 * keys_and_values * 2 / 3)


def test_a_plan_that_does_not_fit_names_one_that_does():
    plan = make_plan(Scenario(find_shape("llama-8b", {}), gpu="h200", batch_size=16))
    assert not plan.fits(plan.training.memory.peak)
    better = find_fitting(plan)
    assert better.layout.gpus > 1
    assert plan.fits(make_plan(better).training.memory.peak)
    assert as_json(plan)["training"]["would_fit"]["gpus"] == better.layout.gpus


def test_the_share_of_the_peak_is_that_of_the_step():
    plan = make_plan(Scenario(find_shape("gpt2", {}), batch_size=64, optimizer="adamw"))
    assert np.isclose(plan.training.share, plan.training.flops / plan.training.step / 989e12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: find_device("h20"), "no data sheet for the device 'h20'"),
        (lambda: Layout(parallel="dpp"), "unknown parallel 'dpp'"),
        (lambda: Layout(gpus=6, tensor=4), r"gpus \(6\) must be divisible by tensor \(4\)"),
        (lambda: Layout(gpus=0), r"gpus \(0\)"),
        (lambda: training(GPT2, Layout(65)), r"batch_size \(64\) is less than the 65 GPUs"),
        (lambda: training(GPT2, Layout(2, tensor=2)), r"n_heads \(3\) cannot be shared"),
        (lambda: find_shape("nano", {}), "vocabulary size of nano is not known"),
        (lambda: find_shape("lama-8b", {}), "'lama-8b' is not a preset"),
        (lambda: Scenario(GPT2, optimizer="sgd"), "unknown optimizer 'sgd'"),
        (lambda: Scenario(GPT2, texts=0), r"texts \(0\)"),
    ],
)
def test_bad_settings_are_named_with_a_hint(call, message):
    with pytest.raises(ConfigError, match=message) as error:
        call()
    assert error.value.hint
