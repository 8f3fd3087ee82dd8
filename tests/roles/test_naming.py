"""Heads are named for what they do: where the mechanism is known, and nowhere else."""

import random

import pytest
import torch
import torch.nn.functional as F

from glasshead.errors import AblationError, ConfigError, InputError
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.transformer import Reader, TransformerConfig
from glasshead.observe.ablation import ablating, head_means
from glasshead.observe.recording import observing
from glasshead.roles.catalogue import ROLES
from glasshead.roles.naming import name_heads
from glasshead.roles.probes import ProbeSizes, make_probes
from glasshead.roles.proof import Prover, Scope
from glasshead.roles.subject import subject_of_run
from glasshead.text.tinyworld.tokens import world_tokenizer
from tests.roles.circuits import INDUCTION, PREVIOUS, TOKENIZER, V, induction_model

PROBES = ProbeSizes(sequences=5, tokens=61)


def text(n=700):
    return "".join(random.Random(1).choices(TOKENIZER.characters, k=n))


@pytest.fixture(scope="module")
def planted():
    return subject_of_run("planted", induction_model(), TOKENIZER)


@pytest.fixture(scope="module")
def found(planted):
    return name_heads(planted, [text()], probes=PROBES)


def test_the_planted_model_predicts_what_followed_last_time(planted):
    ids = torch.tensor([TOKENIZER.encode_ids("0123456789" * 3).tolist()])
    # The first token looks at itself, as if it stood before itself.
    assert torch.equal(planted.model(ids)[0, 11:20].argmax(-1), ids[0, 12:21])


def test_the_planted_heads_are_named_and_proved_and_no_others(found):
    assert found.heads("previous", needed=True) == [PREVIOUS]
    assert found.heads("induction", needed=True) == [INDUCTION]
    assert found.heads("copying", needed=True) == [INDUCTION]
    assert found.heads("retrieval", needed=True) == [INDUCTION]
    named = {head for role in found.measured.roles for head in found.heads(role)}
    assert named == {PREVIOUS, INDUCTION}
    assert [one.role for one in found.of(PREVIOUS)] == ["previous"]
    assert found.role("induction", INDUCTION).score > 0.9


def test_a_proof_compares_with_as_many_other_heads_of_the_same_layers(found):
    proof = found.proofs["induction"]
    assert len(proof.others) == Scope().draws
    assert all(len(drawn) == len(proof.heads) for drawn in proof.drawn)
    assert all(head[0] == 1 and head != INDUCTION for drawn in proof.drawn for head in drawn)
    assert max(map(abs, proof.others)) < 1e-6 < 3 < proof.rise


def test_no_more_heads_are_removed_than_there_are_others(planted):
    """Of ten heads with eight in the role, two others are left to compare with."""
    prover = Prover(planted, make_probes(planted, [text()], PROBES), Scope(draws=2))
    heads = [(layer, h) for layer in range(2) for h in range(4)]
    proof = prover.prove("repeat", heads)
    assert proof.heads == tuple(heads[:2])
    assert [set(drawn) for drawn in proof.drawn] == [{(0, 4), (1, 4)}] * 2
    none = prover.prove("repeat", [*heads, (0, 4), (1, 4)])
    assert (none.others, none.needed) == ((), False)


