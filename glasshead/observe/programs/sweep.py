# mypy: ignore-errors
"""The sweep: each program takes BM queries of one head and goes over groups of keys.

A group is UNROLL tiles of BN keys. Sums of rows stay spread over LANES columns until the end, so
that no tile pays for sums across threads. For each group and row only the largest weight is kept:
the K strongest keys of a row are in the K groups with the largest maxima (`top_keys.py`).
"""

import triton
import triton.language as tl

from glasshead.observe.programs.scores import HIDDEN, add, group_ranges, load_rows, score_tile


@triton.jit
def spread_sum(x, M: tl.constexpr, N: tl.constexpr, LANES: tl.constexpr):
    """Sum (M, N) to (M, LANES), which each thread can do alone."""
    return tl.sum(tl.reshape(x, (M, N // LANES, LANES)), 1)


@triton.jit
def spread_max(x, M: tl.constexpr, N: tl.constexpr, LANES: tl.constexpr):
    return tl.max(tl.reshape(x, (M, N // LANES, LANES)), 1)


@triton.jit
def bucket(lag):
    """Return n for lags of 128 x 2^n to 128 x 2^(n + 1) - 1; less than 0 for nearer ones."""
    return (tl.maximum(lag, 1).to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127 - 7


@triton.jit
def measure_group(
    g, first, total, entropy, square, moment, top, top_group, lags,
    q, k, i, lse, row_document, received, cell_sum, cell_max, S, stride, keys, documents, window,
    scale, softcap, slope, cells,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr,
    LANES: tl.constexpr, UNITS: tl.constexpr, TOP: tl.constexpr, LAGS: tl.constexpr,
    CELL_ROWS: tl.constexpr, CELL_COLS: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Measure one group of keys. `moment` sums weight x key if the mask is causal, else weight x
    distance."""
    group_total = tl.zeros((BM, LANES), tl.float32)
    group_top = tl.full((BM, LANES), HIDDEN, tl.float32)
    for u in tl.static_range(UNROLL):
        start = g * (UNROLL * BN) + u * BN
        cols = start + tl.arange(0, BN)
        x = score_tile(
            q, k, start, i, lse, S, stride, keys, documents, row_document, window, scale, softcap,
            slope, D, BD, CAUSAL, WINDOW, KEYS, DOCUMENTS, CAP, ALIBI, PRECISION, BN, MASKED,
        )  # fmt: skip
        p = tl.exp2(x)
        group_total += spread_sum(p, BM, BN, LANES)
        entropy += spread_sum(p * x, BM, BN, LANES)
        square += spread_sum(p * p, BM, BN, LANES)
        if CAUSAL:  # the query's position is added at the end
            length = cols.to(tl.float32)[None, :]
        else:
            length = tl.abs(i.to(tl.float32)[:, None] - cols.to(tl.float32)[None, :])
        moment += spread_sum(p * length, BM, BN, LANES)
        group_top = tl.maximum(group_top, spread_max(x, BM, BN, LANES))
        add(received + cols, tl.sum(p, 0), cols < S, UNITS)
        if (CELL_ROWS < BM) | (CELL_COLS < UNROLL * BN):
            stack = tl.reshape(p, (BM // TALL, TALL, BN // WIDE, WIDE))
            at = cell_sum + (tl.arange(0, BM // TALL) * cells)[:, None]
            to = ((start + tl.arange(0, BN // WIDE) * WIDE) // CELL_COLS)[None, :]
            inside = (start + tl.arange(0, BN // WIDE) * WIDE < S)[None, :] & (
                tl.arange(0, BM // TALL) >= 0
            )[:, None]
            tl.atomic_add(at + to, tl.sum(tl.sum(stack, 3), 1), mask=inside, sem="relaxed")
            at = cell_max + (tl.arange(0, BM // TALL) * cells)[:, None]
            tl.atomic_max(at + to, tl.max(tl.max(stack, 3), 1), mask=inside, sem="relaxed")
    total += group_total
    row_top = tl.max(group_top, 1)  # (BM,)
    worst, place = tl.min(top, 1, return_indices=True)
    better = (row_top > worst)[:, None] & (tl.arange(0, TOP)[None, :] == place[:, None])
    top = tl.where(better, row_top[:, None], top)
    top_group = tl.where(better, g, top_group)
    amount = tl.sum(group_total)
    if (CELL_ROWS >= BM) & (CELL_COLS >= UNROLL * BN):
        to = g * (UNROLL * BN) // CELL_COLS
        most = tl.exp2(tl.max(row_top))
        if CELL_COLS == UNROLL * BN:
            tl.store(cell_sum + to, amount)
            tl.store(cell_max + to, most)
        else:
            tl.atomic_add(cell_sum + to, amount, sem="relaxed")
            tl.atomic_max(cell_max + to, most, sem="relaxed")
    if LAGS:
        # A whole group goes to the bucket of its farthest lag; `single_pairs.py` corrects the rest.
        back = first + BM - 1 - g * (UNROLL * BN)
        ahead = g * (UNROLL * BN) + UNROLL * BN - 1 - first
        n = bucket(back)
        n = tl.where(n >= 0, n, tl.where(bucket(ahead) >= 0, 32 + bucket(ahead), -1))
        lags += tl.where(tl.arange(0, 64) == n, amount, 0.0)
    return total, entropy, square, moment, top, top_group, lags


@triton.jit
def sweep_rows(
    q, k, lse, received, out, top_value, top_place, lag_out, cell_sum, cell_max,
    keys, documents, slopes, T, S, H, group, q_b, q_h, q_t, k_b, k_h, k_s, keys_b, documents_b,
    window, scale, softcap, per_key, cell_rows, cells,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, UNROLL: tl.constexpr,
    LANES: tl.constexpr, UNITS: tl.constexpr, TOP: tl.constexpr, LAGS: tl.constexpr,
    CELL_ROWS: tl.constexpr, CELL_COLS: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """`out` is (4, B x H, T): row sum, entropy, sum of squares, distance.
    `top_value`, `top_place` (B x H, T, TOP); `lag_out` (B x H, blocks, 64); cells of `cell_rows`
    rows of a buffer that has at least one row for each program."""
    blocks = tl.num_programs(0)
    block = blocks - 1 - tl.program_id(0)  # the longest rows of a causal mask first
    bh = tl.program_id(1)
    b, h = bh // H, bh % H
    rows = block * BM + tl.arange(0, BM)
    i = rows + (S - T)
    q_tile = load_rows(q + b.to(tl.int64) * q_b + h.to(tl.int64) * q_h, rows, T, q_t, D, BD)
    k += b.to(tl.int64) * k_b + (h // group).to(tl.int64) * k_h
    row = bh.to(tl.int64) * T + rows
    real = rows < T
    row_lse = tl.load(lse + row, mask=real, other=-HIDDEN)
    keys += b.to(tl.int64) * keys_b
    documents += b.to(tl.int64) * documents_b
    row_document = tl.zeros((BM,), tl.int32)
    if DOCUMENTS:
        row_document = tl.load(documents + i, mask=real, other=-2)
    slope = tl.load(slopes + h) if ALIBI else 0.0
    received += bh.to(tl.int64) * S
    cell = (bh.to(tl.int64) * cell_rows + (block * BM) // TALL) * cells
    cell_sum += cell
    cell_max += cell

    total = tl.zeros((BM, LANES), tl.float32)
    entropy = tl.zeros((BM, LANES), tl.float32)
    square = tl.zeros((BM, LANES), tl.float32)
    moment = tl.zeros((BM, LANES), tl.float32)
    top = tl.full((BM, TOP), HIDDEN, tl.float32)
    top_group = tl.full((BM, TOP), -1, tl.int32)
    lags = tl.zeros((64,), tl.float32)
    low, full_low, full_high, high = group_ranges(
        block * BM + S - T, tl.minimum(block * BM + BM, T) - 1 + S - T, S, window, CAUSAL, WINDOW,
        KEYS | DOCUMENTS, UNROLL * BN,
    )  # fmt: skip
    for part in tl.static_range(3):  # a border, the full groups, a border
        start = low if part == 0 else (full_low if part == 1 else full_high)
        stop = full_low if part == 0 else (full_high if part == 1 else high)
        for g in tl.range(start, stop, num_stages=STAGES if part == 1 else 1):
            total, entropy, square, moment, top, top_group, lags = measure_group(
                g, block * BM + S - T, total, entropy, square, moment, top, top_group, lags,
                q_tile, k, i, row_lse, row_document, received, cell_sum, cell_max, S, k_s, keys,
                documents, window, scale, softcap, slope, cells,
                D, BD, CAUSAL, WINDOW, KEYS, DOCUMENTS, CAP, ALIBI, PRECISION, BM, BN, UNROLL,
                LANES, UNITS, TOP, LAGS, CELL_ROWS, CELL_COLS, TALL, WIDE, part != 1,
            )  # fmt: skip
    row_sum = tl.sum(total, 1)
    n = tl.num_programs(1).to(tl.int64) * T
    tl.store(out + row, row_sum, mask=real)
    tl.store(out + n + row, tl.sum(entropy, 1), mask=real)
    tl.store(out + 2 * n + row, tl.sum(square, 1), mask=real)
    distance = tl.sum(moment, 1)
    if CAUSAL:
        distance = i.to(tl.float32) * row_sum - distance
    tl.store(out + 3 * n + row, distance * per_key, mask=real)
    at = row[:, None] * TOP + tl.arange(0, TOP)[None, :]
    tl.store(top_value + at, top, mask=real[:, None])
    tl.store(top_place + at, top_group, mask=real[:, None])
    if LAGS:
        tl.store(lag_out + (bh.to(tl.int64) * blocks + block) * 64 + tl.arange(0, 64), lags)
