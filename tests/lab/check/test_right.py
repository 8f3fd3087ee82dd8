"""No false alarm: right implementations in many styles, of torch, transformers and ours."""

import numpy as np
import pytest
import torch

import glasshead
from glasshead.attention import steps
from glasshead.attention.functional import attend
from glasshead.lab.check.report import check
from tests.lab.check.right import HEADER, RIGHT
from tests.lab.check.sources import load

QUICK = ("one head, lecture style", "cross-attention", "sinks", "built-in window")
OTHERS = {
    "sdpa": torch.nn.functional.scaled_dot_product_attention,
    "torch": torch.nn.MultiheadAttention,
    "torch, batch first": torch.nn.MultiheadAttention(24, 4, batch_first=True),
    "torch, bias_kv": torch.nn.MultiheadAttention(24, 4, batch_first=True, add_bias_kv=True),
    "torch's encoder layer": torch.nn.TransformerEncoderLayer(24, 4, batch_first=True),
    "torch's decoder layer": torch.nn.TransformerDecoderLayer(24, 4, batch_first=True),
    "ours, a function": attend,
    "ours, in NumPy": steps.attend,
    "ours, a module": glasshead.MultiHeadAttention,
}
FAMILIES = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma", "gpt_neox", "opt", "bert")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.deep) for n in RIGHT]
)
def test_a_right_implementation_is_not_blamed(name, tmp_path):
    what, source = RIGHT[name]
    if "jax" in source:
        pytest.importorskip("jax")
    report = check(load(HEADER + source, what, tmp_path))
    assert report.ok, [each.name for each in report.mistakes]
    assert report.compared


@pytest.mark.deep
@pytest.mark.parametrize("name", OTHERS)
def test_attention_of_libraries_is_not_blamed(name):
    report = check(OTHERS[name])
    assert report.ok, [each.name for each in report.mistakes]


@pytest.mark.deep
@pytest.mark.parametrize("family", FAMILIES)
def test_a_transformers_model_is_not_blamed(family):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 29,
             "intermediate_size": 40, "max_position_embeddings": 32, "pad_token_id": 0,
             "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
    if family in ("llama", "mistral", "qwen2", "qwen3", "gemma"):
        sizes["num_key_value_heads"] = 2
    if family in ("qwen3", "gemma"):
        sizes["head_dim"] = 6
    if family == "opt":
        sizes |= {"ffn_dim": 40, "word_embed_proj_dim": 24}
    config = transformers.AutoConfig.for_model(family, **sizes)
    kind = transformers.AutoModel if family == "bert" else transformers.AutoModelForCausalLM
    torch.manual_seed(0)
    report = check(kind.from_config(config))
    assert report.ok, [each.name for each in report.mistakes]
    assert "padding" in report.compared
    assert ("cache" in report.compared) == (family != "bert")


# Mistakes that were public: what they got wrong, re-created in a few lines.
PUBLIC = {
    "LLMs-from-scratch#1061, pytorch#118972, #21518: polarity": ("mask-inverted", '''
def f(q, k, v, mask=None):
    """mask: True = may attend."""
    s = q @ k.mT / q.size(-1) ** 0.5
    return (s if mask is None else s.masked_fill(mask, -torch.inf)).softmax(-1) @ v
'''),
    "pytorch#103082, torchtune#959, x-transformers#219: alignment": ("causal-start-aligned", '''
def f(q, k, v, is_causal=False):
    s = q @ k.mT / q.size(-1) ** 0.5
    if is_causal:
        s = s.masked_fill(torch.ones(s.shape[-2:]).tril() == 0, -torch.inf)
    return s.softmax(-1) @ v
'''),
    "pytorch#41508, #24816, #103749: empty rows": ("nan-empty-row", '''
def f(q, k, v, mask=None):
    """mask: True = may attend."""
    s = q @ k.mT / q.size(-1) ** 0.5
    return (s if mask is None else s.masked_fill(~mask, -torch.inf)).softmax(-1) @ v
'''),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_mistake_is_caught(name, tmp_path):
    mistake, source = PUBLIC[name]
    report = check(load(HEADER + source, "f", tmp_path))
    assert [each.name for each in report.findings] == [mistake]
    if report.counterexample is not None:
        assert not np.allclose(report.counterexample.got, report.counterexample.expected)
