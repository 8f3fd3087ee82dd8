"""A plan is counted on the model's own modules: here the counts meet real runs of the model."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from glasshead.attention.backends import BACKENDS
from glasshead.attention.mask import Mask
from glasshead.lab.plan import counting
from glasshead.lab.plan.counting import count_muon, count_reading, count_training, pairs
from glasshead.lab.plan.devices import DEVICES
from glasshead.lab.plan.generating import plan_generating
from glasshead.lab.plan.measuring import train_steps
from glasshead.lab.plan.meta_device import Target
from glasshead.lab.plan.observing import statistics_bytes
from glasshead.lab.plan.operations import Kernel, OperationCounter, fuse
from glasshead.lab.plan.scenario import Scenario
from glasshead.lab.plan.shapes import count, find_shape
from glasshead.lab.plan.training import ADAMW, CLIP, plan_training
from glasshead.model.gpt import GPT, GPTConfig
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


def on_cpu(config, **settings):
    return Scenario(config, gpu="cpu", **settings)


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


def flops(operations, *kinds):
    return sum(n * op.flops for op, n in operations.items() if op.kind in kinds)


@SHAPES
def test_arithmetic_is_what_torch_counts_on_real_tensors(config):
    config = replace(config, backend="explicit")  # torch does not count fused attention on a CPU
    with FlopCounterMode(display=False) as counter:
        next_token_loss(GPT(config), *batch(config)).backward()
    step = count_training(config, B, Target())
    assert flops(step.forward + step.backward, "matmul") == counter.get_total_flops()


@pytest.mark.parametrize("cuda", [False, True])
def test_arithmetic_is_that_of_the_formula(cuda):
    config = replace(GPT2, vocab_size=97, qkv_bias=False, bias=False)
    C, F, V, T, L = 51, 204, 97, 61, 3
    step = count_training(config, B, Target(cuda=cuda))
    matrices = L * (3 * C * C + C * C + 2 * C * F) + C * V
    assert flops(step.forward + step.backward, "matmul") == 3 * 2 * B * T * matrices
    seen = L * B * (T * (T + 1) // 2) * C  # pairs of all heads, and their widths
    assert flops(step.forward, "attention") == 2 * 2 * seen
    assert flops(step.backward, "attention") == 5 * 2 * seen  # scores are computed again


@SHAPES
def test_calls_are_those_of_a_real_step(config):
    model = GPT(config)
    with OperationCounter() as real:
        next_token_loss(model, *batch(config)).backward()
    step = count_training(config, B, Target())
    # A real tensor has its sum and its range brought to Python; these calls are answered.
    asked = 2 * config.n_layers + 8
    assert step.calls == pytest.approx(real.calls, abs=asked)


@pytest.mark.parametrize("target", [Target(), Target(True, 2), Target(True, 2, True)])
@SHAPES
def test_deeper_models_cost_what_all_their_layers_cost(monkeypatch, config, target):
    config = replace(config, n_layers=6)
    extended = count_training(config, B, target), count_reading(config, B, target, 7, past=11)
    muon = count_muon(config, target)
    monkeypatch.setattr(counting, "_extend", lambda count, n_layers: count(n_layers))
    for few, all_of_them in zip(
        extended,
        (
            count_training.__wrapped__(config, B, target),
            count_reading(config, B, target, 7, past=11),
        ),
        strict=True,
    ):
        assert few.calls == all_of_them.calls
        assert few.forward == all_of_them.forward
        assert few.backward == all_of_them.backward
        assert few.memory == all_of_them.memory
    every = count_muon.__wrapped__(config, target)
    assert (muon.flops, muon.bytes, muon.peak) == (every.flops, every.bytes, every.peak)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Where Muon works in bf16, so that wide matrices get no shorter way."""
    monkeypatch.setattr(optim, "WIDE", float("inf"))


@SHAPES
def test_muon_s_arithmetic_is_what_torch_counts(config, as_on_a_gpu):
    assert counted_for_muon(config) == count_muon(config, Target(cuda=True)).flops


