"""The flat step: the numbers of the modules it was taken from, whatever the model is made of."""

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrize

from glasshead.attention.multihead import MultiHeadAttention
from glasshead.errors import NotFiniteError
from glasshead.generation import batch as batch_module
from glasshead.generation.batch import GenerationBatch
from glasshead.generation.decode import generate
from glasshead.generation.flat_step import FlatStep, supports_flat_step
from glasshead.generation.int8 import to_int8
from glasshead.generation.sampling import GREEDY
from glasshead.generation.step import ModuleStep, pick_step
from glasshead.model.layers import Block
from glasshead.observe.ablation import Edge, ablating
from glasshead.observe.recording import observing
from tests.generation.models import MAX_LEN, tiny

PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]]
PADDED = [[3, 1, 4, 1, 5], [9, 2]]
KINDS = [
    {},
    {"positions": "none"},
    {"positions": "sinusoidal", "norm_place": "post"},
    {"positions": "rotary", "n_kv_heads": 2, "norm": "rms", "feed_forward": "swiglu"},
    {"positions": "rotary", "qk_norm": True, "window": 3, "feed_forward": "relu2"},
    {"n_kv_heads": 1, "bias": False, "qkv_bias": True, "logit_softcap": 3.0},
    {"norm_place": "none", "feed_forward": "linear-relu", "residual": False},
    {"project": False, "feed_forward": "none", "d_head": 4},
    {"n_layers": 0},
    {"tied": True, "head_bias": False, "feed_forward": "gelu-tanh", "backend": "sdpa"},
]


def batch_of(model, prompts, kind=pick_step, max_tokens=3 * MAX_LEN):
    """A batch whose step is of that kind."""
    batch = GenerationBatch(model)
    for prompt in prompts:
        batch.join(prompt, GREEDY, max_tokens=max_tokens)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "pick_step", kind)
        batch.step()
    return batch


def logits(batch, steps):
    """What the ids of some steps were picked from."""
    found, pick = [], batch_module._pick

    def kept(logits, *more):
        found.append(logits)
        return pick(logits, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "_pick", kept)
        for _ in range(steps):
            batch.step()
    return found


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("prompts", [PROMPTS, PADDED], ids=["even", "padded"])
def test_every_kind_of_model_gets_the_logits_that_its_modules_give(kind, prompts):
    model, steps = tiny(**kind), 2 * MAX_LEN
    flat, plain = batch_of(model, prompts), batch_of(model, prompts, ModuleStep)
    assert type(flat._step) is FlatStep
    for ours, theirs in zip(logits(flat, steps), logits(plain, steps), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_eight_bits_and_other_dtypes_too():
    model = tiny(d_model=96, n_kv_heads=2, positions="rotary").float()
    for other in (to_int8(model), model, tiny().bfloat16()):
        flat, plain = batch_of(other, PROMPTS), batch_of(other, PROMPTS, ModuleStep)
        assert type(flat._step) is FlatStep
        for ours, theirs in zip(logits(flat, 7), logits(plain, 7), strict=True):
            assert torch.allclose(ours, theirs, rtol=0, atol=2e-6)


@pytest.fixture
def calls(monkeypatch):
    """How many texts each flat step had."""
    found, call = [], FlatStep.__call__

    def counted(self, ids, *more):
        found.append(len(ids))
        return call(self, ids, *more)

    monkeypatch.setattr(FlatStep, "__call__", counted)
    return found


def test_the_flat_step_is_what_runs(calls):
    list(generate(tiny(), PROMPTS, GREEDY, max_tokens=4))
    assert calls == [2, 2, 2]


class OwnBlock(Block):
    pass


class OwnAttention(MultiHeadAttention):
    pass


def given_class(part, kind):
    part.__class__ = kind


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.half(),
        lambda model: model.blocks[1].register_forward_hook(lambda *_: None),
        lambda model: model.blocks[1].attention.out.register_forward_pre_hook(lambda *_: None),
        lambda model: given_class(model.blocks[1], OwnBlock),
        lambda model: given_class(model.blocks[1].attention, OwnAttention),
        lambda model: setattr(model.blocks[1].attention, "softcap", 0.5),
        lambda model: setattr(model.blocks[1].feed_forward, "up", nn.Sequential(nn.Linear(24, 96))),
        lambda model: parametrize.register_parametrization(
            model.blocks[0].attention.out, "weight", nn.Identity()
        ),
    ],
)
def test_what_cannot_be_written_flat_goes_the_usual_way(change):
    model = tiny()
    assert supports_flat_step(model)
    change(model)
    assert type(pick_step(model)) is ModuleStep


