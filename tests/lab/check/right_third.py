"""Right attentions of a third writer that were blamed, or could not be called."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

RIGHT = (
    "sink_attention",
    "cosine_attention",
    "sdpa_with_flag",
    "relative_attention",
    "rope_attention",
    "loop_attention",
    "NarrowMemory",
    "StaticRotaryCache",
    "PreNormBlock",
    "PostNormBlock",
    "SmallGPT",
)


def sink_attention(q, k, v, sinks):
    """Each head has a learned sink logit that joins the softmax and is then dropped.

    q: (B, H, T, D), k, v: (B, H, S, D), sinks: (H,)
    """
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    col = sinks.reshape(1, -1, 1, 1).expand(s.shape[0], -1, s.shape[2], 1)
    p = torch.cat([s, col], dim=-1).softmax(dim=-1)
    return p[..., :-1] @ v


def cosine_attention(q, k, v, temperature=8.0):
    """q and k are scaled to unit length per token, logits are temperature * cosine."""
    q = q / q.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    k = k / k.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return (temperature * q @ k.transpose(-2, -1)).softmax(-1) @ v


def sdpa_with_flag(q, k, v, causal=False):
    """(batch, seqlen, nheads, headdim) in and out."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)


def relative_attention(q, k, v, rel_bias):
    """rel_bias: (H, 2M + 1), entry M + clip(j - i, -M, M) is added for query i and key j."""
    M = rel_bias.shape[1] // 2
    i = torch.arange(q.shape[2], device=q.device)
    idx = (i[None, :] - i[:, None]).clamp(-M, M) + M
    s = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5 + rel_bias[:, idx]
    return s.softmax(-1) @ v


def rope_of_rope_attention(x, base=10000.0):
    """Rotate adjacent channel pairs of (B, H, T, D) via complex numbers."""
    T, D = x.shape[-2:]
    f = base ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    ang = torch.outer(torch.arange(T, dtype=torch.float64), f)
    z = torch.view_as_complex(x.double().reshape(*x.shape[:-1], D // 2, 2))
    return torch.view_as_real(z * torch.polar(torch.ones_like(ang), ang)).flatten(-2).to(x.dtype)


def rope_attention(q, k, v):
    w = rope_of_rope_attention(q) @ rope_of_rope_attention(k).mT / q.shape[-1] ** 0.5
    return w.softmax(-1) @ v


def loop_attention(q, k, v):
    """Plain loops over positions, (T, d) arrays."""
    T, d = q.shape
    out = np.zeros((T, v.shape[1]))
    for t in range(T):
        s = k[: t + 1] @ q[t] / np.sqrt(d)
        w = np.exp(s - s.max())
        out[t] = w @ v[: t + 1] / w.sum()
    return out


class NarrowMemory(nn.Module):
    """x (B, T, C) attends to memory (B, S, M); memory_padding (B, S), True = padding."""

    def __init__(self, dim=32, memory_dim=20, heads=4):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, dim)
        self.to_kv = nn.Linear(memory_dim, 2 * dim)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x, memory, memory_padding=None):
        q = self.to_q(x)
        k, v = self.to_kv(memory).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)) for t in (q, k, v))
        s = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
        if memory_padding is not None:
            s = s.masked_fill(memory_padding[:, None, None], torch.finfo(s.dtype).min)
        w = s.softmax(-1)
        return self.to_out(torch.einsum("bhts,bshd->bthd", w, v).flatten(2)), w


def rope_of_staticrotarycache(x, start, base=10000.0):
    """Rotate halves; row 0 sits at position `start`."""
    half = x.shape[-1] // 2
    inv = base ** (-torch.arange(half, dtype=x.dtype) / half)
    ang = torch.outer(torch.arange(start, start + x.shape[-2], dtype=x.dtype), inv)
    a, b = x.split(half, dim=-1)
    return torch.cat([a * ang.cos() - b * ang.sin(), a * ang.sin() + b * ang.cos()], dim=-1)


class StaticRotaryCache(nn.Module):
    """Llama-like attention with a preallocated cache; start_pos is the first new position."""

    def __init__(self, dim=32, n_heads=4, n_kv_heads=2, max_batch=2, max_len=32):
        super().__init__()
        self.n_heads, self.n_kv, self.hd = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, n_heads * self.hd, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.hd, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.hd, bias=False)
        self.wo = nn.Linear(n_heads * self.hd, dim, bias=False)
        self.register_buffer("cache_k", torch.zeros(max_batch, n_kv_heads, max_len, self.hd))
        self.register_buffer("cache_v", torch.zeros(max_batch, n_kv_heads, max_len, self.hd))

    def forward(self, x, start_pos=0):
        B, T, _ = x.shape
        q = rope_of_staticrotarycache(
            self.wq(x).view(B, T, self.n_heads, self.hd).transpose(1, 2), start_pos
        )
        k = rope_of_staticrotarycache(
            self.wk(x).view(B, T, self.n_kv, self.hd).transpose(1, 2), start_pos
        )
        v = self.wv(x).view(B, T, self.n_kv, self.hd).transpose(1, 2)
        end = start_pos + T
        self.cache_k[:B, :, start_pos:end] = k.detach()
        self.cache_v[:B, :, start_pos:end] = v.detach()
        rep = self.n_heads // self.n_kv
        keys = self.cache_k[:B, :, :end].repeat_interleave(rep, dim=1)
        values = self.cache_v[:B, :, :end].repeat_interleave(rep, dim=1)
        s = q @ keys.mT / self.hd**0.5
        s = s.masked_fill(~torch.ones(T, end, dtype=torch.bool).tril(start_pos), float("-inf"))
        return self.wo((s.softmax(-1) @ values).transpose(1, 2).reshape(B, T, -1))


class PreNormBlock(nn.Module):
    """Pre-norm causal block with residual connections."""

    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.norm2(x))


class PostNormBlock(nn.Module):
    """Post-norm encoder block; pad_mask (B, T) is True for padding."""

    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.norm_a, self.norm_b = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, dim))

    def forward(self, x, pad_mask=None):
        q, k, v = (
            f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        s = q @ k.mT / q.size(-1) ** 0.5
        if pad_mask is not None:
            s = s.masked_fill(pad_mask[:, None, None, :], float("-inf"))
        x = self.norm_a(x + self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2)))
        return self.norm_b(x + self.ff(x))


class SmallGPTLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln = nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (
            t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(self.ln(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(B, T, C))


class SmallGPT(nn.Module):
    """Attention-only language model: ids (B, T) -> logits (B, T, V)."""

    def __init__(self, vocab_size=40, max_len=32, dim=32, heads=4, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab_size, dim), nn.Embedding(max_len, dim)
        self.layers = nn.Sequential(*(SmallGPTLayer(dim, heads) for _ in range(depth)))
        self.ln = nn.LayerNorm(dim)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        return F.linear(self.ln(self.layers(x)), self.tok.weight)
