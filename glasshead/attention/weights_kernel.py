"""Weights on a GPU in one pass over memory: exp(scores - lse), tile by tile.

For plainly scaled scores under a causal mask or none, where a fused kernel has returned its lse.
All other calls are computed in bands by `scores.py`. Importing this module needs Triton.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["TILE", "weights_from_lse"]

TILE = (64, 128, 4)  # rows, columns, warps: the fastest of fourteen on an H200


# No annotations: Triton would read them as its own types.
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _weights(  # type: ignore[no-untyped-def]
    q, k, lse, out,
    T, S, heads, group, scale,
    q_b, q_h, q_t, k_b, k_h, k_s,
    D: tl.constexpr, D_PADDED: tl.constexpr, CAUSAL: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    n_cols, n_rows = tl.cdiv(S, COLS), tl.cdiv(T, ROWS)
    tile = tl.program_id(0)
    col, row = tile % n_cols * COLS, tile // n_cols % n_rows * ROWS
    head = (tile // n_cols // n_rows).to(tl.int64)  # of all B x H
    b, h = head // heads, head % heads
    i, j, d = row + tl.arange(0, ROWS), col + tl.arange(0, COLS), tl.arange(0, D_PADDED)
    place = out + (head * T + i[:, None]) * S + j[None, :]
    inside = (i < T)[:, None] & (j < S)[None, :]
    if CAUSAL and col > row + ROWS - 1 + S - T:
        tl.store(place, tl.zeros((ROWS, COLS), tl.float32), mask=inside)
    else:
        q_at = q + b * q_b + h * q_h + i[:, None] * q_t + d[None, :]
        k_at = k + b * k_b + h // group * k_h + j[None, :] * k_s + d[:, None]
        q_tile = tl.load(q_at, mask=(i < T)[:, None] & (d < D)[None, :], other=0.0)
        k_tile = tl.load(k_at, mask=(j < S)[None, :] & (d < D)[:, None], other=0.0)
        scores = tl.dot(q_tile, k_tile, input_precision="ieee") * scale
        row_lse = tl.load(lse + head * T + i, mask=i < T, other=0.0)
        power = scores - row_lse[:, None]
        if CAUSAL:  # hides all of a row whose lse is -inf, too
            power = tl.where(j[None, :] <= i[:, None] + (S - T), power, -float("inf"))
        tl.store(place, tl.exp(power), mask=inside)


def weights_from_lse(q: Tensor, k: Tensor, lse: Tensor, scale: float, causal: bool) -> Tensor:
    """Return float32 (B, H, T, S) from q (B, H, T, D), k (B, H_kv, S, D) and lse (B, H, T)."""
    (B, H, T, D), (_, H_kv, S, _) = q.shape, k.shape
    q = q if q.stride(-1) == 1 else q.contiguous()
    k = k if k.stride(-1) == 1 else k.contiguous()
    out = torch.empty(B, H, T, S, dtype=torch.float32, device=q.device)
    rows, cols, warps = TILE
    with torch.cuda.device_of(q):
        _weights[(triton.cdiv(S, cols) * triton.cdiv(T, rows) * B * H,)](
            q, k, lse.contiguous(), out, T, S, H, H // H_kv, scale,
            *q.stride()[:3], *k.stride()[:3],
            D=D, D_PADDED=max(16, triton.next_power_of_2(D)), CAUSAL=causal,
            ROWS=rows, COLS=cols, num_warps=warps,
        )  # fmt: skip
    return out
