# mypy: ignore-errors
"""The sweep where queries have 16 bits: half the work, and no thread waits for another.

Each program takes PARTS x BM queries of one head and walks over groups of BN keys. What is summed
per row is float32. Sums of columns, largest weights and places within a group are kept as pairs
of float16 in one word, which an instruction handles at once and a shuffle moves at once. Weights
carry a factor 2^shift (10): 1 becomes 1024, 32 of which still fit a float16, and weights down to
6e-8 keep all its digits.

A warp owns 16 rows (BM is 16 x WARPS), so nothing below is summed across warps: each adds its part
to `received` and to the cells. That is where the time went: with sums across warps the sweep takes
twice as long.
"""

import os

import triton
import triton.language as tl

from glasshead.observe.programs.scores import HIDDEN, allowed, bend, load_rows, spans

# The interpreter knows no assembly, and reduces by its own sums and maxima only.
ASSEMBLY = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1")


@triton.jit
def low(pair):
    return (pair & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def high(pair):
    return (pair >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def word(a, b):
    """Two float16 as one int32, `a` in the low half."""
    a = a.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    b = b.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32)
    return a | (b << 16)


@triton.jit
def pair(a, b):
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [a, b], dtype=tl.int32, is_pure=True, pack=1
        )
    return word(a, b)


@triton.jit
def add_pairs(a, b):
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "add.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
        )
    return word(low(a) + low(b), high(a) + high(b))


@triton.jit
def multiply_pairs(a, b):
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "mul.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
        )
    return word(low(a) * low(b), high(a) * high(b))


@triton.jit
def max_pairs(a, b):
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "max.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
        )
    return word(tl.maximum(low(a), low(b)), tl.maximum(high(a), high(b)))


@triton.jit
def sum_pairs(pairs, AXIS: tl.constexpr):
    if ASSEMBLY:
        return tl.reduce(pairs, AXIS, add_pairs)
    return word(tl.sum(low(pairs), AXIS), tl.sum(high(pairs), AXIS))


@triton.jit
def most_pairs(pairs, AXIS: tl.constexpr, KEEP: tl.constexpr):
    if ASSEMBLY:
        return tl.reduce(pairs, AXIS, max_pairs, keep_dims=KEEP)
    return word(tl.max(low(pairs), AXIS, keep_dims=KEEP), tl.max(high(pairs), AXIS, keep_dims=KEEP))


@triton.jit
def largest(pairs):
    """The bits of the larger of two float16, which are in its order."""
    return tl.maximum(pairs & 0xFFFF, (pairs >> 16) & 0xFFFF)


@triton.jit
def read(
    q, lse, documents, rows, base, T, S, stride,
    D: tl.constexpr, BD: tl.constexpr, DOCUMENTS: tl.constexpr,
):  # fmt: skip
    """What is known of the queries `rows`: their vectors, positions, lse, documents."""
    i = rows + (S - T)
    document = tl.zeros_like(rows)
    if DOCUMENTS:
        document = tl.load(documents + i, mask=rows < T, other=-2)
    row_lse = tl.load(lse + base + rows, mask=rows < T, other=-HIDDEN)
    return load_rows(q, rows, T, stride, D, BD), i, row_lse, document


@triton.jit
def nothing_yet(BM: tl.constexpr, TOP: tl.constexpr):
    """total, entropy, square, moment: (BM, 4), as the threads hold them; and the top groups."""
    zero = tl.zeros((BM, 4), tl.float32)
    return zero, zero, zero, zero, tl.zeros((BM, TOP), tl.int32) - 1 - tl.arange(0, TOP)[None, :]


