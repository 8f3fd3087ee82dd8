"""Self-attention as nn.Module, in the manner of tutorials, each with one mistake."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

MUTANTS = {
    "TriuKept": "causal-inverted",
    "InvertedBook": "causal-inverted",
    "NoTranspose": "heads-split",
    "NoTransposeBack": "heads-merge",
    "WrongWidth": "scale-model-width",
    "ForgottenScale": "scale-missing",
    "OwnPosition": "causal-strict",
    "DropsWhenServing": "dropout-at-inference",
    "OneKeyForAll": "values-from-keys",
    "HeadsSideways": "softmax-over-queries",
    "KeysReversed": "keys-reversed",
    "UnusedProjections": "inputs-not-projected",
    "PaddedQueries": "padding-on-queries",
    "PaddingSwapped": "mask-inverted",
    "CrossSelf": "softmax-over-queries",
    "SplitWrong": "heads-split-differs",
    "SoftmaxThenTril": "mask-after-softmax",
    "FewerHeads": "heads-mixed",
    "CumulativeScale": "scale-doubled",
    "BatchedMask": "mask-heads-order",
}


class TriuKept(nn.Module):
    """Causal self-attention."""

    def __init__(self, n_embd=24, n_head=4):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.register_buffer("bias", torch.triu(torch.ones(64, 64)).view(1, 1, 64, 64))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class InvertedBook(nn.Module):
    """Causal attention over F.scaled_dot_product_attention with a hand-made mask."""

    def __init__(self, d_in=24, d_out=24, context_length=64, num_heads=3):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.qkv = nn.Linear(d_in, 3 * d_out, bias=False)
        self.proj = nn.Linear(d_out, d_out)
        future = torch.triu(torch.ones(context_length, context_length), diagonal=1).bool()
        self.register_buffer("mask", future)

    def forward(self, x):
        b, t, _ = x.shape
        qkv = self.qkv(x).view(b, t, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[:t, :t])
        return self.proj(out.transpose(1, 2).reshape(b, t, -1))


class _Base(nn.Module):
    def __init__(self, d_model=24, n_heads=4):
        super().__init__()
        self.h, self.d = n_heads, d_model // n_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def split(self, t):
        return t.view(t.size(0), t.size(1), self.h, self.d).transpose(1, 2)

    def merge(self, t):
        return t.transpose(1, 2).reshape(t.size(0), t.size(2), self.h * self.d)

    def parts(self, x):
        return self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))


class NoTranspose(_Base):
    """Self-attention."""

    def split(self, t):
        return t.view(t.size(0), self.h, t.size(1), self.d)

    def merge(self, t):
        return t.reshape(t.size(0), t.size(2), self.h * self.d)

    def forward(self, x):
        q, k, v = self.parts(x)
        a = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(self.d), -1)
        return self.out_proj(self.merge(a @ v))


class NoTransposeBack(_Base):
    """Causal self-attention."""

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.parts(x)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(y.contiguous().view(B, T, C))


class WrongWidth(_Base):
    """Self-attention."""

    def forward(self, x):
        q, k, v = self.parts(x)
        a = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(x.size(-1)), -1)
        return self.out_proj(self.merge(a @ v))


class ForgottenScale(_Base):
    """Causal self-attention."""

    def forward(self, x):
        q, k, v = self.parts(x)
        T = x.size(1)
        s = (q @ k.transpose(-2, -1)).masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
        return self.out_proj(self.merge(s.softmax(-1) @ v))


class OwnPosition(_Base):
    """Causal self-attention."""

    def forward(self, x):
        q, k, v = self.parts(x)
        T = x.size(1)
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        s = s + torch.full((T, T), -1e9).triu(0)
        return self.out_proj(self.merge(s.softmax(-1) @ v))


class DropsWhenServing(_Base):
    """Causal self-attention with dropout."""

    def forward(self, x):
        q, k, v = self.parts(x)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.2)
        return self.out_proj(self.merge(y))


class OneKeyForAll(_Base):
    """Self-attention."""

    def forward(self, x):
        q, k, _ = self.parts(x)
        v = self.split(self.k_proj(x))
        a = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(self.d), -1)
        return self.out_proj(self.merge(a @ v))


class HeadsSideways(_Base):
    """Self-attention."""

    def forward(self, x):
        B, T, C = x.shape
        q = self.q_proj(x).view(B, T, self.h, self.d)
        k = self.k_proj(x).view(B, T, self.h, self.d)
        v = self.v_proj(x).view(B, T, self.h, self.d)
        energy = torch.einsum("nqhd,nkhd->nhqk", q, k) / math.sqrt(self.d)
        attention = torch.softmax(energy, dim=2)
        return self.out_proj(torch.einsum("nhqk,nkhd->nqhd", attention, v).reshape(B, T, C))


class KeysReversed(nn.Module):
    """One head without a mask."""

    def __init__(self, d_in=5, d_out=5):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.W_key = nn.Linear(d_in, d_out, bias=False)
        self.W_value = nn.Linear(d_in, d_out, bias=False)

    def forward(self, x):
        keys, queries, values = self.W_key(x), self.W_query(x), self.W_value(x)
        # meant for one sequence; fails for batches
        scores = queries @ keys.permute(*reversed(range(keys.ndim)))
        return torch.softmax(scores / keys.shape[-1] ** 0.5, dim=-1) @ values


class UnusedProjections(nn.Module):
    """Defines projections and reshapes the inputs themselves."""

    def __init__(self, embed_size=24, heads=4):
        super().__init__()
        self.heads, self.head_dim = heads, embed_size // heads
        self.values = nn.Linear(embed_size, embed_size)
        self.keys = nn.Linear(embed_size, embed_size)
        self.queries = nn.Linear(embed_size, embed_size)
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, values, keys, query, mask=None):
        N, L = query.shape[:2]
        v, k, q = (
            t.reshape(N, -1, self.heads, self.head_dim).permute(0, 2, 1, 3)
            for t in (values, keys, query)
        )
        energy = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        if mask is not None:
            energy = energy.masked_fill(mask == 0, -1e10)
        out = (torch.softmax(energy, -1) @ v).permute(0, 2, 1, 3)
        return self.fc_out(out.reshape(N, L, -1))


class PaddedQueries(_Base):
    """Self-attention; key_padding_mask: True where a token is padding."""

    def forward(self, x, key_padding_mask=None):
        q, k, v = self.parts(x)
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        if key_padding_mask is not None:
            s = s.masked_fill(key_padding_mask[:, None, :, None], -1e4)
        return self.out_proj(self.merge(s.softmax(-1) @ v))


class PaddingSwapped(_Base):
    """Self-attention; key_padding_mask: True where a token is padding, as in torch."""

    def forward(self, x, key_padding_mask=None):
        q, k, v = self.parts(x)
        mask = None if key_padding_mask is None else key_padding_mask[:, None, None, :]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out_proj(self.merge(y))


class CrossSelf(_Base):
    """Cross-attention: x looks at memory."""

    def forward(self, x, memory):
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(memory))
        v = self.split(self.v_proj(memory))
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(self.d), dim=-2)
        return self.out_proj(self.merge(weights @ v))


class SplitWrong(nn.Module):
    """Causal self-attention; each head takes its q, k, v from the wrong columns."""

    def __init__(self, n_embd=24, n_head=4):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.size()
        d = C // self.n_head
        qkv = self.c_attn(x).view(B, T, self.n_head, d, 3).permute(4, 0, 2, 3, 1)
        q, k, v = qkv.reshape(3, B, self.n_head, T, d)  # d and T are mixed
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class SoftmaxThenTril(_Base):
    """Causal self-attention."""

    def forward(self, x):
        q, k, v = self.parts(x)
        a = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(self.d), -1).tril()
        return self.out_proj(self.merge(a @ v))


class FewerHeads(_Base):
    """Self-attention in a loop over heads."""

    def forward(self, x):
        q, k, v = self.parts(x)
        out = []
        for h in range(self.h):
            s = q[:, h] @ k[:, 0].transpose(-2, -1) / math.sqrt(self.d)  # always the first key head
            out.append(s.softmax(-1) @ v[:, h])
        return self.out_proj(torch.cat(out, -1))


class CumulativeScale(_Base):
    """Causal self-attention."""

    def forward(self, x):
        q, k, v = self.parts(x)
        q, T = q * self.d**-0.5, x.size(1)
        s = q @ k.transpose(-2, -1) / math.sqrt(self.d)
        s = s.masked_fill(torch.ones(T, T).tril() == 0, float("-inf"))
        return self.out_proj(self.merge(s.softmax(-1) @ v))


class BatchedMask(_Base):
    """Self-attention, heads folded into the batch; attn_mask (B, T, T), True: may look."""

    def forward(self, x, attn_mask=None):
        B, T, _ = x.shape
        q, k, v = (t.reshape(B * self.h, T, self.d) for t in self.parts(x))
        s = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(self.d)
        if attn_mask is not None:
            s = s.masked_fill(~attn_mask.repeat(self.h, 1, 1), -1e9)  # should be interleaved
        y = torch.bmm(s.softmax(-1), v).view(B, self.h, T, self.d)
        return self.out_proj(self.merge(y))
