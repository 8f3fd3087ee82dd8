"""Right attentions as modules, in many styles: none may be blamed."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention

RIGHT = [
    "Ours",
    "OursGrouped",
    "OursRotaryless",
    "NanoGPT",
    "NanoGPTOld",
    "Book",
    "DocumentHead",
    "HeadsLoop",
    "KerasLayer",
    "Rotary",
    "RotaryPairs",
    "CachedTuple",
    "QKNorm",
    "Sinks",
    "Cross",
    "TorchModule",
    "TorchModuleBatchFirst",
    "EncoderPadding",
    "BatchedHeads",
]


class Ours(nn.Module):
    """Causal self-attention."""

    def __init__(self, d_model=24, n_heads=3):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)

    def forward(self, x):
        return self.attention(x, mask=Mask(causal=True)).out


class OursGrouped(Ours):
    def __init__(self):
        super().__init__()
        self.attention = MultiHeadAttention(32, 4, n_kv_heads=2)


class OursRotaryless(nn.Module):
    """Self-attention."""

    def __init__(self, d_model=24, n_heads=3):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads, qkv_bias=True)

    def forward(self, x):
        return self.attention(x).out


class NanoGPT(nn.Module):
    def __init__(self, n_embd=24, n_head=4, dropout=0.1):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.resid_dropout = nn.Dropout(dropout)
        self.n_head, self.dropout = n_head, dropout

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).chunk(3, -1)
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0, is_causal=True
        )
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))


class NanoGPTOld(NanoGPT):
    def __init__(self):
        super().__init__()
        self.register_buffer("bias", torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, 2)
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in (q, k, v))
        att = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf")).softmax(-1)
        return self.c_proj((att @ v).transpose(1, 2).reshape(B, T, C))


class Book(nn.Module):
    """Multi-head attention of 002, with its triu buffer."""

    def __init__(self, d_in=12, d_out=24, context_length=32, dropout=0.0, num_heads=3):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=False)
        self.W_key = nn.Linear(d_in, d_out, bias=False)
        self.W_value = nn.Linear(d_in, d_out, bias=False)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), 1))

    def forward(self, x):
        b, n, _ = x.shape
        k, q, v = (
            w(x).view(b, n, self.num_heads, self.head_dim).transpose(1, 2)
            for w in (self.W_key, self.W_query, self.W_value)
        )
        s = q @ k.transpose(2, 3)
        s.masked_fill_(self.mask.bool()[:n, :n], -torch.inf)
        w = self.dropout(torch.softmax(s / k.shape[-1] ** 0.5, dim=-1))
        return self.out_proj((w @ v).transpose(1, 2).contiguous().view(b, n, -1))


class DocumentHead(nn.Module):
    def __init__(self, n_embed=16, head_size=8, block_size=32):
        super().__init__()
        self.key = nn.Linear(n_embed, head_size, bias=False)
        self.query = nn.Linear(n_embed, head_size, bias=False)
        self.value = nn.Linear(n_embed, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        T = x.shape[1]
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) / (k.size(-1) ** 0.5)
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return F.softmax(wei, dim=-1) @ self.value(x)


class HeadsLoop(nn.Module):
    def __init__(self, n_heads=2, n_embed=16):
        super().__init__()
        self.heads = nn.ModuleList(
            DocumentHead(n_embed, n_embed // n_heads) for _ in range(n_heads)
        )

    def forward(self, x):
        return torch.cat([h(x) for h in self.heads], dim=-1)


class KerasLayer(nn.Module):
    """call(query, value, key, attention_mask); the mask (B, T, S) is True where one may attend."""

    def __init__(self, num_heads=3, key_dim=8, width=24):
        super().__init__()
        self.n, self.d = num_heads, key_dim
        self.query_dense, self.key_dense, self.value_dense = (
            nn.Linear(width, num_heads * key_dim) for _ in range(3)
        )
        self.output_dense = nn.Linear(num_heads * key_dim, width)

    def forward(self, query, value, key=None, attention_mask=None):
        q = self.query_dense(query).unflatten(-1, (self.n, self.d)) * self.d**-0.5
        k = self.key_dense(value if key is None else key).unflatten(-1, (self.n, self.d))
        v = self.value_dense(value).unflatten(-1, (self.n, self.d))
        s = torch.einsum("BTNH,BSNH->BNTS", q, k)
        if attention_mask is not None:
            s = torch.where(attention_mask[:, None] > 0, s, -3e4)
        return self.output_dense(torch.einsum("BNTS,BSNH->BTNH", s.softmax(-1), v).flatten(2))


def _angles(T, d, start=0):
    freq = 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    return torch.arange(start, start + T, dtype=torch.float64)[:, None] * freq


def _halves(x, start=0):
    a = _angles(x.shape[-2], x.shape[-1], start).to(x.dtype)
    a = torch.cat((a, a), -1)
    x1, x2 = x.chunk(2, -1)
    return x * a.cos() + torch.cat((-x2, x1), -1) * a.sin()


def _pairs(x, start=0):
    a = _angles(x.shape[-2], x.shape[-1], start).to(x.dtype)
    x1, x2 = x[..., 0::2], x[..., 1::2]
    return torch.stack((x1 * a.cos() - x2 * a.sin(), x1 * a.sin() + x2 * a.cos()), -1).flatten(-2)


class Rotary(nn.Module):
    """Causal self-attention with rotary positions."""

    turn = staticmethod(_halves)

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

    def forward(self, x):
        q, k, v = self.parts(x)
        q, k = self.turn(q), self.turn(k)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class RotaryPairs(Rotary):
    turn = staticmethod(_pairs)


class CachedTuple(Rotary):
    """Causal self-attention with rotary positions and a cache: returns (out, (k, v))."""

    def forward(self, x, past=None):
        q, k, v = self.parts(x)
        start = 0 if past is None else past[0].size(2)
        q, k = _halves(q, start), _halves(k, start)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        T, S = q.shape[2], k.shape[2]
        s = q @ k.mT / math.sqrt(self.d)
        s = s.masked_fill(torch.ones(T, S).tril(S - T) == 0, -torch.inf)
        return self.out(s.softmax(-1) @ v), (k, v)


class QKNorm(Rotary):
    """Causal self-attention whose queries and keys are normalised."""

    def forward(self, x):
        q, k, v = self.parts(x)
        q, k = F.rms_norm(q, (self.d,)), F.rms_norm(k, (self.d,))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class Sinks(Rotary):
    """Causal self-attention with a learned sink for each head, as in GPT-OSS."""

    def __init__(self):
        super().__init__()
        self.sinks = nn.Parameter(torch.randn(self.h))

    def forward(self, x):
        q, k, v = self.parts(x)
        T = x.size(1)
        s = q @ k.mT / math.sqrt(self.d)
        s = s.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
        s = torch.cat((s, self.sinks.view(1, -1, 1, 1).expand(x.size(0), -1, T, 1)), -1)
        return self.out(s.softmax(-1)[..., :-1] @ v)


class Cross(Rotary):
    """Cross-attention: x looks at memory."""

    def forward(self, x, memory):
        q, _, _ = self.parts(x)
        _, k, v = self.parts(memory)
        return self.out(F.scaled_dot_product_attention(q, k, v))


class TorchModule(nn.MultiheadAttention):
    def __init__(self):
        super().__init__(24, 3)


class TorchModuleBatchFirst(nn.MultiheadAttention):
    def __init__(self):
        super().__init__(24, 3, batch_first=True)


class EncoderPadding(Rotary):
    """Self-attention; key_padding_mask: True where a token is padding."""

    def forward(self, x, key_padding_mask=None):
        q, k, v = self.parts(x)
        mask = None if key_padding_mask is None else ~key_padding_mask[:, None, None, :]
        return self.out(F.scaled_dot_product_attention(q, k, v, mask))


class BatchedHeads(Rotary):
    """Self-attention with heads folded into the batch."""

    def forward(self, x):
        B, T, _ = x.shape
        q, k, v = (t.reshape(B * self.h, T, self.d) for t in self.parts(x))
        s = torch.baddbmm(
            torch.zeros(1, 1, 1, dtype=x.dtype), q, k.transpose(1, 2), alpha=self.d**-0.5
        )
        return self.out(torch.bmm(s.softmax(-1), v).view(B, self.h, T, self.d))
