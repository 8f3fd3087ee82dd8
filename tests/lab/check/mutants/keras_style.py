"""Layers in the manner of Keras: call(query, value, key, attention_mask), (B, T, C), einsum inside.

Written with torch, since Keras is not installed.
"""

import torch
from torch import nn

MUTANTS = {
    "ValueKeyOrder": "kv-swapped",
    "NoScaleLayer": "scale-missing",
    "MaskTimesScores": "mask-multiplied",
    "MaskFlipped": "mask-inverted",
    "WrongSoftmaxAxes": "softmax-over-heads",
    "PerQueryMask": "padding-on-queries",
    "HeadsWidthSwapped": "heads-split-differs",
    "CausalUpper": "causal-inverted",
    "DropoutAlways": "dropout-at-inference",
    "LargeNegativeTwice": "nan-empty-row",
}


class KerasLike(nn.Module):
    """Multi-head attention; attention_mask (B, T, S): True or 1 where a query may attend."""

    def __init__(self, num_heads=3, key_dim=8, width=24, seed=0):
        super().__init__()
        self.num_heads, self.key_dim = num_heads, key_dim
        self.query_dense = nn.Linear(width, num_heads * key_dim)
        self.key_dense = nn.Linear(width, num_heads * key_dim)
        self.value_dense = nn.Linear(width, num_heads * key_dim)
        self.output_dense = nn.Linear(num_heads * key_dim, width)

    def heads(self, x):
        return x.unflatten(-1, (self.num_heads, self.key_dim))

    def scores(self, q, k):
        return torch.einsum("BTNH,BSNH->BNTS", q * self.key_dim**-0.5, k)

    def masked_softmax(self, scores, attention_mask):
        if attention_mask is not None:
            scores = torch.where(attention_mask[:, None] > 0, scores, -3e4)
        return scores.softmax(-1)

    def call(self, query, value, key=None, attention_mask=None):
        q = self.heads(self.query_dense(query))
        k = self.heads(self.key_dense(value if key is None else key))
        v = self.heads(self.value_dense(value))
        probs = self.masked_softmax(self.scores(q, k), attention_mask)
        return self.output_dense(torch.einsum("BNTS,BSNH->BTNH", probs, v).flatten(2))

    def forward(self, query, value, key=None, attention_mask=None):
        return self.call(query, value, key, attention_mask)


class ValueKeyOrder(KerasLike):
    """call(query, value, key): key and value are mixed up inside."""

    def call(self, query, value, key=None, attention_mask=None):
        key = value if key is None else key
        q, k = self.heads(self.query_dense(query)), self.heads(self.key_dense(value))
        v = self.heads(self.value_dense(key))
        probs = self.masked_softmax(self.scores(q, k), attention_mask)
        return self.output_dense(torch.einsum("BNTS,BSNH->BTNH", probs, v).flatten(2))


class NoScaleLayer(KerasLike):
    def scores(self, q, k):
        return torch.einsum("BTNH,BSNH->BNTS", q, k)


class MaskTimesScores(KerasLike):
    def masked_softmax(self, scores, attention_mask):
        if attention_mask is not None:
            scores = scores * attention_mask[:, None]
        return scores.softmax(-1)


class MaskFlipped(KerasLike):
    def masked_softmax(self, scores, attention_mask):
        if attention_mask is not None:
            scores = scores + attention_mask[:, None].to(scores.dtype) * -1e9
        return scores.softmax(-1)


class WrongSoftmaxAxes(KerasLike):
    def masked_softmax(self, scores, attention_mask):
        if attention_mask is not None:
            scores = torch.where(attention_mask[:, None] > 0, scores, -3e4)
        return scores.softmax(1)


class PerQueryMask(KerasLike):
    """Self-attention; attention_mask (B, T): 1 for tokens, 0 for padding."""

    def masked_softmax(self, scores, attention_mask):
        if attention_mask is not None:
            scores = torch.where(attention_mask[:, None, :, None] > 0, scores, -3e4)
        return scores.softmax(-1)

    def forward(self, x, attention_mask=None):
        return self.call(x, x, None, attention_mask)


class HeadsWidthSwapped(KerasLike):
    def heads(self, x):
        return x.unflatten(-1, (self.key_dim, self.num_heads)).transpose(-1, -2)

    def call(self, query, value, key=None, attention_mask=None):
        q = self.heads(self.query_dense(query))
        k = super().heads(self.key_dense(value if key is None else key))
        v = super().heads(self.value_dense(value))
        probs = self.masked_softmax(self.scores(q, k), attention_mask)
        return self.output_dense(torch.einsum("BNTS,BSNH->BTNH", probs, v).flatten(2))


class CausalUpper(KerasLike):
    """Causal self-attention."""

    def forward(self, x):
        T = x.shape[1]
        mask = torch.ones(x.shape[0], T, T).triu()
        return self.call(x, x, None, mask)


class DropoutAlways(KerasLike):
    def masked_softmax(self, scores, attention_mask):
        probs = super().masked_softmax(scores, attention_mask)
        return torch.nn.functional.dropout(probs, 0.1, training=True)


class LargeNegativeTwice(KerasLike):
    def masked_softmax(self, scores, attention_mask):
        if attention_mask is not None:
            scores = torch.where(attention_mask[:, None] > 0, scores, -torch.inf)
        return scores.softmax(-1)
