"""Right attentions as functions, in many conventions: none may be blamed."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from glasshead.attention.functional import attend
from glasshead.attention.mask import Mask

RIGHT = [
    "sdpa",
    "sdpa_causal_cached",
    "plain_masked",
    "additive_mask",
    "additive_finfo",
    "hidden_mask",
    "time_first",
    "einsum_bthd",
    "numpy_simple",
    "numpy_weights",
    "one_sequence",
    "flex_plain",
    "flex_causal",
    "flex_window",
    "ours_attend",
    "grouped",
    "multi_query",
    "alibi",
    "softcap",
    "window",
    "sink",
    "annotated",
    "chunked",
    "online_softmax",
    "bert_style",
    "t5_style",
    "float32_inside",
]


def sdpa(q, k, v, attn_mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


def sdpa_causal_cached(q, k, v):
    """Return causal attention; the keys include the cache, so S may be larger than T."""
    T, S = q.size(-2), k.size(-2)
    return F.scaled_dot_product_attention(q, k, v, torch.ones(T, S).tril(S - T).bool())


def plain_masked(query, key, value, mask=None):
    """Attend. mask == 0 is hidden."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
        return (scores.softmax(-1) * (mask != 0).any(-1, keepdim=True)) @ value
    return scores.softmax(-1) @ value


def additive_mask(q, k, v, attention_mask=None):
    """Attend. attention_mask is added to the scores: 0 or a large negative number."""
    scores = q @ k.transpose(-2, -1) * q.size(-1) ** -0.5
    if attention_mask is not None:
        scores = scores + attention_mask
    return scores.softmax(-1, dtype=torch.float32).to(q.dtype) @ v


def additive_finfo(q, k, v, mask=None):
    """Attend; True is visible. Hidden scores become the smallest number there is."""
    scores = q @ k.mT / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1) @ v


def hidden_mask(q, k, v, mask=None):
    """Attend. mask: True where a key must not be seen, as in nn.MultiheadAttention."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf)
        return torch.nan_to_num(scores.softmax(-1)) @ v
    return scores.softmax(-1) @ v


def time_first(q, k, v):
    """Attend over (T, B, D)."""
    w = torch.einsum("tbd,sbd->bts", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("bts,sbd->tbd", w.softmax(-1), v)


def einsum_bthd(q, k, v):
    w = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bhts,bshd->bthd", w.softmax(-1), v)


def numpy_simple(Q, K, V):
    s = Q @ np.swapaxes(K, -1, -2) / np.sqrt(K.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ V


def numpy_weights(Q, K, V, mask=None):
    s = np.einsum("...td,...sd->...ts", Q, K) / np.sqrt(K.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -1e30)
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    return w @ V, w


def one_sequence(query, key, value, d_k):
    """Attend as document 001: one sequence."""
    s = np.matmul(query, key.T) / math.sqrt(d_k)
    e = np.exp(s - np.max(s, axis=-1, keepdims=True))
    w = e / np.sum(e, axis=-1, keepdims=True)
    return np.matmul(w, value), w


def flex_plain(q, k, v):
    return flex_attention(q, k, v)


def flex_causal(q, k, v):
    T, S = q.shape[-2], k.shape[-2]
    block = create_block_mask(lambda b, h, i, j: i + S - T >= j, None, None, T, S, device="cpu")
    return flex_attention(q, k, v, block_mask=block)


def flex_window(q, k, v, window=2):
    T = q.shape[-2]
    block = create_block_mask(
        lambda b, h, i, j: (i >= j) & (i - j < window), None, None, T, T, device="cpu"
    )
    return flex_attention(q, k, v, block_mask=block)


def ours_attend(q, k, v, mask=None):
    return attend(q, k, v, None if mask is None else Mask(dense=mask)).context


def grouped(q, k, v):
    n = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(n, 1), v.repeat_interleave(n, 1)
    return torch.softmax(q @ k.mT / math.sqrt(k.shape[-1]), -1) @ v


def multi_query(q, k, v):
    """Attend; k and v have a single head, (B, 1, S, D)."""
    return F.scaled_dot_product_attention(
        q, k.expand(-1, q.size(1), -1, -1), v.expand(-1, q.size(1), -1, -1)
    )


def alibi(q, k, v):
    """Return causal attention with ALiBi slopes 2^(-8h/H)."""
    H, T = q.shape[1], q.shape[2]
    slopes = 2.0 ** (-8.0 * torch.arange(1, H + 1, dtype=q.dtype) / H)
    i = torch.arange(T)
    distance = (i[:, None] - i).to(q.dtype)
    s = q @ k.mT / math.sqrt(q.shape[-1]) - slopes[:, None, None] * distance
    return s.masked_fill(distance < 0, -torch.inf).softmax(-1) @ v


def softcap(q, k, v, softcap=5.0):
    """Return causal attention with scores limited by softcap · tanh(score / softcap)."""
    T = q.shape[-2]
    s = softcap * torch.tanh(q @ k.mT / math.sqrt(q.shape[-1]) / softcap)
    return s.masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf).softmax(-1) @ v


def window(q, k, v, window=3):
    """Return causal attention: each query sees the last `window` keys."""
    i = torch.arange(q.shape[-2])
    far = i[:, None] - i
    s = q @ k.mT / math.sqrt(q.shape[-1])
    return s.masked_fill((far < 0) | (far >= window), -torch.inf).softmax(-1) @ v


def sink(q, k, v, sink_logit=0.0):
    """Attend with a sink: a score of 0 that takes weight and has no value (softmax off by one)."""
    s = q @ k.mT / math.sqrt(q.shape[-1])
    s = torch.cat((s, torch.full_like(s[..., :1], sink_logit)), -1)
    return s.softmax(-1)[..., :-1] @ v


def annotated(query, key, value, mask=None, dropout=None):
    """Compute scaled dot-product attention."""
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn


def chunked(q, k, v):
    """Attend, two queries at a time."""
    return torch.cat([F.scaled_dot_product_attention(part, k, v) for part in q.split(2, -2)], -2)


def online_softmax(q, k, v):
    """Attend key by key, without the matrix of weights."""
    best = torch.full(q.shape[:-1], -math.inf, dtype=q.dtype)
    total, out = torch.zeros_like(best), torch.zeros((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
    for j in range(k.shape[-2]):
        s = (q * k[..., j : j + 1, :]).sum(-1) / math.sqrt(q.shape[-1])
        new = torch.maximum(best, s)
        shrink, weight = (best - new).exp(), (s - new).exp()
        total = total * shrink + weight
        out = out * shrink[..., None] + weight[..., None] * v[..., j : j + 1, :]
        best = new
    return out / total[..., None]


def bert_style(query_layer, key_layer, value_layer, attention_mask=None):
    """Attend. attention_mask: additive, 0 for tokens and a large negative number for padding."""
    scores = torch.matmul(query_layer, key_layer.transpose(-1, -2))
    scores = scores / math.sqrt(query_layer.shape[-1])
    if attention_mask is not None:
        scores = scores + attention_mask
    return torch.matmul(nn.functional.softmax(scores, dim=-1), value_layer)


def t5_style(q, k, v, position_bias=None):
    """Attend with a bias that is added to the scores."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if position_bias is not None:
        scores = scores + position_bias
    return scores.softmax(-1) @ v


def float32_inside(q, k, v):
    s = (q.float() @ k.float().mT) / math.sqrt(q.shape[-1])
    return (s.softmax(-1) @ v.float()).to(q.dtype)
