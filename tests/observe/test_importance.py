"""Head importance: gradients are finite differences of gates, ablations are runs without."""

import pytest
import torch
import torch.nn.functional as F

from glasshead.errors import AblationError, ConfigError, InputError
from glasshead.observe.hooks import attach_hooks
from glasshead.observe.importance import head_ablations, head_gradients
from glasshead.observe.recording import observing
from tests.attention.hooks import Replace
from tests.observe.test_ablation import attentions, gpt, ids, translator

B, T = 3, 7


def next_token_loss(model, text):
    return F.cross_entropy(model(text)[:, :-1].flatten(0, 1), text[:, 1:].flatten())


def translation_loss(model):
    target = ids(B, T, seed=5)
    return F.cross_entropy(model(ids(B, 11), target).flatten(0, 1), target.flatten())


CASES = {
    # Rotation works in float32, too coarse for finite differences.
    "gpt": lambda: (
        model := gpt(n_layers=2, positions="alibi"),
        lambda: next_token_loss(model, ids(B, T)),
    ),
    "transformer": lambda: (model := translator(), lambda: translation_loss(model)),
}


def gated(module, sequence, head, by):
    """Inside, one head of one sequence is turned up or down."""

    def turn(call):
        gate = torch.ones(call.context.shape[:2], dtype=call.context.dtype)
        gate[sequence, head] += by
        return call.context * gate[:, :, None, None]

    return attach_hooks({module: Replace(turn)})


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_finite_differences_of_gates_added_without_their_signs(case):
    model, loss = CASES[case]()
    found = head_gradients(model, loss)
    step = 1e-4
    for module, values in zip(attentions(model), found.values(), strict=True):
        for head in range(module.n_heads):
            slopes = []
            for sequence in range(B):
                ends = []
                for by in (step, -step):
                    with gated(module, sequence, head, by):
                        ends.append(float(loss().detach()))
                slopes.append((ends[0] - ends[1]) / (2 * step))
            assert float(values[head]) == pytest.approx(sum(map(abs, slopes)), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_ablation_is_the_loss_without_the_head_minus_the_loss(case):
    model, loss = CASES[case]()
    found = head_ablations(model, loss)
    whole = float(loss().detach())
    for module, values in zip(attentions(model), found.values(), strict=True):
        for head in range(module.n_heads):
            D, kept = module.d_head, module.out.weight.detach().clone()
            with torch.no_grad():
                module.out.weight[:, head * D : (head + 1) * D] = 0
                assert float(values[head]) == pytest.approx(float(loss()) - whole, abs=1e-6)
                module.out.weight.copy_(kept)


def test_layers_are_named_as_in_a_recording_and_can_be_chosen():
    model, loss = CASES["transformer"]()
    with observing(model) as trace:
        loss()
    names = [layer.name for layer in trace.layers]
    assert list(head_gradients(model, loss)) == list(head_ablations(model, loss)) == names
    some = [names[3], 0]
    for values in (head_gradients(model, loss, layers=some),
                   head_ablations(model, loss, layers=some, mode="mean")):  # fmt: skip
        assert list(values) == [names[0], names[3]]
        assert all(x.shape == (3,) for x in values.values())


def test_measuring_leaves_no_gradients_and_no_trace_even_under_no_grad():
    model, loss = CASES["gpt"]()
    expected = loss().detach()
    with torch.no_grad():
        head_gradients(model, loss)
    head_ablations(model, loss)
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(loss().detach(), expected)


def test_heads_that_are_never_heard_have_importance_zero():
    model, loss = CASES["gpt"]()
    module = attentions(model)[1]
    with torch.no_grad():
        module.out.weight[:, : module.d_head] = 0
    for values in (head_gradients(model, loss), head_ablations(model, loss)):
        first, *others = values["blocks.1.attention"].abs().tolist()
        assert first == 0
        assert min(others) > 0


def test_mistakes_are_named():
    model, loss = CASES["gpt"]()
    with pytest.raises(InputError, match="not one number with a gradient") as raised:
        head_gradients(model, lambda: loss().item())
    assert "item" in raised.value.hint
    with pytest.raises(InputError, match="not one number with a gradient"):
        head_gradients(model, lambda: model(ids(B, T)))
    with pytest.raises(AblationError, match="did not run"):
        head_ablations(model, lambda: 0.0)
    with pytest.raises(ConfigError, match="layer 5 does not exist"):
        head_ablations(model, loss, layers=[5])
    with pytest.raises(ConfigError, match="unknown mode 'zeros'"):
        head_ablations(model, loss, mode="zeros")
