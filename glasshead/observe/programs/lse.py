# mypy: ignore-errors
"""The log-sum-exp of each row, if the model's own kernel did not return it."""

import triton
import triton.language as tl

from glasshead.observe.programs.scores import HIDDEN, group_ranges, load_rows, score_tile


@triton.jit
def sweep_lse(
    q, k, out, keys, documents, slopes, T, S, H, group, q_b, q_h, q_t, k_b, k_h, k_s, keys_b,
    documents_b, window, scale, softcap,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """`out` (B x H, T): the lse to base 2; HIDDEN for a row that sees nothing."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    bh = tl.program_id(1)
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
    top = tl.full((BM,), HIDDEN, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    nothing = tl.zeros((BM,), tl.float32)
    low, full_low, full_high, high = group_ranges(
        block * BM + S - T, tl.minimum(block * BM + BM, T) - 1 + S - T, S, window, CAUSAL, WINDOW,
        KEYS | DOCUMENTS, BN,
    )  # fmt: skip
    for part in tl.static_range(3):
        start = low if part == 0 else (full_low if part == 1 else full_high)
        stop = full_low if part == 0 else (full_high if part == 1 else high)
        for g in tl.range(start, stop, num_stages=STAGES if part == 1 else 1):
            x = score_tile(
                q_tile, k, g * BN, i, nothing, S, k_s, keys, documents,
                row_document, window, scale, softcap, slope, D, BD, CAUSAL, WINDOW, KEYS,
                DOCUMENTS, CAP, ALIBI, PRECISION, BN, part != 1,
            )  # fmt: skip
            new = tl.maximum(top, tl.max(x, 1))
            total = total * tl.exp2(top - new) + tl.sum(tl.exp2(x - new[:, None]), 1)
            top = new
    # While a row has seen only hidden pairs, `total` counts them; `top` shows that it is empty.
    # Written so that NaN, which maxima ignore, stays NaN.
    some = (top > HIDDEN / 2) | (total != total)
    lse = tl.where(some, top + tl.log2(tl.where(total < 1e-30, 1e-30, total)), HIDDEN)
    tl.store(out + bh.to(tl.int64) * T + rows, lse, mask=rows < T)
