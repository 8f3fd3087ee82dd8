"""Muon, AdamW, and the two as one."""

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from glasshead.errors import CheckpointError
from glasshead.training.optim import (
    OPTIMIZERS,
    POLYNOMIAL,
    Muon,
    Optimizers,
    hidden_matrices,
    orthogonalize,
)
from tests.training.cases import new_model, settings

GOOD, BAD = torch.tensor(False), torch.tensor(True)


def give_gradients(model: nn.Module, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=generator)


def values(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


@given(st.integers(2, 40), st.integers(2, 40), st.integers(1, 5), st.integers(0, 2**31))
def test_orthogonal_matrices_keep_directions_and_lose_sizes(rows, columns, n, seed):
    matrices = torch.randn(n, rows, columns, generator=torch.Generator().manual_seed(seed))
    u, s, vh = torch.linalg.svd(matrices.double(), full_matrices=False)
    inside = u.mT @ orthogonalize(matrices).double() @ vh.mT  # in the basis of the singular vectors
    sizes = inside.diagonal(dim1=1, dim2=2)
    large = s / s.norm(dim=1, keepdim=True) > 0.01  # smaller ones have not arrived yet
    assert ((sizes > 0.5) & (sizes < 1.3))[large].all()
    off = inside - torch.diag_embed(sizes)
    assert off.abs().max() < 1e-3


@pytest.mark.parametrize(("rows", "times"), [(1, 3), (7, 2), (31, 5), (127, 4)])
@pytest.mark.parametrize("weakest", [0.0, 3.0, 6.0, math.inf])
@pytest.mark.parametrize("tall", [True, False])
def test_wide_matrices_go_a_shorter_way_to_the_same(rows, times, weakest, tall):
    """Also where some directions are a million times weaker than others, or there is but one."""
    a, b, c = POLYNOMIAL
    noise = torch.randn(3, rows, rows * times, generator=torch.Generator().manual_seed(rows))
    u, _, vh = torch.linalg.svd(noise.double(), full_matrices=False)
    sizes = 10 ** -(weakest * torch.linspace(0, 1, rows, dtype=torch.float64))
    sizes[0] = 1.0  # inf * 0 is no number
    x = u * sizes @ vh
    expected = x / x.norm(dim=(1, 2), keepdim=True)
    for _ in range(5):
        square = expected @ expected.mT
        expected = a * expected + (b * square + c * square @ square) @ expected
    with FlopCounterMode(display=False) as counter:
        found = orthogonalize((x.mT if tall else x).float())
    assert ((found.mT if tall else found) - expected).abs().max() < 2e-3
    assert counter.get_total_flops() == 3 * (4 * times + 34) * rows**3


def test_muon_does_what_torchs_muon_does():
    ours, theirs = (nn.Parameter(torch.ones(17, 29)) for _ in range(2))
    settings = {"lr": 0.1, "weight_decay": 0.2, "momentum": 0.9}
    steps = (Muon([ours], **settings), torch.optim.Muon([theirs], **settings))
    generator = torch.Generator().manual_seed(5)
    for _ in range(7):
        ours.grad = theirs.grad = torch.randn(17, 29, generator=generator)
        for optimizer in steps:
            optimizer.step()
    # torch's works in bf16, which knows three digits.
    assert (ours - theirs).norm() < 0.02 * (ours - 1).norm()


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
def test_queries_keys_and_values_are_made_orthogonal_each_by_itself(n_kv_heads):
    model = new_model(d_model=16, n_heads=4, n_kv_heads=n_kv_heads)
    stacked = model.blocks[0].attention.qkv.weight
    sizes = [16, 4 * n_kv_heads, 4 * n_kv_heads]
    apart = [nn.Parameter(part.clone()) for part in stacked.detach().split(sizes)]
    give_gradients(model)
    for part, grad in zip(apart, stacked.grad.split(sizes), strict=True):
        part.grad = grad.clone()
    Muon(apart, lr=0.02, weight_decay=0.1).step()
    OPTIMIZERS["muon"](model, settings(muon_lr=0.02, weight_decay=0.1)).step(GOOD)
    torch.testing.assert_close(stacked, torch.cat(apart), rtol=0, atol=1e-6)


def test_matrices_in_the_blocks_go_to_muon_and_nothing_else_does():
    model = new_model(positions="learned", qk_norm=True, feed_forward="swiglu")
    names = {p: name for name, p in model.named_parameters()}
    hidden = {names[p] for p in hidden_matrices(model)}
    kinds = {name.split(".", 2)[2] for name in hidden}
    assert kinds == {
        "attention.qkv.weight",
        "attention.out.weight",
        "feed_forward.up.weight",
        "feed_forward.down.weight",
        "feed_forward.gate.weight",
    }
    assert len(hidden) == 5 * 2


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("n_layers", [0, 2])
def test_every_parameter_moves_and_decay_pulls_on_matrices_only(kind, n_layers):
    model = new_model(n_layers=n_layers, qk_norm=True)
    config = settings(optimizer=kind, lr=0.01, weight_decay=0.5)
    optimizers, before = OPTIMIZERS[kind](model, config), values(model)
    give_gradients(model)
    optimizers.step(GOOD)
    moved = {name for name, value in values(model).items() if not torch.equal(value, before[name])}
    assert moved == before.keys()
    plain = new_model(n_layers=n_layers, qk_norm=True)
    give_gradients(plain)
    OPTIMIZERS[kind](plain, settings(optimizer=kind, lr=0.01, weight_decay=0.0)).step(GOOD)
    pulled = {n for n, value in values(model).items() if not torch.equal(value, values(plain)[n])}
    assert pulled == {name for name, value in before.items() if value.dim() >= 2}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_bad_step_changes_nothing(kind):
    model = new_model()
    optimizers = OPTIMIZERS[kind](model, settings())
    give_gradients(model)
    optimizers.step(GOOD)
    before, state = values(model), {n: t.clone() for n, t in optimizers.tensors().items()}
    for p in model.parameters():
        p.grad = torch.full_like(p, torch.nan)
    optimizers.step(BAD)
    assert same(values(model), before)
    assert same(optimizers.tensors(), state)


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("bad", [0.0, 1.0])
def test_a_step_is_called_off_on_the_device_without_a_look(kind, bad):
    """What a GPU does, where `bad` is not looked at: torch's fused kernels know `found_inf`."""
    model, other = new_model(), new_model()
    unasked = OPTIMIZERS[kind](other, settings())
    optimizers = OPTIMIZERS[kind](model, settings())
    for each, m in ((optimizers, model), (unasked, other)):
        give_gradients(m)
        each.step(GOOD)
    before = values(model)
    for part in optimizers._parts:
        part.found_inf = torch.tensor(bad)
    give_gradients(model, seed=1)
    give_gradients(other, seed=1)
    if bad:
        for p in model.parameters():
            p.grad[0] = torch.inf
    for part in optimizers._parts:
        part.step()
    if bad:
        assert same(values(model), before)
        for part in optimizers._parts:
            part.found_inf = torch.tensor(0.0)
        give_gradients(model, seed=1)
        for part in optimizers._parts:
            part.step()
    unasked.step(GOOD)
    for name, value in values(model).items():
        torch.testing.assert_close(value, values(other)[name], rtol=0, atol=1e-7)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_loaded_state_goes_on_as_the_saved_one(kind, tmp_path):
    model, other = new_model(), new_model()
    first, second = (OPTIMIZERS[kind](m, settings()) for m in (model, other))
    for step in range(3):
        give_gradients(model, step)
        first.step(GOOD)
    other.load_state_dict(model.state_dict())
    second.load({name: t.clone() for name, t in first.tensors().items()}, tmp_path)
    for optimizers, m in ((first, model), (second, other)):
        give_gradients(m, 9)
        optimizers.step(GOOD)
    assert same(values(model), values(other))


def test_a_state_of_another_model_is_refused(tmp_path):
    optimizers = OPTIMIZERS["muon"](new_model(), settings())
    for name, tensor in (
        ("no.such/momentum", torch.zeros(3)),
        ("head.weight/exp_avg", torch.zeros(3, 3)),
    ):
        with pytest.raises(CheckpointError, match="fits no parameter") as caught:
            optimizers.load({name: tensor}, tmp_path)
        assert caught.value.hint


def test_rates_are_shares_of_their_peaks():
    model = new_model()
    optimizers: Optimizers = OPTIMIZERS["muon"](model, settings(lr=0.004, muon_lr=0.02))
    optimizers.set_rate(0.5)
    optimizers.set_rate(0.25)
    rates = {group["lr"] for part in optimizers._parts for group in part.param_groups}
    assert rates == {0.001, 0.005}


STARTING = """
import sys
import torch
from glasshead.training.optim import OPTIMIZERS
from tests.training.cases import new_model, settings
for kind in OPTIMIZERS:
    model = new_model()
    optimizers = OPTIMIZERS[kind](model, settings())
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizers.step(torch.tensor(False))
sys.exit("torch._dynamo" in sys.modules)
"""


def test_training_starts_without_torchs_compiler():
    assert subprocess.run([sys.executable, "-c", STARTING]).returncode == 0


def test_adamw_does_what_torchs_adamw_does():
    models = [new_model(), new_model()]
    config = settings(weight_decay=0.3)
    ours = OPTIMIZERS["adamw"](models[0], config)
    betas = config.beta1, config.beta2
    groups = [
        {"params": [p for p in models[1].parameters() if p.dim() >= 2], "weight_decay": 0.3},
        {"params": [p for p in models[1].parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    theirs = torch.optim.AdamW(groups, config.lr, betas)
    for seed in range(5):
        for model in models:
            give_gradients(model, seed)
        ours.step(GOOD)
        theirs.step()
    for name, p in models[1].named_parameters():
        torch.testing.assert_close(models[0].get_parameter(name), p, atol=1e-6, rtol=1e-5)
