"""Attention as functions, by a third writer: softmax by blocks, sinks, biases, in place."""

import numpy as np
import torch
import torch.nn.functional as F

MUTANTS = {
    "th_no_scale_zero_hides": "scale-missing",
    "th_scale_by_model_width": "scale-model-width",
    "th_bias_multiplied": "mask-multiplied",
    "th_half_softmax": "low-precision",
    "th_mask_inverted_in_place": "input-changed",
    "th_cap_not_multiplied": "softcap-formula",
    "th_sink_not_shifted": "sink-wrong",
    "th_relative_backwards": "relative-backwards",
    "th_norm_over_time": "norm-axis",
    "th_blocks_values_stale": "softmax-not-rescaled",
    "th_last_block_dropped": "keys-skipped",
    "th_blocks_sum_stale": "softmax-not-rescaled",
    "th_alibi_from_zero": "alibi-slopes",
    "th_rope_opposite": "rotary-opposite",
    "th_rope_frequencies": "rotary-frequencies",
    "th_rope_over_heads": "rotary-no-effect",
    "th_scores_of_all_heads": "heads-mixed",
    "th_sum_without_keepdims": "softmax-other-rows",
}


def th_no_scale_zero_hides(q, k, v, mask=None):
    """Compute scaled dot-product attention.

    Args:
        q, k, v: tensors of shape (..., seq, d)
        mask: optional tensor, 0 where attention is not allowed

    Returns:
        (values, attention) tuple
    """
    attn_logits = torch.matmul(q, k.transpose(-2, -1))
    if mask is not None:
        attn_logits = attn_logits.masked_fill(mask == 0, -9e15)
    attention = torch.softmax(attn_logits, dim=-1)
    return torch.matmul(attention, v), attention


def th_scale_by_model_width(q, k, v, num_heads):
    """Multi-head attention on already projected inputs.

    q: (B, T, E), k, v: (B, S, E); E is split over num_heads heads.
    Returns (B, T, E).
    """
    B, T, E = q.shape
    S = k.shape[1]
    d = E // num_heads
    scale = E**-0.5
    q = q.view(B, T, num_heads, d).transpose(1, 2)
    k = k.view(B, S, num_heads, d).transpose(1, 2)
    v = v.view(B, S, num_heads, d).transpose(1, 2)
    w = ((q * scale) @ k.transpose(2, 3)).softmax(dim=3)
    return (w @ v).transpose(1, 2).reshape(B, T, E)


def th_bias_multiplied(q, k, v, attn_bias=None):
    """Attention with an additive bias.

    attn_bias: float tensor broadcastable to (B, H, T, S), added to the scaled scores
    (large negative values switch a key off).
    """
    scale = q.shape[-1] ** -0.5
    scores = torch.matmul(q * scale, k.transpose(-2, -1))
    if attn_bias is not None:
        scores = scores * attn_bias
    return torch.matmul(scores.softmax(dim=-1), v)


def th_half_softmax(q, k, v, causal=True):
    """Memory-friendly causal attention for (B, H, T, D) tensors."""
    T = q.size(2)
    scores = (q @ k.transpose(2, 3)) / q.size(3) ** 0.5
    if causal:
        hide = torch.ones(T, T, dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hide, float("-inf"))
    probs = scores.half().softmax(dim=-1).to(v.dtype)
    return probs @ v


def th_mask_inverted_in_place(q, k, v, mask=None):
    """mask (bool): True marks keys that may be attended to."""
    scores = torch.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        hidden = mask.logical_not_()
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.einsum("...qk,...kd->...qd", scores.softmax(-1), v)


def th_cap_not_multiplied(q, k, v, cap: float = 3.0):
    """Gemma-style attention: logits are soft-capped to the range (-cap, cap)."""
    logits = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
    logits = torch.tanh(logits / cap)
    return torch.einsum("bhqk,bhkd->bhqd", logits.softmax(dim=-1), v)


def th_sink_not_shifted(q, k, v, sinks):
    """Attention with one learned sink logit per head.

    The sink takes part in the softmax's denominator but carries no value.
    q: (B, H, T, D); k, v: (B, H, S, D); sinks: (H,)
    """
    s = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    sink = sinks.view(1, -1, 1, 1)
    m = torch.maximum(s.amax(-1, keepdim=True), sink)
    e = torch.exp(s - m)
    denom = e.sum(-1, keepdim=True) + torch.exp(sink)
    return (e / denom) @ v


