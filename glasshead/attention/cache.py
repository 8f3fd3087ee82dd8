"""KV caches: keys and values of earlier tokens, so that a new token does not compute them again.

    GrowingCache   doubles its buffers when they are full: a text of any length
    FixedCache     allocates all its buffers at once, and raises when they are full
    MemoryCache    keys and values of an encoder's output, computed once

One cache serves one attention layer; a model keeps a list of them.
"""

from typing import Protocol

import torch
from torch import Tensor

from glasshead.errors import ConfigError, ShapeError

__all__ = ["Cache", "FixedCache", "GrowingCache", "MemoryCache"]


class Cache(Protocol):
    @property
    def length(self) -> int:
        """The number of cached positions."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values (B, H_kv, T, D); return all that are cached, (B, H_kv, S, D)."""

    def reorder(self, rows: Tensor) -> None:
        """Replace sequence b by sequence rows[b], as beam search needs."""


class _Buffers:
    """Buffers for keys and values, of which the first `length` positions are in use."""

    def __init__(self) -> None:
        self.length = 0
        self.k: Tensor | None = None
        self.v: Tensor | None = None

    def _write(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        assert self.k is not None
        assert self.v is not None
        if k.shape[0] != self.k.shape[0]:
            raise ShapeError(
                f"the cache holds {self.k.shape[0]} sequences, but {k.shape[0]} were given",
                hint="use a new cache for a new batch",
            )
        new = k.shape[2]
        self.k.narrow(2, self.length, new).copy_(k)
        self.v.narrow(2, self.length, new).copy_(v)
        self.length += new
        return self.k.narrow(2, 0, self.length), self.v.narrow(2, 0, self.length)

    def reorder(self, rows: Tensor) -> None:
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k[rows], self.v[rows]


class GrowingCache(_Buffers):
    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        needed = self.length + k.shape[2]
        if self.k is None or self.v is None:
            self.k, self.v = _buffer_like(k, needed), _buffer_like(v, needed)
        elif needed > self.k.shape[2]:
            # Doubling copies each position about once in total; growing by one copies T per token.
            room = max(needed, 2 * self.k.shape[2])
            for name in ("k", "v"):
                old = getattr(self, name)
                new = _buffer_like(old, room)
                new[:, :, : self.length] = old[:, :, : self.length]
                setattr(self, name, new)
        return self._write(k, v)


class FixedCache(_Buffers):
    def __init__(self, max_len: int) -> None:
        super().__init__()
        if max_len < 1:
            raise ConfigError(f"max_len ({max_len}) must be at least 1", hint="try 1024")
        self.max_len = max_len

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.length + k.shape[2] > self.max_len:
            raise ShapeError(
                f"the cache has room for max_len={self.max_len} positions, but "
                f"{self.length} + {k.shape[2]} are needed",
                hint="use a larger max_len, or a GrowingCache",
            )
        if self.k is None or self.v is None:
            self.k, self.v = _buffer_like(k, self.max_len), _buffer_like(v, self.max_len)
        return self._write(k, v)


class MemoryCache(_Buffers):
    """Filled by the first call; later calls get the same keys and values back."""

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.k, self.v, self.length = k, v, k.shape[2]
        return k, v


def _buffer_like(x: Tensor, length: int) -> Tensor:
    B, H, _, D = x.shape
    # Zeros, not empty: unused positions must not hold NaN.
    return torch.zeros(B, H, length, D, dtype=x.dtype, device=x.device)
