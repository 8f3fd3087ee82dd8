"""What the mask and the tokens say about each row, before any score is made."""

import torch
from torch import Tensor

from glasshead.attention.mask import Mask

__all__ = ["COPIES", "by_token", "copied", "earlier_keys", "first_keys", "reach"]

COPIES = 16  # earlier copies of a token that are looked up, the latest ones
BAND = 2**22  # pairs of a dense mask that are counted at a time


def reach(
    mask: Mask, T: int, S: int, queries: Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """How many keys each row may see, and how many rows may see each key.

    Returns (B | 1, H | 1, T) and (B | 1, H | 1, S). Rows that do not count see nothing.

    >>> sizes, lookers = reach(Mask(causal=True, window=2), 3, 3, None, torch.device("cpu"))
    >>> sizes.flatten().tolist(), lookers.flatten().tolist()
    ([1, 2, 2], [2, 2, 1])
    """
    if mask.dense is not None:
        return _reach_by_bands(mask, T, S, queries, device)
    # Without a dense part a row sees the unpadded keys of its document within a span. Sorted by
    # (document, position), those are neighbours, and two searches count them.
    groups, keys = _groups(mask, S, device), mask.keys
    span = T + S + 1  # more than any position, and than how far a window can reach
    i = torch.arange(T, device=device) + (S - T)  # positions of the queries
    j = torch.arange(S, device=device)
    # Far outside on either side there is nobody; queries may stand before key 0.
    w = span if mask.window is None else mask.window - 1
    row_group = 0 if groups is None else groups[:, S - T :]
    key_group = 0 if groups is None else groups
    sizes = _count(
        _place(key_group, j, span),
        keys,
        _place(row_group, (i - w).clamp(min=-T), span),
        _place(row_group, (i if mask.causal else i + w).clamp(max=S), span),
        in_a_row=groups is None and keys is None,
    )
    lookers = _count(
        _place(row_group, i, span),
        queries,
        _place(key_group, (j if mask.causal else j - w).clamp(min=-T), span),
        _place(key_group, (j + w).clamp(max=S), span),
        in_a_row=groups is None and queries is None,
    )
    if queries is not None:
        sizes = sizes * queries
    if keys is not None:
        lookers = lookers * keys
    return sizes[:, None], lookers[:, None]


def _place(group: Tensor | int, position: Tensor, span: int) -> Tensor:
    """One number that sorts by group and then by position; (B | 1, n)."""
    return torch.atleast_2d(group * 2 * span + position + span)


def _count(
    places: Tensor, real: Tensor | None, low: Tensor, high: Tensor, *, in_a_row: bool
) -> Tensor:
    """How many real places lie from low to high, for each pair; row by row of the batch."""
    if in_a_row and places.shape[1]:
        first, last = places[:, :1], places[:, -1:]
        return (torch.minimum(high, last) - torch.maximum(low, first) + 1).clamp(min=0)
    B = max(x.shape[0] for x in (places, low) + (() if real is None else (real,)))
    if real is not None:
        places = places.masked_fill(~real, torch.iinfo(torch.int64).max)
    places = places.expand(B, -1).sort(-1).values
    low, high = low.expand(B, -1).contiguous(), high.expand(B, -1).contiguous()
    upto = torch.searchsorted(places, high, right=True)
    return (upto - torch.searchsorted(places, low)).clamp(min=0)


def _groups(mask: Mask, S: int, device: torch.device) -> Tensor | None:
    """Documents renumbered from 0, (B | 1, S)."""
    if mask.documents is None:
        return None
    return mask.documents.to(device).unique(return_inverse=True)[1]


def _reach_by_bands(
    mask: Mask, T: int, S: int, queries: Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    sizes, lookers = [], torch.zeros((), dtype=torch.int64, device=device)
    step = max(1, BAND // max(S, 1))
    for start in range(0, T, step):
        rows = slice(start, min(start + step, T))
        allowed = mask.to_tensor(T, S, rows, device=device)
        assert allowed is not None  # there is a dense part
        # What broadcasts over rows or columns stands for each of them.
        allowed = allowed.expand(*allowed.shape[:2], rows.stop - start, S)
        if queries is not None:
            allowed = allowed & queries[:, None, rows, None]
        sizes.append(allowed.sum(-1))
        lookers = lookers + allowed.sum(-2)
    if not sizes:
        return torch.zeros(1, 1, T, dtype=torch.int64), torch.zeros(1, 1, S, dtype=torch.int64)
    return torch.cat(sizes, -1), lookers


def first_keys(mask: Mask, B: int, T: int, S: int, device: torch.device) -> Tensor:
    """(B, T) the first key that is not padding, of the row's own document; -1 when there is none.

    >>> first_keys(Mask(documents=torch.tensor([[5, 5, 7]])), 1, 3, 3, torch.device("cpu"))
    tensor([[0, 0, 2]])
    """
    positions = torch.arange(S, device=device).expand(B, S)
    if mask.keys is not None:
        positions = positions.masked_fill(~mask.keys, S)
    groups = _groups(mask, S, device)
    if groups is None:
        first = (
            positions.amin(-1, keepdim=True).expand(B, T) if S else positions.new_full((B, T), S)
        )
    else:
        groups = groups.expand(B, S)
        n = int(groups.max()) + 1 if groups.numel() else 0
        by_group = positions.new_full((B, n), S).scatter_reduce(1, groups, positions, "amin")
        first = by_group.gather(1, groups[:, S - T :])
    return first.masked_fill(first == S, -1)


def by_token(ids: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
    """(B, S) the positions sorted by document and token, earliest first, and what they were sorted
    by: -1 for padding, which is a copy of nothing.

    >>> by_token(torch.tensor([[3, 1, 3, 3]]), Mask())
    (tensor([[1, 0, 2, 3]]), tensor([[0, 2, 2, 2]]))
    """
    tokens = ids.long() - ids.min() if ids.numel() else ids.long()  # 0 or more
    groups = _groups(mask, ids.shape[1], ids.device)
    if groups is not None:
        tokens = groups * (tokens.max() + 1) + tokens
    if mask.keys is not None:
        tokens = tokens.masked_fill(~mask.keys, -1)
    tokens, positions = tokens.contiguous().sort(dim=-1, stable=True)
    return positions, tokens


def copied(positions: Tensor, tokens: Tensor, T: int) -> Tensor:
    """(B, T) whether the query's token stood before in its document; of what `by_token` gives."""
    out = torch.zeros_like(positions, dtype=torch.bool)
    out.scatter_(1, positions[:, 1:], _again(tokens))
    return out[:, out.shape[1] - T :]


def earlier_keys(positions: Tensor, tokens: Tensor, T: int) -> Tensor:
    """(B, T, 16) where the query's token stood before in its document, latest first; -1 for none.

    >>> earlier_keys(*by_token(torch.tensor([[3, 1, 3, 3]]), Mask()), 2)[..., :3]
    tensor([[[ 0, -1, -1],
             [ 2,  0, -1]]])
    """
    B, S = positions.shape
    # Nowhere is S, and a step back from there stays there.
    latest = positions.new_full((B, S + 1), S)
    latest.scatter_(1, positions[:, 1:], positions[:, :-1].where(_again(tokens), S))
    found = [latest[:, S - T : S]]
    for _ in range(COPIES - 1):
        found.append(latest.gather(1, found[-1]))
    copies = torch.stack(found, -1)
    return copies.masked_fill_(copies == S, -1)


def _again(tokens: Tensor) -> Tensor:
    """(B, S - 1) of sorted tokens, whether each but the first is a copy of the one before."""
    return (tokens[:, 1:] == tokens[:, :-1]) & (tokens[:, 1:] >= 0)