def th_relative_backwards(q, k, v, rel_bias):
    """Attention with a learned relative bias.

    q, k, v: (B, H, T, D)
    rel_bias: (H, 2 * M + 1); entry M + clip(j - i, -M, M) is added to the score of
    query i and key j.
    """
    T, M = q.size(2), (rel_bias.size(1) - 1) // 2
    pos = torch.arange(T, device=q.device)
    offset = (pos[:, None] - pos[None, :]).clamp(-M, M) + M
    scores = q @ k.transpose(2, 3) / q.size(3) ** 0.5
    scores = scores + rel_bias[:, offset]
    return scores.softmax(dim=-1) @ v


def th_norm_over_time(q, k, v, scale=10.0):
    """Cosine-similarity attention: unit-length q and k per token, fixed scale.

    Shapes (B, H, T, D).
    """
    q = F.normalize(q, dim=2)
    k = F.normalize(k, dim=2)
    return torch.softmax(scale * (q @ k.transpose(2, 3)), dim=-1) @ v


def th_blocks_values_stale(q, k, v, block_size=3):
    """Memory-efficient attention: keys are read block by block (online softmax)."""
    scale = q.shape[-1] ** -0.5
    m = torch.full_like(q[..., :1], float("-inf"))
    total = torch.zeros_like(m)
    acc = torch.zeros_like(q)
    for kb, vb in zip(k.split(block_size, dim=-2), v.split(block_size, dim=-2), strict=True):
        s = q @ kb.transpose(-2, -1) * scale
        m_new = torch.maximum(m, s.amax(-1, keepdim=True))
        p = torch.exp(s - m_new)
        alpha = torch.exp(m - m_new)
        total = total * alpha + p.sum(-1, keepdim=True)
        acc = acc + p @ vb
        m = m_new
    return acc / total


def th_last_block_dropped(q, k, v, block=4):
    """Two-pass tiled attention: log-sum-exp first, then the weighted sum."""
    S, D = k.shape[-2:]
    n_blocks = S // block
    parts = []
    for b in range(n_blocks):
        kb = k[..., b * block : (b + 1) * block, :]
        parts.append(torch.logsumexp(q @ kb.transpose(-2, -1) / D**0.5, dim=-1))
    lse = torch.logsumexp(torch.stack(parts), dim=0)
    out = torch.zeros_like(q)
    for b in range(n_blocks):
        cols = slice(b * block, (b + 1) * block)
        p = torch.exp(q @ k[..., cols, :].transpose(-2, -1) / D**0.5 - lse[..., None])
        out = out + p @ v[..., cols, :]
    return out


@torch.no_grad()
def th_blocks_sum_stale(Q, K, V, causal=True, br=4, bc=4):
    """Flash-attention forward pass in plain PyTorch, (B, H, N, d)."""
    N, d = Q.shape[-2:]
    out = torch.zeros_like(Q)
    for i in range(0, N, br):
        Qi = Q[..., i : i + br, :]
        m = Qi.new_full(Qi.shape[:-1], float("-inf"))
        total = Qi.new_zeros(Qi.shape[:-1])
        Oi = torch.zeros_like(Qi)
        for j in range(0, N, bc):
            if causal and j > i + br - 1:
                break
            S = Qi @ K[..., j : j + bc, :].mT / d**0.5
            if causal:
                rows = torch.arange(i, i + S.shape[-2])[:, None]
                cols = torch.arange(j, j + S.shape[-1])[None, :]
                S = S.masked_fill(cols > rows, float("-inf"))
            m_new = torch.maximum(m, S.amax(-1))
            P = torch.exp(S - m_new[..., None])
            r = torch.exp(m - m_new)
            total = total + P.sum(-1)
            Oi = Oi * r[..., None] + P @ V[..., j : j + bc, :]
            m = m_new
        out[..., i : i + br, :] = Oi / total[..., None]
    return out