def counted_for_muon(config) -> int:
    model = GPT(config)
    next_token_loss(model, *batch(config)).backward()
    optimizers = OPTIMIZERS["muon"](model, TrainConfig())
    with FlopCounterMode(display=False) as counter:
        optimizers.step(torch.tensor(False))
    return counter.get_total_flops()


@pytest.mark.parametrize("config", [NANO, replace(NANO, feed_forward="swiglu", n_kv_heads=1)])
def test_on_a_cpu_wide_matrices_cost_muon_less(config):
    on_cpu, on_gpu = (count_muon(config, Target(cuda=cuda)).flops for cuda in (False, True))
    assert counted_for_muon(config) == on_cpu < on_gpu


def test_clipping_and_adamw_move_the_bytes_that_are_planned():
    model = GPT(GPT2)
    next_token_loss(model, *batch(GPT2)).backward()
    optimizers = OPTIMIZERS["adamw"](model, TrainConfig())
    params = list(model.parameters())
    size = sum(p.numel() for p in params)
    with OperationCounter() as clip:
        torch.nn.utils.clip_grad_norm_(params, 1.0)
    optimizers.step(torch.tensor(False))
    next_token_loss(model, *batch(GPT2)).backward()
    with OperationCounter() as update:
        optimizers.step(torch.tensor(False))

    def moved(counter):
        ops = counter.kernels
        return sum(sum(op.reads.values()) for op in ops)

    # In place: what is changed is written once more than these reads.
    assert moved(clip) + 4 * size == pytest.approx(CLIP * size, rel=0.05)
    assert moved(update) + 12 * size == pytest.approx(ADAMW * size, rel=0.05)


def kept_for_the_backward_pass(model, forward, *args) -> int:
    """Bytes of all distinct storages that autograd keeps, and of the result; no parameters."""
    params = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def keep(x):
        storage = x.untyped_storage()
        if storage.data_ptr() not in params:
            kept[storage.data_ptr()] = storage  # held, so that its place is not given away
        return x

    with saved_tensors_hooks(keep, lambda x: x):
        out = forward(*args)
    keep(out)
    return sum(storage.nbytes() for storage in kept.values())


@SHAPES
def test_activations_are_what_autograd_keeps(config):
    model = GPT(config)
    ids, _ = batch(config)
    real = kept_for_the_backward_pass(model, model.features, ids)
    planned = count_training(config, B, Target()).memory["activations"]
    assert planned == pytest.approx(real - ids.nbytes, rel=0.001)


@pytest.mark.parametrize(
    "change",
    [
        {"positions": "alibi"},
        {"feed_forward": "none"},
        {"feed_forward": "linear-relu", "residual": False},
        {"project": False, "norm_place": "none"},
        {"dropout": 0.2},
        {"softcap": 5.0, "logit_softcap": 9.0},
        {"window": 7},
        {"backend": "explicit"},
    ],
    ids=str,
)
def test_other_kinds_of_layers_are_counted_as_well(change):
    config = replace(GPT2, **change)
    model, (ids, _) = GPT(config), batch(config)
    real = kept_for_the_backward_pass(model, model.features, ids)
    planned = count_training(config, B, Target()).memory["activations"]
    assert planned == pytest.approx(real - ids.nbytes, rel=0.01)
    for compiled in (False, True):
        step = count_training(config, B, Target(True, 2, compiled))
        assert min(step.memory.values()) >= 0
        assert sum(step.backward.values()) > sum(step.forward.values()) / 2


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_compiled_activations_are_what_torch_compile_keeps(config):
    """`aot_eager_decomp_partition` decides as inductor does, and generates no code."""
    torch._dynamo.reset()
    model = GPT(config)
    compiled = torch.compile(model.features, backend="aot_eager_decomp_partition")
    ids, _ = batch(config)
    real = kept_for_the_backward_pass(model, compiled, ids)
    planned = count_training(config, B, Target(compiled=True)).memory["activations"]
    assert planned == pytest.approx(real - ids.nbytes, rel=0.02)


