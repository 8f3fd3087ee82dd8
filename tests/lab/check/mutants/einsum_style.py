"""Attention written with einsum, (B, T, H, D), each with one mistake."""

import torch

MUTANTS = {
    "letters_swapped": "weights-transposed",
    "heads_summed": "heads-mixed",
    "no_scale_einsum": "scale-missing",
    "scale_by_heads": "scale-wrong",
    "causal_flipped": "causal-inverted",
    "softmax_first_axis": "softmax-over-batch",
    "mask_keeps_masked": "mask-inverted",
    "cached_top_left": "causal-start-aligned",
    "all_heads_one_softmax": "softmax-over-heads",
    "penalty_small": "mask-fill-weak",
    "alibi_wrong_sign": "alibi-sign",
    "window_one_too_wide": "window-off-by-one",
}


def letters_swapped(q, k, v):
    w = torch.softmax(torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5, -1)
    return torch.einsum("bhts,bthd->bshd", w, v)


def heads_summed(q, k, v):
    # g sums over all heads of the keys
    s = torch.einsum("bthd,bsgd->bhts", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bhts,bshd->bthd", s.softmax(-1), v)


def no_scale_einsum(q, k, v):
    s = torch.einsum("bthd,bshd->bhts", q, k)
    return torch.einsum("bhts,bshd->bthd", s.softmax(dim=-1), v)


def scale_by_heads(q, k, v):
    s = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[2] ** 0.5
    return torch.einsum("bhts,bshd->bthd", s.softmax(dim=-1), v)


def causal_flipped(q, k, v):
    """Return causal attention over (B, T, H, D)."""
    T = q.shape[1]
    s = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    i = torch.arange(T)
    s = torch.where(i[:, None] <= i[None, :], s, -1e30)
    return torch.einsum("bhts,bshd->bthd", s.softmax(dim=-1), v)


def softmax_first_axis(q, k, v):
    s = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("bhts,bshd->bthd", s.softmax(dim=0), v)


def mask_keeps_masked(q, k, v, mask=None):
    """Attend. mask (B, 1, T, S): True where a query may look."""
    s = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        s = torch.where(mask, torch.finfo(s.dtype).min, s)
    return torch.einsum("bhts,bshd->bthd", s.softmax(dim=-1), v)


def cached_top_left(q, k, v):
    """Return causal attention of the last T queries on all S keys, (B, T, H, D)."""
    T, S = q.shape[1], k.shape[1]
    s = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    s = s.masked_fill(torch.arange(S) > torch.arange(T)[:, None], -torch.inf)
    return torch.einsum("bhts,bshd->bthd", s.softmax(dim=-1), v)


def all_heads_one_softmax(q, k, v):
    s = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    w = s.permute(0, 2, 1, 3).flatten(2).softmax(-1).unflatten(2, (s.shape[1], s.shape[3]))
    return torch.einsum("bths,bshd->bthd", w, v)


def penalty_small(q, k, v, mask=None):
    """Attend. mask: True where a query may look."""
    s = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        s = s - 5.0 * (~mask)
    return torch.einsum("bhts,bshd->bthd", s.softmax(dim=-1), v)


def alibi_wrong_sign(q, k, v):
    """Return causal attention with ALiBi slopes 2^(-8h/H), (B, T, H, D)."""
    T, H = q.shape[1], q.shape[2]
    slopes = 2.0 ** (-8.0 * torch.arange(1, H + 1, dtype=q.dtype) / H)
    i = torch.arange(T)
    distance = (i[:, None] - i[None, :]).to(q.dtype)
    s = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    s = s + slopes[:, None, None] * distance  # should be subtracted
    s = s.masked_fill(distance < 0, -torch.inf)
    return torch.einsum("bhts,bshd->bthd", s.softmax(dim=-1), v)


def window_one_too_wide(q, k, v, window=3):
    """Return causal attention within a window: each query sees the last `window` keys."""
    T = q.shape[1]
    i = torch.arange(T)
    far = i[:, None] - i[None, :]
    s = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    s = s.masked_fill((far < 0) | (far > window), -torch.inf)
    return torch.einsum("bhts,bshd->bthd", s.softmax(dim=-1), v)
