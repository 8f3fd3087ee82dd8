# mypy: ignore-errors
"""A tile of weights, as logarithms to base 2: x = log2(weight) + shift.

The shift is in the `lse` that comes in, to base 2. It keeps small weights in the normal range of
float16 in the packed sweep, and is 0 elsewhere. The lse of a row that sees nothing is
huge, and its weights are 0.
"""

import triton
import triton.language as tl

HIDDEN = tl.constexpr(-1e30)  # 0 x HIDDEN is 0, so sums of weight x log weight stay finite


@triton.jit
def add(at, x, mask, UNITS: tl.constexpr):
    """Add to sums that programs share; with UNITS as integers, which is the same in any order."""
    if UNITS > 0:
        tl.atomic_add(at, (x * UNITS).to(tl.int64), mask=mask, sem="relaxed")
    else:
        tl.atomic_add(at, x, mask=mask, sem="relaxed")


@triton.jit
def tanh(y):
    e = tl.exp2(-2.8853900817779268 * tl.abs(y))
    far = (1 - e) / (1 + e)
    far = tl.where(y < 0, -far, far)
    u = y * y  # near 0 the quotient loses digits; the series does not
    near = y * (1 + u * (-1 / 3 + u * (2 / 15 + u * (-17 / 315 + u * (62 / 2835)))))
    return tl.where(u < 0.0625, near, far)


@triton.jit
def finish_scores(s, distance, scale, softcap, slope, CAP: tl.constexpr, ALIBI: tl.constexpr):
    """Turn products into scores to base 2. `scale` and `slope` include log2(e); with CAP, `scale`
    does not, and is divided by the cap, which does."""
    s = softcap * tanh(s * scale) if CAP else s * scale
    if ALIBI:
        s -= slope * distance
    return s


@triton.jit
def may_attend(
    i, j, S, keys, documents, row_document, window,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr, DOCUMENTS: tl.constexpr,
):  # fmt: skip
    """Whether the query at position i may see key j, for indices that broadcast."""
    inside = (j >= 0) & (j < S)
    ok = inside & (i == i)
    if CAUSAL:
        ok &= j <= i
    if WINDOW:
        ok &= j > i - window
        if not CAUSAL:
            ok &= j < i + window
    if KEYS:
        ok &= tl.load(keys + j, mask=inside, other=0) != 0
    if DOCUMENTS:
        ok &= tl.load(documents + j, mask=inside, other=-1) == row_document
    return ok


@triton.jit
def load_rows(base, rows, n, stride, D: tl.constexpr, BD: tl.constexpr):
    """Load (rows, BD) of a matrix of n rows; 0 for rows outside."""
    d = tl.arange(0, BD)
    inside = ((rows >= 0) & (rows < n))[:, None] & (d < D)[None, :]
    return tl.load(base + rows[:, None].to(tl.int64) * stride + d[None, :], mask=inside, other=0.0)


@triton.jit
def score_tile(
    q, k, start, i, lse, S, stride, keys, documents, row_document, window, scale, softcap, slope,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
    PRECISION: tl.constexpr, N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Return x of the queries q (M, BD) at positions i (M,) and N keys from `start` on; HIDDEN for
    hidden pairs. Without MASKED all pairs of the tile must exist and be allowed."""
    d = tl.arange(0, BD)
    cols = start + tl.arange(0, N)
    # The tile's own offsets fit 32 bits and do not change from tile to tile.
    at = (k + tl.cast(stride, tl.int64) * start) + (tl.arange(0, N)[None, :] * stride + d[:, None])
    if MASKED:
        kt = tl.load(at, mask=(cols < S)[None, :] & (d < D)[:, None], other=0.0)  # (BD, N)
    elif D == BD:
        kt = tl.load(at)
    else:
        kt = tl.load(at, mask=(d < D)[:, None], other=0.0)
    s = tl.dot(q, kt, input_precision=PRECISION)  # (M, N)
    distance = tl.abs(i[:, None] - cols[None, :]).to(tl.float32) if ALIBI else 0.0
    x = finish_scores(s, distance, scale, softcap, slope, CAP, ALIBI) - lse[:, None]
    if MASKED:
        ok = may_attend(
            i[:, None], cols[None, :], S, keys, documents, row_document[:, None], window,
            CAUSAL, WINDOW, KEYS, DOCUMENTS,
        )  # fmt: skip
        x = tl.where(ok, x, HIDDEN)
    return x


@triton.jit
def pair_weights(
    q, k, j, i, lse, S, stride, keys, documents, row_document, window, scale, softcap, slope,
    D: tl.constexpr, BD: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    KEYS: tl.constexpr, DOCUMENTS: tl.constexpr, CAP: tl.constexpr, ALIBI: tl.constexpr,
):  # fmt: skip
    """Return the weight (times 2^shift) of each query of q (M, BD) on its one key j (M,)."""
    s = tl.sum(q * load_rows(k, j, S, stride, D, BD).to(tl.float32), 1)
    x = finish_scores(s, tl.abs(i - j).to(tl.float32), scale, softcap, slope, CAP, ALIBI) - lse
    ok = may_attend(i, j, S, keys, documents, row_document, window, CAUSAL, WINDOW, KEYS, DOCUMENTS)
    return tl.where(ok, tl.exp2(x), 0.0)


@triton.jit
def group_ranges(
    first, last, S, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, ANYWHERE: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Return which groups of SIZE keys the positions first..last can reach: `low` to `high`, of
    which `full_low` to `full_high` hide no pair. ANYWHERE: the mask may hide pairs in any group."""
    start, stop = 0, S
    full_start, full_stop = 0, S
    if CAUSAL:
        stop = tl.minimum(S, last + 1)
        full_stop = tl.minimum(S, first + 1)
    if WINDOW:
        start = tl.maximum(0, first - window + 1)
        full_start = tl.maximum(0, last - window + 1)
        if not CAUSAL:
            stop = tl.minimum(S, last + window)
            full_stop = tl.minimum(S, first + window)
    low = start // SIZE
    high = tl.maximum(low, (tl.maximum(stop, 0) + SIZE - 1) // SIZE)
    if ANYWHERE:
        full_low, full_high = high, high
    else:
        full_low = tl.minimum((full_start + SIZE - 1) // SIZE, high)
        full_high = tl.minimum(tl.maximum(full_low, tl.maximum(full_stop, 0) // SIZE), high)
    return low, full_low, full_high, high
