"""The cache of cells keeps what was used last."""

from itertools import product

import torch

from glasshead.observe.cell_cache import CellCache
from glasshead.observe.pooling import Cells


def test_what_was_not_used_for_the_longest_is_dropped_first():
    """Against a list of keys, the latest use last, over every short sequence of uses."""
    cells = [Cells(torch.full((3, n + 1), n), torch.full((3, n + 1), n)) for n in range(4)]
    for uses in product([("put", n) for n in range(3)] + [("get", n) for n in range(3)], repeat=5):
        cache, kept = CellCache(2), []
        for what, n in uses:
            if what == "put":
                cache.put((n,), cells[n])
                # A page that is computed twice, by two threads, keeps its place.
                kept = (kept if n in kept else [*kept, n])[-2:]
            else:
                assert (cache.get((n,)) is not None) == (n in kept), uses
                kept = [*(k for k in kept if k != n), n] if n in kept else kept
        assert cache.bytes == sum(2 * 3 * (n + 1) * 8 for n in kept)