@triton.jit
def measure(
    sums, queries, kt, g, S, keys, documents, window, scale, softcap, slope,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr, DOCUMENTS: tl.constexpr,
    CAP: tl.constexpr, ALIBI: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    WIDE: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One part's queries at one group of keys. Returns the new sums, the weights as pairs (BM, BN /
    2), and of each row and cell of WIDE keys the sum (BM, cells, 4) and the largest (BM, cells)."""
    q, i, lse, document = queries
    total, entropy, square, moment, top = sums
    start = g * BN
    cols = start + tl.arange(0, BN)
    distance = tl.abs(i[:, None] - cols[None, :]).to(tl.float32) if ALIBI else 0.0
    x = bend(tl.dot(q, kt), distance, scale, softcap, slope, CAP, ALIBI) - lse[:, None]
    if MASKED:
        ok = allowed(
            i[:, None], cols[None, :], S, keys, documents, document[:, None], window,
            CAUSAL, WINDOW, KEYS, DOCUMENTS,
        )  # fmt: skip
        x = tl.where(ok, x, HIDDEN)
    p = tl.exp2(x)
    # Key 8 n + 2 l + e of the group lies with thread l of four, for e = 0 and 1 in a pair.
    N: tl.constexpr = BN // 8
    even, odd = tl.split(tl.reshape(p, (BM, BN // 2, 2)))
    x_even, x_odd = tl.split(tl.reshape(x, (BM, BN // 2, 2)))
    pairs = pair(even, odd)
    even, odd = tl.reshape(even, (BM, N, 4)), tl.reshape(odd, (BM, N, 4))
    x_even, x_odd = tl.reshape(x_even, (BM, N, 4)), tl.reshape(x_odd, (BM, N, 4))
    entropy += tl.sum(even * x_even, 1) + tl.sum(odd * x_odd, 1)
    square += tl.sum(even * even, 1) + tl.sum(odd * odd, 1)
    cells: tl.constexpr = BN // WIDE
    odds = tl.sum(tl.reshape(odd, (BM, cells, N // cells, 4)), 2)  # (BM, cells, 4)
    amount = odds + tl.sum(tl.reshape(even, (BM, cells, N // cells, 4)), 2)
    here = tl.sum(amount, 1)
    total += here
    if CAUSAL:  # sums of weight x key; the query's position and the 2 l come in at the end
        n = tl.arange(0, N).to(tl.float32)
        n = word(n, n)[None, :, None] + tl.zeros((BM, N, 4), tl.int32)
        along = sum_pairs(multiply_pairs(tl.reshape(pairs, (BM, N, 4)), n), 1)
        moment += tl.sum(odds, 1) + 8 * (low(along) + high(along)) + here * start.to(tl.float32)
    else:
        away = tl.abs(i[:, None] - cols[None, :]).to(tl.float32)
        far_even, far_odd = tl.split(tl.reshape(away, (BM, BN // 2, 2)))
        moment += tl.sum(even * tl.reshape(far_even, (BM, N, 4)), 1)
        moment += tl.sum(odd * tl.reshape(far_odd, (BM, N, 4)), 1)
    # Reduced along all columns at once, `top` stays spread over the threads that hold its row.
    row_most = largest(most_pairs(pairs, 1, True))  # (BM, 1)
    most = row_most
    if cells > 1:
        most = largest(most_pairs(tl.reshape(pairs, (BM, cells, WIDE // 2)), 2, False))
    new = (row_most << 16) | g  # a weight and its group in one number: no two are equal
    least = tl.min(top, 1, keep_dims=True)
    top = tl.where((top == least) & (new > least), new, top)
    return (total, entropy, square, moment, top), pairs, amount, most


@triton.jit
def add_columns(
    received, pairs, start, S, WARPS: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr
):
    column = sum_pairs(tl.reshape(pairs, (WARPS, 16, BN // 2)), 1)  # (WARPS, BN / 2)
    column = tl.reshape(tl.join(low(column), high(column)), (WARPS, BN))
    cols = start + tl.arange(0, BN)[None, :] + tl.zeros((WARPS, 1), tl.int32)
    if MASKED:
        tl.atomic_add(received + cols, column, mask=cols < S, sem="relaxed")
    else:
        tl.atomic_add(received + cols, column, sem="relaxed")


@triton.jit
def add_cells(
    cell_sum, cell_max, amount, most, first, start, per_row,
    WARPS: tl.constexpr, CELLS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Each warp's 16 rows, from row `first` on, go to their cells."""
    amount = tl.sum(tl.sum(tl.reshape(amount, (WARPS, 16, CELLS, 4)), 3), 1)  # (WARPS, CELLS)
    most = tl.max(tl.reshape(most, (WARPS, 16, CELLS)), 1)
    # Only lane 0 writes; the others are there so that a warp's numbers stay with the warp.
    lane = tl.arange(0, 32)[None, None, :] + tl.zeros((WARPS, CELLS, 1), tl.int32)
    row = (first + tl.arange(0, WARPS) * 16) // TALL
    col = start // WIDE + tl.arange(0, CELLS)
    at = row[:, None, None] * per_row + col[None, :, None] + lane
    ok = (lane == 0) & (col < per_row)[None, :, None]
    tl.atomic_add(cell_sum + at, amount[:, :, None] + lane * 0.0, mask=ok, sem="relaxed")
    tl.atomic_max(cell_max + at, most[:, :, None] + lane * 0, mask=ok, sem="relaxed")


@triton.jit
def write(
    sums, i, rows, base, T, n, per_key, out, top_out, CAUSAL: tl.constexpr, TOP: tl.constexpr
):
    total, entropy, square, moment, top = sums
    row, real = base + rows, rows < T
    row_sum = tl.sum(total, 1)
    tl.store(out + row, row_sum, mask=real)
    tl.store(out + n + row, tl.sum(entropy, 1), mask=real)
    tl.store(out + 2 * n + row, tl.sum(square, 1), mask=real)
    if CAUSAL:
        moment += total * (2 * tl.arange(0, 4)).to(tl.float32)[None, :]
        distance = i.to(tl.float32) * row_sum - tl.sum(moment, 1)
    else:
        distance = tl.sum(moment, 1)
    tl.store(out + 3 * n + row, distance * per_key, mask=real)
    at = row[:, None] * TOP + tl.arange(0, TOP)[None, :]
    tl.store(top_out + at, top, mask=real[:, None])


