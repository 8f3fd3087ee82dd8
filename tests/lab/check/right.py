"""Right implementations in many styles, none of which the checker may blame."""

from tests.lab.check.right_variants import VARIANTS

HEADER = """
import math
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
"""

# name -> (what is checked, source)
RIGHT: dict[str, tuple[str, str]] = {
    "one head, lecture style": ("Head", '''
class Head(nn.Module):
    def __init__(self, n_embd, head_size, block_size, dropout=0.2):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        B, T, C = x.shape
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        wei = self.dropout(F.softmax(wei, dim=-1))
        return wei @ self.value(x)
'''),
    "list of heads": ("MultiHead", '''
class Head(nn.Module):
    def __init__(self, n_embd, head_size):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(n_embd, head_size) for _ in range(3))

    def forward(self, x):
        T = x.size(1)
        wei = self.query(x) @ self.key(x).mT / self.key.out_features**0.5
        wei = wei.masked_fill(torch.ones(T, T).tril() == 0, float("-inf"))
        return wei.softmax(-1) @ self.value(x)

class MultiHead(nn.Module):
    def __init__(self, n_embd, num_heads):
        super().__init__()
        self.heads = nn.ModuleList(Head(n_embd, n_embd // num_heads) for _ in range(num_heads))
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        return self.proj(torch.cat([h(x) for h in self.heads], dim=-1))
'''),
    "nanoGPT-like": ("CausalSelfAttention", '''
class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.n_head, self.n_embd, self.dropout = config.n_head, config.n_embd, config.dropout

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (y.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
'''),
    "annotated style": ("MultiHeadedAttention", '''
def attention(query, key, value, mask=None, dropout=None):
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn

class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
        self.attn, self.dropout = None, nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.unsqueeze(1)
        n = query.size(0)
        query, key, value = [lin(x).view(n, -1, self.h, self.d_k).transpose(1, 2)
                             for lin, x in zip(self.linears, (query, key, value))]
        x, self.attn = attention(query, key, value, mask, self.dropout)
        x = x.transpose(1, 2).contiguous().view(n, -1, self.h * self.d_k)
        return self.linears[-1](x)
'''),
    "book style, mask True hides": ("MultiHeadAttention", '''
class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.d_out, self.num_heads, self.head_dim = d_out, num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), 1))

    def forward(self, x):
        b, num_tokens, _ = x.shape
        shape = (b, num_tokens, self.num_heads, self.head_dim)
        keys = self.W_key(x).view(shape).transpose(1, 2)
        queries = self.W_query(x).view(shape).transpose(1, 2)
        values = self.W_value(x).view(shape).transpose(1, 2)
        attn_scores = queries @ keys.transpose(2, 3)
        attn_scores.masked_fill_(self.mask.bool()[:num_tokens, :num_tokens], -torch.inf)
        attn = self.dropout(torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1))
        context = (attn @ values).transpose(1, 2).contiguous().view(b, num_tokens, self.d_out)
        return self.out_proj(context)
'''),
    "einsum, no batch": ("attend", '''
def attend(query, key, value, allowed=None):
    """query: (heads, T, d)."""
    sim = torch.einsum("htd,hsd->hts", query, key) * query.shape[-1] ** -0.5
    if allowed is not None:
        sim = sim.masked_fill(~allowed, -torch.finfo(sim.dtype).max)
    return torch.einsum("hts,hsd->htd", sim.softmax(-1), value)
'''),
    "plain matrices": ("attention", '''
def attention(Q, K, V):
    S = Q @ K.T / np.sqrt(K.shape[1])
    E = np.exp(S - S.max(1, keepdims=True))
    return E / E.sum(1, keepdims=True) @ V
'''),
    "returns weights, padding True": ("attend", '''
def attend(q, k, v, key_padding_mask=None):
    """q: (B, T, D). key_padding_mask: (B, S), True marks padding."""
    scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(q.shape[-1])
    if key_padding_mask is not None:
        scores = scores.masked_fill(key_padding_mask[:, None, :], float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return torch.bmm(weights, v), weights
'''),
    "lengths": ("masked_attention", '''
def masked_attention(queries, keys, values, valid_lens=None):
    scores = torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(queries.shape[-1])
    if valid_lens is not None:
        hidden = torch.arange(keys.shape[1])[None, :] >= valid_lens[:, None]
        scores = scores.masked_fill(hidden[:, None, :], -1e6)
    return torch.softmax(scores, -1) @ values
'''),
    "added mask": ("attend", '''
def attend(q, k, v, attn_mask=None):
    scores = q @ k.mT / q.size(-1) ** 0.5
    if attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(-1) @ v
'''),
    "time first": ("Attention", '''
class Attention(nn.Module):
    """Takes x of (T, B, C)."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.n, self.in_proj = num_heads, nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        T, B, C = x.shape
        q, k, v = (y.reshape(T, B * self.n, C // self.n).transpose(0, 1)
                   for y in self.in_proj(x).chunk(3, dim=-1))
        w = torch.softmax(q @ k.transpose(1, 2) / (C // self.n) ** 0.5, -1)
        return self.out_proj((w @ v).transpose(0, 1).reshape(T, B, C))
'''),
    "vision: qkv in one, permuted": ("Attention", '''
class Attention(nn.Module):
    def __init__(self, dim, num_heads=8, qkv_bias=False):
        super().__init__()
        self.num_heads, self.scale = num_heads, (dim // num_heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attn = ((q * self.scale) @ k.transpose(-2, -1)).softmax(dim=-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))
'''),
    "neox: q, k and v of each head together": ("Attention", '''
class Attention(nn.Module):
    def __init__(self, hidden_size, num_attention_heads):
        super().__init__()
        self.n, self.d = num_attention_heads, hidden_size // num_attention_heads
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states):
        B, T, C = hidden_states.shape
        qkv = self.query_key_value(hidden_states).view(B, T, self.n, 3 * self.d).transpose(1, 2)
        q, k, v = qkv.chunk(3, dim=-1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.dense(y.transpose(1, 2).reshape(B, T, C))
'''),
    "grouped": ("GroupedQueryAttention", '''
class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.d = n_heads, n_kv_heads, d_model // n_heads
        self.wq = nn.Linear(d_model, n_heads * self.d, bias=False)
        self.wk = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.wv = nn.Linear(d_model, n_kv_heads * self.d, bias=False)
        self.wo = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x):
        B, T, _ = x.shape
        q = self.wq(x).view(B, T, self.n_heads, self.d).transpose(1, 2)
        k = self.wk(x).view(B, T, self.n_kv_heads, self.d).transpose(1, 2)
        v = self.wv(x).view(B, T, self.n_kv_heads, self.d).transpose(1, 2)
        k, v = (y.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1) for y in (k, v))
        s = (q @ k.mT / math.sqrt(self.d)).masked_fill(torch.ones(T, T).triu(1).bool(), -1e30)
        return self.wo((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, -1))
'''),
    "multi-query": ("MultiQuery", '''
class MultiQuery(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d = n_heads, d_model // n_heads
        self.to_q = nn.Linear(d_model, d_model)
        self.to_kv = nn.Linear(d_model, 2 * self.d)
        self.to_out = nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        q = self.to_q(x).view(B, T, self.h, self.d)
        k, v = self.to_kv(x).split(self.d, -1)
        w = torch.einsum("bthd,bsd->bhts", q, k).div(self.d**0.5).softmax(-1)
        return self.to_out(torch.einsum("bhts,bsd->bthd", w, v).reshape(B, T, C))
'''),
    **VARIANTS,
}  # fmt: skip
