"""Muon for sharded parameters, of which each process has some rows.

Only a whole matrix can be orthogonalized. Of the matrices of one shape, each process gathers its
share, all rows of it, orthogonalizes them and returns the rows: two exchanges, and no process ever
holds more than its share.
"""

from collections import defaultdict
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from glasshead.training.optim import Muon, orthogonalize

__all__ = ["ShardedMuon"]


@dataclass(frozen=True, eq=False)
class RowShard:
    """One matrix: rows first to last of a parameter of `total` rows."""

    param: Tensor  # the rows of the parameter that this process has
    update: Tensor  # the same rows of its momentum
    first: int
    last: int
    total: int

    def rows(self, rank: int, size: int) -> slice:
        """Return which of the rows that a process has belong to this matrix.

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
    """Muon for parameters, gradients and momentum that are DTensors, sharded by rows."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            pieces: dict[tuple[int, int], list[RowShard]] = defaultdict(list)
            for p, update in self._momentum_updates(group):
                local, first = p.to_local(), 0  # type: ignore[attr-defined]
                for rows in self.rows.get(p, [p.shape[0]]):
                    local_update = update.to_local()  # type: ignore[attr-defined]
                    piece = RowShard(local, local_update, first, first + rows, p.shape[0])
                    pieces[rows, p.shape[1]].append(piece)
                    first += rows
            for shape, some in pieces.items():
                scale = self._scale(group, *shape)
                for piece, change in zip(*_orthogonalize_all(some, shape[1]), strict=True):
                    piece.param[piece.rows(dist.get_rank(), dist.get_world_size())].add_(
                        change.to(piece.param.dtype) * scale
                    )


def _orthogonalize_all(pieces: list[RowShard], columns: int) -> tuple[list[RowShard], list[Tensor]]:
    """Return the matrices in another order, and this process's rows of each, orthogonalized."""
    rank, size = dist.get_rank(), dist.get_world_size()
    # Ordered by the process that orthogonalizes them, which has the same order for all others.
    ordered = [piece for owner in range(size) for piece in pieces[owner::size]]
    mine = pieces[rank::size]
    to = [columns * sum(p.n_rows(rank, size) for p in pieces[owner::size]) for owner in range(size)]
    come = [columns * sum(p.n_rows(other, size) for p in mine) for other in range(size)]
    sent = torch.cat([p.update[p.rows(rank, size)].flatten() for p in ordered])
    got = sent.new_empty(sum(come))
    dist.all_to_all_single(got, sent, come, to)
    counts = [[p.n_rows(other, size) for p in mine] for other in range(size)]
    parts = got.view(-1, columns).split([n for some in counts for n in some])
    back = got  # empty if none are mine
    if mine:
        whole = [torch.cat(parts[k :: len(mine)]) for k in range(len(mine))]
        turned = orthogonalize(torch.stack(whole)).to(got.dtype)  # (n, rows, columns)
        cut = [m.split([some[k] for some in counts]) for k, m in enumerate(turned)]
        back = torch.cat([its[other].flatten() for other in range(size) for its in cut])
    returned = back.new_empty(sum(to))
    dist.all_to_all_single(returned, back, to, come)
    rows = returned.view(-1, columns).split([p.n_rows(rank, size) for p in ordered])
    return ordered, list(rows)
