"""Keras-like mutants: query, value, key; attention_mask 1 = attend; use_causal_mask. In torch."""

import math

import torch
from torch import nn

MUTANTS = {
    "KMaskFlipped": "mask-inverted",
    "KKeyValueSwapped": "kv-swapped",
    "KCausalIgnored": "causal-missing",
    "KCausalTopLeft": "causal-leaks-next",
    "KNoScale": "scale-missing",
    "KDropoutOn": "dropout-at-inference",
    "KReshapeHeads": "heads-split",
    "KSoftmaxAxis": "softmax-over-heads",
    "KUniformMasked": "mask-after-softmax",
    "KHeadsShared": "heads-mixed",
}


class KBase(nn.Module):
    def __init__(self, num_heads=3, key_dim=4, dropout=0.0, width=12):
        super().__init__()
        self.num_heads, self.key_dim, self.rate = num_heads, key_dim, dropout
        inner = num_heads * key_dim
        self.query_dense = nn.Linear(width, inner)
        self.key_dense = nn.Linear(width, inner)
        self.value_dense = nn.Linear(width, inner)
        self.output_dense = nn.Linear(inner, width)

    def heads(self, x):
        return x.reshape(x.shape[0], x.shape[1], self.num_heads, self.key_dim)

    def project(self, query, value, key):
        key = value if key is None else key
        return (
            self.heads(self.query_dense(query)),
            self.heads(self.key_dense(key)),
            self.heads(self.value_dense(value)),
        )

    def mask(self, s, attention_mask, use_causal_mask):
        if attention_mask is not None:
            s = s.masked_fill(~attention_mask.bool()[:, None], -1e9)
        if use_causal_mask:
            T, S = s.shape[-2:]
            s = s.masked_fill(~torch.ones(T, S, dtype=torch.bool).tril(S - T), -1e9)
        return s

    def finish(self, w, v):
        out = torch.einsum("bhqk,bkhd->bqhd", w, v)
        return self.output_dense(out.reshape(*out.shape[:2], -1))

    def forward(self, *args, **kw):
        return self.call(*args, **kw)


class KMaskFlipped(KBase):
    def call(self, query, value, key=None, attention_mask=None, use_causal_mask=False):
        q, k, v = self.project(query, value, key)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.key_dim)
        if attention_mask is not None:
            s = s + attention_mask[:, None].to(s) * -1e9
        return self.finish(self.mask(s, None, use_causal_mask).softmax(-1), v)


class KKeyValueSwapped(KBase):
    """call(query, key, value) in torch's order, but its users pass query, value, key."""

    def call(self, query, value, key, attention_mask=None, use_causal_mask=False):
        q, k, v = self.project(query, key, value)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.key_dim)
        return self.finish(self.mask(s, attention_mask, use_causal_mask).softmax(-1), v)


class KCausalIgnored(KBase):
    def call(self, query, value, key=None, attention_mask=None, use_causal_mask=False):
        q, k, v = self.project(query, value, key)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.key_dim)
        return self.finish(self.mask(s, attention_mask, False).softmax(-1), v)


class KCausalTopLeft(KBase):
    def call(self, query, value, key=None, attention_mask=None, use_causal_mask=False):
        q, k, v = self.project(query, value, key)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.key_dim)
        s = self.mask(s, attention_mask, False)
        if use_causal_mask:
            T, S = s.shape[-2:]
            s = s.masked_fill(torch.arange(S)[None] > torch.arange(T)[:, None] + 1, -1e9)
        return self.finish(s.softmax(-1), v)


class KNoScale(KBase):
    def call(self, query, value, key=None, attention_mask=None, use_causal_mask=False):
        q, k, v = self.project(query, value, key)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k)
        return self.finish(self.mask(s, attention_mask, use_causal_mask).softmax(-1), v)


class KDropoutOn(KBase):
    """training defaults to True."""

    def __init__(self, num_heads=3, key_dim=4, dropout=0.2, width=12):
        super().__init__(num_heads, key_dim, dropout, width)

    def call(
        self, query, value, key=None, attention_mask=None, use_causal_mask=False, training=True
    ):
        q, k, v = self.project(query, value, key)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.key_dim)
        w = self.mask(s, attention_mask, use_causal_mask).softmax(-1)
        w = torch.nn.functional.dropout(w, self.rate, training)
        return self.finish(w, v)


class KReshapeHeads(KBase):
    """(B, T, H*D) viewed as (B, H, T, D)."""

    def call(self, query, value, key=None, attention_mask=None, use_causal_mask=False):
        key = value if key is None else key

        def f(t):
            return t.reshape(t.shape[0], self.num_heads, -1, self.key_dim).transpose(1, 2)

        q, k, v = f(self.query_dense(query)), f(self.key_dense(key)), f(self.value_dense(value))
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.key_dim)
        return self.finish(self.mask(s, attention_mask, use_causal_mask).softmax(-1), v)


class KSoftmaxAxis(KBase):
    def call(self, query, value, key=None, attention_mask=None, use_causal_mask=False):
        q, k, v = self.project(query, value, key)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.key_dim)
        return self.finish(self.mask(s, attention_mask, use_causal_mask).softmax(1), v)


class KUniformMasked(KBase):
    """Multiplies the weights by the mask after softmax."""

    def call(self, query, value, key=None, attention_mask=None, use_causal_mask=False):
        q, k, v = self.project(query, value, key)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.key_dim)
        w = self.mask(s, None, use_causal_mask).softmax(-1)
        if attention_mask is not None:
            w = w * attention_mask[:, None].to(w)
        return self.finish(w, v)


class KHeadsShared(KBase):
    """All heads use the first head's keys."""

    def call(self, query, value, key=None, attention_mask=None, use_causal_mask=False):
        q, k, v = self.project(query, value, key)
        s = torch.einsum("bqhd,bkd->bhqk", q, k[:, :, 0]) / math.sqrt(self.key_dim)
        return self.finish(self.mask(s, attention_mask, use_causal_mask).softmax(-1), v)
