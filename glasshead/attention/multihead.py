"""Multi-head attention: self or cross, grouped-query, on any kernel, and open to a look.

>>> attention = MultiHeadAttention(d_model=32, n_heads=4)
>>> x = torch.randn(2, 7, 32)
>>> seen = attention(x, mask=Mask(causal=True), weights=True)
>>> seen.out.shape, seen.weights.shape
(torch.Size([2, 7, 32]), torch.Size([2, 4, 7, 7]))
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.attention.backends import check_name
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
    """What a layer of attention gives; `weights` and `lse` where they were asked for."""

    out: Tensor  # (B, T, C)
    weights: Tensor | None = None  # (B, H, T, S), one map per head, never averaged
    lse: Tensor | None = None  # (B, H, T)


class MultiHeadAttention(nn.Module):
    """H heads look at once, each with its own queries, keys and values.

    Args:
        d_model: width C of the input and the output.
        n_heads: number H of query heads.
        n_kv_heads: number of key and value heads, a divisor of n_heads; n_heads when None.
            Fewer is grouped-query attention, one is multi-query.
        d_head: width D of a head; d_model / n_heads when None.
        qkv_bias, out_bias: whether the projections in and out have a bias.
        project: whether the merged heads are projected; without, out is the heads side by side.
        qk_norm: RMS-normalise queries and keys, per head, before they are turned and compared.
        qk_eps: what keeps that norm from dividing by zero.
        scale: what q @ k^T is multiplied with; 1/sqrt(D) when None.
        softcap: squash scores into (-softcap, softcap).
        dropout: chance that a weight is dropped, in training only.
        backend: "auto", "explicit", "sdpa" or "flex".

    `hooks` see each call and may change it (`attention/hooks.py`); attach them for a while with
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
        counts = {
            "d_model": d_model,
            "n_heads": n_heads,
            "n_kv_heads": n_kv_heads,
            "d_head": d_head,
        }
        for name, count in counts.items():
            if count is not None and count < 1:
                raise ConfigError(f"{name} ({count}) must be at least 1", hint=f"try {name}=8")
        if d_head is None and d_model % n_heads:
            near = [n for n in range(1, d_model + 1) if d_model % n == 0]
            raise ConfigError(
                f"d_model ({d_model}) must be divisible by n_heads ({n_heads})",
                hint=f"{d_model} divides into {', '.join(map(str, near[:8]))} heads; "
                "or give d_head, the width of a head",
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
        check_name(backend)
        D = d_model // n_heads if d_head is None else d_head
        self.d_model, self.d_head = d_model, D
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.scale, self.softcap = scale, softcap
        self.dropout, self.backend = dropout, backend
        # Rows of the one matrix: all heads' queries, then their keys, then their values.
        self.qkv = nn.Linear(d_model, (n_heads + 2 * n_kv_heads) * D, bias=qkv_bias)
        if not project and n_heads * D != d_model:
            raise ConfigError(
                f"{n_heads} heads of width {D} side by side are not d_model ({d_model}) wide",
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
        """Each position of x looks at x itself, or at memory if there is one.

        Args:
            x: (B, T, C).
            memory: (B, S, C) for cross-attention.
            mask: who may look at whom, over cached positions too; True = may attend.
            rotation: how queries and keys are turned (RotaryPositions); not with a memory.
            slopes, bias: what is taken from and added to the scores (ALiBi; relative biases).
            cache: past keys and values; this call's are appended to it. With a memory, the
                first call fills it and later calls reuse it.
            weights, lse: return these too. Asking changes no bit of `out`.
        """
        self._check(x, memory, rotation is not None)
        if any(hook.hides for hook in self.hooks):
            mask = self._mask_with_hidden(x, memory, mask, cache)
        if memory is not None:
            q, k, v = self._cross(x, memory, cache)
        else:
            q, k, v = self.prepared(self._heads(self.qkv(x)), rotation)
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

            rules = as_mask(mask).simplified(q.shape[2], k.shape[2]), scoring
            call = AttentionCall(
                q, k, v, context, lambda: rules, cross=memory is not None,
                rounded_scores=q.dtype.itemsize < 4, lse=seen.lse,
            )  # fmt: skip
            context = run_hooks(self.hooks, call)
        out = self.out(context.transpose(1, 2).flatten(2))  # (B, T, C)
        return AttentionOutput(out, seen.weights, seen.lse if lse else None)

    def _mask_with_hidden(
        self,
        x: Tensor,
        memory: Tensor | None,
        mask: Mask | Tensor | None,
        cache: Cache | None,
    ) -> Mask:
        """The mask without the pairs that hooks hide."""
        from glasshead.attention.hook_calls import hidden_by

        T, past = x.shape[1], 0 if cache is None else cache.length
        if memory is None:
            pending = PendingCall(self.n_heads, T, past + T, False, past, x.device)
        else:  # a cache of the memory does not know how many queries there were
            first = None if past else 0
            pending = PendingCall(self.n_heads, T, memory.shape[1], True, first, x.device)
        hidden = hidden_by(self.hooks, pending)
        return as_mask(mask) if hidden is None else as_mask(mask) & Mask(dense=~hidden)

    def prepared(self, heads: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, ready to be compared, of all their heads (B, H, T, D)."""
        n_q, n_kv = self.n_heads, self.n_kv_heads
        if rotation is None and not self.qk_norm:
            q, k, v = heads.split_with_sizes((n_q, n_kv, n_kv), 1)
            return q, k, v
        qk, v = heads.split_with_sizes((n_q + n_kv, n_kv), 1)
        # Queries and keys are normed and turned alike, so both at once.
        if self.qk_norm:
            scales = [w.expand(n, 1, -1) for w, n in ((self.q_norm.weight, n_q),
                                                      (self.k_norm.weight, n_kv))]  # fmt: skip
            qk = rms_norm(qk, torch.cat(scales), self.q_norm.eps)
        if rotation is not None:
            qk = rotation.turn(qk)
        q, k = qk.split_with_sizes((n_q, n_kv), 1)
        return q, k, v

    def _cross(
        self, x: Tensor, memory: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        n_q, n_kv = self.n_heads, self.n_kv_heads
        widths = (n_q * self.d_head, 2 * n_kv * self.d_head)
        w_q, w_kv = self.qkv.weight.split(widths)
        b_q, b_kv = (None, None) if self.qkv.bias is None else self.qkv.bias.split(widths)
        q = self._heads(F.linear(x, w_q, b_q))
        q = self.q_norm(q) if self.qk_norm else q
        if isinstance(cache, MemoryCache) and cache.k is not None and cache.v is not None:
            return q, cache.k, cache.v
        k, v = self._heads(F.linear(memory, w_kv, b_kv)).split((n_kv, n_kv), 1)
        k = self.k_norm(k) if self.qk_norm else k
        return (q, k, v) if cache is None else (q, *cache.append(k, v))

    def _heads(self, x: Tensor) -> Tensor:
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
                "a rotation was given with a memory, whose positions it does not know",
                hint="rotary positions are for self-attention",
            )
        if memory is not None and memory.shape[0] != x.shape[0]:
            raise ShapeError(
                f"x holds {x.shape[0]} sequences and memory {memory.shape[0]}",
                hint="each sequence needs its own memory",
            )

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> "MultiHeadAttention":
        """The same attention as torch's module, its parameters copied.

        Beware of the masks: torch's boolean masks say True = may NOT attend, ours the opposite.
        Give ours `Mask(dense=~attn_mask, keys=~key_padding_mask)`. Ours takes (B, T, C) whatever
        torch's batch_first is, returns one map per head (torch averages them unless told not
        to), and gives zeros where a row may attend to nothing (torch: NaN).
        """
        blocks = {
            "kdim or vdim": not module._qkv_same_embed_dim,
            "add_bias_kv": module.bias_k is not None,
            "add_zero_attn": module.add_zero_attn,
        }
        if any(blocks.values()):
            raise ConfigError(
                f"cannot take over nn.MultiheadAttention with "
                f"{', '.join(name for name, there in blocks.items() if there)}",
                hint="only modules whose queries, keys and values share one width fit",
            )
        has_bias = module.in_proj_bias is not None
        ours = cls(
            module.embed_dim,
            module.num_heads,
            qkv_bias=has_bias,
            out_bias=has_bias,
            dropout=module.dropout,
        ).to(module.out_proj.weight)
        _copy(ours.qkv, module.in_proj_weight, module.in_proj_bias)
        _copy(ours.out, module.out_proj.weight, module.out_proj.bias)
        return ours.train(module.training)

    def to_torch(self) -> nn.MultiheadAttention:
        """The same attention as an nn.MultiheadAttention (batch_first), parameters copied.

        Beware of the masks: torch's booleans say True = may NOT attend, the opposite of ours.
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
                f"nn.MultiheadAttention cannot hold "
                f"{', '.join(name for name, there in blocks.items() if there)}",
                hint="keep this module, or train one without these settings",
            )
        assert isinstance(self.out, nn.Linear)
        biases: list[Tensor | None] = [self.qkv.bias, self.out.bias]
        has_bias = any(bias is not None for bias in biases)
        theirs = nn.MultiheadAttention(
            self.d_model, self.n_heads, dropout=self.dropout, bias=has_bias, batch_first=True
        ).to(self.qkv.weight)
        with torch.no_grad():
            theirs.in_proj_weight.copy_(self.qkv.weight)
            if theirs.in_proj_bias is not None:
                theirs.in_proj_bias.zero_()
                if self.qkv.bias is not None:
                    theirs.in_proj_bias.copy_(self.qkv.bias)
        _copy(theirs.out_proj, self.out.weight, self.out.bias)
        return theirs.train(self.training)


def _copy(linear: nn.Module, weight: Tensor, bias: Tensor | None) -> None:
    assert isinstance(linear, nn.Linear)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if linear.bias is not None:
            linear.bias.zero_() if bias is None else linear.bias.copy_(bias)
