"""nn.Module mutants, from (B, T, C) to (B, T, C)."""

import math

import torch
import torch.nn.functional as F
from torch import nn

MUTANTS = {
    "MViewHeads": "heads-split",
    "MMergeNoTranspose": "heads-merge",
    "MScaleByModel": "scale-model-width",
    "MNoScale": "scale-missing",
    "CausalSelfAttention": "causal-missing",
    "MInvertedCausal": "causal-inverted",
    "MHidesSelf": "causal-strict",
    "MSdpaDropout": "dropout-at-inference",
    "MBatchMixed": "heads-batch-mixed",
    "MBatchAxis": "heads-batch-mixed",
    "MUnusedQuery": "queries-not-projected",
    "MRopeMixed": "rotary-mixed",
    "MRopeOnlyQuery": "rotary-one-side",
    "MRopeHalfTables": "rotary-mixed",
    "MAlibiSign": "alibi-sign",
    "MGqaTiled": "gqa-order",
    "MCrossSwapped": "cross-swapped",
    "MCrossIgnoresMemory": "cross-from-x",
    "MCacheKept": "state-kept",
    "MCacheTopLeft": "causal-start-aligned",
    "MCacheOrder": "cache-order",
    "MRopeCacheZero": "rotary-not-offset",
    "MHeadsAveraged": "heads-averaged",
    "Head": "scale-model-width",
    "MHfInverted": "mask-inverted",
}


class Base(nn.Module):
    def __init__(self, d_model=12, n_heads=3):
        super().__init__()
        self.n_heads = n_heads
        self.d_head = d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.o_proj = nn.Linear(d_model, d_model)

    def split(self, x):
        B, T, _C = x.shape
        return x.view(B, T, self.n_heads, self.d_head).transpose(1, 2)

    def merge(self, x):
        B, H, T, D = x.shape
        return x.transpose(1, 2).reshape(B, T, H * D)


class MViewHeads(Base):
    def split(self, x):
        B, T, _C = x.shape
        return x.view(B, self.n_heads, T, self.d_head)

    def forward(self, x):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        w = (q @ k.mT / math.sqrt(self.d_head)).softmax(-1)
        return self.o_proj(self.merge(w @ v))


class MMergeNoTranspose(Base):
    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        w = (q @ k.mT / math.sqrt(self.d_head)).softmax(-1)
        return self.o_proj((w @ v).reshape(B, T, C))


class MScaleByModel(Base):
    def forward(self, x):
        C = x.size(-1)
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        w = (q @ k.mT * C**-0.5).softmax(-1)
        return self.o_proj(self.merge(w @ v))


class MNoScale(Base):
    def forward(self, x):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        return self.o_proj(self.merge((q @ k.mT).softmax(-1) @ v))


class CausalSelfAttention(Base):
    """The buffer is there, and is never used."""

    def __init__(self, d_model=12, n_heads=3, block_size=64):
        super().__init__(d_model, n_heads)
        self.register_buffer("mask", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        w = (q @ k.mT / math.sqrt(self.d_head)).softmax(-1)
        return self.o_proj(self.merge(w @ v))


class MInvertedCausal(Base):
    def forward(self, x):
        T = x.size(1)
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        s = q @ k.mT / math.sqrt(self.d_head)
        mask = torch.tril(torch.ones(T, T, device=x.device)).bool()
        w = s.masked_fill(mask, torch.finfo(s.dtype).min).softmax(-1)
        return self.o_proj(self.merge(w @ v))


class MHidesSelf(Base):
    def forward(self, x):
        T = x.size(1)
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        s = q @ k.mT / math.sqrt(self.d_head)
        mask = torch.triu(torch.ones(T, T), diagonal=0).bool()
        w = s.masked_fill(mask, -1e9).softmax(-1)
        return self.o_proj(self.merge(w @ v))


class MSdpaDropout(Base):
    def __init__(self, d_model=12, n_heads=3, dropout=0.1):
        super().__init__(d_model, n_heads)
        self.p = dropout

    def forward(self, x):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p, is_causal=True)
        return self.o_proj(self.merge(y))


