"""Right implementations in several styles, and edits that make each of them wrong."""

import importlib.util
import itertools
import sys
from pathlib import Path
from typing import Any

_COUNT = itertools.count()

FUNCTION = '''
import math
import torch
import torch.nn.functional as F

def attention(q, k, v, mask=None, causal=False, dropout_p=0.0):
    """Scaled dot-product attention. q: (B, H, T, D); k, v: (B, H, S, D).

    mask: bool, True = may attend.
    """
    T, S, D = q.size(-2), k.size(-2), q.size(-1)
    scores = q @ k.transpose(-2, -1)
    scores = scores / math.sqrt(D)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if causal:
        allowed = torch.tril(torch.ones(T, S, dtype=torch.bool), diagonal=S - T)
        scores = scores.masked_fill(~allowed, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    weights = F.dropout(weights, dropout_p)
    return weights @ v
'''
FUNCTION_EDITS = [
    ("scores = scores / math.sqrt(D)", "pass", "scale-missing"),
    ("/ math.sqrt(D)", "/ D", "scale-doubled"),
    ("/ math.sqrt(D)", "* math.sqrt(D)", "scale-multiplied"),
    ("/ math.sqrt(D)", "/ math.sqrt(S)", "scale-length"),
    ("/ math.sqrt(D)", "/ math.sqrt(D * q.size(1))", "scale-model-width"),
    ("/ math.sqrt(D)", "* 0.3", "scale-wrong"),
    ("~mask, float", "mask, float", "mask-inverted"),
    ('scores = scores.masked_fill(~mask, float("-inf"))', "scores.masked_fill(~mask, 0)",
     "mask-ignored"),
    ('scores.masked_fill(~mask, float("-inf"))', "scores * mask", "mask-multiplied"),
    ('scores.masked_fill(~mask, float("-inf"))', "scores + mask", "mask-added"),
    ('~mask, float("-inf")', "~mask, -3.5", "mask-fill-weak"),
    (", diagonal=S - T", "", "causal-start-aligned"),
    ("diagonal=S - T)", "diagonal=S - T + 1)", "causal-leaks-next"),
    ("diagonal=S - T)", "diagonal=S - T - 1)", "causal-strict"),
    ("~allowed, float", "allowed, float", "causal-inverted"),
    ("if causal:", "if False:", "causal-missing"),
    ("dim=-1)", "dim=-2)", "softmax-over-queries"),
    ("dim=-1)", "dim=1)", "softmax-over-heads"),
    ("dim=-1)", "dim=0)", "softmax-over-batch"),
    ("torch.softmax(scores, dim=-1)", "torch.softmax(torch.softmax(scores, -1), -1)",
     "softmax-twice"),
    ("return weights @ v", "return weights @ k", "values-from-keys"),
    ("F.dropout(weights, dropout_p)", "F.dropout(weights, 0.3)", "dropout-at-inference"),
    ("scores = q @ k", "scores = q.detach() @ k", "gradient-detached"),
    ("return weights @ v", "return weights.detach() @ v", "gradient-detached"),
]  # fmt: skip

MODULE = """
import math
import torch
from torch import nn

class CausalSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.1):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        B, T, C = x.shape
        q = self.q_proj(x).view(B, T, self.n_heads, self.d_head).transpose(1, 2)
        k = self.k_proj(x).view(B, T, self.n_heads, self.d_head).transpose(1, 2)
        v = self.v_proj(x).view(B, T, self.n_heads, self.d_head).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.d_head)
        future = torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=1)
        scores = scores.masked_fill(future, float("-inf"))
        weights = self.drop(scores.softmax(dim=-1))
        y = (weights @ v).transpose(1, 2).reshape(B, T, C)
        return self.out(y)
"""
MODULE_EDITS = [
    ("math.sqrt(self.d_head)", "math.sqrt(C)", "scale-model-width"),
    ("/ math.sqrt(self.d_head)", "", "scale-missing"),
    ("diagonal=1)", "diagonal=0)", "causal-strict"),
    ("diagonal=1)", "diagonal=2)", "causal-leaks-next"),
    ("torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=1)",
     "torch.tril(torch.ones(T, T, dtype=torch.bool))", "causal-inverted"),
    ("scores = scores.masked_fill", "scores.masked_fill", "causal-missing"),
    ("view(B, T, self.n_heads, self.d_head).transpose(1, 2)",
     "view(B, self.n_heads, T, self.d_head)", "heads-split"),
    (".transpose(1, 2).reshape(B, T, C)", ".reshape(B, T, C)", "heads-merge"),
    (".transpose(1, 2).reshape(B, T, C)", ".permute(0, 2, 3, 1).reshape(B, T, C)",
     "heads-merge-order"),
    (".transpose(1, 2).reshape(B, T, C)", ".transpose(1, 2).view(B, T, C)", "not-contiguous"),
    ("dim=-1)", "dim=1)", "softmax-over-heads"),
    ("self.v_proj(x)", "x", "values-not-projected"),
    ("self.v_proj(x)", "self.k_proj(x)", "values-from-keys"),
    ("return self.out(y)", "return y", "output-not-projected"),
    ("q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)", "qk-swapped"),
    ("self.drop(scores.softmax(dim=-1))", "scores.softmax(dim=-1)", "dropout-missing"),
    ("self.drop(scores.softmax(dim=-1))", "self.drop(scores).softmax(dim=-1)",
     "dropout-on-scores"),
    ("self.drop(scores.softmax(dim=-1))",
     "nn.functional.dropout(scores.softmax(dim=-1), self.drop.p)", "dropout-at-inference"),
]  # fmt: skip

