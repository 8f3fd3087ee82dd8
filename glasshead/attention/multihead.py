"""Multi-head attention: self or cross, grouped-query, on any kernel."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.attention.backends import check_backend_name
from glasshead.attention.cache import Cache, MemoryCache
from glasshead.attention.functional import as_mask, attend
from glasshead.attention.hooks import AttentionCall, AttentionHook, PendingCall
from glasshead.attention.mask import Mask
from glasshead.attention.norm import RMSNorm, rms_norm
from glasshead.attention.position import Rotation
from glasshead.attention.scores import PLAIN, Scoring
from glasshead.errors import ConfigError, ShapeError

__all__ = ["AttentionOutput", "MultiHeadAttention"]


@dataclass(frozen=True, eq=False)
class AttentionOutput:
    """The output of an attention layer; `weights` and `lse` only if requested."""

    out: Tensor  # (B, T, C)
    weights: Tensor | None = None  # (B, H, T, S), one map per head, never averaged
    lse: Tensor | None = None  # (B, H, T)


class MultiHeadAttention(nn.Module):
    """H heads in parallel, each with its own queries, keys and values.

    >>> attention = MultiHeadAttention(d_model=32, n_heads=4)
    >>> found = attention(torch.randn(2, 7, 32), mask=Mask(causal=True), weights=True)
    >>> found.out.shape, found.weights.shape
    (torch.Size([2, 7, 32]), torch.Size([2, 4, 7, 7]))

    Args:
        d_model: width C of the input and the output.
        n_heads: number H of query heads.
        n_kv_heads: number of key and value heads, a divisor of n_heads; n_heads when None.
            Fewer is grouped-query attention, one is multi-query.
        d_head: width D of a head; d_model / n_heads when None.
        qkv_bias, out_bias: whether the projections in and out have a bias.
        project: whether the merged heads are projected; if not, `out` is the concatenated heads.
        qk_norm: RMS-normalise queries and keys, per head, before they are rotated and compared.
        qk_eps: the epsilon of that norm.
        scale: the factor of q @ k^T; 1/sqrt(D) when None.
        softcap: squash scores into (-softcap, softcap).
        dropout: probability of dropping a weight, in training only.
        backend: "auto", "explicit", "sdpa" or "flex".

    `hooks` see each call and may change it (`attention/hooks.py`); attach them with
    `observe.hooks.attach_hooks`.
    """

    hooks: tuple[AttentionHook, ...] = ()

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        qkv_bias: bool = False,
        out_bias: bool = True,
        project: bool = True,
        qk_norm: bool = False,
        qk_eps: float = 1e-6,
        scale: float | None = None,
        softcap: float | None = None,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        counts = (d_model, n_heads, n_kv_heads, d_head)
        for name, count in zip(("d_model", "n_heads", "n_kv_heads", "d_head"), counts, strict=True):
            if count is not None and count < 1:
                raise ConfigError(f"{name} ({count}) must be at least 1", hint=f"try {name}=8")
        if d_head is None and d_model % n_heads:
            divisors = [str(n) for n in range(1, d_model + 1) if d_model % n == 0]
            raise ConfigError(
                f"d_model ({d_model}) must be divisible by n_heads ({n_heads})",
                hint=f"set n_heads to one of {', '.join(divisors[:8])}, or set d_head",
            )
        if n_heads % n_kv_heads:
            raise ConfigError(
                f"n_heads ({n_heads}) must be divisible by n_kv_heads ({n_kv_heads})",
                hint="each key head serves a group of query heads of the same size",
            )
        if not 0 <= dropout < 1:
            raise ConfigError(
                f"dropout ({dropout}) must be at least 0 and less than 1", hint="try 0.1"
            )
        if softcap is not None and not softcap > 0:
            raise ConfigError(f"softcap ({softcap}) must be more than 0", hint="try 50")
        check_backend_name(backend)
        D = d_model // n_heads if d_head is None else d_head
        self.d_model, self.d_head = d_model, D
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.scale, self.softcap = scale, softcap
        self.dropout, self.backend = dropout, backend
        # Rows of the matrix: the queries of all heads, then their keys, then their values.
        self.qkv = nn.Linear(d_model, (n_heads + 2 * n_kv_heads) * D, bias=qkv_bias)
        if not project and n_heads * D != d_model:
            raise ConfigError(
                f"without a projection, n_heads ({n_heads}) times d_head ({D}) must be "
                f"d_model ({d_model})",
                hint="use project=True",
            )
        self.out = nn.Linear(n_heads * D, d_model, bias=out_bias) if project else nn.Identity()
        self.qk_norm = qk_norm
        if qk_norm:
            self.q_norm, self.k_norm = RMSNorm(D, qk_eps), RMSNorm(D, qk_eps)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        rotation: Rotation | None = None,
        slopes: Tensor | None = None,
        bias: Tensor | None = None,
        cache: Cache | None = None,
        weights: bool = False,
        lse: bool = False,
    ) -> AttentionOutput:
        """Let each position of x attend to x, or to `memory` if given.

        Args:
            x: (B, T, C).
            memory: (B, S, C) for cross-attention.
            mask: True = may attend; covers cached positions too.
            rotation: how queries and keys are rotated (RotaryPositions); not with a memory.
            slopes, bias: ALiBi slopes, and what is added to the scores.
            cache: keys and values of earlier calls; this call's are appended. With a memory,
                the first call fills it and later calls reuse it.
            weights, lse: also return these, which changes no bit of `out`.
        """
        self._check(x, memory, rotation is not None)
        if any(hook.hides for hook in self.hooks):
            mask = self._hide_pairs(x, memory, mask, cache)
        if memory is not None:
            q, k, v = self._cross_qkv(x, memory, cache)
        else:
            q, k, v = self.split_qkv(self._split_heads(self.qkv(x)), rotation)
            if cache is not None:
                k, v = cache.append(k, v)
        parts = (self.scale, self.softcap, slopes, bias)
        scoring = PLAIN if all(part is None for part in parts) else Scoring(*parts)
        seen = attend(
            q,
            k,
            v,
            mask,
            scoring=scoring,
            dropout=self.dropout if self.training else 0.0,
            backend=self.backend,
            weights=weights,
            lse=lse or bool(self.hooks),
        )
        context = seen.context
        if self.hooks:
            from glasshead.attention.hook_calls import run_hooks

            rules = as_mask(mask).simplify(q.shape[2], k.shape[2]), scoring
            call = AttentionCall(
                q, k, v, context, lambda: rules, cross=memory is not None,
                rounded_scores=q.dtype.itemsize < 4, lse=seen.lse,
            )  # fmt: skip
            context = run_hooks(self.hooks, call)
        out = self.out(context.transpose(1, 2).flatten(2))  # (B, T, C)
        return AttentionOutput(out, seen.weights, seen.lse if lse else None)

    def _hide_pairs(
        self,
        x: Tensor,
        memory: Tensor | None,
        mask: Mask | Tensor | None,
        cache: Cache | None,
    ) -> Mask:
        """Return the mask without the pairs that hooks hide."""
        from glasshead.attention.hook_calls import hidden_pairs

        T, past = x.shape[1], 0 if cache is None else cache.length
        if memory is None:
            pending = PendingCall(self.n_heads, T, past + T, False, past, x.device)
        else:  # a cache of the memory does not count the queries before
            first = None if past else 0
            pending = PendingCall(self.n_heads, T, memory.shape[1], True, first, x.device)
        hidden = hidden_pairs(self.hooks, pending)
        return as_mask(mask) if hidden is None else as_mask(mask) & Mask(dense=~hidden)

    def split_qkv(self, heads: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """Split projected heads into q, k and v (B, H, T, D), with q and k normed and rotated."""
        n_q, n_kv = self.n_heads, self.n_kv_heads
        if rotation is None and not self.qk_norm:
            q, k, v = heads.split_with_sizes((n_q, n_kv, n_kv), 1)
            return q, k, v
        qk, v = heads.split_with_sizes((n_q + n_kv, n_kv), 1)
        # Queries and keys are normed and rotated in the same way, so in one call.
        if self.qk_norm:
            scales = [w.expand(n, 1, -1) for w, n in ((self.q_norm.weight, n_q),
                                                      (self.k_norm.weight, n_kv))]  # fmt: skip
            qk = rms_norm(qk, torch.cat(scales), self.q_norm.eps)
        if rotation is not None:
            qk = rotation.rotate(qk)
        q, k = qk.split_with_sizes((n_q, n_kv), 1)
        return q, k, v

    def _cross_qkv(
        self, x: Tensor, memory: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        n_q, n_kv = self.n_heads, self.n_kv_heads
        widths = (n_q * self.d_head, 2 * n_kv * self.d_head)
        w_q, w_kv = self.qkv.weight.split(widths)
        b_q, b_kv = (None, None) if self.qkv.bias is None else self.qkv.bias.split(widths)
        q = self._split_heads(F.linear(x, w_q, b_q))
        q = self.q_norm(q) if self.qk_norm else q
        if isinstance(cache, MemoryCache) and cache.k is not None and cache.v is not None:
            return q, cache.k, cache.v
        k, v = self._split_heads(F.linear(memory, w_kv, b_kv)).split((n_kv, n_kv), 1)
        k = self.k_norm(k) if self.qk_norm else k
        return (q, k, v) if cache is None else (q, *cache.append(k, v))

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.d_head).transpose(1, 2)  # (B, H, T, D)

    def _check(self, x: Tensor, memory: Tensor | None, rotated: bool) -> None:
        for name, t in (("x", x), ("memory", memory)):
            if t is None or (
                t.dim() == 3 and t.shape[-1] == self.d_model and t.is_floating_point()
            ):
                continue
            if t.is_floating_point():
                raise ShapeError(
                    f"{name} has shape {tuple(t.shape)}, but (B, T, {self.d_model}) is needed",
                    hint="batch, positions, d_model",
                )
            raise ShapeError(
                f"{name} has dtype {t.dtype}, but attention needs floating-point numbers",
                hint="token ids go through an embedding first",
            )
        if memory is not None and rotated:
            raise ConfigError(
                "cross-attention (memory) does not support a rotation",
                hint="leave rotation out: rotary positions are for self-attention",
            )
        if memory is not None and memory.shape[0] != x.shape[0]:
            raise ShapeError(
                f"x holds {x.shape[0]} sequences and memory {memory.shape[0]}",
                hint="each sequence needs its own memory",
            )

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> "MultiHeadAttention":
        """Return the same attention as torch's module, with a copy of its parameters.

        Masks differ: in torch's boolean masks True means may NOT attend. Convert them with
        `Mask(dense=~attn_mask, keys=~key_padding_mask)`. This module takes (B, T, C) whatever
        torch's batch_first is, returns one map per head (torch averages them by default), and
        gives zeros for a row that may attend to nothing (torch: NaN).
        """
        blocks = {
            "kdim or vdim": not module._qkv_same_embed_dim,
            "add_bias_kv": module.bias_k is not None,
            "add_zero_attn": module.add_zero_attn,
        }
        if any(blocks.values()):
            raise ConfigError(
                f"nn.MultiheadAttention with {_list_true(blocks)} cannot be converted",
                hint="queries, keys and values must have the same width, without extras",
            )
        has_bias = module.in_proj_bias is not None
        ours = cls(
            module.embed_dim,
            module.num_heads,
            qkv_bias=has_bias,
            out_bias=has_bias,
            dropout=module.dropout,
        ).to(module.out_proj.weight)
        with torch.no_grad():
            ours.qkv.weight.copy_(module.in_proj_weight)
            if ours.qkv.bias is not None:
                ours.qkv.bias.copy_(module.in_proj_bias)
        ours.out.load_state_dict(module.out_proj.state_dict())
        return ours.train(module.training)

    def to_torch(self) -> nn.MultiheadAttention:
        """Return the same attention as nn.MultiheadAttention (batch_first), with copied parameters.

        Masks differ: in torch's boolean masks True means may NOT attend.
        """
        default = self.d_head**-0.5
        blocks = {
            f"n_kv_heads={self.n_kv_heads}": self.n_kv_heads != self.n_heads,
            f"d_head={self.d_head}": self.d_head * self.n_heads != self.d_model,
            "project=False": isinstance(self.out, nn.Identity),
            "qk_norm=True": self.qk_norm,
            f"scale={self.scale}": self.scale not in (None, default),
            f"softcap={self.softcap}": self.softcap is not None,
        }
        if any(blocks.values()):
            raise ConfigError(
                f"nn.MultiheadAttention does not support {_list_true(blocks)}",
                hint="keep this module, or train one without these settings",
            )
        assert isinstance(self.out, nn.Linear)
        biases: list[Tensor | None] = [self.qkv.bias, self.out.bias]
        has_bias = any(bias is not None for bias in biases)
        theirs = nn.MultiheadAttention(
            self.d_model, self.n_heads, dropout=self.dropout, bias=has_bias, batch_first=True
        ).to(self.qkv.weight)
        _copy(self.qkv, theirs.in_proj_weight, theirs.in_proj_bias)
        _copy(self.out, theirs.out_proj.weight, theirs.out_proj.bias)
        return theirs.train(self.training)


def _list_true(conditions: dict[str, bool]) -> str:
    return ", ".join(name for name, value in conditions.items() if value)


@torch.no_grad()
def _copy(source: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
    """Copy a layer's parameters into `weight` and `bias`; a bias it does not have is 0."""
    weight.copy_(source.weight)
    if bias is not None:
        bias.zero_() if source.bias is None else bias.copy_(source.bias)
