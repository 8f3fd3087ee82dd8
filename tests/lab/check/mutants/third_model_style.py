"""Blocks and language models by a third writer, and what they keep between calls."""

import math

import torch
import torch.nn.functional as F
from torch import nn

MUTANTS = {
    "ThMaskKept": "state-kept",
    "ThCausalKept": "state-kept",
    "ThResidualOfNorm": "residual-lost",
    "ThBlockNotCausal": "causal-missing",
    "ThGPTNotCausal": "causal-missing",
    "ThGPTMixesBatch": "heads-batch-mixed",
}


class ThMaskKept(nn.Module):
    """Encoder self-attention with a (B, T) boolean mask of real tokens."""

    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.in_proj = nn.Linear(dim, 3 * dim)
        self.out_proj = nn.Linear(dim, dim)
        self._mask = None

    def forward(self, x, is_token):
        B, T, C = x.shape
        if self._mask is None:
            self._mask = is_token[:, None, None, :]
        q, k, v = self.in_proj(x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self._mask)
        return self.out_proj(y.transpose(1, 2).reshape(B, T, C))


class ThCausalKept(nn.Module):
    """Causal multi-head attention; the mask is built lazily and kept."""

    def __init__(self, d_model=32, n_head=4):
        super().__init__()
        self.n_head = n_head
        self.wq = nn.Linear(d_model, d_model, bias=False)
        self.wk = nn.Linear(d_model, d_model, bias=False)
        self.wv = nn.Linear(d_model, d_model, bias=False)
        self.wo = nn.Linear(d_model, d_model, bias=False)
        self.causal = None

    def forward(self, x):
        B, T, C = x.shape
        if self.causal is None:
            self.causal = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        q, k, v = (
            w(x).view(B, T, self.n_head, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        )
        s = q @ k.transpose(2, 3) / q.size(-1) ** 0.5
        s = s.masked_fill(~self.causal[:T, :T], float("-inf"))
        return self.wo((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))


class ThResidualOfNormAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class ThResidualOfNorm(nn.Module):
    """Pre-norm decoder block: x + attn(ln1(x)), then x + mlp(ln2(x))."""

    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.ln1 = nn.LayerNorm(dim)
        self.attn = ThResidualOfNormAttention(dim, heads)
        self.ln2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        h = self.ln1(x)
        x = h + self.attn(h)
        return x + self.mlp(self.ln2(x))


class ThBlockNotCausal(nn.Module):
    """GPT block with a causal attention sublayer and an MLP sublayer (pre-norm)."""

    def __init__(self, d_model=32, n_heads=4, max_len=64):
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.ff = nn.Sequential(
            nn.Linear(d_model, 2 * d_model), nn.ReLU(), nn.Linear(2 * d_model, d_model)
        )
        self.register_buffer("future", torch.ones(max_len, max_len).triu(1).bool())

    def attend(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.n_heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
        scores.masked_fill(self.future[:T, :T], float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.ff(self.norm2(x))


class ThGPTNotCausalBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self.ln2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 4), nn.GELU(), nn.Linear(dim * 4, dim))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.ln(x)).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln2(x))


class ThGPTNotCausal(nn.Module):
    """A tiny decoder-only language model: token ids (B, T) -> next-token logits (B, T, V)."""

    def __init__(self, vocab_size=50, block_size=32, dim=32, heads=4, layers=2):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, dim)
        self.wpe = nn.Embedding(block_size, dim)
        self.blocks = nn.ModuleList(ThGPTNotCausalBlock(dim, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab_size, bias=False)

    def forward(self, idx):
        pos = torch.arange(idx.size(1), device=idx.device)
        x = self.wte(idx) + self.wpe(pos)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class ThGPTMixesBatchAttn(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        B, T, C = x.shape
        h, d = self.heads, C // self.heads
        # (H*B, T, d): one big batch of heads
        q, k, v = (
            f(x).view(B, T, h, d).permute(2, 0, 1, 3).reshape(h * B, T, d)
            for f in (self.q, self.k, self.v)
        )
        s = torch.bmm(q, k.transpose(1, 2)) / d**0.5
        s = s + torch.triu(torch.full((T, T), float("-inf"), dtype=x.dtype, device=x.device), 1)
        y = torch.bmm(s.softmax(-1), v)
        y = y.view(B, h, T, d).transpose(1, 2).reshape(B, T, C)
        return self.o(y)


class ThGPTMixesBatch(nn.Module):
    """Token ids in, logits out."""

    def __init__(self, vocab=40, ctx=32, dim=32, heads=4, depth=2):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.randn(ctx, dim) * 0.02)
        self.attns = nn.ModuleList([ThGPTMixesBatchAttn(dim, heads) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.tok(tokens) + self.pos[: tokens.shape[1]]
        for attn, norm in zip(self.attns, self.norms, strict=True):
            x = x + attn(norm(x))
        return self.head(x)
