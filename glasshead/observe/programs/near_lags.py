# mypy: ignore-errors
"""The weight of each single lag near 0, for weights of 16 bits: tiles of 64 queries and 256 keys
are written to memory, then read along their diagonals."""

import triton
import triton.language as tl

from glasshead.observe.programs.scores import HIDDEN, finish_scores, load_rows, may_attend


@triton.jit
def near_rows(
    q, k, lse, out, keys, documents, slopes, T, S, H, group, q_b, q_h, q_t, k_b, k_h, k_s, keys_b,
    documents_b, window, scale, softcap, head, lowest,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
):  # fmt: skip
    """`out` (heads, blocks, 64, 256): of row r of each block, the weight of lag l, from `lowest` to
    lowest + 127, in column r + 128 - (l - lowest). The heads from number `head` on."""
    block, bh = tl.program_id(0), head + tl.program_id(1)
    b, h = bh // H, bh % H
    rows = block * 64 + tl.arange(0, 64)
    i = rows + (S - T)
    q_tile = load_rows(q + b.to(tl.int64) * q_b + h.to(tl.int64) * q_h, rows, T, q_t, D, BD)
    cols = block * 64 + (S - T) - lowest - 128 + tl.arange(0, 256)
    k_tile = load_rows(
        k + b.to(tl.int64) * k_b + (h // group).to(tl.int64) * k_h, cols, S, k_s, D, BD
    )
    keys += b.to(tl.int64) * keys_b
    documents += b.to(tl.int64) * documents_b
    document = tl.zeros_like(rows)
    if DOCUMENTS:
        document = tl.load(documents + i, mask=rows < T, other=-2)
    slope = tl.load(slopes + h) if ALIBI else 0.0
    row_lse = tl.load(lse + bh.to(tl.int64) * T + rows, mask=rows < T, other=-HIDDEN)
    lag = i[:, None] - cols[None, :]
    away = tl.abs(lag).to(tl.float32)
    x = finish_scores(tl.dot(q_tile, tl.trans(k_tile)), away, scale, softcap, slope, CAP, ALIBI)
    ok = may_attend(
        i[:, None], cols[None, :], S, keys, documents, document[:, None], window,
        CAUSAL, WINDOW, KEYS, DOCUMENTS,
    )  # fmt: skip
    p = tl.where(ok, tl.exp2(x - row_lse[:, None]), 0.0).to(tl.float16)
    out += (tl.program_id(1) * tl.num_programs(0) + block).to(tl.int64) * 64 * 256
    tl.store(out + tl.arange(0, 64)[:, None] * 256 + tl.arange(0, 256)[None, :], p)


@triton.jit
def near_sums(weights, out, blocks, BLOCKS: tl.constexpr):
    """`out` (heads, programs, 128 lags): sums of what `near_rows` wrote, over BLOCKS blocks."""
    first, head = tl.program_id(0) * BLOCKS, tl.program_id(1)
    weights += (head * blocks).to(tl.int64) * 64 * 256
    row, lag = tl.arange(0, 32)[:, None], tl.arange(0, 128)[None, :]
    total = tl.zeros((32, 128), tl.float32)
    for n in range(first, tl.minimum(first + BLOCKS, blocks)):
        at = weights + tl.cast(n, tl.int64) * 64 * 256
        total += tl.load(at + row * 257 + 128 - lag).to(tl.float32)
        total += tl.load(at + (row + 32) * 257 + 128 - lag).to(tl.float32)
    out += (head * tl.num_programs(0) + tl.program_id(0)) * 128
    tl.store(out + tl.arange(0, 128), tl.sum(total, 0))
