# mypy: ignore-errors
"""The sweep for queries of 16 bits: half the work, and no warp waits for another.

Each program takes two parts of BM queries of one head and goes over groups of BN keys. Sums of rows
are float32. Sums of columns, largest weights and products with the place in a group are pairs of
float16 (`float16_pairs.py`). Weights carry a factor 2^shift (10): 1 becomes 1024, 32 of which still
fit a float16, and weights down to 6e-8 keep all its digits.

A warp owns 16 rows of each part (BM is 16 x WARPS), so nothing is summed across warps: each adds
its own to `received` and to the cells (`ptx.py`).
"""

import triton
import triton.language as tl

from glasshead.observe.programs.float16_pairs import (
    ASSEMBLY,
    add_pairs,
    high,
    largest,
    low,
    max_pairs,
    multiply_pairs,
    pair,
    reduce_max_pairs,
    reduce_sum_pairs,
    word,
)
from glasshead.observe.programs.ptx import cell_sum_ptx
from glasshead.observe.programs.scores import (
    HIDDEN,
    finish_scores,
    group_ranges,
    load_rows,
    may_attend,
)

ADDING = tl.constexpr(cell_sum_ptx())


@triton.jit
def load_queries(
    q, lse, documents, rows, base, T, S, stride,
    D: tl.constexpr, BD: tl.constexpr, DOCUMENTS: tl.constexpr,
):  # fmt: skip
    """Return the vectors, positions, lse and documents of the queries `rows`."""
    i = rows + (S - T)
    document = tl.zeros_like(rows)
    if DOCUMENTS:
        document = tl.load(documents + i, mask=rows < T, other=-2)
    row_lse = tl.load(lse + base + rows, mask=rows < T, other=-HIDDEN)
    return load_rows(q, rows, T, stride, D, BD), i, row_lse, document


@triton.jit
def zero_sums(BM: tl.constexpr):
    """Return zeros for total, entropy, square, moment: (BM, 4), as the threads hold them."""
    zero = tl.zeros((BM, 4), tl.float32)
    return zero, zero, zero, zero


