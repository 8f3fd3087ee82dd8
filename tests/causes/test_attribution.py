"""What parts of a model add to a logit: against float64 by hand, and sums that come out right."""

import math

import pytest
import torch

from glasshead.causes.attribution import attribute
from glasshead.causes.explain import explain
from glasshead.causes.lens import logit_lens
from glasshead.causes.question import answer_logits, make_question
from glasshead.errors import InputError
from glasshead.model.transformer import Reader, TransformerConfig
from glasshead.roles.subject import subject_of_run
from glasshead.text.tinyworld.tokens import world_tokenizer
from tests.causes.subjects import TEXT, gpt, of_transformers

KINDS = {
    "pre": {},
    "grouped": {
        "norm": "rms", "positions": "rotary", "feed_forward": "swiglu", "n_kv_heads": 2,
        "tied": True, "head_bias": False,
    },
    "post": {"norm_place": "post"},
    "bare": {"norm_place": "none", "project": False, "n_layers": 1},
    "capped": {"feed_forward": "linear-relu", "positions": "alibi", "logit_softcap": 5.0},
    "attention": {"feed_forward": "none", "qk_norm": True, "window": 5},
    "odd": {"d_model": 45, "n_heads": 3, "norm": "rms"},
}  # fmt: skip


def by_hand(subject, question):
    """Return heads (L, H), feed-forwards, edges (L, H, S) and the rest of a pre-norm GPT, with the
    four steps of attention written out in float64."""
    model = subject.model.double()
    c, ids, t = model.config, question.ids, question.at
    T, D = ids.shape[1], c.d_model // c.n_heads
    x = model.embedding.weight[ids[0]] + model.positions.table.weight[:T]
    parts = [x[t]]
    heads, edges, feeds = [], [], []
    for block in model.blocks:
        a = block.attention
        h = block.around_attention.before(x)
        q, k, v = (a.qkv(h)).view(T, 3, c.n_heads, D).permute(1, 2, 0, 3)
        scores = q @ k.mT / math.sqrt(D)
        weights = scores.masked_fill(~torch.ones(T, T).tril().bool(), -math.inf).softmax(-1)
        out = a.out.weight.view(-1, c.n_heads, D)  # (C, H, D)
        each = torch.einsum("hts,hsd,chd->htsc", weights, v, out)  # what every edge writes
        edges.append(each[:, t])
        heads.append(each[:, t].sum(1))
        parts += [heads[-1].sum(0), a.out.bias]
        x = x + each.sum((0, 2)) + a.out.bias
        f = block.feed_forward(block.around_feed_forward.before(x))
        feeds.append(f[t])
        parts.append(f[t])
        x = x + f
    # The norm with the scale of this run: centre, divide, multiply.
    sigma = (x[t].var(unbiased=False) + c.norm_eps).sqrt()
    answer = model.head.weight[question.answer]

    def along(y):
        return ((y - y.mean(-1, keepdim=True)) / sigma * model.norm.weight) @ answer

    rest = answer @ model.norm.bias + model.head.bias[question.answer]
    torch.testing.assert_close(along(sum(parts)) + rest, model(ids)[0, t, question.answer])
    return (torch.stack([along(h) for h in heads]), torch.stack([along(f) for f in feeds]),
            torch.stack([along(e) for e in edges]), along(parts[0]))  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("at", [-1, 6])
