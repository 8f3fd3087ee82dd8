# mypy: ignore-errors
"""The strongest keys of each row, from the groups that the sweep named.

Rows that name the same group are gathered, so that its keys are loaded once and one product serves
them all; a second program merges what each row found in its groups.

A candidate is a number that sorts by weight: the bits of the weight as float32. With PACKED the
last seven of them say where in the group the key is, which spares looking for it; otherwise
`places` says it.
"""

import triton
import triton.language as tl

from glasshead.observe.programs.scores import HIDDEN, tile


@triton.jit
def name_groups(top, keys, floor, rows, T, groups, BM: tl.constexpr, SLOTS: tl.constexpr):
    """From what the packed sweep found, `top` (rows, SLOTS): `keys` of the same shape to sort by,
    number of the group + head x groups; and `floor` (rows), log2 of the least weight of a row."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    real = row < rows
    at = row.to(tl.int64)[:, None] * SLOTS + tl.arange(0, SLOTS)[None, :]
    word = tl.load(top + at, mask=real[:, None], other=-1)
    key = (word & 0xFFFF) + (row // T * groups)[:, None]
    key = tl.where(word < 0, rows // T * groups, key)
    tl.store(keys + at, key.to(keys.dtype.element_ty), mask=real[:, None])
    # Rounded to float16, by up to 2^-25 where it is small: a little less is sure.
    least = tl.min(word, 1)
    weight = (least >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    some = (least >= 0) & (weight > 0)
    x = tl.where(some, tl.log2(tl.where(some, weight - 2.0**-25, 1.0)) - 2e-3, HIDDEN)
    tl.store(floor + row, x, mask=real)


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
    entry = tl.load(order + at, mask=real, other=0).to(tl.int32)
    row = entry // SLOTS  # of the heads in hand
    bh = head + named // groups
    b, h = bh // H, bh % H
    t = tl.where(real, row - named // groups * T, 0)
    i = t + (S - T)
    d = tl.arange(0, BD)
    q += b.to(tl.int64) * q_b + h.to(tl.int64) * q_h
    inside = real[:, None] & (d < D)[None, :]
    q_tile = tl.load(q + t[:, None].to(tl.int64) * q_t + d[None, :], mask=inside, other=0.0)
    k += b.to(tl.int64) * k_b + (h // group).to(tl.int64) * k_h
    keys += b.to(tl.int64) * keys_b
    documents += b.to(tl.int64) * documents_b
    row_document = tl.zeros((BM,), tl.int32)
    if DOCUMENTS:
        row_document = tl.load(documents + i, mask=real, other=-2)
    slope = tl.load(slopes + h) if ALIBI else 0.0
    row_lse = tl.load(lse + bh.to(tl.int64) * T + t, mask=real, other=1e30)
    # The sweep's maxima came from another product: the last bits may differ.
    least = tl.load(floor + row, mask=real, other=0.0) - slack
    first_key = ((named % groups) * GROUP).to(tl.int32)
    # Most groups lie before all rows that name them: nothing is hidden there.
    whole = first_key + GROUP <= S
    if CAUSAL:
        whole = whole & (first_key + GROUP <= tl.min(tl.where(real, i, S)) + 1)
    if whole & (not (WINDOW | KEYS | DOCUMENTS)):
        x = tile(
            q_tile, k, first_key, i, row_lse, S, k_s, keys, documents, row_document, window,
            scale, softcap, slope, D, BD, CAUSAL, WINDOW, KEYS, DOCUMENTS, CAP, ALIBI, PRECISION,
            GROUP, False,
        )  # fmt: skip
    else:
        x = tile(
            q_tile, k, first_key, i, row_lse, S, k_s, keys, documents, row_document, window,
            scale, softcap, slope, D, BD, CAUSAL, WINDOW, KEYS, DOCUMENTS, CAP, ALIBI, PRECISION,
            GROUP, True,
        )  # fmt: skip
    col = tl.arange(0, GROUP)[None, :]
    # A key that may be seen is found even where its weight is too small for a float.
    bits = tl.exp2(tl.maximum(x, -126.0)).to(tl.int32, bitcast=True)
    least = tl.exp2(tl.maximum(least, -126.0)).to(tl.int32, bitcast=True)
    if PACKED:
        bits = (bits & ~127) | (127 - col)
        least = least & ~127
    x = tl.where(x > HIDDEN / 2, bits, 0)
    n = 0
    any_found = 1
    entries = tl.cast(entries, tl.int64)
    while (n < SLOTS) & (any_found > 0):
        to = n * entries + entry
        if PACKED:
            best = tl.max(x, 1)
            found = real & (best >= least)
            x = tl.where(x == best[:, None], 0, x)
        else:
            best, place = tl.max(x, 1, return_indices=True)
            found = real & (best >= least)
            tl.store(places + to, first_key + place, mask=found)
            x = tl.where(col == place[:, None], 0, x)
        tl.store(values + to, best, mask=found)
        n += 1
        any_found = tl.max(found.to(tl.int32))


@triton.jit
def merge_groups(
    values, places, named, lse, top_weights, top_keys, rows, K, one,
    BM: tl.constexpr, GROUP: tl.constexpr, SLOTS: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """The K best of each row's candidates (SLOTS, rows, SLOTS), best first, from the groups `named`
    (rows, SLOTS). Weights are written times `one`; a row without a K-th key has -1 and 0."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    real = row < rows
    nan = tl.load(lse + row, mask=real, other=0.0) * 0.0  # a row without numbers has none here
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
    """Of the first DEEP candidates of each group."""
    c = tl.arange(0, DEEP * SLOTS)
    at = (c // SLOTS).to(tl.int64)[None, :] * entries + row[:, None] * SLOTS + (c % SLOTS)[None, :]
    x = tl.load(values + at, mask=real[:, None], other=0)
    for n in range(K):
        best, place = tl.max(x, 1, return_indices=True)
        found = real & (best > 0)
        if PACKED:
            key = tl.load(named + row * SLOTS + place % SLOTS, mask=found, other=0)
            key = (key & 0xFFFF) * GROUP + 127 - (best & 127)
            weight = best & ~127
        else:
            at_place = (place // SLOTS) * entries + row * SLOTS + place % SLOTS
            key = tl.load(places + at_place, mask=found, other=0)
            weight = best
        weight = weight.to(tl.float32, bitcast=True) * one
        tl.store(top_weights + row * K + n, tl.where(found, weight, 0.0) + nan, mask=real)
        tl.store(top_keys + row * K + n, tl.where(found, key, -1).to(tl.int64), mask=real)
        x = tl.where(c[None, :] == place[:, None], 0, x)