@triton.jit
def measure(
    sums, queries, kt, g, S, keys, documents, window, scale, softcap, slope,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr, DOCUMENTS: tl.constexpr,
    CAP: tl.constexpr, ALIBI: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    WIDE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Measure one part's queries at one group of keys. Returns the new sums; for the 16 rows of a
    warp, as eight threads hold them, sums of columns as pairs (warps, 8, BN / 2), and of each cell
    of WIDE keys the sum and the largest pair (warps, 8, cells, 4); the largest of each row
    (BM, 1, 4)."""
    q, i, lse, document = queries
    total, entropy, square, moment = sums
    start = g * BN
    cols = start + tl.arange(0, BN)
    distance = tl.abs(i[:, None] - cols[None, :]).to(tl.float32) if ALIBI else 0.0
    x = finish_scores(tl.dot(q, kt), distance, scale, softcap, slope, CAP, ALIBI) - lse[:, None]
    if MASKED:
        ok = may_attend(
            i[:, None], cols[None, :], S, keys, documents, document[:, None], window,
            CAUSAL, WINDOW, KEYS, DOCUMENTS,
        )  # fmt: skip
        x = tl.where(ok, x, HIDDEN)
    p = tl.exp2(x)
    # Thread l of four holds key 8 n + 2 l + e of the group, for e = 0 and 1 in a pair.
    N: tl.constexpr = BN // 8
    even, odd = tl.split(tl.reshape(p, (BM, BN // 2, 2)))
    x_even, x_odd = tl.split(tl.reshape(x, (BM, BN // 2, 2)))
    pairs = pair(even, odd)
    even, odd = tl.reshape(even, (BM, N, 4)), tl.reshape(odd, (BM, N, 4))
    x_even, x_odd = tl.reshape(x_even, (BM, N, 4)), tl.reshape(x_odd, (BM, N, 4))
    entropy += tl.sum(even * x_even, 1) + tl.sum(odd * x_odd, 1)
    square += tl.sum(even * even, 1) + tl.sum(odd * odd, 1)
    cells: tl.constexpr = BN // WIDE if BN > WIDE else 1
    amount = tl.sum(tl.reshape(even, (BM, cells, N // cells, 4)), 2)  # (BM, cells, 4)
    amount += tl.sum(tl.reshape(odd, (BM, cells, N // cells, 4)), 2)
    here = tl.sum(amount, 1)
    total += here
    if CAUSAL:  # sums of weight x key / 8; the query's position and the 2 l are added at the end
        n = tl.arange(0, N).to(tl.float32)
        n = word(n, n + 0.125)[None, :, None] + tl.zeros((BM, N, 4), tl.int32)
        along = reduce_sum_pairs(multiply_pairs(tl.reshape(pairs, (BM, N, 4)), n), 1)
        moment += low(along) + high(along) + here * (start // 8).to(tl.float32)
    else:
        away = tl.abs(i[:, None] - cols[None, :]).to(tl.float32)
        far_even, far_odd = tl.split(tl.reshape(away, (BM, BN // 2, 2)))
        moment += tl.sum(even * tl.reshape(far_even, (BM, N, 4)), 1)
        moment += tl.sum(odd * tl.reshape(far_odd, (BM, N, 4)), 1)
    # A group that a row may not see at all sorts below one whose weights round to 0.
    seen = pair(*tl.split(tl.reshape(tl.where(ok, p, -1.0), (BM, BN // 2, 2)))) if MASKED else pairs
    most = reduce_max_pairs(tl.reshape(seen, (BM, N, 4)), 1, True)  # (BM, 1, 4)
    of_cells = reduce_max_pairs(tl.reshape(pairs, (BM // 16, 2, 8, cells, N // cells, 4)), 4, False)
    of_cells = reduce_max_pairs(of_cells, 1, False)  # (warps, 8, cells, 4)
    amount = tl.sum(tl.reshape(amount, (BM // 16, 2, 8, cells, 4)), 1)
    columns = tl.reshape(pairs, (BM // 16, 2, 8, BN // 2))
    columns = reduce_sum_pairs(columns, 1)  # (warps, 8, BN / 2)
    return (total, entropy, square, moment), columns, amount, of_cells, most


@triton.jit
def row_maxima(pairs):
    """Return the bits of each row's maximum, (BM, 1) from pairs (BM, 1, 4), with its sign."""
    most = tl.max(tl.maximum(low(pairs), high(pairs)), 2)
    return most.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32)


