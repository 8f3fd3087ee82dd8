"""NumPy mutants."""

import numpy as np

MUTANTS = {
    "np_axis0": "softmax-over-batch",
    "np_max_not_subtracted": "softmax-overflow",
    "np_sum_all": "softmax-over-all",
    "np_dot_T": "keys-reversed",
    "np_scale_tokens": "scale-length",
    "np_scale_after": "scale-after-softmax",
    "np_causal_upper": "causal-inverted",
    "np_causal_mult": "mask-multiplied",
    "np_neg10": "mask-fill-weak",
    "np_norm_keys": "keys-normalized",
    "NumpyMultiHead": "heads-split",
}


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def np_axis0(q, k, v):
    return softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]), axis=0) @ v


def np_max_not_subtracted(q, k, v):
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    e = np.exp(s)
    return e / e.sum(-1, keepdims=True) @ v


def np_sum_all(q, k, v):
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    e = np.exp(s - s.max())
    return e / e.sum() @ v


def np_dot_T(q, k, v):
    """q, k, v (B, T, D)."""
    return softmax(q.dot(k.T) / np.sqrt(q.shape[-1])) @ v


def np_scale_tokens(q, k, v):
    """Scaled by the number of keys."""
    return softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(k.shape[-2])) @ v


def np_scale_after(q, k, v):
    return softmax(q @ np.swapaxes(k, -1, -2)) / np.sqrt(q.shape[-1]) @ v


def np_causal_upper(q, k, v):
    """Causal self-attention."""
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    s = np.where(np.triu(np.ones(s.shape[-2:])), s, -1e9)
    return softmax(s) @ v


def np_causal_mult(q, k, v, causal=True):
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        s = s * np.tril(np.ones(s.shape[-2:]), s.shape[-1] - s.shape[-2])
    return softmax(s) @ v


def np_neg10(q, k, v, mask=None):
    """mask: True = may attend."""
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, s - 10.0)
    return softmax(s) @ v


def np_norm_keys(q, k, v):
    """Divides by the norm of the keys: cosines, no square root of d."""
    kn = k / np.linalg.norm(k, axis=-1, keepdims=True)
    qn = q / np.linalg.norm(q, axis=-1, keepdims=True)
    return softmax(qn @ np.swapaxes(kn, -1, -2)) @ v


class NumpyMultiHead:
    """Self-attention with several heads: reshape without transpose."""

    def __init__(self, d_model=12, n_heads=3, seed=0):
        r = np.random.default_rng(seed)
        self.h = n_heads
        self.wq, self.wk, self.wv, self.wo = (
            r.normal(size=(d_model, d_model)) / d_model**0.5 for _ in range(4)
        )

    def __call__(self, x):
        B, T, C = x.shape
        q, k, v = ((x @ w).reshape(B, self.h, T, C // self.h) for w in (self.wq, self.wk, self.wv))
        w = softmax(q @ k.transpose(0, 1, 3, 2) / np.sqrt(C // self.h))
        return (w @ v).reshape(B, T, C) @ self.wo
