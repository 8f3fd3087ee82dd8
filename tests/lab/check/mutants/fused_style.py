"""Attention on SDPA or FlexAttention, rotary positions and caches, each with one mistake."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

MUTANTS = {
    "sdpa_float_mask": "mask-added",
    "sdpa_inverted": "mask-inverted",
    "sdpa_causal_with_cache": "causal-start-aligned",
    "sdpa_wrong_layout": "heads-for-positions",
    "sdpa_scale_one": "scale-missing",
    "flex_sees_future": "causal-inverted",
    "flex_strict": "causal-strict",
    "RotaryQueriesOnly": "rotary-one-side",
    "RotaryMixedConvention": "rotary-mixed",
    "RotaryOppositeSigns": "rotary-opposite",
    "CacheOverwrites": "cache-order",
    "CacheForgetsPositions": "rotary-not-offset",
    "RotaryAfterHeads": "rotary-axis",
    "GroupedTiled": "gqa-order",
    "sdpa_softcap_missing_mask": "softcap-order",
}


def sdpa_float_mask(q, k, v, mask=None):
    """Attend. mask: 1 where a query may look, 0 where not."""
    if mask is not None:
        mask = mask.to(q.dtype)  # a float mask is added, not applied
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def sdpa_inverted(q, k, v, attn_mask=None):
    """Attend. attn_mask: True where a key may be looked at."""
    return F.scaled_dot_product_attention(q, k, v, None if attn_mask is None else ~attn_mask)


def sdpa_causal_with_cache(q, k, v):
    """Return causal attention; k and v include the cache, so S >= T."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def sdpa_wrong_layout(q, k, v):
    """Attend over (B, T, H, D), the layout of flash attention."""
    return F.scaled_dot_product_attention(q, k, v)


def sdpa_scale_one(q, k, v, causal=True):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=1.0)


def flex_sees_future(q, k, v):
    """Return causal attention."""
    T, S = q.shape[-2], k.shape[-2]
    block = create_block_mask(lambda b, h, i, j: i <= j, None, None, T, S, device="cpu")
    return flex_attention(q, k, v, block_mask=block)


def flex_strict(q, k, v):
    """Return causal attention."""

    def score_mod(score, b, h, i, j):
        return torch.where(i > j, score, -1e6)

    return flex_attention(q, k, v, score_mod=score_mod)


def _angles(T, d, start=0, base=10000.0):
    freq = base ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    return (torch.arange(start, start + T, dtype=torch.float64)[:, None] * freq).float()


def _halves(x, start=0):
    a = _angles(x.shape[-2], x.shape[-1], start).to(x.dtype)
    cos, sin = torch.cat((a, a), -1).cos(), torch.cat((a, a), -1).sin()
    x1, x2 = x.chunk(2, -1)
    return x * cos + torch.cat((-x2, x1), -1) * sin


def _pairs(x, start=0):
    a = _angles(x.shape[-2], x.shape[-1], start).to(x.dtype)
    x1, x2 = x[..., 0::2], x[..., 1::2]
    return torch.stack((x1 * a.cos() - x2 * a.sin(), x1 * a.sin() + x2 * a.cos()), -1).flatten(-2)


class _Rotary(nn.Module):
    def __init__(self, dim=24, n_heads=3, n_kv_heads=None):
        super().__init__()
        self.h, self.d, self.kv = n_heads, dim // n_heads, n_kv_heads or n_heads
        self.wq = nn.Linear(dim, n_heads * self.d, bias=False)
        self.wk = nn.Linear(dim, self.kv * self.d, bias=False)
        self.wv = nn.Linear(dim, self.kv * self.d, bias=False)
        self.wo = nn.Linear(n_heads * self.d, dim, bias=False)

    def parts(self, x):
        B, T, _ = x.shape
        return (
            self.wq(x).view(B, T, self.h, self.d).transpose(1, 2),
            self.wk(x).view(B, T, self.kv, self.d).transpose(1, 2),
            self.wv(x).view(B, T, self.kv, self.d).transpose(1, 2),
        )

    def out(self, y):
        return self.wo(y.transpose(1, 2).flatten(2))


class RotaryQueriesOnly(_Rotary):
    """Causal self-attention with rotary positions."""

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.out(F.scaled_dot_product_attention(_halves(q), k, v, is_causal=True))


class RotaryMixedConvention(_Rotary):
    """Causal self-attention with rotary positions."""

    def forward(self, x):
        q, k, v = self.parts(x)
        return self.out(F.scaled_dot_product_attention(_halves(q), _pairs(k), v, is_causal=True))


class RotaryOppositeSigns(_Rotary):
    """Causal self-attention with rotary positions."""

    def forward(self, x):
        q, k, v = self.parts(x)
        a = _angles(x.shape[1], self.d).to(x.dtype)
        a = torch.cat((a, a), -1)
        k1, k2 = k.chunk(2, -1)
        k = k * a.cos() + torch.cat((k2, -k1), -1) * a.sin()  # turns the other way
        return self.out(F.scaled_dot_product_attention(_halves(q), k, v, is_causal=True))


class CacheOverwrites(_Rotary):
    """Causal self-attention with a cache: returns (out, (k, v))."""

    def forward(self, x, past=None):
        q, k, v = self.parts(x)
        if past is not None:
            k, v = torch.cat((k, past[0]), 2), torch.cat((v, past[1]), 2)  # new before old
        T, S = q.shape[2], k.shape[2]
        allowed = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        s = (q @ k.mT / math.sqrt(self.d)).masked_fill(~allowed, -torch.inf)
        return self.out(s.softmax(-1) @ v), (k, v)


class CacheForgetsPositions(_Rotary):
    """Causal self-attention with rotary positions and a cache: returns (out, (k, v))."""

    def forward(self, x, past=None):
        q, k, v = self.parts(x)
        q, k = _halves(q), _halves(k)  # the positions start at 0 again
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        T, S = q.shape[2], k.shape[2]
        allowed = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        s = (q @ k.mT / math.sqrt(self.d)).masked_fill(~allowed, -torch.inf)
        return self.out(s.softmax(-1) @ v), (k, v)


class RotaryAfterHeads(_Rotary):
    """Causal self-attention with rotary positions; turned along the heads, not along time."""

    def forward(self, x):
        q, k, v = self.parts(x)
        q, k = (_halves(t.transpose(1, 2)).transpose(1, 2) for t in (q, k))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class GroupedTiled(_Rotary):
    """Causal self-attention with fewer key heads than query heads."""

    def __init__(self, dim=32, n_heads=4, n_kv_heads=2):
        super().__init__(dim, n_heads, n_kv_heads)

    def forward(self, x):
        q, k, v = self.parts(x)
        k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)  # should be repeat_interleave
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))


def sdpa_softcap_missing_mask(q, k, v, softcap=5.0):
    """Return causal attention with scores limited by softcap · tanh(score / softcap)."""
    T = q.shape[-2]
    s = q @ k.mT / math.sqrt(q.shape[-1])
    s = s.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
    s = softcap * torch.tanh(s / softcap)  # -inf becomes -softcap
    return s.softmax(-1) @ v
