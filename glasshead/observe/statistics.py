"""Statistics of every head of a layer: `observe(q, k, mask)` returns `HeadStatistics`.

The weights are recomputed from q and k, `exp(scores - lse)`, a tile at a time, and each tile is
measured before the next is computed: memory grows with T, never with T x S.

    >>> q = k = 4 * torch.eye(3)[None, None]
    >>> found = observe(q, k, Mask(causal=True))
    >>> found.top_keys[0, 0, :, 0]
    tensor([0, 1, 2])
    >>> found.effective_keys[0, 0]
    tensor([1.0000, 1.0002, 1.0004])

Two engines compute the same numbers: `tiles` (any device and dtype) and `triton` (CUDA). Numbers
that would grow with the length are kept as shares (`distance`, `concentration`, `received`), so
that float32 holds them well; properties return the usual units. A row that may see nothing, or
does not count, has 0 everywhere.
"""

from dataclasses import dataclass
from math import ceil, isqrt, log2

import torch
from torch import Tensor

from glasshead.attention.functional import as_mask
from glasshead.attention.mask import Mask
from glasshead.attention.scores import PLAIN, Scoring
from glasshead.errors import BackendError, ConfigError, ShapeError, did_you_mean
from glasshead.observe.engine import EngineInput, EngineOutput
from glasshead.observe.tile_engine import run_tiles
from glasshead.observe.triton_engine import run_triton, why_not
from glasshead.observe.visible_keys import count_visible

__all__ = ["HeadStatistics", "cell_side", "observe"]

OVERVIEW = 128  # cells on a side of the overview: as many as one view of the whole map has
SMALLEST, FAST = 8, 16  # sides of cells of more than one weight: the least, and by default
NEAR = 8  # positions: what `diagonality` calls near
STRONGEST = 64  # `vertical` and `slash` look at the strongest 1/64 of columns and of lags
MEANS = (
    "entropy", "relative_entropy", "effective_keys", "mean_distance", "self_weight",
    "previous_weight", "first_weight",
)  # fmt: skip
OF_HEADS = ("diagonality", "vertical", "slash", "duplicate", "induction")


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """The statistics of every head of a layer. Query i of T is at position S - T + i."""

    engine: str  # "tiles" or "triton"

    # Per query row: p are the row's weights.
    lse: Tensor  # (B, H, T) log-sum-exp of the scores; -inf for an empty row
    row_sum: Tensor  # (B, H, T) sum of p: 1, or the lse that was given does not fit
    sizes: Tensor  # (B | 1, H | 1, T) how many keys the mask lets the row see, int64
    entropy: Tensor  # (B, H, T) -sum of p log p, in nats
    concentration: Tensor  # (B, H, T) sum of p^2: 1 on one key, 1/n spread over n
    top_keys: Tensor  # (B, H, T, K) the keys with most weight, most first, int64; -1 for no key
    top_weights: Tensor  # (B, H, T, K) their weights
    distance: Tensor  # (B, H, T) mean of |position - key| / max(T, S)
    self_weight: Tensor  # (B, H, T) on the query's own position
    previous_weight: Tensor  # (B, H, T) on the position before it
    first_weight: Tensor  # (B, H, T) on the first key that is not padding, of the row's document

    # Per key.
    received: Tensor  # (B, H, S) mean weight from the queries that could look at it
    lookers: Tensor  # (B | 1, H | 1, S) how many queries could, int64

    # Per head.
    lags: Tensor  # (B, H, n) share of all weight by lag = position - key, in buckets; sums to 1
    lag_starts: Tensor  # (n,) smallest lag of each bucket: single near 0, then powers of two
    diagonality: Tensor  # (B, H) share of the weight at most 8 positions away
    vertical: Tensor  # (B, H) share of the weight on the strongest 1/64 of the keys
    slash: Tensor  # (B, H) the same of lags, over at most 256 evenly spaced rows
    duplicate: Tensor | None  # (B, H) weight on earlier copies (16 latest) of the query's token
    induction: Tensor | None  # (B, H) weight on what followed them; both mean of rows with copies

    # The map, at most `overview` cells a side.
    overview_mean: Tensor  # (B, H, R, C) mean weight of a cell; hidden pairs count as 0
    overview_max: Tensor  # (B, H, R, C) largest weight of a cell; the same where it has one
    overview_cell: tuple[int, int]  # rows and columns of a cell, powers of two

    @property
    def relative_entropy(self) -> Tensor:
        """(B, H, T) entropy / log(size): 0 for one key, 1 for equal weight on all."""
        return self.entropy / self.sizes.clamp(min=2).to(self.entropy.dtype).log()

    @property
    def effective_keys(self) -> Tensor:
        """(B, H, T) 1 / sum of p^2: over how many keys the row is spread."""
        empty = self.concentration == 0
        return (1 / self.concentration.masked_fill(empty, 1)).masked_fill(empty, 0)

    @property
    def mean_distance(self) -> Tensor:
        """(B, H, T) mean of |position - key|, in positions."""
        return self.distance * max(self.lse.shape[-1], self.received.shape[-1])

    @property
    def row_max(self) -> Tensor:
        """(B, H, T) the largest score of each row, before the softmax; -inf for an empty row."""
        return self.lse + self.top_weights[..., 0].log()

    @property
    def largest_score(self) -> Tensor:
        """(B, H) the largest score of each head; -inf if no row sees anything."""
        found = self.row_max
        return found.amax(-1) if found.shape[-1] else found.new_full(found.shape[:2], -torch.inf)

    @property
    def received_total(self) -> Tensor:
        """(B, H, S) all the weight that a key got."""
        return self.received * self.lookers

    def means(self) -> dict[str, Tensor]:
        """(B, H) of each: the mean over rows that see anything, and the numbers per head."""
        rows = (self.lse > -torch.inf).to(self.entropy.dtype)
        n = rows.sum(-1).clamp(min=1)
        found = {name: (getattr(self, name) * rows).sum(-1) / n for name in MEANS}
        of_heads = {name: getattr(self, name) for name in OF_HEADS}
        return found | {name: x for name, x in of_heads.items() if x is not None}


