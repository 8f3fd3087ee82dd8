"""einsum and einops mutants."""

import torch
from torch import einsum, nn

MUTANTS = {
    "ein_across_batch": "heads-batch-mixed",
    "ein_sum_values": "values-not-weighted",
    "ein_transposed_weights": "weights-transposed",
    "ein_heads_summed": "heads-mixed",
    "ein_softmax_order": "softmax-over-heads",
    "EinTokensAsHeads": "heads-for-positions",
    "EinMaskOuter": "nan-empty-row",
    "EinRelu": "softmax-over-queries",
    "ein_window_future": "causal-leaks-next",
}


def heads_of(t, n):
    """(B, N, H * D) -> (B, H, N, D)."""
    return t.unflatten(-1, (n, -1)).transpose(1, 2)


def ein_across_batch(q, k, v):
    s = torch.einsum("bhqd,chkd->bhqk", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("bhqk,bhkd->bhqd", s.softmax(-1), v)


def ein_sum_values(q, k, v):
    """q, k, v (B, T, H, D). k of the weights and of the values got different letters."""
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("bhqk,bshd->bqhd", s.softmax(-1), v)


def ein_transposed_weights(q, k, v):
    s = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
    w = s.softmax(-1)
    return torch.einsum("bhkq,bhkd->bhqd", w, v) if q.shape == k.shape else w @ v


def ein_heads_summed(q, k, v):
    """q, k, v (B, H, T, D)."""
    s = torch.einsum("bhqd,bgkd->bhqk", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("bhqk,bhkd->bhqd", s.softmax(-1), v)


def ein_softmax_order(q, k, v):
    """(B, T, H, D) in and out; scores are b q k h, softmax on the last axis is over heads."""
    s = torch.einsum("bqhd,bkhd->bqkh", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("bqkh,bkhd->bqhd", s.softmax(-1), v)


class EinTokensAsHeads(nn.Module):
    def __init__(self, dim=12, heads=3):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)) for t in self.to_qkv(x).chunk(3, -1))
        attn = (q @ k.transpose(-1, -2) * self.scale).softmax(-1)  # between heads, not tokens
        return self.to_out((attn @ v).flatten(2))


class EinMaskOuter(nn.Module):
    """mask (B, N), True = a token; the outer product hides queries too and yields NaN."""

    def __init__(self, dim=12, heads=3):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        q, k, v = (heads_of(t, self.heads) for t in self.to_qkv(x).chunk(3, -1))
        dots = einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
        if mask is not None:
            both = mask[:, None, :, None] & mask[:, None, None, :]
            dots = dots.masked_fill(~both, -torch.inf)
        return self.to_out((dots.softmax(-1) @ v).transpose(1, 2).flatten(2))


class EinRelu(nn.Module):
    """Softmax over the queries."""

    def __init__(self, dim=12, heads=3):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)

    def forward(self, x):
        q, k, v = (heads_of(t, self.heads) for t in self.to_qkv(x).chunk(3, -1))
        dots = einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
        return (dots.softmax(-2) @ v).transpose(1, 2).flatten(2)


def ein_window_future(q, k, v, window=3):
    """A causal window: the last `window` keys; the upper end is open by one."""
    T, S = q.shape[-2], k.shape[-2]
    s = einsum("b h i d, b h j d -> b h i j", q, k) * q.shape[-1] ** -0.5
    i = torch.arange(T)[:, None] + S - T
    j = torch.arange(S)[None]
    s = s.masked_fill((j > i + 1) | (j <= i - window), -torch.inf)
    return einsum("b h i j, b h j d -> b h i d", s.softmax(-1), v)
