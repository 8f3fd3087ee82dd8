"""A Triton kernel for one new token of each text: attention over a cache, which it extends.

Import this module only where Triton is installed.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from glasshead.generation.linear_kernel import PROGRAMS, launch_options

__all__ = ["attend"]


def attend(
    qkv: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    length: Tensor,
    pads: Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    slopes: Tensor | None = None,
    turn: tuple[Tensor, Tensor] | None = None,
    norms: tuple[Tensor, Tensor, float] | None = None,
) -> Tensor:
    """Return each new token's context (B, H * D), from its projections (B, (H + 2 H_kv) * D).

    Args:
        k_cache, v_cache: (B, H_kv, S, D); the new token's are written to column `length`.
        length: () int32 on the device, the number of columns in use.
        pads: (B,) int32, the number of columns at the front that are padding.
        turn: cos and sin of every position, (S, D), as in `Rotation`.
        norms: the scales of the norms of queries and keys, (D,) each, and their eps.
    """
    B, H_kv, S, D = k_cache.shape
    H = qkv.shape[1] // D - 2 * H_kv
    out = torch.empty(B, H * D, dtype=qkv.dtype, device=qkv.device)
    parts = max(1, min(triton.cdiv(S, 512), PROGRAMS // (B * H)))
    sums = out
    if parts > 1:
        sums = torch.empty(B * H, parts, D + 2, dtype=torch.float32, device=qkv.device)
    cos, sin = turn or (qkv, qkv)
    q_norm, k_norm, eps = norms or (qkv, qkv, 0.0)
    wide, starts = triton.next_power_of_2(D), launch_options(qkv)
    with torch.cuda.device_of(qkv):
        _attend[(B * H, parts)](
            qkv, k_cache, v_cache, length, pads, out, sums, cos, sin, q_norm, k_norm, eps,
            qkv if slopes is None else slopes, S, scale, softcap or 0.0, window or 0,
            H=H, H_KV=H_kv, D=D, WIDE=wide, PARTS=parts, TURNED=turn is not None,
            NORMED=norms is not None, SLOPED=slopes is not None, CAPPED=softcap is not None,
            WINDOW=window is not None, TALL=max(16, 8192 // wide), num_warps=4, **starts,
        )  # fmt: skip
        if parts > 1:
            _combine[(B * H,)](
                sums, out, D=D, WIDE=wide, PARTS=parts, TALL=triton.next_power_of_2(parts),
                **starts,
            )  # fmt: skip
    return out


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _norm_and_rotate(  # type: ignore[no-untyped-def]
    row, d, other_d, D: tl.constexpr, cos, sin, norm, eps,
    TURNED: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    """Return a query or key of the new token, normed, rotated and rounded to the cache's dtype."""
    y = tl.load(row + d, mask=d < D, other=0.0).to(tl.float32)
    scale = 1.0
    if NORMED:
        scale = tl.rsqrt(tl.sum(y * y) / D + eps)
        y = y * scale * tl.load(norm + d, mask=d < D, other=0.0).to(tl.float32)
        y = y.to(row.dtype.element_ty).to(tl.float32)
    if TURNED:
        pair = tl.load(row + other_d, mask=d < D, other=0.0).to(tl.float32)
        if NORMED:
            pair = pair * scale * tl.load(norm + other_d, mask=d < D, other=0.0).to(tl.float32)
            pair = pair.to(row.dtype.element_ty).to(tl.float32)
        y = y * cos + pair * sin
    return y.to(row.dtype.element_ty)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _attend(  # type: ignore[no-untyped-def]
    qkv, k_cache, v_cache, length, pads, out, sums, cos, sin, q_norm, k_norm, eps, slopes,
    S, scale, softcap, window,
    H: tl.constexpr, H_KV: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr,
    PARTS: tl.constexpr, TURNED: tl.constexpr, NORMED: tl.constexpr, SLOPED: tl.constexpr,
    CAPPED: tl.constexpr, WINDOW: tl.constexpr, TALL: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    head, part = tl.program_id(0), tl.program_id(1)
    b, h = head // H, head % H
    group = h // (H // H_KV)
    d, at = tl.arange(0, WIDE), tl.load(length)
    other_d = (d + D // 2) % D
    pad = tl.load(pads + b)
    row = qkv + b.to(tl.int64) * (H + 2 * H_KV) * D
    turn_cos, turn_sin = 1.0, 0.0
    if TURNED:
        turn_cos = tl.load(cos + (at - pad) * D + d, mask=d < D, other=0.0)
        turn_sin = tl.load(sin + (at - pad) * D + d, mask=d < D, other=0.0)
    q = _norm_and_rotate(
        row + h * D, d, other_d, D, turn_cos, turn_sin, q_norm, eps, TURNED, NORMED
    )
    q = q.to(tl.float32)
    first = pad
    if WINDOW:
        first = tl.maximum(first, at - window + 1)
    span = tl.cdiv(tl.maximum(at - first, 0), PARTS)
    start, stop = first + part * span, tl.minimum(first + part * span + span, at)
    slope = 0.0
    if SLOPED:
        slope = tl.load(slopes + h).to(tl.float32)
    top, total = -float("inf"), 0.0
    context = tl.zeros((WIDE,), tl.float32)
    base = (b * H_KV + group).to(tl.int64) * S * D
    if part == 0:  # the new token itself; one head of a group writes it to the cache
        key = row + (H + group) * D
        k = _norm_and_rotate(key, d, other_d, D, turn_cos, turn_sin, k_norm, eps, TURNED, NORMED)
        v = tl.load(row + (H + H_KV + group) * D + d, mask=d < D, other=0.0)
        if h % (H // H_KV) == 0:
            tl.store(k_cache + base + at * D + d, k, mask=d < D)
            tl.store(v_cache + base + at * D + d, v, mask=d < D)
        top = tl.sum(q * k.to(tl.float32)) * scale
        if CAPPED:
            top = softcap * (2 * tl.sigmoid(2 * top / softcap) - 1)
        total = 1.0
        context = v.to(tl.float32)
    j = tl.arange(0, TALL)
    for column in range(start, stop, TALL):
        here = column + j
        place = base + here[:, None] * D + d[None, :]
        inside = (here < stop)[:, None] & (d < D)[None, :]
        k_tile = tl.load(k_cache + place, mask=inside, other=0.0).to(tl.float32)
        v_tile = tl.load(v_cache + place, mask=inside, other=0.0).to(tl.float32)
        score = tl.sum(k_tile * q[None, :], 1) * scale
        if CAPPED:
            score = softcap * (2 * tl.sigmoid(2 * score / softcap) - 1)
        if SLOPED:
            score -= slope * (at - here)
        score = tl.where(here < stop, score, -float("inf"))
        higher = tl.maximum(top, tl.max(score))
        shrink = tl.exp(top - higher)
        power = tl.exp(score - higher)
        total = total * shrink + tl.sum(power)
        context = context * shrink + tl.sum(v_tile * power[:, None], 0)
        top = higher
    if PARTS == 1:
        place = out + b.to(tl.int64) * H * D + h * D + d
        tl.store(place, (context / total).to(out.dtype.element_ty), mask=d < D)
    else:
        place = sums + (head * PARTS + part) * (D + 2)
        tl.store(place + d, context, mask=d < D)
        tl.store(place + D, top)
        tl.store(place + D + 1, total)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _combine(  # type: ignore[no-untyped-def]
    sums, out, D: tl.constexpr, WIDE: tl.constexpr, PARTS: tl.constexpr, TALL: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:
        tl.extra.cuda.gdc_wait()
    head = tl.program_id(0)
    p, d = tl.arange(0, TALL), tl.arange(0, WIDE)
    place = sums + (head * PARTS + p) * (D + 2)
    tops = tl.load(place + D, mask=p < PARTS, other=-float("inf"))
    power = tl.exp(tops - tl.max(tops))
    total = tl.sum(power * tl.load(place + D + 1, mask=p < PARTS, other=0.0))
    inside = (p < PARTS)[:, None] & (d < D)[None, :]
    context = tl.load(place[:, None] + d[None, :], mask=inside, other=0.0)
    context = tl.sum(context * power[:, None], 0) / total
    tl.store(out + head.to(tl.int64) * D + d, context.to(out.dtype.element_ty), mask=d < D)
