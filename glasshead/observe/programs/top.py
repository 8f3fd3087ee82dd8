# mypy: ignore-errors
"""The strongest keys of each row, from the groups that the sweep named.

Rows that name the same group are gathered, so that its keys are loaded once and one product serves
them all; a second program merges what each row found in its groups.
"""

import triton
import triton.language as tl

from glasshead.observe.programs.scores import HIDDEN, tile


@triton.jit
def search_groups(
    q, k, lse, order, block_group, block_first, group_end, floor, values, places,
    keys, documents, slopes, T, S, H, group, q_b, q_h, q_t, k_b, k_h, k_s, keys_b, documents_b,
    window, scale, softcap, head, groups, slack,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, GROUP: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Each program takes up to BM entries of `order`, from `block_first` on, that name one group of
    one head. An entry is row x SLOTS + slot, rows counted from head number `head` on. Its best keys
    go to `values` and `places` (entries, SLOTS), while they reach the row's `floor`."""
    block = tl.program_id(0)
    named = tl.load(block_group + block)
    if named < 0:
        return
    start = tl.load(block_first + block)
    at = start + tl.arange(0, BM)
    real = at < tl.load(group_end + named)
    entry = tl.load(order + at, mask=real, other=0)
    row = entry // SLOTS  # of the heads in hand
    bh = head + named // groups
    b, h = bh // H, bh % H
    t = row % T
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
    least = tl.load(floor + row, mask=real, other=1e30) - slack
    first_key = ((named % groups) * GROUP).to(tl.int32)
    x = tile(
        q_tile, k, first_key, i, row_lse, S, k_s, keys, documents, row_document, window, scale,
        softcap, slope, D, BD, CAUSAL, WINDOW, KEYS, DOCUMENTS, CAP, ALIBI, PRECISION, GROUP, True,
    )  # fmt: skip
    n = 0
    any_found = 1
    while (n < SLOTS) & (any_found > 0):
        best, place = tl.max(x, 1, return_indices=True)
        found = real & (best >= least) & (best > HIDDEN / 2)
        to = entry.to(tl.int64) * SLOTS + n
        tl.store(values + to, best, mask=found)
        tl.store(places + to, first_key + place, mask=found)
        x = tl.where(tl.arange(0, GROUP)[None, :] == place[:, None], HIDDEN, x)
        n += 1
        any_found = tl.max(found.to(tl.int32))


@triton.jit
def merge_groups(
    values, places, top_values, top_keys, rows, K,
    BM: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """The K best of each row's SLOTS x SLOTS candidates, best first."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, SLOTS * SLOTS)
    real = row < rows
    at = row[:, None].to(tl.int64) * (SLOTS * SLOTS) + c[None, :]
    x = tl.load(values + at, mask=real[:, None], other=HIDDEN)
    for n in range(K):
        best, place = tl.max(x, 1, return_indices=True)
        found = real & (best > HIDDEN / 2)
        source = row.to(tl.int64) * (SLOTS * SLOTS) + place
        key = tl.load(places + source, mask=found, other=-1)
        tl.store(top_values + row.to(tl.int64) * K + n, best, mask=real)
        tl.store(top_keys + row.to(tl.int64) * K + n, key.to(tl.int64), mask=real)
        x = tl.where(c[None, :] == place[:, None], HIDDEN, x)