@pytest.mark.parametrize(
    "kind", [{"softcap": 2.0}, {"positions": "alibi"}, {"backend": "explicit"}]
)
def test_models_with_scores_of_their_own_go_the_usual_way(kind):
    assert type(pick_step(tiny(**kind))) is ModuleStep


def test_a_hook_on_everything_is_called(calls):
    called = []
    handle = register_module_forward_hook(lambda module, *_: called.append(type(module)))
    try:
        list(generate(tiny(), PROMPTS, GREEDY, max_tokens=3))
    finally:
        handle.remove()
    assert called.count(Block) == 2 * 3
    assert calls == []


def ids(batch):
    return [new.id for new in batch.step()]


def test_hooks_that_are_attached_on_the_way_see_the_tokens_that_follow(calls):
    model = tiny()
    batch, plain = batch_of(model, PROMPTS), batch_of(model, PROMPTS, ModuleStep)
    steps = [ids(batch) for _ in range(2)]
    with observing(model) as seen:
        steps.append(ids(batch))
    steps.append(ids(batch))
    assert seen.shape(0)[2] == 1
    assert calls == [2, 2, 2]
    assert steps == [ids(plain) for _ in range(4)]


@pytest.mark.parametrize("at_first", [True, False])
@pytest.mark.parametrize("what", [{"heads": [(0, 1), (1, 2)]}, {"edges": [Edge(key=1)]}], ids=str)
def test_ablation_changes_generated_text_too(at_first, what):
    model = tiny(positions="rotary")
    flat, plain = batch_of(model, PROMPTS), batch_of(model, PROMPTS, ModuleStep)
    free = [list(row) for row in logits(batch_of(model, PROMPTS), 3)]
    if not at_first:
        assert ids(flat) == ids(plain)
    with ablating(model, **what):
        ours, theirs = logits(flat, 3), logits(plain, 3)
    assert all(map(torch.equal, ours, theirs))
    assert not torch.allclose(ours[0][0], free[0][0])


def test_a_state_that_is_loaded_on_the_way_counts_from_the_next_token():
    model, other = tiny(0), tiny(1)
    flat, plain = batch_of(model, PROMPTS), batch_of(model, PROMPTS, ModuleStep)
    model.load_state_dict(other.state_dict(), assign=True)
    assert all(map(torch.allclose, logits(flat, 3), logits(plain, 3)))


def test_tensors_are_made_where_the_model_is():
    with torch.device("meta"):
        steps = list(generate(tiny_on_cpu(), PADDED, GREEDY, max_tokens=3))
    assert len(steps) == 3


def tiny_on_cpu():
    with torch.device("cpu"):
        return tiny()


@pytest.mark.parametrize(
    ("place", "dtype", "window"),
    [
        ("attention.qkv", torch.float32, None),
        ("attention.qkv", torch.bfloat16, 2),
        ("feed_forward.up", torch.float64, 2),
        ("feed_forward.up", torch.bfloat16, None),
    ],
)
def test_nan_is_an_error_and_not_a_text(place, dtype, window):
    model = tiny(window=window).to(dtype)
    steps = generate(model, [[3, 1], [4, 1]], GREEDY, max_tokens=5)
    next(steps)
    with torch.no_grad():
        model.blocks[1].get_submodule(place).weight[0, 0] = torch.nan  # of a query, or a neuron
    with pytest.raises(NotFiniteError):
        next(steps)