@pytest.mark.parametrize(("compiled", "of_C", "of_F"), [(True, 16, 4), (False, 20, 4)])
def test_a_block_on_a_gpu_keeps_what_the_page_says(compiled, of_C, of_F):
    """docs/scaling.md: bytes a token, but for a few numbers a head."""
    config, target = find_shape("gpt2", {}), Target(True, 2, compiled)
    two, three = (
        count_training(replace(config, n_layers=n), 1, target).memory["activations"] for n in (2, 3)
    )
    assert (three - two) / 1024 == pytest.approx(of_C * 768 + of_F * 3072, rel=0.01)


def test_compiled_code_moves_less_and_multiplies_as_much():
    eager, compiled = (count_training(LLAMA, B, Target(True, 2, on)) for on in (False, True))
    for way in ("forward", "backward"):
        ops = [Counter(), Counter()]
        for found, step in zip(ops, (eager, compiled), strict=True):
            for op, n in getattr(step, way).items():
                found[op.kind] += n * (op.bytes if op.kind == "pointwise" else op.flops)
        assert ops[0]["matmul"] == ops[1]["matmul"]
        assert ops[0]["attention"] == ops[1]["attention"]
        assert ops[1]["pointwise"] < 0.8 * ops[0]["pointwise"]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@SHAPES
def test_parameters_gradients_and_state_take_exactly_their_bytes(config, optimizer):
    model = GPT(config)
    next_token_loss(model, *batch(config)).backward()
    gradients = sum(p.grad.nbytes for p in model.parameters())
    optimizers = OPTIMIZERS[optimizer](model, TrainConfig())
    optimizers.step(torch.tensor(False))
    plan = plan_training(on_cpu(config, batch_size=B, optimizer=optimizer), CPU)
    assert plan.memory.params == sum(p.nbytes for p in model.parameters())
    assert plan.memory.gradients == gradients
    assert plan.memory.optimizer == sum(t.nbytes for t in optimizers.tensors().values())


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("config", [replace(GPT2, vocab_size=1511), LLAMA], ids=["gpt2", "llama"])
def test_the_peak_of_real_training_is_as_planned(config, optimizer):
    config = replace(config, d_model=2 * config.d_model, max_len=127)
    scenario = on_cpu(config, batch_size=7, optimizer=optimizer)
    _, peak = train_steps(scenario, torch.device("cpu"), steps=2)
    assert plan_training(scenario, CPU).memory.peak == pytest.approx(peak, rel=0.03)


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
    model = GPT(LLAMA)
    caches = model.new_caches()
    model(torch.zeros(3, LLAMA.max_len, dtype=torch.int64), caches=caches)
    plan = plan_generating(on_cpu(LLAMA, texts=3), CPU)
    assert plan.memory["cache"] == sum(c.k.nbytes + c.v.nbytes for c in caches)


def test_a_token_reads_the_head_even_where_it_is_the_table():
    tied, apart = (
        plan_generating(on_cpu(config), CPU) for config in (GPT2, replace(GPT2, tied=False))
    )
    assert tied.decode_bytes == apart.decode_bytes


def test_nothing_of_the_counting_stays_behind():
    backends = set(BACKENDS)
    count_training(replace(GPT2, vocab_size=83), B, Target(True, 2))
    assert set(BACKENDS) == backends
    assert not torch.is_autocast_enabled("cuda")
    assert torch.ones(1).is_cpu


@given(st.integers(1, 40), st.integers(0, 40), st.none() | st.integers(1, 60))
def test_pairs_are_those_of_the_mask(T, past, window):
    allowed = Mask(causal=True, window=window).to_tensor(T, T + past)
    everything = T * (T + past)
    assert pairs(T, T + past, window) == (everything if allowed is None else int(allowed.sum()))


def test_a_merged_kernel_writes_only_what_is_read_after_it_or_kept():
    """Tensors 1 to 5: 2 stays inside the merged kernel, 3 is read next, 4 is kept."""
    kernels = [
        Kernel("pointwise", 0.0, 0.0, {1: 11}, {2: 13}),
        Kernel("pointwise", 0.0, 0.0, {2: 13}, {3: 17, 4: 19}),
        Kernel("matmul", 23.0, 0.0, {3: 17}, {5: 29}),
    ]
    merged, last = fuse(kernels, kept={4, 5})
    assert (merged.reads, merged.writes) == ({1: 11}, {3: 17, 4: 19})
    assert last == kernels[2]
