"""What the Triton engine computes beside its sweep: near lags, single keys, the strongest keys."""

import math
from typing import Any

import torch
from torch import Tensor

from glasshead.observe.engine import HIDDEN, PROBES, EngineInput
from glasshead.observe.lags import EXACT, count_far
from glasshead.observe.visible_keys import COPIES

__all__ = ["LOG2E", "Lookups"]

LOG2E = math.log2(math.e)
ROOM = 3 * 2**27  # bytes, about, for weights and candidates that another program reads


class Lookups:
    """The arguments that all programs share, and the programs that are not sweeps.

    Args:
        group: keys in a group; a sweep names the strongest groups of each row.
        block: rows and columns of the blocks by which lags are summed.
        shift: weights carry a factor of 2^shift within the programs.
        packed: the packed sweep is the one that runs; weights have 16 bits.
    """

    def __init__(
        self, inputs: EngineInput, group: int, block: tuple[int, int], *, shift: float, packed: bool
    ) -> None:
        self.inputs, self.group, self.block = inputs, group, block
        self.shift, self.one, self.packed = shift, 2.0**-shift, packed
        (B, H, T, D), S = inputs.q.shape, inputs.k.shape[2]
        self.B, self.H, self.T, self.S = B, H, T, S
        self.q = inputs.q if inputs.q.stride(-1) == 1 else inputs.q.contiguous()
        self.k = inputs.k if inputs.k.stride(-1) == 1 else inputs.k.contiguous()
        mask, scoring, device = inputs.mask, inputs.scoring, inputs.q.device
        scale = scoring.scale_for(D)
        nothing = inputs.q  # stands for a missing argument, which no program reads
        keys = nothing if mask.keys is None else mask.keys.to(device, torch.int8).contiguous()
        documents = nothing
        if mask.documents is not None:
            documents = mask.documents.to(device).unique(return_inverse=True)[1].int()
        slopes = nothing if scoring.slopes is None else scoring.slopes.to(device).float() * LOG2E
        cap = scoring.softcap
        # Every program takes these, in this order, after its own pointers.
        self.shared: tuple[Any, ...] = (
            keys, documents, slopes, T, S, H, H // inputs.k.shape[1],
            *self.q.stride()[:3], *self.k.stride()[:3],
            S if keys.dim() == 2 and len(keys) > 1 else 0,
            S if documents.dim() == 2 and len(documents) > 1 else 0,
            mask.window or 0,
            scale * LOG2E if cap is None else scale / cap, 0.0 if cap is None else cap * LOG2E,
        )  # fmt: skip
        self.kind: dict[str, Any] = {
            "D": D,
            "BD": max(16, 1 << (D - 1).bit_length()),
            "CAUSAL": mask.causal,
            "WINDOW": mask.window is not None,
            "KEYS": mask.keys is not None,
            "DOCUMENTS": mask.documents is not None,
            "CAP": cap is not None,
            "ALIBI": scoring.slopes is not None,
        }
        self.precise = {"PRECISION": "tf32x3" if inputs.q.dtype == torch.float32 else "tf32"}
        self.slots = 1 << (max(inputs.top_k, 2) - 1).bit_length()
        self.lse = self._lse()  # (B x H, T) to base 2, minus the shift

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.q.device)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.q.device)

    def _lse(self) -> Tensor:
        from glasshead.observe.programs.lse import sweep_lse

        given = self.inputs.lse
        if given is not None:
            lse = given.float().reshape(-1, self.T).contiguous() * LOG2E
        else:
            lse = self.zeros(self.B * self.H, self.T)
            big = self.q.dtype.itemsize * self.kind["BD"] > 256
            rows, cols, stages = (32, 32, 1) if big else (128, 64, 3)
            sweep_lse[(-(-self.T // rows), self.B * self.H)](
                self.q, self.k, lse, *self.shared, **self.kind, **self.precise,
                BM=rows, BN=cols, STAGES=stages, num_warps=4,
            )  # fmt: skip
        # A row that sees nothing has lse -inf or nearly; a huge one gives it weights of 0.
        lse = torch.where(lse <= HIDDEN / 2, -HIDDEN, lse - self.shift)
        if self.inputs.queries is not None:
            lse.masked_fill_(~self.inputs.queries.repeat_interleave(self.H, 0), -HIDDEN)
        return lse

    def at_keys(self, wanted: Tensor, after: Tensor | None = None, none: int = -1) -> Tensor:
        """(B x H, T) each row's weight on its key `wanted` (B, T), `none` for a row
        without one; `after` gets the weight on the next key."""
        from glasshead.observe.programs.single_pairs import sum_at_keys

        wanted = wanted.to(self.q.device, torch.int32).contiguous()
        out = self.empty(self.B * self.H, self.T)
        rows = 64 if self.kind["BD"] <= 64 else 32
        sum_at_keys[(-(-self.T // rows), len(out))](
            self.q, self.k, self.lse, wanted, out, out if after is None else after, *self.shared,
            none, **self.kind, BM=rows, AFTER=after is not None,
        )  # fmt: skip
        return out

    def at_copies(self, positions: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """(B x H, T) each row's weight on earlier copies of its token, and on the keys after."""
        from glasshead.observe.programs.token_copies import sum_at_copies

        out, after = (self.empty(self.B * self.H, self.T) for _ in range(2))
        rows = 64 if self.q.dtype.itemsize * self.kind["BD"] <= 512 else 32
        sum_at_copies[(-(-self.S // (rows - COPIES)), len(out))](
            self.q, self.k, self.lse, tokens, positions, out, after, *self.shared, **self.kind,
            **self.precise, BM=rows, COPIES=COPIES,
        )  # fmt: skip
        return out, after

    def near(self) -> tuple[Tensor, Tensor, Tensor]:
        """(B x H, lags) weight by lag near 0; (B x H, T) on the own position and the one before."""
        from glasshead.observe.programs.single_pairs import near_lags

        ahead = 0 if self.inputs.mask.causal else min(EXACT, self.T) - 1
        n = min(EXACT, self.S) + ahead
        if self.packed:
            before = torch.arange(self.T, device=self.q.device) + (self.S - self.T - 1)
            own = self.empty(self.B * self.H, self.T)
            previous = self.at_keys(before.clamp(min=-2).expand(self.B, -1), own, -2)
            return self._near_lags(ahead)[:, :n], own, previous
        blocks = -(-self.T // 64)
        own, previous = (self.zeros(self.B * self.H, self.T) for _ in range(2))
        # Lags 0 and 1 are always among them, for the rows.
        n_lags = max(n, ahead + 2)
        sums = self.zeros(self.B * self.H, blocks, n_lags)
        near_lags[(blocks, len(sums))](
            self.q, self.k, self.lse, sums, own, previous, *self.shared, -ahead, n_lags,
            **self.kind, BM=64,
        )  # fmt: skip
        return sums.sum(1, dtype=torch.float64)[:, :n], own, previous

    def _near_lags(self, ahead: int) -> Tensor:
        """(B x H, ahead + 128) weight by lag near 0 in 16 bits, a few heads at a time."""
        from glasshead.observe.programs.near_lags import near_rows, near_sums

        n, blocks, lowest = self.B * self.H, -(-self.T // 64), (-EXACT, 0) if ahead else (0,)
        sums = self.empty(len(lowest), n, -(-blocks // 16), EXACT)
        heads = max(1, min(n, ROOM // (blocks * 64 * 256 * 2)))
        weights = self.empty(heads, blocks, 64, 256, dtype=torch.float16)
        for head in range(0, n, heads):
            some = min(heads, n - head)
            for chunk, low in enumerate(lowest):
                near_rows[(blocks, some)](
                    self.q, self.k, self.lse, weights, *self.shared, head, low, **self.kind
                )
                near_sums[(sums.shape[2], some)](weights, sums[chunk, head:], blocks, BLOCKS=16)
        near = sums.sum(2).movedim(0, 1).flatten(1)
        return near[:, near.shape[1] - EXACT - ahead :]

    def buckets(self, near: Tensor, far: Tensor) -> Tensor:
        """(B x H, n) weight by bucket of lags, in the order of `lag_starts`."""
        from glasshead.observe.programs.single_pairs import nearer_than_edges

        rows, cols = self.block
        blocks = -(-self.T // rows)
        nearer = self.zeros(len(far), blocks, 64)
        # Where blocks and groups start together, the groups that an edge cuts lie before all rows
        # of a block: a mask that is only causal hides nothing in them.
        mask = self.inputs.mask
        others = mask.window is not None or mask.keys is not None or mask.documents is not None
        whole = mask.causal and not others and rows == cols == 128 and (self.S - self.T) % 128 == 0
        nearer_than_edges[(blocks, len(far))](
            self.q, self.k, self.lse, nearer, *self.shared, **self.kind, **self.precise,
            BM=rows, BN=min(cols, 32 if self.q.dtype.itemsize == 4 else 64), GROUP=cols,
            MASKED=not whole,
        )  # fmt: skip
        moved = nearer.sum(1, dtype=torch.float64)
        total = (far.sum(1, dtype=torch.float64) - moved).unflatten(1, (2, 32))
        total[..., :-1] += moved.unflatten(1, (2, 32))[..., 1:]
        total = total.clamp(min=0)
        back, ahead = count_far(self.S), 0 if mask.causal else count_far(self.T)
        return torch.cat([total[:, 1, :ahead].flip(-1), near, total[:, 0, :back]], -1)

    def probes(self) -> Tensor:
        """(B x H, T + S - 1) weight by single lag over the probes, a few heads at a time."""
        from glasshead.observe.programs.single_pairs import probe_lags, probe_rows

        n, T, S, step = self.B * self.H, self.T, self.S, self.inputs.probe_step
        out = self.empty(n, T + S - 1)
        probes = -(-T // step)
        assert probes <= PROBES
        dtype = torch.float16 if self.packed else torch.float32
        heads = max(1, min(n, ROOM // (probes * S * dtype.itemsize)))
        weights = self.empty(heads, probes, S, dtype=dtype)
        # In float32 a product keeps three copies of both sides in shared memory.
        side = 32 if self.q.dtype.itemsize * self.kind["BD"] > 512 else 64
        for head in range(0, n, heads):
            some = min(heads, n - head)
            probe_rows[(-(-S // side), some, -(-probes // side))](
                self.q, self.k, self.lse, weights, *self.shared, head, step, probes,
                **self.kind, **self.precise, BM=side, BN=side,
            )  # fmt: skip
            probe_lags[(-(-(T + S - 1) // 512), some)](
                weights, out, T, S, head, step, probes, self.one,
                CAUSAL=self.inputs.mask.causal, BN=512,
            )  # fmt: skip
        return out

    def top(self, group: Tensor, least: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the strongest keys of each row and their weights, from the groups that hold them.

        `group` (n, T, slots) is what the packed sweep wrote, or numbers of groups; then `least`
        (n, T) is log2 of the least of the groups' largest weights. A few heads at a time.
        """
        from glasshead.observe.programs.top_keys import merge_groups, name_groups, search_groups

        n, T, K = self.B * self.H, self.T, self.inputs.top_k
        keys, weights = self.empty(n, T, K, dtype=torch.int64), self.empty(n, T, K)
        size, slots = self.group, self.slots
        groups = -(-self.S // size)
        rows_each = 64 if self.q.dtype.itemsize == 2 else 16  # rows that name one group
        heads = max(1, min(n, ROOM // (T * slots * slots * (4 if self.packed else 8))))
        narrow = torch.int16 if heads * groups < 2**15 else torch.int32  # 16 bits sort faster
        for head in range(0, n, heads):
            named = group[head : head + heads]
            rows = len(named) * T
            if least is None:
                by = torch.empty_like(named, dtype=narrow)
                floor = self.empty(rows)
                name_groups[(-(-rows // 64),)](
                    named, by, floor, rows, T, groups, BM=64, SLOTS=slots
                )
            else:
                floor = least[head : head + heads]
                offset = torch.arange(len(named), device=named.device, dtype=torch.int32) * groups
                by = torch.where(named < 0, len(named) * groups, named + offset[:, None, None])
            blocks = sort_by_group(by.flatten(), len(named) * groups, rows_each)
            values = self.zeros(slots, named.numel(), dtype=torch.int32)
            places = values if self.packed else torch.empty_like(values)
            search_groups[(len(blocks[1]),)](
                self.q, self.k, self.lse, *blocks, floor, values, places, *self.shared,
                head, groups, 1e-3, named.numel(), **self.kind, **self.precise,
                BM=rows_each, GROUP=size, SLOTS=slots, PACKED=self.packed,
            )  # fmt: skip
            merge_groups[(-(-rows // 16),)](
                values, places, named, self.lse[head:], weights[head:], keys[head:], rows, K,
                self.one, BM=16, GROUP=size, SLOTS=slots, PACKED=self.packed,
            )  # fmt: skip
        return keys, weights


def sort_by_group(named: Tensor, groups: int, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sort entries by the group that they name and cut them into blocks of `size` that share one.

    Returns the order of the entries; each block's group (-1 for an unused block) and first entry;
    each group's end. There are as many blocks as there could be: counting them would wait for the
    GPU.

    >>> order, group, first, end = sort_by_group(torch.tensor([1, 0, 1, 1]), 2, 2)
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
