# mypy: ignore-errors
"""The strongest keys of each row, from the groups that the sweep chose for it.

Rows that chose the same group are sorted together, so that its keys are loaded once for one product
with all of them; a second program merges the candidates of each row.

A candidate is a number that sorts by weight: the bits of the weight as float32. With PACKED the
last eight of them are the key's place in the group; otherwise `places` holds it.
"""

import triton
import triton.language as tl

from glasshead.observe.programs.float16_pairs import ASSEMBLY
from glasshead.observe.programs.scores import HIDDEN, finish_scores, load_rows, may_attend


@triton.jit
def name_groups(top, keys, floor, rows, T, groups, BM: tl.constexpr, SLOTS: tl.constexpr):
    """From the packed sweep's `top` (rows, SLOTS) write `keys` of the same shape to sort by, number
    of the group + head x groups; and `floor` (rows), log2 of the least weight of a row."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    real = row < rows
    at = row.to(tl.int64)[:, None] * SLOTS + tl.arange(0, SLOTS)[None, :]
    word = tl.load(top + at, mask=real[:, None], other=-1)
    key = (word & 0xFFFF) + (row // T * groups)[:, None]
    key = tl.where(word < 0, rows // T * groups, key)
    tl.store(keys + at, key.to(keys.dtype.element_ty), mask=real[:, None])
    # Rounded to float16, by up to 2^-25 if it is small: taken a little less to be safe.
    least = tl.min(word, 1)
    weight = (least >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    some = (least >= 0) & (weight > 0)
    x = tl.where(some, tl.log2(tl.where(some, weight - 2.0**-25, 1.0)) - 2e-3, HIDDEN)
    tl.store(floor + row, x, mask=real)


@triton.jit
def reaches(x, least):
    """Return 1.0 if x is `least` or more, 0.0 if it is less, and a value between just below it."""
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "fma.rn.sat.f32 $0, $1, 0f4A000000, $2;", "=f,f,f", [x, 1 - least * 2.0**21],
            dtype=tl.float32, is_pure=True, pack=1,
        )  # fmt: skip
    return tl.minimum(tl.maximum((x - least) * 2.0**21 + 1, 0.0), 1.0)


@triton.jit
def search_packed(x, word, least, entry, values, entries, SLOTS: tl.constexpr):
    """Write the candidates `word`, whose logarithms are x, that reach `least` of their entry, best
    first."""
    best = tl.max(word, 1)
    # A group rarely has more than one of a row's strongest keys.
    several = tl.max(tl.sum(reaches(x, (least - 1e-4)[:, None]), 1)) > 1
    least = tl.exp2(least).to(tl.int32, bitcast=True) & ~255
    found = (entry >= 0) & (best > 0) & (best >= least)
    tl.store(values + entry, best, mask=found)
    n = 1
    while (n < SLOTS) & several:
        word = tl.where(word == best[:, None], 0, word)
        best = tl.max(word, 1)
        found = (entry >= 0) & (best > 0) & (best >= least)
        tl.store(values + n * entries + entry, best, mask=found)
        n += 1
        several = tl.max(found.to(tl.int32)) > 0


@triton.jit
def search(
    word, least, entry, first_key, values, places, entries, SLOTS: tl.constexpr, N: tl.constexpr
):
    """Do the same for candidates that do not hold their places."""
    least = tl.exp2(tl.maximum(least, -126.0)).to(tl.int32, bitcast=True)
    n = 0
    any_found = 1
    while (n < SLOTS) & (any_found > 0):
        best, place = tl.max(word, 1, return_indices=True)
        found = (entry >= 0) & (best >= least)
        tl.store(places + n * entries + entry, first_key + place, mask=found)
        tl.store(values + n * entries + entry, best, mask=found)
        word = tl.where(tl.arange(0, N)[None, :] == place[:, None], 0, word)
        n += 1
        any_found = tl.max(found.to(tl.int32))


@triton.jit
def search_groups(
    q, k, lse, order, block_group, block_first, group_end, floor, values, places,
    keys, documents, slopes, T, S, H, group, q_b, q_h, q_t, k_b, k_h, k_s, keys_b, documents_b,
    window, scale, softcap, head, groups, slack, entries,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, GROUP: tl.constexpr, SLOTS: tl.constexpr,
    PACKED: tl.constexpr,
):  # fmt: skip
    """Each program takes up to BM entries of `order`, from `block_first` on, that name one group of
    one head. An entry is row x SLOTS + slot, rows counted from head number `head` on. Its best keys
    go to `values` and `places` (SLOTS, entries), while they reach the row's `floor` (log2)."""
    block = tl.program_id(0)
    named = tl.load(block_group + block).to(tl.int32)
    if named < 0:
        return
    start = tl.load(block_first + block).to(tl.int32)
    at = start + tl.arange(0, BM)
    real = at < tl.load(group_end + named)
    entry = tl.load(order + at, mask=real, other=-1).to(tl.int32)
    first_row = named // groups * T
    bh = head + named // groups
    b, h = bh // H, bh % H
    t = tl.where(real, entry // SLOTS - first_row, -1)
    i = t + (S - T)
    q_tile = load_rows(q + b.to(tl.int64) * q_b + h.to(tl.int64) * q_h, t, T, q_t, D, BD)
    k += b.to(tl.int64) * k_b + (h // group).to(tl.int64) * k_h
    keys += b.to(tl.int64) * keys_b
    documents += b.to(tl.int64) * documents_b
    document = tl.zeros((BM,), tl.int32)
    if DOCUMENTS:
        document = tl.load(documents + i, mask=real, other=-2)
    slope = tl.load(slopes + h) if ALIBI else 0.0
    row_lse = tl.load(lse + bh.to(tl.int64) * T + t, mask=real, other=-HIDDEN)
    entry = tl.where(row_lse < -HIDDEN / 2, entry, -1)  # a row that sees nothing has no keys
    # The sweep computed its maxima by another product: the last bits may differ.
    least = tl.load(floor + first_row + t, mask=real, other=0.0) - slack
    first_key = (named % groups) * GROUP
    cols = first_key + tl.arange(0, GROUP)
    away = tl.abs(i[:, None] - cols[None, :]).to(tl.float32) if ALIBI else 0.0
    kt = tl.trans(load_rows(k, cols, S, k_s, D, BD))
    s = tl.dot(q_tile, kt, input_precision=PRECISION)
    x = finish_scores(s, away, scale, softcap, slope, CAP, ALIBI) - row_lse[:, None]
    # A visible key is found even if its weight is too small for a float.
    word = tl.exp2(x if PACKED else tl.maximum(x, -126.0)).to(tl.int32, bitcast=True)
    if PACKED:
        word = (word & ~255) | (GROUP - tl.arange(0, GROUP))[None, :]
    # Most groups lie before all rows that chose them; the earliest row is the first entry.
    hides = first_key + GROUP > S
    if CAUSAL:
        first = tl.load(order + start).to(tl.int32) // SLOTS - first_row
        hides = hides | (first_key + GROUP > first + (S - T) + 1)
    if hides | WINDOW | KEYS | DOCUMENTS:
        ok = may_attend(
            i[:, None], cols[None, :], S, keys, documents, document[:, None], window,
            CAUSAL, WINDOW, KEYS, DOCUMENTS,
        )  # fmt: skip
        x, word = tl.where(ok, x, HIDDEN), tl.where(ok, word, 0)
    entries = tl.cast(entries, tl.int64)
    if PACKED:
        search_packed(x, word, least, entry, values, entries, SLOTS)
    else:
        search(word, least, entry, first_key, values, places, entries, SLOTS, GROUP)


@triton.jit
def merge_groups(
    values, places, named, lse, top_weights, top_keys, rows, K, one,
    BM: tl.constexpr, GROUP: tl.constexpr, SLOTS: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Write the K best of each row's candidates (SLOTS, rows, SLOTS), best first, from the groups
    `named` (rows, SLOTS). Weights are times `one`; a row without a K-th key has -1 and 0."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    real = row < rows
    nan = tl.load(lse + row, mask=real, other=0.0) * 0.0  # NaN for a row with NaN
    entries = tl.cast(rows, tl.int64) * SLOTS
    slot = tl.arange(0, SLOTS)
    third = tl.zeros((BM, SLOTS), tl.int32)
    if SLOTS > 2:  # few groups hold three of a row's strongest keys
        at = 2 * entries + row[:, None] * SLOTS + slot[None, :]
        third = tl.load(values + at, mask=real[:, None], other=0)
    if tl.max(third) == 0:
        merge(
            values, places, named, nan, top_weights, top_keys, row, real, entries, K, one, GROUP,
            SLOTS, 2, PACKED,
        )  # fmt: skip
    else:
        merge(
            values, places, named, nan, top_weights, top_keys, row, real, entries, K, one, GROUP,
            SLOTS, SLOTS, PACKED,
        )  # fmt: skip


@triton.jit
def merge(
    values, places, named, nan, top_weights, top_keys, row, real, entries, K, one,
    GROUP: tl.constexpr, SLOTS: tl.constexpr, DEEP: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Merge the first DEEP candidates of each group."""
    c = tl.arange(0, DEEP * SLOTS)
    at = (c // SLOTS).to(tl.int64)[None, :] * entries + row[:, None] * SLOTS + (c % SLOTS)[None, :]
    x = tl.load(values + at, mask=real[:, None], other=0)
    for n in range(K):
        best, place = tl.max(x, 1, return_indices=True)
        found = real & (best > 0)
        if PACKED:
            key = tl.load(named + row * SLOTS + place % SLOTS, mask=found, other=0)
            key = (key & 0xFFFF) * GROUP + GROUP - (best & 255)
            weight = best & ~255
        else:
            at_place = (place // SLOTS) * entries + row * SLOTS + place % SLOTS
            key = tl.load(places + at_place, mask=found, other=0)
            weight = best
        weight = weight.to(tl.float32, bitcast=True) * one
        tl.store(top_weights + row * K + n, tl.where(found, weight, 0.0) + nan, mask=real)
        tl.store(top_keys + row * K + n, tl.where(found, key, -1).to(tl.int64), mask=real)
        x = tl.where(c[None, :] == place[:, None], 0, x)