def get_slopes_of_th_alibi_from_zero(n):
    """Geometric sequence 2^(-8/n), 2^(-16/n), ..., 2^-8."""
    return torch.pow(2.0, -8.0 * torch.arange(n, dtype=torch.float64) / n)


def th_alibi_from_zero(q, k, v):
    """ALiBi attention for a causal language model; shapes (B, H, T, D)."""
    H, T = q.shape[1], q.shape[2]
    rel = torch.arange(T)[None, :] - torch.arange(T)[:, None]
    bias = (get_slopes_of_th_alibi_from_zero(H)[:, None, None] * rel).to(q)
    mask = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    bias = bias.masked_fill(mask, float("-inf"))
    att = torch.matmul(q, k.mT) * q.shape[-1] ** -0.5 + bias
    return torch.matmul(att.softmax(-1), v)


def rope_of_th_rope_opposite(x, sign=1.0, base=10000.0):
    """Rotate consecutive pairs (x0, x1), (x2, x3), ... of (B, H, T, D)."""
    T, D = x.shape[-2:]
    freq = base ** (-torch.arange(0, D, 2, dtype=x.dtype) / D)
    angle = torch.arange(T, dtype=x.dtype)[:, None] * freq
    cos, sin = angle.cos(), sign * angle.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def th_rope_opposite(q, k, v):
    """Self-attention with rotary position embedding."""
    q = rope_of_th_rope_opposite(q)
    k = rope_of_th_rope_opposite(k, sign=-1.0)
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return scores.softmax(-1) @ v


def rope_angles_of_th_rope_frequencies(seq_len, head_dim, base=10000.0):
    """Angles (seq_len, head_dim / 2) as in RoFormer: theta_i = base^(-2i / head_dim)."""
    i = torch.arange(head_dim // 2, dtype=torch.float64)
    theta = base ** (-i / head_dim)
    return torch.arange(seq_len, dtype=torch.float64)[:, None] * theta


def apply_of_th_rope_frequencies(x, ang):
    x = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(x * torch.polar(torch.ones_like(ang), ang)).flatten(-2)


def th_rope_frequencies(q, k, v, causal=True):
    """(B, H, T, D) attention; adjacent channel pairs of q and k are rotated."""
    T, D = q.shape[-2:]
    ang = rope_angles_of_th_rope_frequencies(T, D)
    qr, kr = (
        apply_of_th_rope_frequencies(q, ang).to(q.dtype),
        apply_of_th_rope_frequencies(k, ang).to(k.dtype),
    )
    s = qr @ kr.transpose(-1, -2) / D**0.5
    if causal:
        s = s.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf"))
    return s.softmax(-1) @ v


def apply_rotary_of_th_rope_over_heads(x, base=10000.0):
    """x: (B, H, T, D); rotates channel i with channel i + D/2 by its position's angle."""
    D = x.shape[-1]
    pos = torch.arange(x.shape[1], dtype=x.dtype, device=x.device)
    inv = base ** (-torch.arange(0, D, 2, dtype=x.dtype, device=x.device) / D)
    ang = (pos[:, None] * inv)[None, :, None, :]
    x1, x2 = x[..., : D // 2], x[..., D // 2 :]
    return torch.cat([x1 * ang.cos() - x2 * ang.sin(), x1 * ang.sin() + x2 * ang.cos()], -1)


def th_rope_over_heads(q, k, v, is_causal=True):
    """Rotary attention over (B, H, T, D) tensors."""
    q, k = apply_rotary_of_th_rope_over_heads(q), apply_rotary_of_th_rope_over_heads(k)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def th_scores_of_all_heads(q, k, v):
    """(batch, time, heads, dim) layout in and out."""
    scale = q.shape[-1] ** -0.5
    scores = torch.einsum("bqhd,bkhd->bqk", q, k) * scale
    weights = torch.softmax(scores, dim=-1)
    return torch.einsum("bqk,bkhd->bqhd", weights, v)


def th_sum_without_keepdims(Q, K, V):
    """Single-head attention on (T, d) matrices."""
    d_k = K.shape[1]
    scores = Q @ K.T / np.sqrt(d_k)
    e = np.exp(scores - scores.max())
    weights = e / e.sum(axis=1)
    return weights @ V
