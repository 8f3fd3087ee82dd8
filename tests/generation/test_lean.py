"""The flat step: the numbers of the modules it was taken from, whatever the model is made of."""

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrize

from glasshead.attention.multihead import MultiHeadAttention
from glasshead.errors import NotFiniteError
from glasshead.generation.decode import PlainDecoder, generate
from glasshead.generation.graphed import new_decoder
from glasshead.generation.int8 import to_int8
from glasshead.generation.lean import LeanDecoder, LeanStep, lean_serves
from glasshead.generation.sampling import GREEDY
from glasshead.generation.together import Together
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


def logits(decoder: PlainDecoder, steps: int) -> list[torch.Tensor]:
    """What each step chose from."""
    found = []
    inner = decoder._logits

    def kept() -> torch.Tensor:
        found.append(inner())
        return found[-1]

    decoder._logits = kept
    for _ in range(steps):
        decoder.step()
    return found


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("prompts", [PROMPTS, PADDED], ids=["even", "padded"])
def test_every_kind_of_model_gets_the_logits_that_its_modules_give(kind, prompts):
    model, steps = tiny(**kind), 2 * MAX_LEN
    flat = new_decoder(model, prompts, GREEDY, max_tokens=steps)
    assert type(flat) is LeanDecoder
    plain = PlainDecoder(model, prompts, GREEDY)
    for ours, theirs in zip(logits(flat, steps), logits(plain, steps), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_eight_bits_and_other_dtypes_too():
    model = tiny(d_model=96, n_kv_heads=2, positions="rotary").float()
    for other in (to_int8(model), model, tiny().bfloat16()):
        flat = new_decoder(other, PROMPTS, GREEDY, max_tokens=7)
        assert type(flat) is LeanDecoder
        for ours, theirs in zip(
            logits(flat, 7), logits(PlainDecoder(other, PROMPTS, GREEDY), 7), strict=True
        ):
            assert torch.allclose(ours, theirs, rtol=0, atol=2e-6)


@pytest.fixture
def calls(monkeypatch):
    """How many texts each flat step had."""
    found, call = [], LeanStep.__call__

    def counted(self, ids, *more):
        found.append(len(ids))
        return call(self, ids, *more)

    monkeypatch.setattr(LeanStep, "__call__", counted)
    return found


def test_the_flat_step_is_what_runs(calls):
    model = tiny()
    list(generate(model, PROMPTS, GREEDY, max_tokens=4))
    assert calls == [2, 2, 2]
    together = Together(model)
    for prompt in PROMPTS:
        together.join(prompt, max_tokens=4)
    for _ in range(4):
        together.step()
    assert calls[3:] == [2, 2, 2]


def test_a_text_that_ends_leaves_the_others_as_they_were():
    model = tiny(positions="rotary")
    ours, theirs = (kind(model, PROMPTS, GREEDY) for kind in (LeanDecoder, PlainDecoder))
    for step in range(MAX_LEN):
        if step == 2:
            ours.finish(0)
            theirs.finish(0)
        assert ours.step() == theirs.step()


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
    assert lean_serves(model)
    change(model)
    assert type(new_decoder(model, PROMPTS, GREEDY, max_tokens=3)) is PlainDecoder
    assert Together(model)._lean is None


@pytest.mark.parametrize(
    "kind", [{"softcap": 2.0}, {"positions": "alibi"}, {"backend": "explicit"}]
)
def test_models_with_scores_of_their_own_go_the_usual_way(kind):
    assert type(new_decoder(tiny(**kind), PROMPTS, GREEDY, max_tokens=3)) is PlainDecoder


def test_a_hook_on_everything_is_called(calls):
    called = []
    handle = register_module_forward_hook(lambda module, *_: called.append(type(module)))
    try:
        list(generate(tiny(), PROMPTS, GREEDY, max_tokens=3))
    finally:
        handle.remove()
    assert called.count(Block) == 2 * 3
    assert calls == []


def test_who_begins_to_watch_on_the_way_sees_the_tokens_that_follow():
    model = tiny()
    decoder = LeanDecoder(model, PROMPTS, GREEDY)
    plain = PlainDecoder(model, PROMPTS, GREEDY)
    steps = [decoder.step() for _ in range(3)]
    with observing(model) as seen:
        steps.append(decoder.step())
    steps.append(decoder.step())
    assert seen.shape(0)[2] == 1
    assert steps == [plain.step() for _ in range(5)]


@pytest.mark.parametrize("at_first", [True, False])
@pytest.mark.parametrize("what", [{"heads": [(0, 1), (1, 2)]}, {"edges": [Edge(key=1)]}], ids=str)
def test_ablation_is_of_what_is_written_too(at_first, what):
    model = tiny(positions="rotary")
    flat, plain = LeanDecoder(model, PROMPTS, GREEDY), PlainDecoder(model, PROMPTS, GREEDY)
    together = Together(model)
    for prompt in PROMPTS:
        together.join(prompt, GREEDY, max_tokens=9)
    if not at_first:
        for each in (flat, plain, together):
            each.step()
    with ablating(model, **what):
        ours, theirs = logits(flat, 3), logits(plain, 3)
        ids = [[new.id for new in together.step()] for _ in range(3)]
    assert all(map(torch.equal, ours, theirs))
    assert ids == [row.argmax(-1).tolist() for row in theirs]


def test_a_state_that_is_loaded_on_the_way_counts_from_the_next_token():
    model, other = tiny(0), tiny(1)
    flat, plain = LeanDecoder(model, PROMPTS, GREEDY), PlainDecoder(model, PROMPTS, GREEDY)
    for decoder in (flat, plain):
        decoder.step()
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
    decoder = LeanDecoder(model, [[3, 1], [4, 1]], GREEDY)
    decoder.step()
    with torch.no_grad():
        model.blocks[1].get_submodule(place).weight[0, 0] = torch.nan  # of a query, or a neuron
    with pytest.raises(NotFiniteError):
        decoder.step()
