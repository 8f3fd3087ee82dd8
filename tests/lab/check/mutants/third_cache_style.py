"""Attention with caches, by a third writer."""

import torch
import torch.nn.functional as F
from torch import nn

MUTANTS = {
    "ThRopeFromZero": "rotary-not-offset",
    "ThCacheOfClass": "state-shared",
    "ThCacheForgets": "cache-not-grown",
    "ThRotatedAgain": "rotary-twice",
    "ThEmptySlots": "empty-slots",
}


def rotate_of_thropefromzero(x, positions, base=10000.0):
    half = x.size(-1) // 2
    freqs = base ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    ang = positions.to(x.dtype)[:, None] * freqs
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * ang.cos() - b * ang.sin(), b * ang.cos() + a * ang.sin()], dim=-1)


class ThRopeFromZero(nn.Module):
    """Causal attention with rotary positions and a key/value cache."""

    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x, cache=None):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        start = 0 if cache is None else cache[0].size(2)
        pos = torch.arange(T, device=x.device)
        q, k = rotate_of_thropefromzero(q, pos), rotate_of_thropefromzero(k, pos)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        keep = torch.arange(k.size(2))[None, :] <= torch.arange(start, start + T)[:, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.out(y.transpose(1, 2).reshape(B, T, C)), (k, v)


class ThCacheOfClass(nn.Module):
    """Single-token decoding attention; call reset() before a new sequence."""

    cache = {"k": [], "v": []}  # noqa: RUF012

    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.o_proj = nn.Linear(dim, dim)

    def reset(self):
        self.cache["k"].clear()
        self.cache["v"].clear()

    def forward(self, x):
        """x: (B, 1, C), the newest token."""
        B, T, C = x.shape
        self.cache["k"].append(self.k_proj(x))
        self.cache["v"].append(self.v_proj(x))
        k, v = torch.cat(self.cache["k"], dim=1), torch.cat(self.cache["v"], dim=1)
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.q_proj(x), k, v)
        )
        y = F.scaled_dot_product_attention(q, k, v)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, C))


class ThCacheForgets(nn.Module):
    def __init__(self, hidden_size=32, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = hidden_size // num_heads
        self.q_proj = nn.Linear(hidden_size, hidden_size)
        self.k_proj = nn.Linear(hidden_size, hidden_size)
        self.v_proj = nn.Linear(hidden_size, hidden_size)
        self.o_proj = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states, past_key_value=None, use_cache=True):
        bsz, q_len, _ = hidden_states.size()

        def view(t):
            return t.view(bsz, q_len, self.num_heads, self.head_dim).transpose(1, 2)

        q, k, v = (
            view(self.q_proj(hidden_states)),
            view(self.k_proj(hidden_states)),
            view(self.v_proj(hidden_states)),
        )
        present = (k, v) if use_cache else None
        if past_key_value is not None:
            k = torch.cat([past_key_value[0], k], dim=2)
            v = torch.cat([past_key_value[1], v], dim=2)
        kv_len = k.shape[2]
        causal = torch.full((q_len, kv_len), float("-inf"), dtype=q.dtype).triu(kv_len - q_len + 1)
        attn = torch.softmax(q @ k.transpose(2, 3) / self.head_dim**0.5 + causal, dim=-1)
        out = (attn @ v).transpose(1, 2).reshape(bsz, q_len, -1)
        return self.o_proj(out), present


def apply_rope_of_throtatedagain(x, offset=0, theta=10000.0):
    """Rotate-half rotary embedding on (B, H, T, D), first row at position `offset`."""
    T, D = x.shape[-2:]
    inv = 1.0 / theta ** (torch.arange(0, D, 2, dtype=x.dtype) / D)
    ang = torch.outer(torch.arange(offset, offset + T, dtype=x.dtype), inv)
    cos, sin = torch.cat([ang, ang], -1).cos(), torch.cat([ang, ang], -1).sin()
    x1, x2 = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-x2, x1], dim=-1) * sin


class ThRotatedAgain(nn.Module):
    def __init__(self, dim=32, n_heads=4):
        super().__init__()
        self.n_heads = n_heads
        self.wq, self.wk = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wv, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x, cache=None):
        B, T, C = x.shape
        q, k, v = (
            w(x).view(B, T, self.n_heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        )
        start = cache[0].shape[2] if cache else 0
        q = apply_rope_of_throtatedagain(q, start)
        if cache:
            k = torch.cat([cache[0], k], dim=2)
            v = torch.cat([cache[1], v], dim=2)
        k = apply_rope_of_throtatedagain(k)
        keep = torch.ones(T, k.shape[2]).tril(start).bool()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.wo(y.transpose(1, 2).reshape(B, T, C)), (k, v)


class ThEmptySlots(nn.Module):
    """Decode one token per call into a preallocated cache."""

    def __init__(self, dim=32, heads=4, max_len=16, batch=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.register_buffer("k_cache", torch.zeros(batch, heads, max_len, dim // heads))
        self.register_buffer("v_cache", torch.zeros(batch, heads, max_len, dim // heads))
        self.pos = 0

    def forward(self, x):
        B, _, C = x.shape
        q, k, v = self.qkv(x).view(B, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.k_cache[:B, :, self.pos : self.pos + 1] = k
        self.v_cache[:B, :, self.pos : self.pos + 1] = v
        self.pos += 1
        keys, values = self.k_cache[:B], self.v_cache[:B]
        y = F.scaled_dot_product_attention(q, keys, values)
        return self.proj(y.transpose(1, 2).reshape(B, 1, C))
