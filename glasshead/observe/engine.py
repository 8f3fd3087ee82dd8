"""The input and the output that both engines share (`tile_engine.py`, `triton_engine.py`)."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.observe.lags import lag_starts
from glasshead.observe.visible_keys import earlier_copies, first_keys, has_copies, sort_by_token

__all__ = ["HIDDEN", "PROBES", "EngineInput", "EngineOutput"]

PROBES = 256  # rows, at most, on which the weight of every single lag is summed
HIDDEN = -1e30  # the score of a hidden pair: its weight is 0, and 0 x HIDDEN is 0, not NaN


@dataclass(frozen=True, eq=False)
class EngineInput:
    """One layer's attention and what to measure in it. Checked; the mask is simplified."""

    q: Tensor  # (B, H, T, D)
    k: Tensor  # (B, H_kv, S, D)
    mask: Mask
    scoring: Scoring
    lse: Tensor | None  # (B, H, T)
    queries: Tensor | None  # (B, T) rows that count
    ids: Tensor | None  # (B, S) tokens at the keys' positions
    top_k: int
    cell: tuple[int, int]  # rows and columns of a cell of the overview
    deterministic: bool

    # The rest is computed when it is first needed: by then a GPU is busy with the weights.

    @cached_property
    def lag_starts(self) -> Tensor:
        """(n,) the smallest lag of each bucket."""
        return lag_starts(self.q.shape[2], self.k.shape[2], self.mask.causal, self.q.device)

    @cached_property
    def first_keys(self) -> Tensor:
        """(B, T) the key of `first_weight`, -1 for none."""
        (B, _, T, _), S = self.q.shape, self.k.shape[2]
        return first_keys(self.mask, B, T, S, self.q.device)

    @cached_property
    def sorted_ids(self) -> tuple[Tensor, Tensor] | None:
        """(B, S) the keys' positions sorted by token, and the tokens; None without ids."""
        return None if self.ids is None else sort_by_token(self.ids, self.mask)

    @cached_property
    def earlier_copies(self) -> Tensor | None:
        """(B, T, n) earlier copies of the query's token, latest first; -1 for none."""
        return self.sorted_ids and earlier_copies(*self.sorted_ids, self.q.shape[2])

    @property
    def has_copies(self) -> Tensor | None:
        """(B, T) whether the query's token has earlier copies."""
        return self.sorted_ids and has_copies(*self.sorted_ids, self.q.shape[2])

    @property
    def probe_step(self) -> int:
        """Probes are the rows T-1, T-1-step, ..."""
        return -(-self.q.shape[2] // PROBES) or 1


@dataclass(frozen=True, eq=False)
class EngineOutput:
    """Sums over all weights of a layer; `statistics.py` makes means and shares of them."""

    lse: Tensor  # (B, H, T), -inf where the row is empty; the next ones are (B, H, T) too, and 0
    row_sum: Tensor
    entropy: Tensor
    concentration: Tensor
    distance: Tensor
    self_weight: Tensor
    previous_weight: Tensor
    first_weight: Tensor
    duplicate: Tensor | None
    induction: Tensor | None
    top_keys: Tensor  # (B, H, T, K)
    top_weights: Tensor  # (B, H, T, K)
    received: Tensor  # (B, H, S) sum over the rows
    lags: Tensor  # (B, H, n) sum over the rows
    probe_lags: Tensor  # (B, H, T + S - 1) sum over the probes, by lag from 1 - T to S - 1
    cell_sum: Tensor  # (B, H, R, C)
    cell_max: Tensor  # (B, H, R, C)