@triton.jit
def sweep_pairs(
    q, k, lse, received, out, top_out, cell_sum, cell_max,
    keys, documents, slopes, T, S, H, group, q_b, q_h, q_t, k_b, k_h, k_s, keys_b, documents_b,
    window, scale, softcap, per_key, cell_rows, cells, head, heads,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
    WARPS: tl.constexpr, BN: tl.constexpr, PARTS: tl.constexpr, TOP: tl.constexpr,
    TALL: tl.constexpr, WIDE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """`out` (4, B x H, T): row sum, entropy, sum of squares, distance, with 2^shift in them.
    `top_out` (B x H, T, TOP): the bits of a group's largest weight, as float16, and its number.
    Cells are TALL x WIDE, from 16 x 16 to BM x BN; they are those of the heads in hand, which are
    counted from number `head` on, of `heads`."""
    BM: tl.constexpr = 16 * WARPS
    SIZE: tl.constexpr = PARTS * BM
    CELLS: tl.constexpr = BN // WIDE
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
    received += bh.to(tl.int64) * S
    base = bh.to(tl.int64) * T
    first = block * SIZE
    rows = first + tl.arange(0, BM)
    one = read(q, lse, documents, rows, base, T, S, q_t, D, BD, DOCUMENTS)
    of_one = nothing_yet(BM, TOP)
    if PARTS == 2:
        two = read(q, lse, documents, rows + BM, base, T, S, q_t, D, BD, DOCUMENTS)
        of_two = nothing_yet(BM, TOP)
    d = tl.arange(0, BD)
    low_, full_low, full_high, high_ = spans(
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
            of_one, pairs, amount, most = measure(
                of_one, one, kt, g, S, keys, documents, window, scale, softcap, slope, CAUSAL,
                WINDOW, KEYS, DOCUMENTS, CAP, ALIBI, BM, BN, WIDE, side != 1,
            )  # fmt: skip
            if PARTS == 2:
                of_two, pairs_two, amount_two, most_two = measure(
                    of_two, two, kt, g, S, keys, documents, window, scale, softcap, slope, CAUSAL,
                    WINDOW, KEYS, DOCUMENTS, CAP, ALIBI, BM, BN, WIDE, side != 1,
                )  # fmt: skip
                pairs = add_pairs(pairs, pairs_two)
                if TALL >= SIZE:
                    amount += amount_two
                    most = tl.maximum(most, most_two)
                else:
                    add_cells(
                        cell_sum, cell_max, amount_two, most_two, first + BM, start, cells,
                        WARPS, CELLS, TALL, WIDE,
                    )  # fmt: skip
            add_columns(received, pairs, start, S, WARPS, BN, side != 1)
            add_cells(
                cell_sum, cell_max, amount, most, first, start, cells, WARPS, CELLS, TALL, WIDE
            )
    n = tl.cast(heads, tl.int64) * T
    write(of_one, one[1], rows, base, T, n, per_key, out, top_out, CAUSAL, TOP)
    if PARTS == 2:
        write(of_two, two[1], rows + BM, base, T, n, per_key, out, top_out, CAUSAL, TOP)


@triton.jit
def near_band(
    q, k, lse, sums, self_out, previous_out, keys, documents, slopes, T, S, H, group, q_b, q_h,
    q_t, k_b, k_h, k_s, keys_b, documents_b, window, scale, softcap, lowest,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
):  # fmt: skip
    """`sums` (chunks, B x H, blocks, 128): the weight of each of 128 lags from `lowest` on, and
    of the next 128 for each chunk. A tile of 64 queries and 256 keys is turned so that lags are
    its columns."""
    block, bh, chunk = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    b, h = bh // H, bh % H
    at_row = tl.arange(0, 64)
    rows = block * 64 + at_row
    i = rows + (S - T)
    lowest += chunk * 128
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
    row = bh.to(tl.int64) * T + rows
    row_lse = tl.load(lse + row, mask=rows < T, other=-HIDDEN)
    away = tl.abs(i[:, None] - cols[None, :]).to(tl.float32)
    x = bend(tl.dot(q_tile, tl.trans(k_tile)), away, scale, softcap, slope, CAP, ALIBI)
    ok = allowed(
        i[:, None], cols[None, :], S, keys, documents, document[:, None], window,
        CAUSAL, WINDOW, KEYS, DOCUMENTS,
    )  # fmt: skip
    p = tl.where(ok, tl.exp2(x - row_lse[:, None]), 0.0)
    lag = tl.arange(0, 128)
    turned = tl.gather(p, at_row[:, None] + 128 - lag[None, :], 1)  # (64, 128)
    n = tl.num_programs(1).to(tl.int64)
    sums += ((chunk * n + bh) * tl.num_programs(0) + block) * 128
    tl.store(sums + lag, tl.sum(turned, 0))
    if lowest == 0:
        own = tl.sum(tl.where((lag == 0)[None, :], turned, 0.0), 1)
        previous = tl.sum(tl.where((lag == 1)[None, :], turned, 0.0), 1)
        tl.store(self_out + row, own, mask=rows < T)
        tl.store(previous_out + row, previous, mask=rows < T)
