"""Weight by lag (position of the query - position of the key), in buckets.

Lags near 0 have a bucket each; beyond, buckets are 128 to 255, 256 to 511, ...
"""

import math

import torch
from torch import Tensor

__all__ = ["EXACT", "bucket", "count_far", "lag_starts", "sum_cells_by_lag"]

EXACT = 128  # lags nearer than this have a bucket each; a power of two


def lag_starts(T: int, S: int, causal: bool, device: torch.device) -> Tensor:
    """Return the smallest lag of each bucket.

    Looking ahead (negative lags) mirrors looking back; a causal mask has no such buckets.

    >>> lag_starts(1, 400, False, torch.device("cpu"))[[0, -3, -2, -1]]
    tensor([  0, 127, 128, 256])
    """
    # Made on the device: copying a list to a GPU would wait for it.
    behind, ahead = count_far(S), count_far(T)
    edges = EXACT << torch.arange(max(behind, ahead), device=device)
    back = torch.cat([torch.arange(min(EXACT, max(S, 1)), device=device), edges[:behind]])
    if causal or T <= 1:
        return back
    # The bucket of lags -255 to -128 starts at -255, and so on; the last is cut at 1 - T.
    far = (1 - 2 * edges[:ahead]).clamp(min=1 - T)
    near = -torch.arange(1, min(EXACT, T), device=device)
    return torch.cat([far.flip(0), near.flip(0), back])


def count_far(n: int) -> int:
    """Return how many buckets of more than one lag there are for lags below n.

    >>> [count_far(n) for n in (0, 128, 129, 256, 257)]
    [0, 0, 1, 1, 2]
    """
    return (max(n - 1, 0) // EXACT).bit_length()


def bucket(lag: Tensor) -> Tensor:
    """Return n for lags of 128 x 2^n to 128 x 2^(n + 1) - 1, and -1 for nearer ones."""
    n = torch.frexp(lag.clamp(min=1).double()).exponent.long() - 1 - int(math.log2(EXACT))
    return n.clamp(min=-1)


def sum_cells_by_lag(
    cell_sum: Tensor, T: int, S: int, block: tuple[int, int], cell: tuple[int, int]
) -> Tensor:
    """Return (B x H, 1, 64) weight by far bucket, 32 back and 32 ahead, from cells (B x H, R, C).

    Cells are no coarser than a block; each block of rows and columns goes to the bucket of its
    farthest lag.
    """
    (rows, cols), wide = block, cell[1]
    tall = min(cell[0], rows)  # of a row of cells
    down, across = -(-T // rows), -(-S // cols)
    total = torch.nn.functional.pad(cell_sum, (0, across * cols // wide - cell_sum.shape[2]))
    total = total[:, : down * (rows // tall)]
    total = total.reshape(-1, down, rows // tall, across, cols // wide).sum((2, 4))
    far = total.new_zeros(len(total), 65, dtype=torch.float64)
    if rows == cols:
        # All blocks of a diagonal have the same lags: they are summed first, because adding a
        # million numbers to a few buckets is slow.
        total = _sum_diagonals(total)[:, None]  # (B x H, 1, down + across - 1)
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


def _sum_diagonals(x: Tensor) -> Tensor:
    """Sum over the diagonals of x (n, R, C), the one that starts in the last column first.

    >>> _sum_diagonals(torch.tensor([[[1, 2, 3], [10, 20, 30]]]))
    tensor([[ 3, 32, 21, 10]])
    """
    n, R, C = x.shape
    # Reading padded rows with one element less shifts each row one place to the right.
    wide = torch.nn.functional.pad(x.flip(2), (0, R)).flatten(1)
    return wide[:, : R * (C + R - 1)].view(n, R, C + R - 1).sum(1)
