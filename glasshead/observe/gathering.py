"""What the Triton engine does between its programs: lags from cells, rows by the group named."""

import math

import torch
from torch import Tensor

from glasshead.observe.engine import EXACT

__all__ = ["bucket", "gathered", "lags_from"]


def lags_from(
    cell_sum: Tensor, T: int, S: int, block: tuple[int, int], cell: tuple[int, int]
) -> Tensor:
    """(B x H, 1, 64) weight by bucket of lags, from cells (B x H, R, C) no coarser than a block:
    each block of rows and columns goes to the bucket of its farthest lag."""
    (rows, cols), wide = block, cell[1]
    tall = min(cell[0], rows)  # of a row of the sweep's cells
    down, across = -(-T // rows), -(-S // cols)
    total = torch.nn.functional.pad(cell_sum, (0, across * cols // wide - cell_sum.shape[2]))
    total = total[:, : down * (rows // tall)]
    total = total.reshape(-1, down, rows // tall, across, cols // wide).sum((2, 4))
    far = total.new_zeros(len(total), 65, dtype=torch.float64)
    if rows == cols:
        # All blocks of a diagonal have the same lags: they are summed first, because few numbers
        # go to their buckets quickly and a million do not.
        total = _diagonals(total)[:, None]  # (B x H, 1, down + across - 1)
        lag = (torch.arange(total.shape[2], device=total.device) - (across - 1)) * rows + (S - T)
        back, ahead = lag[None] + rows - 1, cols - 1 - lag[None]
    else:
        first = torch.arange(down, device=total.device)[:, None] * rows + (S - T)
        key = torch.arange(across, device=total.device) * cols
        back, ahead = first + rows - 1 - key, key + cols - 1 - first
    back, ahead = bucket(back), bucket(ahead)
    place = torch.where(back >= 0, back, torch.where(ahead >= 0, 32 + ahead, 64))
    far.index_add_(1, place.flatten(), total.flatten(1).double())
    return far[:, None, :64]


def _diagonals(x: Tensor) -> Tensor:
    """Sums over the diagonals of x (n, R, C), the one that starts in the last column first.

    >>> _diagonals(torch.tensor([[[1, 2, 3], [10, 20, 30]]]))
    tensor([[ 3, 32, 21, 10]])
    """
    n, R, C = x.shape
    # Rows that are one shorter than they were cut begin one place to the right of one another.
    wide = torch.nn.functional.pad(x.flip(2), (0, R)).flatten(1)
    return wide[:, : R * (C + R - 1)].view(n, R, C + R - 1).sum(1)


def bucket(lag: Tensor) -> Tensor:
    """n for lags of 128 x 2^n to 128 x 2^(n + 1) - 1; -1 for nearer ones."""
    n = torch.frexp(lag.clamp(min=1).double()).exponent.long() - 1 - int(math.log2(EXACT))
    return n.clamp(min=-1)


def gathered(named: Tensor, groups: int, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Entries sorted by the group that they name, cut into blocks of `size` that share a group.

    Returns the order of the entries; each block's group (-1 for a block to spare) and first entry;
    each group's end. No count is waited for: there are as many blocks as there could be.

    >>> order, group, first, end = gathered(torch.tensor([1, 0, 1, 1]), 2, 2)
    >>> order.tolist()[0], group.tolist(), first.tolist()[:3], end.tolist()
    (1, [0, 1, 1, -1], [0, 1, 3], [1, 4])
    """
    ordered, order = named.sort(stable=True)
    at = torch.arange(groups + 1, device=named.device, dtype=ordered.dtype)
    start = torch.searchsorted(ordered, at)  # (groups + 1,)
    blocks = (start.diff() + size - 1) // size
    end = blocks.cumsum(0)
    block = torch.arange(-(-len(named) // size) + groups, device=named.device)
    of = torch.searchsorted(end, block, right=True)
    spare = of == groups
    of = of.clamp(max=groups - 1)
    first = start[of] + (block - (end - blocks)[of]) * size
    return order, torch.where(spare, -1, of), first, start[1:]