class MBatchMixed(Base):
    """Heads folded into the batch in one order and unfolded in the other."""

    def forward(self, x):
        B, T, C = x.shape

        def f(t):
            return self.split(t).reshape(B * self.n_heads, T, self.d_head)

        q, k, v = f(self.q_proj(x)), f(self.k_proj(x)), f(self.v_proj(x))
        y = (q @ k.mT / math.sqrt(self.d_head)).softmax(-1) @ v
        y = y.view(self.n_heads, B, T, self.d_head).permute(1, 2, 0, 3).reshape(B, T, C)
        return self.o_proj(y)


class MBatchAxis(nn.Module):
    """Attends over the batch axis: nn.MultiheadAttention without batch_first."""

    def __init__(self, d_model=12, n_heads=3):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, n_heads)

    def forward(self, x):
        """x: (B, T, C)."""
        return self.attn(x, x, x, need_weights=False)[0]


class MUnusedQuery(Base):
    def forward(self, x):
        q, k, v = self.split(x), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        w = (q @ k.mT / math.sqrt(self.d_head)).softmax(-1)
        return self.o_proj(self.merge(w @ v))


def halves(x, base=10000.0, start=0):
    T, D = x.shape[-2:]
    f = base ** (-torch.arange(0, D, 2, dtype=x.dtype) / D)
    a = (torch.arange(T, dtype=x.dtype) + start)[:, None] * f
    c, s = torch.cat([a, a], -1).cos(), torch.cat([a, a], -1).sin()
    r = torch.cat([-x[..., D // 2 :], x[..., : D // 2]], -1)
    return x * c + r * s


def pairs(x, base=10000.0):
    T, D = x.shape[-2:]
    f = base ** (-torch.arange(0, D, 2, dtype=x.dtype) / D)
    a = torch.arange(T, dtype=x.dtype)[:, None] * f
    c, s = a.cos(), a.sin()
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack([x1 * c - x2 * s, x1 * s + x2 * c], -1).flatten(-2)


class Rope(Base):
    rope_q = staticmethod(halves)
    rope_k = staticmethod(halves)

    def forward(self, x):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        q, k = self.rope_q(q), self.rope_k(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(self.merge(y))


class MRopeMixed(Rope):
    rope_k = staticmethod(pairs)


class MRopeOnlyQuery(Rope):
    rope_k = staticmethod(lambda x: x)


def halves_on_pairs(x):
    """cos and sin repeated per pair, rotation by halves."""
    T, D = x.shape[-2:]
    f = 10000.0 ** (-torch.arange(0, D, 2, dtype=x.dtype) / D)
    a = (torch.arange(T, dtype=x.dtype)[:, None] * f).repeat_interleave(2, -1)
    r = torch.cat([-x[..., D // 2 :], x[..., : D // 2]], -1)
    return x * a.cos() + r * a.sin()


class MRopeHalfTables(Rope):
    rope_q = staticmethod(halves_on_pairs)
    rope_k = staticmethod(halves_on_pairs)


class MAlibiSign(Base):
    def forward(self, x):
        T = x.size(1)
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        s = q @ k.mT / math.sqrt(self.d_head)
        slopes = 2.0 ** (-8 * torch.arange(1, self.n_heads + 1) / self.n_heads)
        i = torch.arange(T)
        dist = i[:, None] - i[None, :]
        s = s + (slopes[:, None, None] * dist).to(s)
        s = s.masked_fill(dist < 0, float("-inf"))
        return self.o_proj(self.merge(s.softmax(-1) @ v))


class MGqaTiled(nn.Module):
    def __init__(self, d_model=16, n_heads=4, n_kv_heads=2):
        super().__init__()
        self.h, self.g, self.d = n_heads, n_kv_heads, d_model // n_heads
        self.wq = nn.Linear(d_model, n_heads * self.d, bias=False)
        self.wk = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.wv = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.wo = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q = self.wq(x).view(B, T, self.h, self.d).transpose(1, 2)
        k = self.wk(x).view(B, T, self.g, self.d).transpose(1, 2).repeat(1, self.h // self.g, 1, 1)
        v = self.wv(x).view(B, T, self.g, self.d).transpose(1, 2)
        v = v.repeat_interleave(self.h // self.g, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(B, T, C))


class MCrossSwapped(Base):
    """Keys from the memory, values from the decoder's own stream where it is long enough."""

    def forward(self, x, memory):
        q = self.split(self.q_proj(memory))
        k, v = self.split(self.k_proj(x)), self.split(self.v_proj(x))
        w = (q @ k.mT / math.sqrt(self.d_head)).softmax(-1)
        return self.o_proj(self.merge(w @ v))


class MCrossIgnoresMemory(Base):
    def forward(self, x, memory):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        w = (q @ k.mT / math.sqrt(self.d_head)).softmax(-1)
        return self.o_proj(self.merge(w @ v))


class MCacheKept(Base):
    """Keeps its keys and values between calls, and is never cleared."""

    def __init__(self, d_model=12, n_heads=3):
        super().__init__(d_model, n_heads)
        self.k_cache = self.v_cache = None

    def forward(self, x):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        if self.k_cache is not None and self.k_cache.size(0) == k.size(0):
            k, v = torch.cat([self.k_cache, k], 2), torch.cat([self.v_cache, v], 2)
        self.k_cache, self.v_cache = k.detach(), v.detach()
        T, S = q.size(2), k.size(2)
        keep = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        return self.o_proj(self.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=keep)))


class MCacheTopLeft(Base):
    """past: (k, v) or None; returns out and the new past. is_causal with a past is top-left."""

    def forward(self, x, past=None):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(self.merge(y)), (k, v)


class MCacheOrder(Base):
    """The new key is put before the old ones."""

    def forward(self, x, past_kv=None):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        if past_kv is not None:
            k, v = torch.cat([k, past_kv[0]], 2), torch.cat([v, past_kv[1]], 2)
        T, S = q.size(2), k.size(2)
        keep = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.o_proj(self.merge(y)), (k, v)


class MRopeCacheZero(Base):
    """Rotary positions start at 0 again for new tokens."""

    def forward(self, x, past_kv=None):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        q, k = halves(q), halves(k)
        if past_kv is not None:
            k, v = torch.cat([past_kv[0], k], 2), torch.cat([past_kv[1], v], 2)
        T, S = q.size(2), k.size(2)
        keep = torch.ones(T, S, dtype=torch.bool).tril(S - T)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.o_proj(self.merge(y)), (k, v)


class MHeadsAveraged(Base):
    def forward(self, x):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        w = (q @ k.mT / math.sqrt(self.d_head)).softmax(-1).mean(1, keepdim=True)
        return self.o_proj(self.merge(w @ v))


class Head(nn.Module):
    """One head of a ladder; its mask is of the whole block, sliced wrong."""

    def __init__(self, n_embd=12, head_size=5, block_size=8):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        _B, T, C = x.shape
        k, q, v = self.key(x), self.query(x), self.value(x)
        wei = q @ k.transpose(-2, -1) * C**-0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return F.softmax(wei, dim=-1) @ v


class MHfInverted(Base):
    """attention_mask as transformers has it: 1 = a token, 0 = padding."""

    def forward(self, hidden_states, attention_mask=None):
        x = hidden_states
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        s = q @ k.mT / math.sqrt(self.d_head)
        if attention_mask is not None:
            s = s.masked_fill(attention_mask[:, None, None, :].bool(), torch.finfo(s.dtype).min)
        w = s.softmax(-1)
        return self.o_proj(self.merge(w @ v)), w
