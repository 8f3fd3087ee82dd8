# mypy: ignore-errors
"""Weights of single pairs: of given keys of each row, by lag near 0, at the edges of buckets."""

import triton
import triton.language as tl

from glasshead.observe.programs.scores import load_rows, pair_weights, score_tile


@triton.jit
def sum_at_keys(
    q, k, lse, wanted, out, after, keys, documents, slopes, T, S, H, group, q_b, q_h, q_t, k_b,
    k_h, k_s, keys_b, documents_b, window, scale, softcap, none,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
    BM: tl.constexpr, AFTER: tl.constexpr,
):  # fmt: skip
    """`out` (B x H, T): each row's weight on its key `wanted` (B, T); with AFTER, `after` gets the
    weight on the next key. `none`, -1 or less, means no key."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    rows = block * BM + tl.arange(0, BM)
    real = rows < T
    i = rows + (S - T)
    q_tile = load_rows(q + b.to(tl.int64) * q_b + h.to(tl.int64) * q_h, rows, T, q_t, D, BD)
    q_tile = q_tile.to(tl.float32)
    k += b.to(tl.int64) * k_b + (h // group).to(tl.int64) * k_h
    keys += b.to(tl.int64) * keys_b
    documents += b.to(tl.int64) * documents_b
    row_document = tl.zeros((BM,), tl.int32)
    if DOCUMENTS:
        row_document = tl.load(documents + i, mask=real, other=-2)
    slope = tl.load(slopes + h) if ALIBI else 0.0
    row = bh.to(tl.int64) * T + rows
    row_lse = tl.load(lse + row, mask=real, other=1e30)
    j = tl.load(wanted + b.to(tl.int64) * T + rows, mask=real, other=-1)
    p = pair_weights(
        q_tile, k, j, i, row_lse, S, k_s, keys, documents, row_document, window, scale, softcap,
        slope, D, BD, CAUSAL, WINDOW, KEYS, DOCUMENTS, CAP, ALIBI,
    )  # fmt: skip
    tl.store(out + row, p, mask=real)
    if AFTER:
        p = pair_weights(
            q_tile, k, tl.where(j <= none, -1, j + 1), i, row_lse, S, k_s, keys, documents,
            row_document, window, scale, softcap, slope, D, BD, CAUSAL, WINDOW, KEYS, DOCUMENTS,
            CAP, ALIBI,
        )  # fmt: skip
        tl.store(after + row, p, mask=real)


@triton.jit
def near_lags(
    q, k, lse, sums, self_out, previous_out, keys, documents, slopes, T, S, H, group, q_b, q_h,
    q_t, k_b, k_h, k_s, keys_b, documents_b, window, scale, softcap, lowest, n,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
    BM: tl.constexpr,
):  # fmt: skip
    """`sums` (B x H, blocks, n): the weight of each of the n lags from `lowest` on."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    rows = block * BM + tl.arange(0, BM)
    real = rows < T
    i = rows + (S - T)
    q_tile = load_rows(q + b.to(tl.int64) * q_b + h.to(tl.int64) * q_h, rows, T, q_t, D, BD)
    q_tile = q_tile.to(tl.float32)
    k += b.to(tl.int64) * k_b + (h // group).to(tl.int64) * k_h
    keys += b.to(tl.int64) * keys_b
    documents += b.to(tl.int64) * documents_b
    row_document = tl.zeros((BM,), tl.int32)
    if DOCUMENTS:
        row_document = tl.load(documents + i, mask=real, other=-2)
    slope = tl.load(slopes + h) if ALIBI else 0.0
    row = bh.to(tl.int64) * T + rows
    row_lse = tl.load(lse + row, mask=real, other=1e30)
    sums += (bh.to(tl.int64) * tl.num_programs(0) + block) * n
    for c in range(n):
        p = pair_weights(
            q_tile, k, i - (lowest + c), i, row_lse, S, k_s, keys, documents, row_document, window,
            scale, softcap, slope, D, BD, CAUSAL, WINDOW, KEYS, DOCUMENTS, CAP, ALIBI,
        )  # fmt: skip
        tl.store(sums + c, tl.sum(p))
        if lowest + c == 0:
            tl.store(self_out + row, p, mask=real)
        if lowest + c == 1:
            tl.store(previous_out + row, p, mask=real)


@triton.jit
def nearer_than_edges(
    q, k, lse, out, keys, documents, slopes, T, S, H, group, q_b, q_h, q_t, k_b, k_h, k_s, keys_b,
    documents_b, window, scale, softcap,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """`out` (B x H, blocks, 64): for each edge 128 x 2^n between buckets, looking back (n) and
    ahead (32 + n), the weight nearer than the edge in the groups of the sweep that it cuts."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    rows = block * BM + tl.arange(0, BM)
    i = rows + (S - T)
    q_tile = load_rows(q + b.to(tl.int64) * q_b + h.to(tl.int64) * q_h, rows, T, q_t, D, BD)
    k += b.to(tl.int64) * k_b + (h // group).to(tl.int64) * k_h
    keys += b.to(tl.int64) * keys_b
    documents += b.to(tl.int64) * documents_b
    row_document = tl.zeros((BM,), tl.int32)
    if DOCUMENTS:
        row_document = tl.load(documents + i, mask=rows < T, other=-2)
    slope = tl.load(slopes + h) if ALIBI else 0.0
    row_lse = tl.load(lse + bh.to(tl.int64) * T + rows, mask=rows < T, other=1e30)
    out += (bh.to(tl.int64) * tl.num_programs(0) + block) * 64
    first = block * BM + S - T
    for way in tl.static_range(1 if CAUSAL else 2):
        n = 0
        edge = 128
        while edge < (S + BM if way == 0 else T + GROUP):
            # Groups that start at c hold lags first - c - GROUP + 1 to first + BM - 1 - c.
            if way == 0:
                low, high = first - GROUP + 1 - edge + 1, first + BM - 1 - edge
            else:
                low, high = first - GROUP + 1 + edge, first + BM - 1 + edge - 1
            g = (tl.maximum(low, 0) + GROUP - 1) // GROUP
            total = tl.zeros((BM,), tl.float32)
            while g * GROUP <= tl.minimum(high, S - 1):
                for u in tl.static_range(GROUP // BN):
                    start = g * GROUP + u * BN
                    x = score_tile(
                        q_tile, k, start, i, row_lse, S, k_s, keys, documents, row_document,
                        window, scale, softcap, slope, D, BD, CAUSAL, WINDOW, KEYS, DOCUMENTS,
                        CAP, ALIBI, PRECISION, BN, MASKED,
                    )  # fmt: skip
                    lag = i[:, None] - (start + tl.arange(0, BN))[None, :]
                    lag = lag if way == 0 else -lag
                    total += tl.sum(tl.where(lag < edge, tl.exp2(x), 0.0), 1)
                g += 1
            tl.store(out + way * 32 + n, tl.sum(total))
            edge *= 2
            n += 1


@triton.jit
def probe_rows(
    q, k, lse, out, keys, documents, slopes, T, S, H, group, q_b, q_h, q_t, k_b, k_h, k_s, keys_b,
    documents_b, window, scale, softcap, head, step, probes,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """`out` (heads, probes, S): the weights of the rows T - 1, T - 1 - step, ..., of the heads from
    number `head` on. With CAUSAL, keys that a row cannot see may be left out."""
    block, bh = tl.program_id(0), head + tl.program_id(1)
    first = tl.program_id(2) * BM
    b, h = bh // H, bh % H
    probe = first + tl.arange(0, BM)
    rows = tl.where(probe < probes, T - 1 - probe * step, -1)
    cols = block * BN + tl.arange(0, BN)
    if CAUSAL and block * BN > S - 1 - first * step:
        return
    i = rows + (S - T)
    q_tile = load_rows(q + b.to(tl.int64) * q_b + h.to(tl.int64) * q_h, rows, T, q_t, D, BD)
    k += b.to(tl.int64) * k_b + (h // group).to(tl.int64) * k_h
    keys += b.to(tl.int64) * keys_b
    documents += b.to(tl.int64) * documents_b
    slope = tl.load(slopes + h) if ALIBI else 0.0
    row_lse = tl.load(lse + bh.to(tl.int64) * T + rows, mask=rows >= 0, other=1e30)
    row_document = tl.zeros((BM,), tl.int32)
    if DOCUMENTS:
        row_document = tl.load(documents + i, mask=rows >= 0, other=-2)
    x = score_tile(
        q_tile, k, block * BN, i, row_lse, S, k_s, keys, documents, row_document, window, scale,
        softcap, slope, D, BD, CAUSAL, WINDOW, KEYS, DOCUMENTS, CAP, ALIBI, PRECISION, BN, True,
    )  # fmt: skip
    at = (tl.program_id(1) * probes + probe).to(tl.int64)[:, None] * S + cols[None, :]
    real = (probe < probes)[:, None] & (cols < S)[None, :]
    tl.store(out + at, tl.exp2(x).to(out.dtype.element_ty), mask=real)


@triton.jit
def probe_lags(weights, out, T, S, head, step, probes, one, CAUSAL: tl.constexpr, BN: tl.constexpr):
    """`out` (B x H, T + S - 1): sums over the probes by lag, from 1 - T on, times `one`."""
    at = tl.program_id(0) * BN + tl.arange(0, BN)
    lag = at - (T - 1)
    weights += tl.program_id(1).to(tl.int64) * probes * S
    total = tl.zeros((BN,), tl.float32)
    if CAUSAL:  # lags below 0 have no weight; rows before a lag do not reach it
        probes = tl.minimum(probes, (S - 1 - tl.min(lag)) // step + 1)
        probes = tl.where(tl.max(lag) < 0, 0, probes)
    for n in range(probes):
        j = S - 1 - n * step - lag
        seen = (j >= 0) & (j < S)
        if CAUSAL:
            seen = seen & (lag >= 0)
        total += tl.load(weights + tl.cast(n, tl.int64) * S + j, mask=seen, other=0.0)
    out += (head + tl.program_id(1)).to(tl.int64) * (T + S - 1)
    tl.store(out + at, total * one, mask=at < T + S - 1)
