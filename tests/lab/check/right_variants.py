"""Right variants of attention: positions, windows, caches, blocks, other libraries."""

# name -> (what is checked, source)
VARIANTS: dict[str, tuple[str, str]] = {
    "rotary, halves": ("RotaryAttention", '''
def rotate_half(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([-b, a], dim=-1)

class RotaryAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.d = n_heads, d_model // n_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(d_model, d_model, bias=False) for _ in range(4))
        inv_freq = 1.0 / 10000 ** (torch.arange(0, self.d, 2, dtype=torch.float64) / self.d)
        self.register_buffer("inv_freq", inv_freq)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (p(x).view(B, T, self.h, self.d).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        angle = torch.outer(torch.arange(T, dtype=x.dtype), self.inv_freq)
        cos, sin = (torch.cat([f(angle)] * 2, -1) for f in (torch.cos, torch.sin))
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, C))
'''),
    "rotary, complex pairs": ("Attention", '''
class Attention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n, self.d = n_heads, dim // n_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def rope(self, x):
        T = x.shape[1]
        freqs = 10000.0 ** (-torch.arange(0, self.d, 2, dtype=torch.float64) / self.d)
        turn = torch.polar(torch.ones(()).double(), torch.outer(torch.arange(T).double(), freqs))
        pairs = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turn[None, :, None]).flatten(3).type_as(x)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (w(x).view(B, T, self.n, self.d) for w in (self.wq, self.wk, self.wv))
        q, k = self.rope(q), self.rope(k)
        s = torch.einsum("bthd,bshd->bhts", q, k) / self.d**0.5
        s = s + torch.full((T, T), float("-inf")).triu(1)
        return self.wo(torch.einsum("bhts,bshd->bthd", s.softmax(-1), v).reshape(B, T, C))
'''),
    "ALiBi": ("AlibiAttention", '''
class AlibiAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.qkv = n_heads, nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        slopes = 2.0 ** (-8 * torch.arange(1, n_heads + 1).double() / n_heads)
        self.register_buffer("slopes", slopes)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        i = torch.arange(T)
        bias = self.slopes[:, None, None] * (i[None] - i[:, None])
        s = q @ k.mT / q.size(-1) ** 0.5 + bias
        s = s.masked_fill(i[None] > i[:, None], float("-inf"))
        return self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))
'''),
    "softcap": ("attend", '''
def attend(q, k, v, softcap=None, is_causal=False):
    s = q @ k.mT / q.size(-1) ** 0.5
    if softcap is not None:
        s = torch.tanh(s / softcap) * softcap
    if is_causal:
        T, S = s.shape[-2:]
        s = s.masked_fill(~torch.ones(T, S, dtype=torch.bool).tril(S - T), float("-inf"))
    return s.softmax(-1) @ v
'''),
    "window": ("attend", '''
def attend(q, k, v, window=None, causal=True):
    T, S = q.size(-2), k.size(-2)
    gap = torch.arange(S - T, S)[:, None] - torch.arange(S)
    ok = gap >= 0 if causal else torch.ones(T, S, dtype=torch.bool)
    if window is not None:
        ok = ok & (gap.abs() < window)
    return ((q @ k.mT) * q.size(-1) ** -0.5).masked_fill(~ok, -torch.inf).softmax(-1) @ v
'''),
    "built-in window": ("LocalAttention", '''
class LocalAttention(nn.Module):
    def __init__(self, d_model, n_heads, window_size):
        super().__init__()
        self.h, self.w = n_heads, window_size
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        gap = torch.arange(T)[:, None] - torch.arange(T)
        s = q @ k.mT / q.size(-1) ** 0.5
        s = s.masked_fill((gap < 0) | (gap >= self.w), float("-inf"))
        return self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))
'''),
    "sinks": ("SinkAttention", '''
class SinkAttention(nn.Module):
    """Causal; each head has a learned score that takes weight away."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.sinks = n_heads, nn.Parameter(torch.randn(n_heads))
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        s = (q @ k.mT / q.size(-1) ** 0.5).masked_fill(torch.ones(T, T).triu(1) > 0, -torch.inf)
        s = torch.cat([s, self.sinks.view(1, -1, 1, 1).expand(B, -1, T, 1)], -1)
        return self.out((s.softmax(-1)[..., :-1] @ v).transpose(1, 2).reshape(B, T, C))
'''),
    "normalized q and k": ("QKNormAttention", '''
class QKNormAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, d = n_heads, d_model // n_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(d_model, d_model, bias=False) for _ in range(4))
        self.q_norm, self.k_norm = nn.RMSNorm(d), nn.RMSNorm(d)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (p(x).view(B, T, self.h, -1).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, C))
'''),
    "with residual and norm": ("AttentionBlock", '''
class AttentionBlock(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)

    def forward(self, x):
        h = self.norm(x)
        future = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
        return x + self.attn(h, h, h, attn_mask=future, need_weights=False)[0]
'''),
    "cross-attention": ("CrossAttention", '''
class CrossAttention(nn.Module):
    def __init__(self, dim, heads, context_dim=None):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(context_dim or dim, dim, bias=False)
        self.to_v = nn.Linear(context_dim or dim, dim, bias=False)
        self.to_out = nn.Sequential(nn.Linear(dim, dim), nn.Dropout(0.0))

    def forward(self, x, context=None, mask=None):
        context = x if context is None else context
        q, k, v = (f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for f, y in ((self.to_q, x), (self.to_k, context), (self.to_v, context)))
        if mask is not None:
            mask = mask[:, None, None, :]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.to_out(y.transpose(1, 2).flatten(2))
'''),
    "KV cache": ("CachedAttention", '''
class CachedAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h, self.qkv = n_heads, nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x, past=None):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        S = k.size(2)
        s = q @ k.mT / q.size(-1) ** 0.5
        s = s.masked_fill(torch.ones(T, S).tril(S - T) == 0, float("-inf"))
        return self.out((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C)), (k, v)
'''),
    "online softmax in blocks": ("flash", '''
def flash(q, k, v):
    """q, k, v: (B, H, T, D). Reads the keys in blocks of 2."""
    out, total = torch.zeros_like(q[..., :1] * v[..., :1, :]), torch.zeros_like(q[..., :1])
    top = torch.full_like(q[..., :1], -torch.inf)
    for start in range(0, k.size(-2), 2):
        s = q @ k[..., start : start + 2, :].mT / q.size(-1) ** 0.5
        new = torch.maximum(top, s.amax(-1, keepdim=True))
        p, old = torch.exp(s - new), torch.exp(top - new)
        out, total = out * old + p @ v[..., start : start + 2, :], total * old + p.sum(-1, True)
        top = new
    return out / total
'''),
    "loops over positions": ("attend", '''
def attend(q, k, v):
    out = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        e = [math.exp(q[i] @ k[j] / math.sqrt(q.shape[1])) for j in range(len(k))]
        for j in range(len(k)):
            out[i] += e[j] / sum(e) * v[j]
    return out
'''),
    "NumPy class": ("SelfAttention", '''
class SelfAttention:
    def __init__(self, d_model, seed=0):
        rng = np.random.default_rng(seed)
        self.Wq, self.Wk, self.Wv = (rng.normal(size=(d_model, d_model)) * 0.2 for _ in range(3))

    def forward(self, X):
        Q, K, V = X @ self.Wq, X @ self.Wk, X @ self.Wv
        S = Q @ K.swapaxes(-1, -2) / np.sqrt(K.shape[-1])
        A = np.exp(S - S.max(-1, keepdims=True))
        return (A / A.sum(-1, keepdims=True)) @ V
'''),
    "empty rows are zero": ("attend", '''
def attend(q, k, v, mask=None):
    """mask: (B, 1, T, S), False = masked out."""
    s = (q * q.size(-1) ** -0.5) @ k.mT
    if mask is None:
        return s.softmax(-1) @ v
    return s.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0.0) @ v
'''),
    "JAX": ("attention", '''
import jax
import jax.numpy as jnp

def attention(q, k, v, mask=None):
    """q: (batch, heads, seq, dim); mask True = keep."""
    logits = jnp.einsum("bhtd,bhsd->bhts", q, k) / jnp.sqrt(q.shape[-1])
    if mask is not None:
        logits = jnp.where(mask, logits, -1e30)
    return jnp.einsum("bhts,bhsd->bhtd", jax.nn.softmax(logits, axis=-1), v)
'''),
    "JAX with a tree of parameters": ("mha", '''
import jax
import jax.numpy as jnp

def mha(params, x, n_heads):
    B, T, C = x.shape
    split = lambda y: y.reshape(B, T, n_heads, -1)
    q, k, v = (split(x @ params[n]) for n in ("wq", "wk", "wv"))
    s = jnp.einsum("bthd,bshd->bhts", q, k) / jnp.sqrt(C // n_heads)
    s = jnp.where(jnp.tril(jnp.ones((T, T), bool)), s, -jnp.inf)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(s), v).reshape(B, T, C) @ params["wo"]
'''),
}  # fmt: skip