def test_parts_are_those_of_a_forward_by_hand_in_float64(at):
    subject = gpt()
    question = make_question(subject, TEXT, at=at)
    found, _ = attribute(subject, question, top=9)
    heads, feeds, edges, embedding = by_hand(subject, question)
    torch.testing.assert_close(found.heads, heads, atol=1e-5, rtol=0)
    assert list(found.feed_forwards.values()) == pytest.approx(feeds.tolist(), abs=1e-5)
    assert found.embedding == pytest.approx(embedding.item(), abs=1e-5)
    largest = edges.abs().flatten().topk(9).values
    assert [abs(one.adds) for one in found.edges] == pytest.approx(largest.tolist(), abs=1e-5)
    for one in found.edges:
        assert edges[one.layer, one.head, one.key].item() == pytest.approx(one.adds, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_edges_add_up_to_heads_and_heads_and_the_rest_to_the_logit(kind):
    found = {}
    for dtype in (torch.float32, torch.float64):
        subject = gpt(dtype, **KINDS[kind])
        question = make_question(subject, TEXT, answer="b", against="e")
        found[dtype], _ = attribute(subject, question)
        assert found[dtype].error == pytest.approx(0, abs=1e-4)
        torch.testing.assert_close(found[dtype].edge_sums, found[dtype].heads, atol=1e-4, rtol=0)
    one, exact = found.values()
    torch.testing.assert_close(one.heads, exact.heads, atol=1e-4, rtol=0)
    assert one.logit == pytest.approx(exact.logit, abs=1e-4)
    raw = subject.model.features(question.ids)[0, -1] @ subject.model.head.weight.T
    if subject.model.head.bias is not None:
        raw = raw + subject.model.head.bias
    b, e = question.wanted
    assert exact.logit == pytest.approx((raw[b] - raw[e]).item(), abs=1e-9)


def test_the_model_computes_the_same_bits_while_it_is_read():
    subject = gpt()
    question = make_question(subject, TEXT)
    with torch.no_grad():
        expected = answer_logits(subject, question)[question.answer].item()
    assert attribute(subject, question)[0].logit == expected
    assert not any(p.grad is not None for p in subject.model.parameters())


@pytest.mark.parametrize("kind", ["pre", "post", "capped"])
def test_the_lens_ends_with_what_the_model_says(kind):
    subject = gpt(**KINDS[kind])
    question = make_question(subject, TEXT)
    _, path = attribute(subject, question)
    rows = logit_lens(subject, question, path)
    assert [row.before for row in rows] == [0, 1, 2, 3]
    with torch.no_grad():
        p = answer_logits(subject, question).softmax(-1)
    assert rows[-1].probability == pytest.approx(p[question.answer].item(), abs=1e-6)
    assert rows[-1].rank == 1
    x = subject.model.positions.embed(
        subject.model.embedding(question.ids), torch.arange(question.ids.shape[1])
    )
    first = subject.model.logits(subject.model.norm(x))[0, -1].softmax(-1)
    assert rows[0].probability == pytest.approx(first[question.answer].item(), abs=1e-6)


def test_a_reader_is_explained_at_its_pronoun():
    tokenizer = world_tokenizer("zh")
    torch.manual_seed(0)
    config = TransformerConfig(
        vocab_size=tokenizer.vocab_size, n_layers=2, n_heads=2, d_model=22, d_ff=23,
        pad=tokenizer.specials["<pad>"],
    )  # fmt: skip
    subject = subject_of_run("reader", Reader(config).eval(), tokenizer)
    found = explain(subject, "那个小猫，它昨天在公园里追逐一只蝴蝶。")
    assert found.question.tokens[found.question.at] == "它"
    assert found.attribution.error == pytest.approx(0, abs=1e-4)
    with torch.no_grad():
        logits = subject.model(found.question.ids)[0, found.question.at]
    assert found.attribution.logit == pytest.approx(logits[found.question.answer].item(), abs=1e-5)


def configs():
    tr = pytest.importorskip("transformers")
    tr.logging.set_verbosity_error()
    wide = {
        "vocab_size": 59, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 128, "bos_token_id": 1,
        "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip
    grouped = wide | {"num_key_value_heads": 2}
    return {
        "llama": tr.LlamaConfig(**grouped),
        "gpt2": tr.GPT2Config(vocab_size=59, n_embd=64, n_layer=2, n_head=4, bos_token_id=1,
                              eos_token_id=2),
        "gpt_neox": tr.GPTNeoXConfig(**wide),
        "gemma2": tr.Gemma2Config(**grouped, head_dim=16),
        "gemma3": tr.Gemma3TextConfig(**grouped, head_dim=16),
        "qwen3": tr.Qwen3Config(**grouped, head_dim=16),
        "granite": tr.GraniteConfig(**grouped, logits_scaling=3.0, residual_multiplier=0.3),
        "olmo2": tr.Olmo2Config(**grouped),
        "mixtral": tr.MixtralConfig(**grouped, num_local_experts=4),
        "cohere": tr.CohereConfig(**grouped),
    }  # fmt: skip


FAMILIES = ["llama", "gpt2", "gemma2", "gpt_neox"]
MORE = ["gemma3", "qwen3", "granite", "olmo2", "mixtral", "cohere"]


@pytest.mark.parametrize(
    "family", [*FAMILIES, *(pytest.param(name, marks=pytest.mark.deep) for name in MORE)]
)
def test_models_of_transformers_add_up(family):
    subject = of_transformers(configs()[family])
    found = explain(subject, "the cat sat on the mat", answer="t", against="e")
    part = found.attribution
    assert part.error == pytest.approx(0, abs=1e-4)
    torch.testing.assert_close(part.edge_sums, part.heads, atol=1e-4, rtol=0)
    assert part.heads.abs().min() > 1e-6
    assert len(part.feed_forwards) == 2
    with torch.no_grad():
        p = answer_logits(subject, found.question).softmax(-1)
    assert found.lens[-1].probability == pytest.approx(p[found.question.answer].item(), abs=1e-5)


def test_heads_of_a_llama_are_those_that_its_projections_wrote():
    subject = of_transformers(configs()["llama"])
    question = make_question(subject, "the cat sat on the mat")
    merged, last = [], []
    model = subject.model
    handles = [
        layer.self_attn.o_proj.register_forward_pre_hook(lambda m, a: merged.append(a[0][0, -1]))
        for layer in model.model.layers
    ] + [model.model.norm.register_forward_pre_hook(lambda m, a: last.append(a[0][0, -1]))]
    with torch.no_grad():
        model(question.ids)
    for handle in handles:
        handle.remove()
    found, _ = attribute(subject, question)
    norm = model.model.norm
    scale = norm.weight / (last[0].square().mean() + norm.variance_epsilon).sqrt()
    direction = (scale * model.lm_head.weight[question.answer]).double()
    for n, layer in enumerate(model.model.layers):
        out = layer.self_attn.o_proj.weight.double().view(64, 4, 16)
        expected = torch.einsum("c,chd,hd->h", direction, out, merged[n].double().view(4, 16))
        torch.testing.assert_close(found.heads[n], expected, atol=1e-5, rtol=0)


def test_half_precision_is_allowed_its_rounding():
    subject = gpt(torch.bfloat16)
    found, _ = attribute(subject, make_question(subject, TEXT))
    assert abs(found.error) < 0.1


def test_a_model_whose_parts_do_not_add_up_is_refused():
    tr = pytest.importorskip("transformers")
    subject = gpt(residual=False, norm_place="pre")
    with pytest.raises(InputError, match="more than a norm"):
        attribute(subject, make_question(subject, TEXT))
    bert = tr.BertConfig(vocab_size=59, hidden_size=32, intermediate_size=37, num_hidden_layers=1,
                         num_attention_heads=2)  # fmt: skip
    from glasshead.roles.subject import subject_of_transformers
    from tests.causes.subjects import Letters

    headless = subject_of_transformers("bert", tr.BertModel(bert).eval(), Letters())
    with pytest.raises(InputError, match="gives no logits"):
        explain(headless, "abc")


def test_mistakes_have_a_hint():
    subject = gpt()
    for options, message in (
        ({"at": "z"}, "'z' is no token of the text"),
        ({"at": 99}, "has no token 99"),
        ({"answer": "a", "against": "a"}, "begin with the token 'a'"),
        ({"patch": "abc"}, "17 and 3 tokens"),
        ({"patch": TEXT}, "same answer"),
    ):
        with pytest.raises(InputError, match=message) as error:
            explain(subject, TEXT, **options)
        assert error.value.hint
    with pytest.raises(InputError, match="42 tokens, but gpt reads 41"):
        make_question(subject, "ab" * 21)
