"""Attention in plain loops, and in the manner of the documents, each with one mistake."""

import math

import torch
import torch.nn as nn

MUTANTS = {
    "one_row_ahead": "causal-leaks-next",
    "loop_never_scaled": "scale-missing",
    "loop_normalises_columns": "softmax-over-queries",
    "loop_skips_first": "keys-skipped",
    "Head": "scale-missing",
    "HeadNanMask": "mask-nan",
    "HeadUnmasked": "causal-missing",
    "ManyHeads": "heads-merge",
}


def _attend_row(q, keys, values, scale):
    s = torch.stack([torch.dot(q, key) for key in keys]) * scale
    e = (s - s.max()).exp()
    return (e / e.sum()) @ values


def one_row_ahead(q, k, v):
    """Return causal attention of one sequence: q, k, v (T, D)."""
    scale = q.shape[-1] ** -0.5
    rows = [_attend_row(q[i], k[: i + 2], v[: i + 2], scale) for i in range(len(q))]
    return torch.stack(rows)


def loop_never_scaled(q, k, v):
    """Attend; one sequence: q, k, v (T, D)."""
    return torch.stack([_attend_row(q[i], k, v, 1.0) for i in range(len(q))])


def loop_normalises_columns(q, k, v):
    """Attend; one sequence: q, k, v (T, D)."""
    e = (q @ k.T * q.shape[-1] ** -0.5).exp()
    return torch.stack([(e[i] / e.sum(0)) @ v for i in range(len(q))])


def loop_skips_first(q, k, v):
    """Attend; one sequence: q, k, v (T, D)."""
    scale = q.shape[-1] ** -0.5
    return torch.stack([_attend_row(q[i], k[1:], v[1:], scale) for i in range(len(q))])


class Head(nn.Module):
    """One causal head, (B, T, C) to (B, T, head_size)."""

    def __init__(self, n_embed=16, head_size=8, block_size=32):
        super().__init__()
        self.key = nn.Linear(n_embed, head_size, bias=False)
        self.query = nn.Linear(n_embed, head_size, bias=False)
        self.value = nn.Linear(n_embed, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        T = x.shape[1]
        wei = self.query(x) @ self.key(x).transpose(-2, -1)
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf")).softmax(-1)
        return wei @ self.value(x)


class HeadNanMask(Head):
    def forward(self, x):
        T = x.shape[1]
        mask = torch.triu(torch.ones(T, T), diagonal=1) * float("-inf")
        wei = self.query(x) @ self.key(x).transpose(-2, -1) / self.key.out_features**0.5 + mask
        return wei.softmax(-1) @ self.value(x)


class HeadUnmasked(Head):
    """One causal head."""

    def forward(self, x):
        wei = self.query(x) @ self.key(x).transpose(-2, -1) / self.key.out_features**0.5
        return wei.softmax(-1) @ self.value(x)


class ManyHeads(nn.Module):
    """Several causal heads, concatenated along time instead of width."""

    def __init__(self, n_heads=2, n_embed=16):
        super().__init__()
        self.q = nn.Linear(n_embed, n_embed, bias=False)
        self.k = nn.Linear(n_embed, n_embed, bias=False)
        self.v = nn.Linear(n_embed, n_embed, bias=False)
        self.n = n_heads

    def forward(self, x):
        B, T, C = x.shape
        outs = []
        parts = (f(x).chunk(self.n, -1) for f in (self.q, self.k, self.v))
        for q, k, v in zip(*parts, strict=True):
            s = q @ k.mT / math.sqrt(q.shape[-1])
            s = s.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
            outs.append(s.softmax(-1) @ v)
        return torch.cat(outs, 1).view(B, T, C)