@torch.no_grad()
def observe(
    q: Tensor,
    k: Tensor,
    mask: Mask | Tensor | None = None,
    *,
    scoring: Scoring = PLAIN,
    lse: Tensor | None = None,
    ids: Tensor | None = None,
    queries: Tensor | None = None,
    top_k: int = 8,
    overview: int | None = None,
    engine: str = "auto",
    deterministic: bool = False,
) -> HeadStatistics:
    """Measure every head of a layer exactly, in memory that grows with T.

    Args:
        q: (B, H, T, D) queries, as the kernel got them.
        k: (B, H_kv, S, D) keys; H_kv divides H.
        mask: a Mask, or a bool tensor that broadcasts to (B, H, T, S); True = may attend.
        scoring: scale, softcap and biases of the scores.
        lse: (B, H, T) if the kernel returned it: saves a pass. -inf marks an empty row.
        ids: (B, S) tokens at the keys' positions, for `duplicate` and `induction`.
        queries: (B, T) bool, the rows that count; False for padding. Others count as empty.
        top_k: how many of a row's strongest keys to keep.
        overview: most cells on a side of the overview. When None, 128 or the square root of the
            length, so that its size grows with the length.
        engine: "auto", "tiles" or "triton"; "auto" takes triton where it can.
        deterministic: the same bits each time; costs the triton engine a second pass.
    """
    (B, H, T, _), S = _check(q, k, lse, ids, queries), k.shape[2]
    if top_k < 1 or (overview is not None and overview < 1):
        raise ConfigError(
            f"top_k ({top_k}) and overview ({overview}) must be at least 1",
            hint="top_k=8 and overview=None are the defaults; overview=1 keeps one cell of the map",
        )
    mask = as_mask(mask)
    mask.check(B, H, T, S)
    mask = mask.simplify(T, S)
    if queries is not None:  # padding may hold anything, NaN too
        q = q.masked_fill(~queries[:, None, :, None], 0)
    inputs = EngineInput(
        q=q,
        k=k,
        mask=mask,
        scoring=scoring,
        lse=lse,
        queries=queries,
        ids=None if ids is None else ids.to(q.device),
        top_k=min(top_k, max(S, 1)),
        cell=(cell_side(T, overview), cell_side(S, overview)),
        deterministic=deterministic,
    )
    name = _choose_engine(engine, inputs)
    return _finish(name, inputs, (run_triton if name == "triton" else run_tiles)(inputs))


