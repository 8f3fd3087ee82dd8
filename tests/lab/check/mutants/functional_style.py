"""Attention as plain torch functions of q, k and v, (B, H, T, D), each with one mistake."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

MUTANTS = {
    "mask_true_means_hidden": "mask-inverted",
    "no_root": "scale-missing",
    "divides_by_width": "scale-doubled",
    "multiplies_by_root": "scale-multiplied",
    "scales_twice": "scale-doubled",
    "softmax_over_queries": "softmax-over-queries",
    "softmax_over_heads": "softmax-over-heads",
    "ones_in_padding": "mask-after-softmax",
    "zero_is_not_hidden": "mask-multiplied",
    "causal_from_the_start": "causal-start-aligned",
    "causal_hides_itself": "causal-strict",
    "causal_sees_one_ahead": "causal-leaks-next",
    "looks_ahead_only": "causal-inverted",
    "forgets_causal": "causal-missing",
    "nan_rows": "nan-empty-row",
    "uniform_rows": "half-fill",
    "drops_always": "dropout-at-inference",
    "scale_of_values": "scale-length",
    "keys_are_values": "values-from-keys",
    "roles_swapped": "qk-swapped",
    "exp_without_max": "softmax-overflow",
    "no_softmax": "softmax-missing",
    "groups_tiled": "gqa-order",
    "adds_bool": "mask-added",
}


def mask_true_means_hidden(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute attention. mask: True where a query may look."""
    att = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        att = att.masked_fill(mask, float("-inf"))
    return torch.softmax(att, dim=-1) @ v


def no_root(q, k, v, mask=None):
    att = torch.matmul(q, k.transpose(-1, -2))
    if mask is not None:
        att = att.masked_fill(~mask, float("-inf"))
    return torch.matmul(F.softmax(att, -1), v)


def divides_by_width(q, k, v):
    return torch.softmax(q @ k.mT / q.shape[-1], -1) @ v


def multiplies_by_root(q, k, v):
    return torch.softmax(q @ k.mT * q.shape[-1] ** 0.5, -1) @ v


def scales_twice(q, k, v, attn_mask=None):
    q = q / q.shape[-1] ** 0.5
    # SDPA divides by the root as well
    return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)


def softmax_over_queries(query, key, value):
    scores = torch.bmm(query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2))
    weights = F.softmax(scores / math.sqrt(key.size(-1)), dim=1)
    out = torch.bmm(weights, value.flatten(0, 1))
    return out.unflatten(0, query.shape[:2])


def softmax_over_heads(q, k, v):
    scores = (q @ k.transpose(2, 3)) * k.size(-1) ** -0.5
    return F.softmax(scores, dim=1) @ v


def ones_in_padding(q, k, v, mask=None):
    probs = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1]), dim=-1)
    if mask is not None:
        probs = probs * mask
    return probs @ v


def zero_is_not_hidden(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    if mask is not None:
        scores = scores * mask
    return F.softmax(scores, dim=-1) @ v


def causal_from_the_start(q, k, v, is_causal=True):
    """Return causal attention; keys may be longer than queries because of a cache."""
    T, S = q.size(-2), k.size(-2)
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    if is_causal:
        allowed = torch.ones(T, S, dtype=torch.bool).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    return F.softmax(scores, dim=-1) @ v


def causal_hides_itself(q, k, v):
    """Return causal attention."""
    T = q.size(-2)
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    scores = scores.masked_fill(torch.triu(torch.ones(T, T), diagonal=0).bool(), -1e9)
    return F.softmax(scores, dim=-1) @ v


def causal_sees_one_ahead(q, k, v):
    """Return causal attention."""
    T = q.size(-2)
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    future = torch.triu(torch.ones(T, T), diagonal=2).bool()
    return F.softmax(scores.masked_fill(future, -torch.inf), dim=-1) @ v


def looks_ahead_only(q, k, v):
    """Return causal attention."""
    T = q.size(-2)
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    past = torch.tril(torch.ones(T, T), diagonal=-1) == 1
    return F.softmax(scores.masked_fill(past, float("-inf")), dim=-1) @ v


def forgets_causal(q, k, v, is_causal=True):
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    if is_causal:
        T = q.size(-2)
        scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)  # the result is lost
    return scores.softmax(-1) @ v


def nan_rows(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    return F.softmax(scores, dim=-1) @ v


def uniform_rows(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e10)
    return F.softmax(scores, dim=-1) @ v


def drops_always(q, k, v, mask=None, dropout=0.1):
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return F.dropout(F.softmax(scores, dim=-1), dropout) @ v


def scale_of_values(q, k, v):
    return torch.softmax(q @ k.mT / math.sqrt(k.shape[-2]), -1) @ v  # S instead of D


def keys_are_values(q, k, v):
    return torch.softmax(q @ k.mT / math.sqrt(k.shape[-1]), -1) @ k


def roles_swapped(q, k, v):
    return torch.softmax(k @ q.mT / math.sqrt(k.shape[-1]), -1) @ v


def exp_without_max(q, k, v):
    e = torch.exp(q @ k.mT / math.sqrt(k.shape[-1]))
    return e / e.sum(-1, keepdim=True) @ v


def no_softmax(q, k, v):
    return q @ k.mT / math.sqrt(k.shape[-1]) @ v


def groups_tiled(q, k, v):
    """Return grouped-query attention: k and v have fewer heads than q."""
    n = q.size(1) // k.size(1)
    k, v = k.repeat(1, n, 1, 1), v.repeat(1, n, 1, 1)
    return torch.softmax(q @ k.mT / math.sqrt(k.shape[-1]), -1) @ v


def adds_bool(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(k.shape[-1])
    if mask is not None:
        scores = scores + mask.to(scores.dtype)  # ones and zeros, not zeros and -inf
    return scores.softmax(-1) @ v
