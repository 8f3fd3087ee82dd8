"""Which keys each row may see, which is the first of them, and where its token stood before.

All from the mask and the tokens, before any score is computed.
"""

import torch
from torch import Tensor

from glasshead.attention.mask import Mask

__all__ = [
    "COPIES", "count_visible", "earlier_copies", "first_keys", "has_copies", "sort_by_token",
]  # fmt: skip

COPIES = 16  # earlier copies of a token that are looked up, the latest ones
BAND = 2**22  # pairs of a dense mask that are counted at a time


def count_visible(
    mask: Mask, T: int, S: int, queries: Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Count the keys that each row may see, and the rows that may see each key.

    Returns (B | 1, H | 1, T) and (B | 1, H | 1, S). Rows that are False in `queries` see nothing.

    >>> keys, rows = count_visible(Mask(causal=True, window=2), 3, 3, None, torch.device("cpu"))
    >>> keys.flatten().tolist(), rows.flatten().tolist()
    ([1, 2, 2], [2, 2, 1])
    """
    if mask.dense is not None:
        return _count_by_bands(mask, T, S, queries, device)
    # Without a dense part a row sees the unpadded keys of its document within a range. Sorted by
    # (document, position), those are neighbours, and two searches count them.
    documents, keys = _number_documents(mask, device), mask.keys
    span = T + S + 1  # more than any position, and than how far a window can reach
    i = torch.arange(T, device=device) + (S - T)  # positions of the queries
    j = torch.arange(S, device=device)
    w = span if mask.window is None else mask.window - 1
    row_document = 0 if documents is None else documents[:, S - T :]
    key_document = 0 if documents is None else documents
    # Positions are cut off outside of the text; queries may stand before key 0.
    n_keys = _count_between(
        _sort_key(key_document, j, span),
        keys,
        _sort_key(row_document, (i - w).clamp(min=-T), span),
        _sort_key(row_document, (i if mask.causal else i + w).clamp(max=S), span),
        contiguous=documents is None and keys is None,
    )
    n_rows = _count_between(
        _sort_key(row_document, i, span),
        queries,
        _sort_key(key_document, (j if mask.causal else j - w).clamp(min=-T), span),
        _sort_key(key_document, (j + w).clamp(max=S), span),
        contiguous=documents is None and queries is None,
    )
    n_keys = n_keys if queries is None else n_keys * queries
    n_rows = n_rows if keys is None else n_rows * keys
    return n_keys[:, None], n_rows[:, None]


def _sort_key(document: Tensor | int, position: Tensor, span: int) -> Tensor:
    """(B | 1, n) one number that sorts by document and then by position."""
    return torch.atleast_2d(document * 2 * span + position + span)


def _count_between(
    places: Tensor, real: Tensor | None, low: Tensor, high: Tensor, *, contiguous: bool
) -> Tensor:
    """Count the real places from low to high, for each pair; row by row of the batch."""
    if contiguous and places.shape[1]:
        first, last = places[:, :1], places[:, -1:]
        return (torch.minimum(high, last) - torch.maximum(low, first) + 1).clamp(min=0)
    B = max(x.shape[0] for x in (places, low) + (() if real is None else (real,)))
    if real is not None:
        places = places.masked_fill(~real, torch.iinfo(torch.int64).max)
    places = places.expand(B, -1).sort(-1).values
    low, high = low.expand(B, -1).contiguous(), high.expand(B, -1).contiguous()
    upto = torch.searchsorted(places, high, right=True)
    return (upto - torch.searchsorted(places, low)).clamp(min=0)


def _number_documents(mask: Mask, device: torch.device) -> Tensor | None:
    """(B | 1, S) documents renumbered from 0."""
    if mask.documents is None:
        return None
    return mask.documents.to(device).unique(return_inverse=True)[1]


def _count_by_bands(
    mask: Mask, T: int, S: int, queries: Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    n_keys, n_rows = [], torch.zeros((), dtype=torch.int64, device=device)
    step = max(1, BAND // max(S, 1))
    for start in range(0, T, step):
        rows = slice(start, min(start + step, T))
        allowed = mask.to_tensor(T, S, rows, device=device)
        assert allowed is not None  # there is a dense part
        # What broadcasts over rows or columns stands for each of them.
        allowed = allowed.expand(*allowed.shape[:2], rows.stop - start, S)
        if queries is not None:
            allowed = allowed & queries[:, None, rows, None]
        n_keys.append(allowed.sum(-1))
        n_rows = n_rows + allowed.sum(-2)
    if not n_keys:
        return torch.zeros(1, 1, T, dtype=torch.int64), torch.zeros(1, 1, S, dtype=torch.int64)
    return torch.cat(n_keys, -1), n_rows


def first_keys(mask: Mask, B: int, T: int, S: int, device: torch.device) -> Tensor:
    """(B, T) the first key that is not padding, of the row's own document; -1 when there is none.

    >>> first_keys(Mask(documents=torch.tensor([[5, 5, 7]])), 1, 3, 3, torch.device("cpu"))
    tensor([[0, 0, 2]])
    """
    positions = torch.arange(S, device=device).expand(B, S)
    if mask.keys is not None:
        positions = positions.masked_fill(~mask.keys, S)
    documents = _number_documents(mask, device)
    if documents is not None:
        documents = documents.expand(B, S)
        n = int(documents.max()) + 1 if documents.numel() else 0
        each = positions.new_full((B, n), S).scatter_reduce(1, documents, positions, "amin")
        first = each.gather(1, documents[:, S - T :])
    elif S:
        first = positions.amin(-1, keepdim=True).expand(B, T)
    else:
        first = positions.new_full((B, T), S)
    return first.masked_fill(first == S, -1)


def sort_by_token(ids: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
    """(B, S) the positions sorted by document and token, earliest first, and what they were sorted
    by: -1 for padding, which is a copy of nothing.

    >>> sort_by_token(torch.tensor([[3, 1, 3, 3]]), Mask())
    (tensor([[1, 0, 2, 3]]), tensor([[0, 2, 2, 2]]))
    """
    tokens = ids.long() - ids.min() if ids.numel() else ids.long()  # 0 or more
    documents = _number_documents(mask, ids.device)
    if documents is not None:
        tokens = documents * (tokens.max() + 1) + tokens
    if mask.keys is not None:
        tokens = tokens.masked_fill(~mask.keys, -1)
    tokens, positions = tokens.contiguous().sort(dim=-1, stable=True)
    return positions, tokens


def has_copies(positions: Tensor, tokens: Tensor, T: int) -> Tensor:
    """(B, T) whether the query's token stood before in its document; from `sort_by_token`."""
    out = torch.zeros_like(positions, dtype=torch.bool)
    out.scatter_(1, positions[:, 1:], _repeats(tokens))
    return out[:, out.shape[1] - T :]


def earlier_copies(positions: Tensor, tokens: Tensor, T: int) -> Tensor:
    """(B, T, 16) where the query's token stood before in its document, latest first; -1 for none.

    >>> earlier_copies(*sort_by_token(torch.tensor([[3, 1, 3, 3]]), Mask()), 2)[..., :3]
    tensor([[[ 0, -1, -1],
             [ 2,  0, -1]]])
    """
    B, S = positions.shape
    # Nowhere is S, and a step back from there stays there.
    latest = positions.new_full((B, S + 1), S)
    latest.scatter_(1, positions[:, 1:], positions[:, :-1].where(_repeats(tokens), S))
    found = [latest[:, S - T : S]]
    for _ in range(COPIES - 1):
        found.append(latest.gather(1, found[-1]))
    copies = torch.stack(found, -1)
    return copies.masked_fill_(copies == S, -1)


def _repeats(tokens: Tensor) -> Tensor:
    """(B, S - 1) whether each but the first of sorted tokens equals the one before."""
    return (tokens[:, 1:] == tokens[:, :-1]) & (tokens[:, 1:] >= 0)
