"""JAX mutants."""

import jax
import jax.numpy as jnp

MUTANTS = {
    "jx_no_scale": "scale-missing",
    "jx_axis": "softmax-over-queries",
    "jx_mask_inverted": "mask-inverted",
    "jx_causal_peek": "causal-leaks-next",
    "jx_vmap_heads": "heads-reversed",
    "jx_logits_bf16": "low-precision",
    "jx_masked_after": "mask-after-softmax",
    "jx_scale_heads": "scale-model-width",
}


def jx_no_scale(q, k, v):
    """(B, T, H, D), as jax.nn.dot_product_attention."""
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, axis=-1), v)


def jx_axis(q, k, v):
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, axis=2), v)


def jx_mask_inverted(query, key, value, mask=None):
    """mask: True = the key takes part, as in jax.nn.dot_product_attention."""
    s = jnp.einsum("bqhd,bkhd->bhqk", query, key) / jnp.sqrt(query.shape[-1])
    if mask is not None:
        s = jnp.where(mask, jnp.finfo(s.dtype).min, s)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, axis=-1), value)


def jx_causal_peek(q, k, v, is_causal=True):
    T, S = q.shape[1], k.shape[1]
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    if is_causal:
        s = jnp.where(jnp.tri(T, S, S - T + 1, dtype=bool), s, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, axis=-1), v)


@jax.jit
def jx_vmap_heads(q, k, v):
    """vmapped over the wrong axis of the values: heads are reversed."""

    def one(q, k, v):
        return jax.nn.softmax(q @ k.T / jnp.sqrt(q.shape[-1])) @ v

    return jax.vmap(jax.vmap(one))(q, k, v[:, ::-1])


def jx_logits_bf16(q, k, v):
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    w = jax.nn.softmax(s.astype(jnp.bfloat16), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", w.astype(v.dtype), v)


def jx_masked_after(q, k, v, mask=None):
    """mask True = attend."""
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    w = jax.nn.softmax(s, axis=-1)
    if mask is not None:
        w = jnp.where(mask, w, 0.0)
    return jnp.einsum("bhqk,bkhd->bqhd", w, v)


def jx_scale_heads(q, k, v):
    """Scaled by H * D, the width of the model."""
    _B, _T, H, D = q.shape
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(H * D)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, axis=-1), v)
