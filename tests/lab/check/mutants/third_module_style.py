"""Attention as modules, by a third writer: wrong views, names and projections."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

MUTANTS = {
    "ThFusedView": "heads-split",
    "ThFirstHeadOnly": "heads-mixed",
    "ThMergeWidthFirst": "heads-merge",
    "ThContextInverted": "mask-inverted",
    "ThKeepTimesMinus": "mask-inverted",
    "ThScaleUnits": "scale-model-width",
    "ThBiasOfQueries": "bias-mixed",
    "ThMergeTimeFirst": "heads-merge",
    "ThValuesInHalf": "low-precision",
    "ThLookbackShort": "window-off-by-one",
    "ThNoMinus": "rotary-no-rotation",
}


class ThFusedView(nn.Module):
    def __init__(self, dim: int = 32, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        qkv = self.qkv(x).view(3, B, self.heads, T, C // self.heads)
        q, k, v = qkv.unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(B, T, C)
        return self.proj(y)


class ThFirstHeadOnlyHead(nn.Module):
    """One head of causal self-attention."""

    def __init__(self, n_embd, head_size, block_size):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        T = x.shape[1]
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return F.softmax(wei, dim=-1) @ self.value(x)


class ThFirstHeadOnly(nn.Module):
    """Several heads in parallel, concatenated and projected."""

    def __init__(self, n_embd=32, num_heads=4, block_size=64):
        super().__init__()
        size = n_embd // num_heads
        self.heads = nn.ModuleList(
            ThFirstHeadOnlyHead(n_embd, size, block_size) for _ in range(num_heads)
        )
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        out = torch.cat([self.heads[0](x) for h in self.heads], dim=-1)
        return self.proj(out)


class ThMergeWidthFirst(nn.Module):
    def __init__(self, embed_dim=32, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        bsz, seq, _ = x.shape
        shape = (bsz, seq, self.num_heads, self.head_dim)
        q = self.q_proj(x).reshape(shape).transpose(1, 2)
        k = self.k_proj(x).reshape(shape).transpose(1, 2)
        v = self.v_proj(x).reshape(shape).transpose(1, 2)
        probs = torch.softmax(q @ k.mT / self.head_dim**0.5, dim=-1)
        ctx = (probs @ v).transpose(2, 3).contiguous()
        return self.out_proj(ctx.view(bsz, seq, -1))


class ThContextInverted(nn.Module):
    def __init__(self, query_dim=32, context_dim=20, heads=4, dim_head=8):
        super().__init__()
        inner = heads * dim_head
        self.scale, self.heads = dim_head**-0.5, heads
        self.to_q = nn.Linear(query_dim, inner, bias=False)
        self.to_k = nn.Linear(context_dim, inner, bias=False)
        self.to_v = nn.Linear(context_dim, inner, bias=False)
        self.to_out = nn.Linear(inner, query_dim)

    def forward(self, x, context, context_mask=None):
        """context_mask: (B, S) bool, True for real tokens of the context."""
        b, t, _ = x.shape
        q = self.to_q(x).view(b, t, self.heads, -1)
        k = self.to_k(context).view(b, context.shape[1], self.heads, -1)
        v = self.to_v(context).view(b, context.shape[1], self.heads, -1)
        sim = torch.einsum("bthd,bshd->bhts", q, k) * self.scale
        if context_mask is not None:
            sim = sim.masked_fill(context_mask[:, None, None, :], -torch.finfo(sim.dtype).max)
        out = torch.einsum("bhts,bshd->bthd", sim.softmax(dim=-1), v)
        return self.to_out(out.reshape(b, t, -1))


class ThKeepTimesMinus(nn.Module):
    """Keras-flavoured layer: call(query, value, key=None, mask=None).

    mask follows the Keras convention: (B, S), True means the timestep is kept.
    """

    def __init__(self, units=32, num_heads=4):
        super().__init__()
        self.units, self.num_heads = units, num_heads
        self.query_dense = nn.Linear(units, units)
        self.key_dense = nn.Linear(units, units)
        self.value_dense = nn.Linear(units, units)
        self.output_dense = nn.Linear(units, units)

    def split_heads(self, x):
        return x.reshape(x.shape[0], x.shape[1], self.num_heads, -1).transpose(1, 2)

    def call(self, query, value, key=None, mask=None):
        key = value if key is None else key
        q, k, v = self.query_dense(query), self.key_dense(key), self.value_dense(value)
        q, k, v = self.split_heads(q), self.split_heads(k), self.split_heads(v)
        logits = q @ k.transpose(-1, -2) / (self.units // self.num_heads) ** 0.5
        if mask is not None:
            logits = logits + mask[:, None, None, :].to(logits.dtype) * -1e9
        out = (logits.softmax(-1) @ v).transpose(1, 2)
        return self.output_dense(out.reshape(query.shape[0], -1, self.units))

    forward = call


class ThScaleUnits:
    """A NumPy layer with the Keras life cycle: build(input_shape) then call(inputs)."""

    def __init__(self, units=32, num_heads=4, seed=0):
        self.units, self.num_heads = units, num_heads
        self.rng = np.random.default_rng(seed)
        self.built = False

    def build(self, input_shape):
        dim = input_shape[-1]

        def init(a, b):
            return self.rng.normal(0, a**-0.5, (a, b))

        self.wq, self.wk, self.wv = (
            init(dim, self.units),
            init(dim, self.units),
            init(dim, self.units),
        )
        self.wo = init(self.units, self.units)
        self.built = True

    def __call__(self, inputs):
        if not self.built:
            self.build(inputs.shape)
        return self.call(inputs)

    def call(self, x):
        b, t, _ = x.shape

        def heads(y):
            return y.reshape(b, t, self.num_heads, -1).transpose(0, 2, 1, 3)

        q, k, v = heads(x @ self.wq), heads(x @ self.wk), heads(x @ self.wv)
        s = q @ k.swapaxes(-1, -2) / np.sqrt(self.units)
        s = np.exp(s - s.max(axis=-1, keepdims=True))
        w = s / s.sum(axis=-1, keepdims=True)
        return (w @ v).transpose(0, 2, 1, 3).reshape(b, t, self.units) @ self.wo


class ThBiasOfQueries:
    """Single-head attention layer; weights are made in build()."""

    def __init__(self, units=16, seed=1):
        self.units, self.seed = units, seed

    def build(self, input_shape):
        rng = np.random.default_rng(self.seed)
        n = input_shape[-1]
        self.kernel_q, self.kernel_k, self.kernel_v = rng.normal(0, n**-0.5, (3, n, self.units))
        self.bias_q, self.bias_k, self.bias_v = rng.normal(0, 0.5, (3, self.units))

    def call(self, inputs):
        q = inputs @ self.kernel_q + self.bias_q
        k = inputs @ self.kernel_k + self.bias_k
        v = inputs @ self.kernel_v + self.bias_q
        scores = np.einsum("bqd,bkd->bqk", q, k) / np.sqrt(self.units)
        scores -= scores.max(axis=-1, keepdims=True)
        w = np.exp(scores)
        return np.einsum("bqk,bkd->bqd", w / w.sum(-1, keepdims=True), v)

    def __call__(self, inputs):
        if not hasattr(self, "kernel_q"):
            self.build(inputs.shape)
        return self.call(inputs)


class ThMergeTimeFirst(nn.Module):
    """fairseq-style self-attention; x is (T, B, C)."""

    def __init__(self, embed_dim=32, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        T, B, C = x.shape

        def fold(t):
            return t.contiguous().view(T, B * self.num_heads, self.head_dim).transpose(0, 1)

        q, k, v = fold(self.q_proj(x)), fold(self.k_proj(x)), fold(self.v_proj(x))
        w = torch.softmax(torch.bmm(q, k.transpose(1, 2)) * self.head_dim**-0.5, dim=-1)
        out = torch.bmm(w, v)
        out = out.reshape(T, B, C)
        return self.out_proj(out)


class ThValuesInHalf(nn.Module):
    def __init__(self, dim=32, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.proj = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = (
            f(x).view(B, N, self.num_heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        p = (q @ k.mT * q.shape[-1] ** -0.5).softmax(dim=-1)
        ctx = (p.bfloat16() @ v.bfloat16()).to(x.dtype)
        return self.proj(ctx.transpose(1, 2).reshape(B, N, C))


class ThLookbackShort(nn.Module):
    """Causal local attention: a token reads itself and the `lookback` tokens before it."""

    def __init__(self, dim=32, heads=4, lookback=2):
        super().__init__()
        self.heads, self.lookback = heads, lookback
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (
            t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1)
        )
        ones = torch.ones(T, T, dtype=torch.bool, device=x.device)
        band = ones.tril() & ones.triu(1 - self.lookback)
        att = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~band, float("-inf")).softmax(-1)
        return self.proj((att @ v).transpose(1, 2).reshape(B, T, C))


def rotate_half_of_thnominus(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((x2, x1), dim=-1)


class ThNoMinus(nn.Module):
    """Causal attention with rotary position embeddings (half-split layout)."""

    def __init__(self, embed_dim=32, num_heads=4):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        B, T, C = x.shape

        def split(t):
            return t.view(B, T, self.num_heads, self.head_dim).transpose(1, 2)

        q, k, v = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        pos = torch.arange(T, dtype=x.dtype, device=x.device)
        inv = 10000 ** (
            -torch.arange(0, self.head_dim, 2, dtype=x.dtype, device=x.device) / self.head_dim
        )
        ang = (pos[:, None] * inv).repeat(1, 2)
        q = q * ang.cos() + rotate_half_of_thnominus(q) * ang.sin()
        k = k * ang.cos() + rotate_half_of_thnominus(k) * ang.sin()
        s = q @ k.mT / self.head_dim**0.5
        s = s.masked_fill(
            torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1), float("-inf")
        )
        return self.out_proj((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))
