"""What both engines are asked and what both must answer."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.observe.visible_keys import by_token, copied, earlier_keys, first_keys

__all__ = ["EXACT", "HIDDEN", "PROBES", "EngineInput", "EngineOutput", "lag_starts"]

EXACT = 128  # lags nearer than this have a bucket each; a power of two
PROBES = 256  # rows, at most, on which the weight of every single lag is summed
HIDDEN = -1e30  # the score of a hidden pair: its weight is 0, and 0 x HIDDEN is 0, not NaN


@dataclass(frozen=True, eq=False)
class EngineInput:
    """One layer's attention and what to find in it. Checked; the mask is simplified."""

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

    # Found when they are asked for: a GPU is then long busy with the weights.

    @cached_property
    def starts(self) -> Tensor:
        """(n,) where the buckets of lags start."""
        return lag_starts(self.q.shape[2], self.k.shape[2], self.mask.causal, self.q.device)

    @cached_property
    def first(self) -> Tensor:
        """(B, T) the key of `first_weight`, -1 for none."""
        (B, _, T, _), S = self.q.shape, self.k.shape[2]
        return first_keys(self.mask, B, T, S, self.q.device)

    @cached_property
    def sorted_ids(self) -> tuple[Tensor, Tensor] | None:
        """(B, S) the keys' positions sorted by token, and the tokens; where there are ids."""
        return None if self.ids is None else by_token(self.ids, self.mask)

    @cached_property
    def earlier(self) -> Tensor | None:
        """(B, T, n) earlier copies of the query's token, latest first; -1 for none."""
        return None if self.sorted_ids is None else earlier_keys(*self.sorted_ids, self.q.shape[2])

    @property
    def has_copies(self) -> Tensor | None:
        """(B, T) whether the query's token has earlier copies."""
        return None if self.sorted_ids is None else copied(*self.sorted_ids, self.q.shape[2])

    @property
    def far_buckets(self) -> tuple[int, int]:
        """How many buckets of more than one lag there are, looking back and ahead."""
        T, S = self.q.shape[2], self.k.shape[2]
        ahead = [] if self.mask.causal else _powers(EXACT, T - 1)
        return len(_powers(EXACT, S - 1)), len(ahead)

    @property
    def probe_step(self) -> int:
        """Probes are the rows T-1, T-1-step, ..."""
        return -(-self.q.shape[2] // PROBES) or 1


@dataclass(frozen=True, eq=False)
class EngineOutput:
    """What one sweep over the tiles finds."""

    lse: Tensor  # (B, H, T), -inf where the row is empty; so for all rows below: 0
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


def lag_starts(T: int, S: int, causal: bool, device: torch.device) -> Tensor:
    """The smallest lag of each bucket: one lag each near 0, then 128 to 255, 256 to 511, ...

    Looking ahead (negative lags) mirrors looking back; a causal mask has no such buckets.

    >>> lag_starts(1, 400, False, torch.device("cpu"))[[0, -3, -2, -1]]
    tensor([  0, 127, 128, 256])
    """
    # Made where it is wanted: a list would have to be carried there, and waited for.
    behind, before = len(_powers(EXACT, S - 1)), len(_powers(EXACT, T - 1))
    edges = EXACT << torch.arange(max(behind, before), device=device)
    back = torch.cat([torch.arange(min(EXACT, max(S, 1)), device=device), edges[:behind]])
    if causal or T <= 1:
        return back
    # The bucket of lags -255 to -128 starts at -255, and so on; the last is cut at 1 - T.
    far = (1 - 2 * edges[:before]).clamp(min=1 - T)
    near = -torch.arange(1, min(EXACT, T), device=device)
    return torch.cat([far.flip(0), near.flip(0), back])


def _powers(start: int, last: int) -> list[int]:
    return [start << n for n in range(64) if start << n <= last]