def test_the_loss_of_a_proof_is_that_of_the_model_with_the_mean_in_place(planted):
    probes = make_probes(planted, [text()], PROBES)
    prover = Prover(planted, probes, Scope(draws=1))
    probe, (layer, head) = probes["repeat"], INDUCTION
    attention = planted.model.blocks[layer].attention
    with observing(planted.model) as trace:
        planted.model(probes["text"].ids)
    # The head moves the token that it looks at: its mean context follows from weights and tokens.
    D = attention.d_head
    x = F.one_hot(probes["text"].ids, D).double()
    context = trace.weights(layer)[:, head].double() @ x
    torch.testing.assert_close(
        prover.means[layer][head].double(), context.mean((0, 1)), rtol=1e-4, atol=1e-6
    )
    handle = attention.out.register_forward_pre_hook(
        lambda module, args: (
            args[0].unflatten(-1, (-1, D)).index_copy(
                2, torch.tensor([head]),
                prover.means[layer][head].expand(*args[0].shape[:2], 1, D),
            ).flatten(2),
        )
    )  # fmt: skip
    logits = planted.model(probe.ids)
    handle.remove()
    each = F.cross_entropy(logits.mT, probe.answers, reduction="none") * probe.rows
    expected = each.sum(1) / probe.rows.sum(1)
    torch.testing.assert_close(prover.losses("repeat", [INDUCTION]).float(), expected)


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi"])
@pytest.mark.parametrize("init", ["torch", "gpt2"])
def test_nothing_is_named_in_a_model_that_was_not_trained(positions, init):
    torch.manual_seed(3)
    config = GPTConfig(
        vocab_size=V, max_len=97, n_layers=3, n_heads=4, d_model=56, positions=positions, init=init
    )
    one = name_heads(subject_of_run("new", GPT(config), TOKENIZER), [text()], probes=PROBES)
    assert {role: one.heads(role) for role in one.measured.roles if one.heads(role)} == {}


def test_without_draws_nothing_is_proved_and_common_looks_are_not_named(planted):
    one = name_heads(planted, [text()], probes=PROBES, scope=Scope(draws=0))
    assert one.proofs == {}
    assert one.heads("induction") == [INDUCTION]
    assert one.heads("induction", needed=True) == []
    assert one.heads("broad") == []


def test_probes_hold_what_they_say(planted):
    probes = make_probes(planted, [text()], PROBES)
    for name, probe in probes.items():
        rows = probe.rows.nonzero().tolist()
        assert rows, name
        assert all(probe.answers[b, t] == probe.ids[b, t + 1] for b, t in rows)
    repeat, needle = probes["repeat"], probes["needle"]
    for b, t in repeat.rows.nonzero().tolist():
        assert repeat.targets["induction"][b, t].any()  # what comes has been seen
        at = repeat.targets["induction"][b, t].nonzero()[-1].item()
        assert repeat.ids[b, at] == repeat.answers[b, t]
    for b, t in needle.rows.nonzero().tolist():
        [at] = needle.targets["retrieval"][b, t].nonzero().flatten().tolist()
        assert needle.ids[b, at] == needle.answers[b, t]
    depths = [t.nonzero()[0, -1].item() for t in needle.targets["query"]]
    assert depths == sorted(set(depths))


def test_a_reader_is_measured_on_pronouns():
    tokenizer = world_tokenizer("zh")
    torch.manual_seed(0)
    config = TransformerConfig(
        vocab_size=tokenizer.vocab_size, n_layers=1, n_heads=2, d_model=22, d_ff=23,
        pad=tokenizer.specials["<pad>"],
    )  # fmt: skip
    one = name_heads(subject_of_run("reader", Reader(config), tokenizer), probes=PROBES)
    assert one.heads("referent") == []  # it was not trained
    story = one.probes["story"]
    for b, t in story.rows.nonzero().tolist():
        [at] = story.targets["referent"][b, t].nonzero().flatten().tolist()
        assert story.ids[b, at] == story.answers[b, t]


def test_mistakes_are_named(planted):
    with pytest.raises(ConfigError, match="unknown role 'inductoin'"):
        name_heads(planted, roles=["inductoin"])
    with pytest.raises(InputError, match="tokens, too few"):
        name_heads(planted, ["0123"])
    with (
        pytest.raises(ConfigError, match="means do not go with mode 'zero'"),
        ablating(planted.model, heads=[(0, 0)], means={}),
    ):
        pass
    means = head_means(planted.model, lambda: planted.model(torch.zeros(1, 5, dtype=torch.long)))
    with (
        pytest.raises(AblationError, match="the means of layer 0"),
        ablating(planted.model, heads=[(0, 0)], mode="mean", means={0: means[0][:3]}),
    ):
        planted.model(torch.zeros(1, 5, dtype=torch.long))


def test_every_role_has_its_words_in_both_languages():
    from glasshead.roles.wording import ABOUT, NAMES, SENTENCES, TEXTS

    for words in (NAMES, ABOUT, SENTENCES):
        assert list(words["en"]) == list(words["zh"]) == list(ROLES)
    assert list(TEXTS["en"]) == list(TEXTS["zh"])
