# mypy: ignore-errors
"""Weights on earlier copies of a row's token, and on the keys after them.

Sorted by token, a row's copies are its neighbours: one product of neighbours with each other
computes them all, while looking up each key of each row would read every key 32 times.
"""

import triton
import triton.language as tl

from glasshead.observe.programs.scores import finish_scores, load_rows, may_attend


@triton.jit
def sum_at_copies(
    q, k, lse, tokens, positions, out, after, keys, documents, slopes, T, S, H, group, q_b, q_h,
    q_t, k_b, k_h, k_s, keys_b, documents_b, window, scale, softcap,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, COPIES: tl.constexpr,
):  # fmt: skip
    """`out` and `after` (B x H, T): each row's weight on its COPIES latest copies, and on the keys
    after those. `positions` (B, S) in the order of `tokens`; a token of -1 has no copies."""
    block, bh = tl.program_id(0), tl.program_id(1)
    b, h = bh // H, bh % H
    n = tl.arange(0, BM)
    place = block * (BM - COPIES) - COPIES + n  # the first are keys only
    inside = (place >= 0) & (place < S)
    token = tl.load(tokens + b.to(tl.int64) * S + place, mask=inside, other=-1)
    i = tl.load(positions + b.to(tl.int64) * S + place, mask=inside, other=-1).to(tl.int32)
    rows = tl.where(n >= COPIES, i - (S - T), -1)
    real = rows >= 0
    q_tile = load_rows(q + b.to(tl.int64) * q_b + h.to(tl.int64) * q_h, rows, T, q_t, D, BD)
    k += b.to(tl.int64) * k_b + (h // group).to(tl.int64) * k_h
    keys += b.to(tl.int64) * keys_b
    documents += b.to(tl.int64) * documents_b
    row_document = tl.zeros((BM,), tl.int32)
    if DOCUMENTS:
        row_document = tl.load(documents + i, mask=real, other=-2)
    slope = tl.load(slopes + h) if ALIBI else 0.0
    row_lse = tl.load(lse + bh.to(tl.int64) * T + rows, mask=real, other=1e30)
    back = n[:, None] - n[None, :]
    copy = (back > 0) & (back <= COPIES) & (token[:, None] == token[None, :])
    copy = copy & (token >= 0)[:, None]
    for step in tl.static_range(2):
        j = i + step
        k_tile = load_rows(k, tl.where(inside, j, -1), S, k_s, D, BD)
        away = tl.abs(i[:, None] - j[None, :]).to(tl.float32)
        s = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)
        x = finish_scores(s, away, scale, softcap, slope, CAP, ALIBI) - row_lse[:, None]
        ok = copy & may_attend(
            i[:, None], j[None, :], S, keys, documents, row_document[:, None], window,
            CAUSAL, WINDOW, KEYS, DOCUMENTS,
        )  # fmt: skip
        total = tl.sum(tl.where(ok, tl.exp2(x), 0.0), 1)
        tl.store((out if step == 0 else after) + bh.to(tl.int64) * T + rows, total, mask=real)