def _finish(engine: str, inputs: EngineInput, sums: EngineOutput) -> HeadStatistics:
    """Turn sums into means and shares."""
    T, S = inputs.q.shape[2], inputs.k.shape[2]
    sizes, lookers = count_visible(inputs.mask, T, S, inputs.queries, inputs.q.device)
    dtype = sums.entropy.dtype
    seeing = sums.lse > -torch.inf  # (B, H, T) rows that see anything
    lags = (sums.lags / seeing.sum(-1)[..., None].clamp(min=1)).to(dtype)
    near = inputs.lag_starts.abs() <= NEAR  # not as an index, which would wait for the GPU
    cell_rows, cell_cols = (
        (n - torch.arange(0, n, c, device=lags.device)).clamp(max=c)
        for n, c in zip((T, S), inputs.cell, strict=True)
    )
    has_copies = inputs.has_copies

    def mean_of_copies(total: Tensor | None) -> Tensor | None:
        if total is None or has_copies is None:
            return None
        rows = has_copies[:, None] & seeing
        return (total * rows).sum(-1) / rows.sum(-1).clamp(min=1)

    mean = sums.cell_sum.div_(cell_rows[:, None] * cell_cols)
    same = ("lse", "row_sum", "entropy", "concentration", "top_keys", "top_weights", "distance",
            "self_weight", "previous_weight", "first_weight")  # fmt: skip
    return HeadStatistics(
        **{name: getattr(sums, name) for name in same},
        engine=engine,
        sizes=sizes,
        received=(sums.received / lookers.clamp(min=1)).to(dtype),
        lookers=lookers,
        lags=lags,
        lag_starts=inputs.lag_starts,
        diagonality=(lags * near).sum(-1),
        vertical=_top_share(sums.received, S).to(dtype),
        slash=_top_share(sums.probe_lags, S).to(dtype),
        duplicate=mean_of_copies(sums.duplicate),
        induction=mean_of_copies(sums.induction),
        overview_mean=mean,
        # Cells of one weight are kept once.
        overview_max=mean if inputs.cell == (1, 1) else sums.cell_max,
        overview_cell=inputs.cell,
    )


def _top_share(masses: Tensor, S: int) -> Tensor:
    """Return the share of all mass that the strongest S / 64 entries hold."""
    if not masses.shape[-1]:
        return masses.sum(-1)
    total = masses.sum(-1)
    most = masses.topk(min(max(1, S // STRONGEST), masses.shape[-1])).values.sum(-1)
    return most / total.masked_fill(total == 0, 1)


def cell_side(n: int, overview: int | None = None) -> int:
    """Return the side of a cell: 1, or the smallest power of two from 8 on that cuts n into at most
    `overview` cells.

    >>> [cell_side(n) for n in (128, 129, 4096, 65536)], cell_side(1024, overview=1024)
    ([1, 16, 32, 256], 1)
    """
    most, least = (max(OVERVIEW, isqrt(n)), FAST) if overview is None else (overview, SMALLEST)
    return 1 if n <= most else max(least, 1 << ceil(log2(n / most)))


def _choose_engine(engine: str, inputs: EngineInput) -> str:
    if engine not in ("auto", "tiles", "triton"):
        raise BackendError(
            f"unknown engine '{engine}'", hint=did_you_mean(engine, ["auto", "tiles", "triton"])
        )
    if engine == "tiles":
        return engine
    reason = why_not(inputs)
    if reason is None:
        return "triton"
    if engine == "triton":
        raise BackendError(
            f"engine 'triton' cannot run here: {reason}",
            hint="engine='auto' uses the tiles instead, which support everything",
        )
    return "tiles"


def _check(
    q: Tensor, k: Tensor, lse: Tensor | None, ids: Tensor | None, queries: Tensor | None
) -> tuple[int, int, int, int]:
    if q.dim() != 4 or k.dim() != 4 or q.dtype != k.dtype or not q.is_floating_point():
        raise ShapeError(
            f"q has shape {tuple(q.shape)} and dtype {q.dtype}, k {tuple(k.shape)} and {k.dtype}",
            hint="needed: q (B, H, T, D) and k (B, H_kv, S, D) of one floating-point dtype",
        )
    (B, H, T, D), (B_k, H_kv, S, D_k) = q.shape, k.shape
    if B != B_k or D != D_k or not H_kv or H % H_kv:
        raise ShapeError(
            f"q {tuple(q.shape)} and k {tuple(k.shape)} do not fit together",
            hint="needed: q (B, H, T, D) and k (B, H_kv, S, D), where H_kv divides H",
        )
    for name, x, shape in (
        ("lse", lse, (B, H, T)),
        ("ids", ids, (B, S)),
        ("queries", queries, (B, T)),
    ):
        if x is not None and tuple(x.shape) != shape:
            raise ShapeError(
                f"{name} has shape {tuple(x.shape)}, but {shape} is needed",
                hint=f"q is (B, H, T, D) = {tuple(q.shape)} and k has S={S} keys",
            )
    if ids is not None and (ids.is_floating_point() or T > S):
        raise ShapeError(
            f"ids of dtype {ids.dtype} for T={T} queries and S={S} keys cannot be used",
            hint="ids are integers and for self-attention, where each query has a position",
        )
    if queries is not None and queries.dtype != torch.bool:
        raise ShapeError(
            f"queries has dtype {queries.dtype}, but torch.bool is needed",
            hint="True for a row that counts, False for padding",
        )
    return B, H, T, D
