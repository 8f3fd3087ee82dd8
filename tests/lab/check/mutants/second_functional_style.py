"""Torch functional mutants."""

import math

import torch
import torch.nn.functional as F

MUTANTS = {
    "tf_no_scale": "scale-missing",
    "tf_double_scale": "scale-doubled",
    "tf_scale_by_d": "scale-doubled",
    "tf_mul_sqrt": "scale-multiplied",
    "tf_softmax_queries": "softmax-over-queries",
    "tf_softmax_heads": "softmax-over-heads",
    "tf_mask_after_softmax": "mask-after-softmax",
    "tf_causal_topleft": "causal-start-aligned",
    "tf_causal_peeks": "causal-leaks-next",
    "tf_mask_zero_fill": "mask-multiplied",
    "tf_mask_tiny": "mask-multiplied",
    "tf_bool_added": "mask-added",
    "tf_dropout_always": "dropout-at-inference",
    "tf_values_are_keys": "values-from-keys",
    "tf_qk_swapped": "qk-swapped",
    "tf_no_softmax": "softmax-missing",
    "tf_inplace_scale": "input-changed",
    "tf_gqa_tiled": "gqa-order",
    "tf_view_not_transpose": "k-not-transposed",
    "tf_padding_on_queries": "padding-on-queries",
    "tf_nan_rows": "nan-empty-row",
    "tf_inf_times_zero": "mask-nan",
    "tf_softcap_after_mask": "softcap-order",
}


def tf_no_scale(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def tf_double_scale(query, key, value):
    d = query.size(-1)
    query = query / math.sqrt(d)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d)
    return F.softmax(scores, -1) @ value


def tf_scale_by_d(q, k, v, is_causal=False):
    s = q @ k.mT / q.shape[-1]
    if is_causal:
        T, S = s.shape[-2:]
        s = s.masked_fill(~torch.ones(T, S, dtype=torch.bool).tril(S - T), -torch.inf)
    return s.softmax(-1) @ v


def tf_mul_sqrt(q, k, v):
    s = q @ k.mT * math.sqrt(q.shape[-1])
    return s.softmax(-1) @ v


def tf_softmax_queries(q, k, v):
    s = q @ k.mT / math.sqrt(q.shape[-1])
    return F.softmax(s, dim=-2) @ v


def tf_softmax_heads(q, k, v):
    """q, k, v: (B, H, T, D)."""
    s = q @ k.mT / math.sqrt(q.shape[-1])
    return F.softmax(s, dim=1) @ v


def tf_mask_after_softmax(q, k, v, causal=True):
    s = q @ k.mT / math.sqrt(q.shape[-1])
    w = s.softmax(-1)
    if causal:
        w = w * torch.ones(s.shape[-2:]).tril(s.shape[-1] - s.shape[-2]).to(w)
    return w @ v


def tf_causal_topleft(q, k, v, is_causal=True):
    T, S = q.size(-2), k.size(-2)
    s = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    if is_causal:
        keep = torch.tril(torch.ones(T, S, dtype=torch.bool))
        s = s.masked_fill(~keep, float("-inf"))
    return s.softmax(dim=-1) @ v


def tf_causal_peeks(q, k, v):
    """Causal attention."""
    T, S = q.size(-2), k.size(-2)
    s = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    hide = torch.triu(torch.ones(T, S, dtype=torch.bool), diagonal=2 + S - T)
    return s.masked_fill(hide, float("-inf")).softmax(dim=-1) @ v


def tf_mask_zero_fill(q, k, v, mask=None):
    """mask: True where a query may attend."""
    s = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    if mask is not None:
        s = s.masked_fill(~mask, 0.0)
    return s.softmax(-1) @ v


def tf_mask_tiny(q, k, v, mask=None):
    """mask: 1 keep, 0 hide."""
    s = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    if mask is not None:
        s = s.masked_fill(mask == 0, -1e-9)
    return s.softmax(-1) @ v


def tf_bool_added(q, k, v, attn_mask=None):
    """attn_mask: boolean, True = may attend."""
    s = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    if attn_mask is not None:
        s = s + attn_mask
    return s.softmax(-1) @ v


def tf_dropout_always(q, k, v, dropout_p=0.1, training=False):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    w = F.dropout(s.softmax(-1), p=dropout_p)
    return w @ v


def tf_values_are_keys(q, k, v):
    w = (q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))).softmax(-1)
    return w @ k


def tf_qk_swapped(q, k, v):
    w = (k @ q.transpose(-1, -2) / math.sqrt(q.size(-1))).softmax(-1)
    return w @ v


def tf_no_softmax(q, k, v):
    return (q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))) @ v


def tf_inplace_scale(q, k, v):
    q /= math.sqrt(q.size(-1))
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v


def tf_gqa_tiled(q, k, v):
    """q (B, H, T, D); k, v (B, G, S, D): H is a multiple of G."""
    n = q.size(1) // k.size(1)
    k = k.repeat(1, n, 1, 1)
    v = v.repeat(1, n, 1, 1)
    return (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1) @ v


def tf_view_not_transpose(q, k, v):
    s = q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2]) / math.sqrt(q.size(-1))
    return s.softmax(-1) @ v


def tf_padding_on_queries(q, k, v, key_padding_mask=None):
    """key_padding_mask (B, S): True = a padding key, is hidden."""
    s = q @ k.mT / math.sqrt(q.size(-1))
    if key_padding_mask is not None:
        s = s.masked_fill(key_padding_mask[:, None, :, None], float("-inf"))
    return s.softmax(-1).nan_to_num() @ v


def tf_nan_rows(q, k, v, mask):
    """mask: True = may attend; rows may be fully masked."""
    s = q @ k.mT / math.sqrt(q.size(-1))
    bias = torch.zeros_like(s).masked_fill(~mask, float("-inf"))
    return torch.softmax(s + bias, -1) @ v


def tf_inf_times_zero(q, k, v):
    """Causal: triu(ones) * -inf."""
    T = q.size(-2)
    s = q @ k.mT / math.sqrt(q.size(-1)) + torch.triu(torch.ones(T, T), 1) * float("-inf")
    return s.softmax(-1) @ v


def tf_softcap_after_mask(q, k, v, softcap=5.0):
    """Causal, with a soft cap on the scores."""
    T, S = q.size(-2), k.size(-2)
    s = q @ k.mT / math.sqrt(q.size(-1))
    s = s.masked_fill(torch.ones(T, S, dtype=torch.bool).triu(S - T + 1), float("-inf"))
    s = softcap * torch.tanh(s / softcap)
    return s.softmax(-1) @ v
