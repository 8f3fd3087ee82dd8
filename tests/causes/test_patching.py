"""Patched runs are those of a model that was patched by other means; estimates and small sets."""

from dataclasses import replace

import pytest
import torch

from glasshead.causes.explain import explain
from glasshead.causes.patching import estimate_error, patch_texts
from glasshead.causes.question import answer_logits, make_question
from glasshead.causes.smallest import keep_edges, smallest_edges
from glasshead.errors import InputError
from glasshead.observe.ablation import Edge, ablating
from glasshead.observe.recording import observing
from glasshead.roles.subject import subject_of_run
from tests.causes.subjects import OTHER, TEXT, gpt, of_transformers
from tests.roles.circuits import INDUCTION, PREVIOUS, induction_model
from tests.roles.circuits import TOKENIZER as PLANTED

PLAIN, CHANGED = "315H17Q9A82B5", "315G17Q9A82B5"  # "5" was followed by another letter


def texts(subject, one=TEXT, two=OTHER, against="e"):
    question, other = make_question(subject, one, against=against), make_question(subject, two)
    return question, other


@torch.no_grad()
def difference(subject, question, ids):
    logits = answer_logits(subject, replace(question, ids=ids)).double()
    return (logits[question.answer] - logits[question.against]).item()


@pytest.mark.parametrize("changes", [{}, {"norm_place": "post", "n_kv_heads": 2}])
def test_a_patched_head_is_a_model_whose_projection_gets_the_other_context(changes):
    subject = gpt(torch.float64, **changes)
    question, other = texts(subject)
    found = patch_texts(subject, question, other)
    assert found.after == pytest.approx(difference(subject, question, question.ids), abs=1e-9)
    assert found.before == pytest.approx(difference(subject, question, other.ids), abs=1e-9)
    assert len(found.heads) == 12
    for one in found.heads:
        layer, head = one.place
        projection = subject.model.blocks[layer].attention.out
        seen = []
        handle = projection.register_forward_pre_hook(lambda m, a, s=seen: s.append(a[0]))
        answer_logits(subject, question)
        handle.remove()
        part = slice(14 * head, 14 * (head + 1))

        def patch(module, args, part=part, seen=seen):
            x = args[0].clone()
            x[..., part] = seen[0][..., part]
            return (x,)

        handle = projection.register_forward_pre_hook(patch)
        moved = difference(subject, question, other.ids) - found.before
        handle.remove()
        assert one.exact == pytest.approx(moved, abs=1e-9)


def test_a_patched_position_is_a_model_whose_block_gets_the_other_state():
    subject = gpt(torch.float64)
    question, other = texts(subject)
    found = patch_texts(subject, question, other)
    assert len(found.positions) == 3 * 17
    for one in found.positions[::5]:
        block, position = one.place
        seen = []
        module = subject.model.blocks[block]
        handle = module.register_forward_pre_hook(lambda m, a, s=seen: s.append(a[0]))
        answer_logits(subject, question)
        handle.remove()

        def patch(module, args, position=position, seen=seen):
            x = args[0].clone()
            x[:, position] = seen[0][:, position]
            return (x, *args[1:])

        handle = module.register_forward_pre_hook(patch)
        moved = difference(subject, question, other.ids) - found.before
        handle.remove()
        assert one.exact == pytest.approx(moved, abs=1e-9)
    # Before the token that differs, both runs are the same.
    assert all(one.exact == pytest.approx(0, abs=1e-9) for one in found.positions
               if one.place[1] < 5)  # fmt: skip


@torch.no_grad()
def test_a_patched_edge_carries_what_it_carried_in_the_other_run():
    subject = gpt(torch.float64)
    question, other = texts(subject)
    found = patch_texts(subject, question, other, top=5)
    sent = []
    for text in (question, other):
        with observing(subject.model, keep=["values"]) as trace:
            subject.model(text.ids)
        sent.append(trace)
    for one in found.edges:
        layer, head, query, key = one.place
        here, there = (x.tile(layer, head, query, key).item() * x.layer_trace(layer).v[0, head, key]
                       for x in (sent[1], sent[0]))  # fmt: skip

        def patch(module, args, head=head, query=query, moved=there - here):
            x = args[0].clone()
            x[0, query, 14 * head : 14 * (head + 1)] += moved
            return (x,)

        projection = subject.model.blocks[layer].attention.out
        handle = projection.register_forward_pre_hook(patch)
        moved = difference(subject, question, other.ids) - found.before
        handle.remove()
        assert one.exact == pytest.approx(moved, abs=1e-8)