NUMPY = '''
import numpy as np

def multi_head(x, W_q, W_k, W_v, W_o, n_heads, pad_mask=None):
    """x: (B, T, C). pad_mask: (B, T), True marks padding."""
    B, T, C = x.shape
    d = C // n_heads
    def split(y):
        return y.reshape(B, T, n_heads, d).transpose(0, 2, 1, 3)
    q, k, v = split(x @ W_q), split(x @ W_k), split(x @ W_v)
    s = np.einsum("bhtd,bhsd->bhts", q, k) / np.sqrt(d)
    if pad_mask is not None:
        s = np.where(pad_mask[:, None, None, :], -1e9, s)
    s = s - s.max(axis=-1, keepdims=True)
    w = np.exp(s)
    w = w / w.sum(axis=-1, keepdims=True)
    y = np.einsum("bhts,bhsd->bthd", w, v)
    return y.reshape(B, T, C) @ W_o
'''
NUMPY_EDITS = [
    ("/ np.sqrt(d)", "", "scale-missing"),
    ("pad_mask[:, None, None, :]", "pad_mask[:, None, :, None]", "padding-on-queries"),
    ("-1e9, s)", "s, -1e9)", "mask-inverted"),
    ("w.sum(axis=-1", "w.sum(axis=-2", "softmax-over-queries"),
    ("reshape(B, T, n_heads, d).transpose(0, 2, 1, 3)", "reshape(B, n_heads, T, d)",
     "heads-split"),
    ("@ W_o", "", "output-not-projected"),
    ("bhts,bhsd->bthd", "bhts,bhsd->bhtd", "heads-merge"),
    ("split(x @ W_v)", "split(x)", "values-not-projected"),
    ("s = s - s.max(axis=-1, keepdims=True)", "pass", "softmax-overflow"),
]  # fmt: skip

KERAS = '''
import numpy as np

class MultiHeadAttention:
    """Like the layer of Keras: query (B, T, C), value and key (B, S, C)."""

    def __init__(self, num_heads, key_dim, seed=0):
        self.num_heads, self.key_dim = num_heads, key_dim
        self.rng = np.random.default_rng(seed)

    def build(self, shape):
        C = shape[-1]
        draw = lambda *s: self.rng.normal(0, 0.3, s)
        self.query_kernel = draw(C, self.num_heads, self.key_dim)
        self.key_kernel = draw(C, self.num_heads, self.key_dim)
        self.value_kernel = draw(C, self.num_heads, self.key_dim)
        self.output_kernel = draw(self.num_heads, self.key_dim, C)

    def __call__(self, query, value, key=None, attention_mask=None, use_causal_mask=False):
        key = value if key is None else key
        q = np.einsum("btc,chd->bthd", query, self.query_kernel)
        k = np.einsum("bsc,chd->bshd", key, self.key_kernel)
        v = np.einsum("bsc,chd->bshd", value, self.value_kernel)
        scores = np.einsum("bthd,bshd->bhts", q, k) / np.sqrt(self.key_dim)
        if attention_mask is not None:
            scores = np.where(attention_mask[:, None], scores, -1e30)
        if use_causal_mask:
            T, S = scores.shape[-2:]
            scores = np.where(np.arange(S) <= np.arange(T)[:, None] + S - T, scores, -1e30)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        weights = scores / scores.sum(-1, keepdims=True)
        return np.einsum("bhts,bshd,hdc->btc", weights, v, self.output_kernel)
'''
KERAS_EDITS = [
    ("/ np.sqrt(self.key_dim)", "", "scale-missing"),
    ("attention_mask[:, None], scores, -1e30", "attention_mask[:, None], -1e30, scores",
     "mask-inverted"),
    ("+ S - T, scores", ", scores", "causal-start-aligned"),
    ('"bsc,chd->bshd", value, self.value_kernel', '"bsc,chd->bshd", value, self.key_kernel',
     "values-from-keys"),
    ("scores.sum(-1, keepdims=True)", "scores.sum(1, keepdims=True)", "softmax-over-heads"),
]  # fmt: skip

STYLES: dict[str, tuple[str, str, list[tuple[str, str, str]]]] = {
    "function": (FUNCTION, "attention", FUNCTION_EDITS),
    "module": (MODULE, "CausalSelfAttention", MODULE_EDITS),
    "numpy": (NUMPY, "multi_head", NUMPY_EDITS),
    "keras": (KERAS, "MultiHeadAttention", KERAS_EDITS),
}
MUTANTS = [(style, n) for style, (_, _, edits) in STYLES.items() for n in range(len(edits))]


def load(source: str, name: str, folder: Path) -> Any:
    """Write a source to a file of its own and import it."""
    path = folder / f"written_{next(_COUNT)}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return getattr(module, name)
