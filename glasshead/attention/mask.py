"""Masks: which keys a query may attend to. One convention everywhere: True = may attend.

A mask is a description, not a matrix: it says "causal, window 128, these keys are padding", and
each kernel takes from it what it needs: a flag, a rule per pair, or any rectangle of the T x S
map. No T x S tensor is made unless `to_tensor` is called.

Query i of T stands at position S - T + i: queries are aligned to the *end* of the keys, so that
a query which comes after cached keys needs no special case.

    >>> Mask(causal=True).to_tensor(2, 4).int()
    tensor([[1, 1, 1, 0],
            [1, 1, 1, 1]], dtype=torch.int32)
"""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from glasshead.errors import MaskError

__all__ = ["ALLOW_ALL", "Mask", "padding"]


@dataclass(frozen=True, eq=False)
class Mask:
    """Which keys a query may attend to. All the rules that are set must allow a pair.

    >>> (Mask(causal=True) & Mask(window=2)).to_tensor(3, 3).int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 1, 1]], dtype=torch.int32)

    Args:
        causal: no key after the query's own position.
        window: only keys less than `window` positions away, the query's own included.
        keys: (B, S) bool, True for real tokens and False for padding.
        documents: (B, S) integers, which document each position belongs to; a query sees only
            its own document.
        dense: any bool tensor that broadcasts to (B, H, T, S).
    """

    causal: bool = False
    window: int | None = None
    keys: Tensor | None = None
    documents: Tensor | None = None
    dense: Tensor | None = None

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise MaskError(
                f"window ({self.window}) must be at least 1",
                hint="a window of 1 sees the query's own position only",
            )
        _need_bool("keys", self.keys, "(B, S)")
        _need_bool("dense", self.dense, "(B, H, T, S)")
        if self.keys is not None and self.keys.dim() != 2:
            raise MaskError(
                f"keys has shape {tuple(self.keys.shape)}, but (B, S) is needed",
                hint="one True or False for each key of each sequence of the batch",
            )
        if self.documents is not None and (
            self.documents.dim() != 2 or self.documents.is_floating_point()
        ):
            raise MaskError(
                f"documents has shape {tuple(self.documents.shape)} and dtype "
                f"{self.documents.dtype}, but integers of shape (B, S) are needed",
                hint="number the documents of each sequence: 0, 0, 0, 1, 1, ...",
            )

    def __and__(self, other: "Mask") -> "Mask":
        """Return the mask that allows what both allow."""
        windows = [w for w in (self.window, other.window) if w is not None]
        return Mask(
            causal=self.causal or other.causal,
            window=min(windows, default=None),
            keys=_intersect(self.keys, other.keys),
            dense=_intersect(self.dense, other.dense),
            documents=_pair_documents(self.documents, other.documents),
        )

    @property
    def is_plain(self) -> bool:
        """Whether there is no window, padding, documents or dense part: only `causal`, if any."""
        parts = (self.window, self.keys, self.documents, self.dense)
        return all(part is None for part in parts)

    def simplify(self, T: int, S: int) -> "Mask":
        """Return the same mask without the rules that cannot hide anything at this size."""
        pointless_causal = self.causal and T <= 1
        pointless_window = self.window is not None and self.window >= max(T, S)
        if not pointless_causal and not pointless_window:
            return self
        if self.is_plain:
            return ALLOW_ALL
        return replace(
            self,
            causal=self.causal and not pointless_causal,
            window=None if pointless_window else self.window,
        )

    def check(self, B: int, H: int, T: int, S: int) -> None:
        """Raise MaskError unless the mask fits scores of shape (B, H, T, S)."""
        if self.is_plain:
            return
        for name, part in (("keys", self.keys), ("documents", self.documents)):
            if part is not None and (part.shape[0] not in (1, B) or part.shape[1] != S):
                raise MaskError(
                    f"{name} has shape {tuple(part.shape)}, but there are B={B} sequences of "
                    f"S={S} keys",
                    hint=f"give {name} one entry for each key, cached ones included",
                )
        if self.documents is not None and T > S:
            raise MaskError(
                f"documents needs a position for each query, but T={T} queries look at S={S} keys",
                hint="documents are for self-attention; for cross-attention give a dense mask",
            )
        if self.dense is not None:
            shape = tuple(self.dense.shape)
            try:
                fits = torch.broadcast_shapes(shape, (B, H, T, S)) == (B, H, T, S)
            except RuntimeError:
                fits = False
            if not fits:
                raise MaskError(
                    f"the mask has shape {shape}, which does not broadcast to "
                    f"(B, H, T, S) = {(B, H, T, S)}",
                    hint="a (B, S) padding mask goes in as Mask(keys=...)",
                )

    def rule(self, b: Any, i: Any, j: Any) -> Tensor | None:
        """Return whether the pair is allowed: sequence b, query at *position* i, key j.

        Covers all parts but `dense`. Works on any index tensors that broadcast, and inside
        FlexAttention. None means that everything is allowed.
        """
        rules = []
        if self.causal:
            rules.append(j <= i)
        if self.window is not None:
            rules.append(j > i - self.window)
            if not self.causal:
                rules.append(j < i + self.window)
        if self.keys is not None:
            rules.append(self.keys[b if self.keys.shape[0] > 1 else b * 0, j])
        if self.documents is not None:
            row = b if self.documents.shape[0] > 1 else b * 0
            rules.append(self.documents[row, i] == self.documents[row, j])
        return reduce(lambda x, y: x & y, rules) if rules else None

    def to_tensor(
        self,
        T: int,
        S: int,
        rows: slice = slice(None),
        cols: slice = slice(None),
        device: torch.device | None = None,
    ) -> Tensor | None:
        """Return a rectangle of the map as a bool tensor that broadcasts to (B, H, rows, cols).

        None means that everything in it is allowed.
        """
        device = next((p.device for p in (self.keys, self.documents, self.dense) if p is not None),
                      device)  # fmt: skip
        i = _positions(rows, T, device)[:, None] + (S - T)  # (T, 1)
        j = _positions(cols, S, device)  # (S,)
        b: Any = 0
        if self.keys is not None or self.documents is not None:
            batch = max(p.shape[0] for p in (self.keys, self.documents) if p is not None)
            b = torch.arange(batch, device=device).view(-1, 1, 1, 1)
        rule = self.rule(b, i, j)
        if self.dense is None:
            return rule
        dense = self.dense.reshape((1,) * (4 - self.dense.dim()) + self.dense.shape)
        dense = dense if dense.shape[2] == 1 else dense[:, :, rows]
        dense = dense if dense.shape[3] == 1 else dense[..., cols]
        return dense if rule is None else dense & rule

    def may_have_empty_rows(self, T: int, S: int) -> bool:
        """Whether a row may be allowed nothing; False only when that cannot happen."""
        return (
            self.keys is not None
            or self.dense is not None
            or (T > S and (self.causal or self.window is not None))
        )

    def reachable_cols(self, rows: slice, T: int, S: int) -> slice:
        """Return the span of keys that `causal` and `window` let these query rows reach."""
        first, last = rows.start + S - T, rows.stop - 1 + S - T  # positions
        start = 0 if self.window is None else first - self.window + 1
        stop = S
        if self.causal:
            stop = last + 1
        elif self.window is not None:
            stop = last + self.window
        stop = max(0, min(stop, S))
        return slice(min(max(start, 0), stop), stop)


def padding(lengths: Tensor, S: int) -> Mask:
    """Return the mask of right-padded sequences of the given lengths.

    >>> padding(torch.tensor([1, 3]), 3).keys.int()
    tensor([[1, 0, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    return Mask(keys=torch.arange(S, device=lengths.device) < lengths[:, None])


def _need_bool(name: str, part: Tensor | None, shape: str) -> None:
    if part is not None and part.dtype != torch.bool:
        additive = "pass a float mask, which is added to the scores, as Scoring(bias=...)"
        boolean = "use mask.bool(); True means 'may attend'"
        raise MaskError(
            f"the mask's {name} part has dtype {part.dtype}, but torch.bool {shape} is needed",
            hint=additive if part.is_floating_point() else boolean,
        )


def _intersect(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _pair_documents(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a * (b.max() + 1) + b


def _positions(part: slice, n: int, device: torch.device | None) -> Tensor:
    """Return torch.arange(n)[part] without allocating all n."""
    start, stop, step = part.indices(n)
    return torch.arange(start, max(start, stop), step, device=device)


ALLOW_ALL = Mask()