def test_estimates_are_exact_where_the_model_is_linear():
    """What the last heads write goes through no norm and no feed-forward of this model."""
    subject = gpt(torch.float64, norm_place="none", feed_forward="none", n_layers=2)
    question, other = texts(subject)
    found = patch_texts(subject, question, other)
    last = [one for one in found.heads if one.place[0] == 1]
    assert max(abs(one.exact) for one in last) > 0.1
    assert estimate_error(last)[0] == pytest.approx(0, abs=1e-8)
    assert estimate_error(found.heads)[0] > 1e-3  # the first layer's go through a softmax


def test_models_of_transformers_are_patched():
    tr = pytest.importorskip("transformers")
    subject = of_transformers(tr.LlamaConfig(
        vocab_size=59, hidden_size=48, intermediate_size=53, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, bos_token_id=1, eos_token_id=2,
    ))  # fmt: skip
    question, other = (
        make_question(subject, "the cat sat", "t", "e"),
        make_question(subject, "the dog sat"),
    )
    found = patch_texts(subject, question, other, top=4)
    one = found.heads[0]
    layer, head = one.place
    projection, seen = subject.model.model.layers[layer].self_attn.o_proj, []
    handle = projection.register_forward_pre_hook(lambda m, a: seen.append(a[0]))
    with torch.no_grad():
        answer_logits(subject, question)
    handle.remove()

    def patch(module, args):
        x = args[0].clone()
        x[..., 8 * head : 8 * (head + 1)] = seen[0][..., 8 * head : 8 * (head + 1)]
        return (x,)

    handle = projection.register_forward_pre_hook(patch)
    moved = difference(subject, question, other.ids) - found.before
    handle.remove()
    assert one.exact == pytest.approx(moved, abs=1e-5)
    assert all(edge.exact is not None for edge in found.edges)


def test_the_planted_circuit_is_found_edge_by_edge():
    subject = subject_of_run("planted", induction_model(), PLANTED)
    found = explain(subject, PLAIN, patch=CHANGED, smallest=True)
    assert (found.answer, found.against) == ("H", "G")
    assert found.attribution.strongest(1)[0][0] == INDUCTION
    first = found.attribution.edges[0]
    assert (first.layer, first.head, first.key) == (*INDUCTION, 3)
    assert first.adds == pytest.approx(9, abs=1e-3)
    assert found.patched.heads[0].place == INDUCTION
    assert found.patched.edges[0].place == (*INDUCTION, 12, 3)
    assert found.patched.share(found.patched.edges[0].exact) == pytest.approx(1, abs=1e-4)
    # "H" looks at the "5" before it, and the last "5" at "H".
    assert set(found.smallest.edges) == {(*INDUCTION, 12, 3), (*PREVIOUS, 3, 2)}
    assert found.smallest.keeps


def test_kept_edges_are_a_model_in_which_all_others_are_hidden():
    subject = gpt(torch.float64)
    question = make_question(subject, TEXT)
    kept = [(0, 1, 16, 3), (1, 2, 16, 16), (2, 0, 16, 5), (0, 1, 9, 2), (1, 0, 5, 5)]
    hidden = [
        Edge(key=key, query=query, layer=layer, head=head)
        for layer in range(3) for head in range(4) for query in range(17)
        for key in range(query + 1) if (layer, head, query, key) not in kept
    ]  # fmt: skip
    with torch.no_grad(), ablating(subject.model, edges=hidden, renormalise=False):
        expected = answer_logits(subject, question)
    torch.testing.assert_close(keep_edges(subject, question, kept), expected)


def test_no_edge_of_a_smallest_set_can_be_left_out():
    subject = gpt(torch.float64, n_layers=2, feed_forward="none", positions="rotary")
    question = make_question(subject, TEXT)
    found = smallest_edges(subject, question)
    assert found.of == 2 * 4 * 17 * 18 // 2
    assert found.keeps
    with torch.no_grad():
        whole = answer_logits(subject, question).softmax(-1)[question.answer]

    def keeps(edges):
        p = keep_edges(subject, question, edges).softmax(-1)
        return p.argmax() == question.answer and p[question.answer] >= 0.5 * whole

    assert keeps(found.edges)
    for edge in found.edges:
        assert not keeps([one for one in found.edges if one != edge])


def test_what_the_model_does_not_say_has_no_smallest_set():
    subject = gpt()
    question = make_question(subject, TEXT)
    with torch.no_grad():
        worst = int(answer_logits(subject, question).argmin())
    with pytest.raises(InputError, match="is not the answer"):
        smallest_edges(subject, replace(question, answer=worst))
