"""Muon where each process has some rows of every matrix.

To be made orthogonal a matrix must be whole. Of those of one shape each process gets its share, all
rows of it, makes them orthogonal, and gives the rows back: two exchanges, and no process ever has
more than its share.
"""

from collections import defaultdict
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from glasshead.training.optim import Muon, orthogonal

__all__ = ["ShardedMuon"]


@dataclass(frozen=True, eq=False)
class RowShard:
    """Rows first to last of a parameter of `total` rows: one matrix."""

    param: Tensor  # of these rows and others, those that are here
    ahead: Tensor  # the same of the momentum
    first: int
    last: int
    total: int

    def rows(self, rank: int, size: int) -> slice:
        """Which of the rows that a process has are of this matrix.

        >>> nothing = torch.zeros(0)
        >>> [RowShard(nothing, nothing, 3, 9, 11).rows(rank, 3) for rank in range(3)]
        [slice(3, 4, None), slice(0, 4, None), slice(0, 1, None)]
        """
        each = -(-self.total // size)  # as torch.chunk does
        start = min(each * rank, self.total)
        end = min(start + each, self.total)
        here, there = max(self.first, start), min(self.last, end)
        return slice(here - start, max(here, there) - start)

    def n_rows(self, rank: int, size: int) -> int:
        rows = self.rows(rank, size)
        return rows.stop - rows.start


class ShardedMuon(Muon):
    """Parameters, gradients and momentum are DTensors, cut by rows."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            pieces: dict[tuple[int, int], list[RowShard]] = defaultdict(list)
            for p, ahead in self._ahead(group):
                mine, its, first = p.to_local(), ahead.to_local(), 0  # type: ignore[attr-defined]
                for rows in self.rows.get(p, [p.shape[0]]):
                    piece = RowShard(mine, its, first, first + rows, p.shape[0])
                    pieces[rows, p.shape[1]].append(piece)
                    first += rows
            for shape, some in pieces.items():
                size = self._size(group, *shape)
                for piece, change in zip(*_turned(some, shape[1]), strict=True):
                    piece.param[piece.rows(dist.get_rank(), dist.get_world_size())].add_(
                        change.to(piece.param.dtype) * size
                    )


def _turned(pieces: list[RowShard], columns: int) -> tuple[list[RowShard], list[Tensor]]:
    """Of each matrix, in another order, the rows that are here after it was made orthogonal."""
    rank, size = dist.get_rank(), dist.get_world_size()
    # By who makes them orthogonal; mine are those of all others in the same order.
    ordered = [piece for owner in range(size) for piece in pieces[owner::size]]
    mine = pieces[rank::size]
    to = [columns * sum(p.n_rows(rank, size) for p in pieces[owner::size]) for owner in range(size)]
    come = [columns * sum(p.n_rows(other, size) for p in mine) for other in range(size)]
    sent = torch.cat([p.ahead[p.rows(rank, size)].flatten() for p in ordered])
    got = sent.new_empty(sum(come))
    dist.all_to_all_single(got, sent, come, to)
    counts = [[p.n_rows(other, size) for p in mine] for other in range(size)]
    parts = got.view(-1, columns).split([n for some in counts for n in some])
    back = got  # of which there is none where none are mine
    if mine:
        whole = [torch.cat(parts[k :: len(mine)]) for k in range(len(mine))]
        turned = orthogonal(torch.stack(whole)).to(got.dtype)  # (n, rows, columns)
        cut = [m.split([some[k] for some in counts]) for k, m in enumerate(turned)]
        back = torch.cat([its[other].flatten() for other in range(size) for its in cut])
    returned = back.new_empty(sum(to))
    dist.all_to_all_single(returned, back, to, come)
    rows = returned.view(-1, columns).split([p.n_rows(rank, size) for p in ordered])
    return ordered, list(rows)