@triton.jit
def insert(
    top, one, two, g, BM: tl.constexpr, TOP: tl.constexpr, INSERT: tl.constexpr,
    INSERT_TYPES: tl.constexpr,
):  # fmt: skip
    """Insert `one` and `two` (BM, 1, 4), the largest of the group in each part, into `top` (BM,
    TOP / 2, 4). There thread l has the lists of the rows of part l // 2, upper (l even) or lower
    eight of each 16: slot s of row r of those is at 16 (r // 8) + r % 8 + 8 (s % 2), s // 2, l."""
    if ASSEMBLY:
        zero = tl.zeros((BM, TOP // 2, 4), tl.int32)
        return tl.inline_asm_elementwise(
            INSERT, INSERT_TYPES, [one + zero, two + zero, top, g], dtype=tl.int32, is_pure=True,
            pack=TOP,
        )  # fmt: skip
    WARPS: tl.constexpr = BM // 16
    both = tl.join(row_maxima(one), row_maxima(two))  # (BM, 1, 2)
    new = tl.permute(tl.reshape(both, (WARPS, 2, 8, 2)), (0, 2, 3, 1))  # warp, row, part, half
    new = (tl.reshape(new, (WARPS, 1, 8, 1, 4)) << 16) | g
    old = tl.reshape(top, (WARPS, 2, 8, TOP // 2, 4))
    least = tl.min(tl.min(old, 3, keep_dims=True), 1, keep_dims=True)
    return tl.reshape(tl.where((old == least) & (new > least), new, old), (BM, TOP // 2, 4))


@triton.jit
def add_columns(
    received, columns, start, WARPS: tl.constexpr, BN: tl.constexpr, SPREAD: tl.constexpr,
    SPREAD_TYPES: tl.constexpr,
):  # fmt: skip
    """Add pairs (WARPS, 8, BN / 2) of sums of columns to those in memory."""
    if ASSEMBLY:
        tl.inline_asm_elementwise(
            SPREAD, SPREAD_TYPES, [columns, (received + start).to(tl.int64)], dtype=tl.int32,
            is_pure=False, pack=BN // 8,
        )  # fmt: skip
    else:
        columns = reduce_sum_pairs(columns, 1)
        columns = tl.reshape(tl.join(low(columns), high(columns)), (WARPS, BN))
        cols = start + tl.arange(0, BN)[None, :] + tl.zeros((WARPS, 1), tl.int32)
        tl.atomic_add(received + cols, columns, sem="relaxed")


@triton.jit
def add_cells(
    cell_sum, cell_max, amount, most, first, start, per_row,
    WARPS: tl.constexpr, CELLS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Add each warp's rows, from row `first` on, to their cells: `amount` and `most` are (WARPS, 8,
    CELLS, 4), one number of a cell for each thread of the warp."""
    row = (first + tl.arange(0, WARPS) * 16) // TALL
    col = start // WIDE + tl.arange(0, CELLS)
    at = row[:, None, None, None] * per_row + col[None, None, :, None]
    most = largest(most)
    if ASSEMBLY:
        at += tl.zeros((WARPS, 8, CELLS, 4), tl.int32)
        tl.inline_asm_elementwise(
            ADDING, "=r,f,r,l,l",
            [amount, most, (cell_sum + at).to(tl.int64), (cell_max + at).to(tl.int64)],
            dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        at = tl.reshape(at, (WARPS, CELLS))
        tl.atomic_add(cell_sum + at, tl.sum(tl.sum(amount, 3), 1), sem="relaxed")
        tl.atomic_max(cell_max + at, tl.max(tl.max(most, 3), 1), sem="relaxed")


@triton.jit
def write(sums, i, rows, base, T, n, per_key, out, CAUSAL: tl.constexpr):
    total, entropy, square, moment = sums
    row, real = base + rows, rows < T
    row_sum = tl.sum(total, 1)
    tl.store(out + row, row_sum, mask=real)
    tl.store(out + n + row, tl.sum(entropy, 1), mask=real)
    tl.store(out + 2 * n + row, tl.sum(square, 1), mask=real)
    if CAUSAL:
        moment = 8 * moment + total * (2 * tl.arange(0, 4)).to(tl.float32)[None, :]
        distance = i.to(tl.float32) * row_sum - tl.sum(moment, 1)
    else:
        distance = tl.sum(moment, 1)
    tl.store(out + 3 * n + row, distance * per_key, mask=real)


@triton.jit
def sweep_pairs(
    q, k, lse, received, out, top_out, cell_sum, cell_max,
    keys, documents, slopes, T, S, H, group, q_b, q_h, q_t, k_b, k_h, k_s, keys_b, documents_b,
    window, scale, softcap, per_key, cell_rows, cells, received_h, head, heads,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
    WARPS: tl.constexpr, BN: tl.constexpr, TOP: tl.constexpr, TALL: tl.constexpr,
    WIDE: tl.constexpr, STAGES: tl.constexpr, INSERT: tl.constexpr, INSERT_TYPES: tl.constexpr,
    SPREAD: tl.constexpr, SPREAD_TYPES: tl.constexpr,
):  # fmt: skip
    """`out` (4, B x H, T): row sum, entropy, sum of squares, distance, with 2^shift in them.
    `top_out` (B x H, T, TOP): the bits of a group's largest weight, as float16, and its number.
    `received` (B x H, received_h): whole groups. Cells are TALL x WIDE, at least 16 x 16; they are
    those of the heads in hand, which are counted from number `head` on, of `heads`."""
    BM: tl.constexpr = 16 * WARPS
    SIZE: tl.constexpr = 2 * BM
    CELLS: tl.constexpr = BN // WIDE if BN > WIDE else 1
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the longest rows of a causal mask first
    cell_sum += tl.program_id(1).to(tl.int64) * cell_rows * cells
    cell_max += tl.program_id(1).to(tl.int64) * cell_rows * cells
    bh = head + tl.program_id(1)
    b, h = bh // H, bh % H
    q += b.to(tl.int64) * q_b + h.to(tl.int64) * q_h
    k += b.to(tl.int64) * k_b + (h // group).to(tl.int64) * k_h
    keys += b.to(tl.int64) * keys_b
    documents += b.to(tl.int64) * documents_b
    slope = tl.load(slopes + h) if ALIBI else 0.0
    received += bh.to(tl.int64) * received_h
    base = bh.to(tl.int64) * T
    first = block * SIZE
    rows = first + tl.arange(0, BM)
    one = load_queries(q, lse, documents, rows, base, T, S, q_t, D, BD, DOCUMENTS)
    two = load_queries(q, lse, documents, rows + BM, base, T, S, q_t, D, BD, DOCUMENTS)
    of_one, of_two = zero_sums(BM), zero_sums(BM)
    place, thread = tl.arange(0, BM)[:, None, None], tl.arange(0, 4)[None, None, :]
    slot = tl.arange(0, TOP // 2)[None, :, None] * 2 + place % 16 // 8
    top = -1 - slot + thread * 0  # (BM, TOP / 2, 4)
    d = tl.arange(0, BD)
    low_, full_low, full_high, high_ = group_ranges(
        first + S - T, tl.minimum(first + SIZE, T) - 1 + S - T, S, window, CAUSAL, WINDOW,
        KEYS | DOCUMENTS, BN,
    )  # fmt: skip
    for side in tl.static_range(3):  # a border, the full groups, a border
        begin = low_ if side == 0 else (full_low if side == 1 else full_high)
        end = full_low if side == 0 else (full_high if side == 1 else high_)
        for g in tl.range(begin, end, num_stages=STAGES if side == 1 else 1):
            start = g * BN
            at = (k + tl.cast(k_s, tl.int64) * start) + (
                tl.arange(0, BN)[None, :] * k_s + d[:, None]
            )
            inside = (d < D)[:, None]
            if side != 1:
                inside = inside & (start + tl.arange(0, BN) < S)[None, :]
            kt = tl.load(at) if (side == 1) & (D == BD) else tl.load(at, mask=inside, other=0.0)
            of_one, columns, amount, most, of_rows = measure(
                of_one, one, kt, g, S, keys, documents, window, scale, softcap, slope, CAUSAL,
                WINDOW, KEYS, DOCUMENTS, CAP, ALIBI, BM, BN, WIDE, side != 1,
            )  # fmt: skip
            of_two, columns_two, amount_two, most_two, of_rows_two = measure(
                of_two, two, kt, g, S, keys, documents, window, scale, softcap, slope, CAUSAL,
                WINDOW, KEYS, DOCUMENTS, CAP, ALIBI, BM, BN, WIDE, side != 1,
            )  # fmt: skip
            top = insert(top, of_rows, of_rows_two, g, BM, TOP, INSERT, INSERT_TYPES)
            columns = add_pairs(columns, columns_two)
            add_columns(received, columns, start, WARPS, BN, SPREAD, SPREAD_TYPES)
            if TALL >= SIZE:
                amount += amount_two
                most = max_pairs(most, most_two)
            else:
                add_cells(
                    cell_sum, cell_max, amount_two, most_two, first + BM, start, cells,
                    WARPS, CELLS, TALL, WIDE,
                )  # fmt: skip
            add_cells(
                cell_sum, cell_max, amount, most, first, start, cells, WARPS, CELLS, TALL, WIDE
            )
    n = tl.cast(heads, tl.int64) * T
    write(of_one, one[1], rows, base, T, n, per_key, out, CAUSAL)
    write(of_two, two[1], rows + BM, base, T, n, per_key, out, CAUSAL)
    row = first + thread // 2 * BM + place // 16 * 16 + thread % 2 * 8 + place % 8
    tl.store(top_out + (base + row) * TOP + slot, top, mask=row < T)
