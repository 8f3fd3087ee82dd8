"""Room for the scores and weights of some rows of several heads.

Each row of weights has zeros behind it, as many as there are rows. Read with one element more than
such a row from row to row, the weights of each lag stand below each other:

    a b c 0 0          0 a b c
    d e f 0 0          d e f 0
"""

from typing import NamedTuple

from torch import Tensor

__all__ = ["TileBuffers", "TileViews"]


class TileViews(NamedTuple):
    """Views of the buffers for some heads, n rows and m columns."""

    scores: Tensor  # (heads, n, m), contiguous
    weights: Tensor  # (heads, n, m)
    product: Tensor  # (heads, n, m), contiguous
    by_lag: Tensor  # (heads, n, n + m - 1) the weights: in each column one lag, largest first


class TileBuffers:
    """Buffers for at most `limit` pairs of query and key, but for all of one head in any case."""

    def __init__(self, like: Tensor, rows: int, S: int, heads: int, limit: int) -> None:
        self.heads, self.lead = heads, rows
        one = rows * (S + rows)
        self.pairs = max(min(limit, heads * one), one)
        self._plain = like.new_empty(2, self.pairs)
        self._weights = like.new_zeros(self.lead + self.pairs)

    def start_band(self, n: int, m: int) -> int:
        """Prepare for n rows and m columns; return how many heads have room."""
        most = min(self.heads, max(1, self.pairs // (n * (n + m))))
        self._rows(most, n, n + m)[..., m:] = 0
        return most

    def views(self, heads: int, n: int, m: int) -> TileViews:
        scores, product = (x[: heads * n * m].view(heads, n, m) for x in self._plain)
        weights = self._rows(heads, n, n + m)[..., :m]
        by_lag = self._rows(heads, n, n + m, shift=1)[..., : n + m - 1]
        return TileViews(scores, weights, product, by_lag)

    def _rows(self, heads: int, n: int, width: int, shift: int = 0) -> Tensor:
        """Return (heads, n, width); with a shift of 1 each row reads one element further to the
        right than the one before, and the last starts with the first weight."""
        start = self.lead - shift * (n - 1)
        return self._weights.as_strided(
            (heads, n, width), (n * width, width + shift, 1), self._weights.storage_offset() + start
        )
