"""Scores over long texts, against the published procedures written anew on weights given out."""

import pytest
import torch

from glasshead.errors import InputError
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.observe.recording import observing
from glasshead.roles.length import (
    overlap,
    received_scores,
    retrieval_scores,
    window_errors,
    windowed_scores,
)
from tests.roles.circuits import INDUCTION, TOKENIZER, V, induction_model

tr = pytest.importorskip("transformers")


def llama():
    """A model with preferences: sharp enough that heads choose among keys."""
    torch.manual_seed(2)
    config = tr.LlamaConfig(
        vocab_size=V, hidden_size=48, intermediate_size=53, num_attention_heads=6,
        num_key_value_heads=3, num_hidden_layers=3, max_position_embeddings=128,
        attn_implementation="eager", bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model = tr.LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


@torch.no_grad()
def published_retrieval(model, prompt, needle, n_new):
    """Decode step by step; count a head when the token it looks at most is the one that is given.

    As in the paper: one step at a time with eager weights, and the set of needle tokens found.
    """
    ids, layers = list(prompt), model.config.num_hidden_layers
    hits = [[set() for _ in range(model.config.num_attention_heads)] for _ in range(layers)]
    for _ in range(n_new):
        out = model(torch.tensor([ids]), output_attentions=True, use_cache=False)
        given = int(out.logits[0, -1].argmax())
        for layer, weights in enumerate(out.attentions):
            for head, row in enumerate(weights[0, :, -1]):
                key = int(row.topk(1).indices[0])
                if needle.start <= key < needle.stop and ids[key] == given:
                    hits[layer][head].add(given)
        ids.append(given)
    size = len({prompt[i] for i in needle})
    return ids, torch.tensor([[len(one) / size for one in layer] for layer in hits])


def ours(model, run, ids, n, needle):
    ids = torch.tensor(ids)
    with torch.no_grad(), observing(model, keep="statistics", ids=ids[None]) as trace:
        run(ids[None])
    rows = range(n - 1, len(ids) - 1)
    return trace, retrieval_scores(trace, rows, needle, ids, ids[n:].tolist())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_retrieval_scores_are_those_of_the_published_procedure(seed):
    torch.manual_seed(seed)
    model, n, needle = llama(), 53, range(7, 31)
    prompt = torch.randint(0, V, (n,)).tolist()
    ids, expected = published_retrieval(model, prompt, needle, n_new=29)
    model.set_attn_implementation("sdpa")
    _, found = ours(model, lambda x: model(x, use_cache=False), ids, n, needle)
    assert expected.max() > 0
    torch.testing.assert_close(found, expected)


def test_the_planted_head_retrieves():
    model = induction_model()
    needle = range(20, 27)
    prompt = TOKENIZER.encode_ids("0123456789:;<=>?@ABCDEFGHIJKLMN").tolist()
    answer = prompt[needle.start : needle.stop]
    ids = [*prompt, prompt[needle.start - 1], *answer]
    _, found = ours(model, model.features, ids, len(prompt) + 1, needle)
    assert found[INDUCTION] == 1
    assert (found.flatten().topk(2).values[1] < 0.5).all()


@pytest.fixture
def trace():
    torch.manual_seed(4)
    model = GPT(GPTConfig(vocab_size=V, max_len=128, n_layers=2, n_heads=3, d_model=36)).eval()
    for block in model.blocks:
        torch.nn.init.normal_(block.attention.qkv.weight, std=0.7)
    ids = torch.randint(0, V, (1, 101))
    with torch.no_grad(), observing(model) as found:
        model(ids)
    return found


def test_received_and_windowed_scores_are_sums_of_columns(trace):
    weights = torch.stack([trace.weights(layer)[0] for layer in (0, 1)])
    torch.testing.assert_close(received_scores(trace), weights.sum(-2), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        windowed_scores(trace, 17), weights[:, :, -17:].sum(-2), rtol=1e-4, atol=1e-5
    )


def test_a_window_of_all_queries_loses_nothing_and_a_short_one_something(trace):
    truth = received_scores(trace)
    assert (overlap(windowed_scores(trace, 101), truth, 11) == 1).all()
    errors = window_errors(trace, 13)
    assert ((0 <= errors["overlap"]) & (errors["overlap"] <= 1)).all()
    assert (errors["lost"] >= -1e-6).all()
    assert errors["lost"].max() > 0
    weights = trace.weights(1)[0, 2].double()
    all_rows, last = weights.sum(0)[:88], weights[-13:].sum(0)[:88]
    keep = set(last.argsort(descending=True)[:8].tolist())
    best = all_rows.argsort(descending=True)[:8].tolist()
    lost = (all_rows[best].sum() - all_rows[list(keep)].sum()) / all_rows.sum()
    assert errors["lost"][1, 2].item() == pytest.approx(lost.item(), abs=1e-5)
    assert errors["overlap"][1, 2].item() == pytest.approx(len(keep & set(best)) / 8)


def test_mistakes_are_named(trace):
    with pytest.raises(InputError, match="must be at least 1"):
        windowed_scores(trace, 0)
    with pytest.raises(InputError, match="leaves no keys"):
        window_errors(trace, 101)
    with pytest.raises(InputError, match="2 rows and 1 answers"):
        retrieval_scores(trace, [1, 2], range(1), torch.zeros(9), [1])
