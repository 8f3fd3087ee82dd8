"""Attention in NumPy, in the manner of blog posts, each with one mistake."""

import numpy as np

MUTANTS = {
    "softmax_no_axis": "softmax-over-all",
    "softmax_axis_zero": "softmax-over-queries",
    "unscaled": "scale-missing",
    "scaled_by_d": "scale-doubled",
    "tril_of_scores": "mask-multiplied",
    "key_t": "keys-reversed",
    "masked_after": "mask-after-softmax",
    "minus_small": "mask-fill-weak",
    "mask_reversed": "mask-inverted",
    "unstable": "softmax-overflow",
    "causal_k_one": "causal-leaks-next",
    "sum_without_weights": "softmax-missing",
}


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def softmax_no_axis(Q, K, V):
    scores = Q @ np.swapaxes(K, -1, -2) / np.sqrt(K.shape[-1])
    e = np.exp(scores - np.max(scores))
    weights = e / e.sum()
    return weights @ V


def softmax_axis_zero(Q, K, V):
    scores = Q @ np.swapaxes(K, -1, -2) / np.sqrt(K.shape[-1])
    weights = softmax(scores, axis=-2)
    return weights @ V, weights


def unscaled(Q, K, V):
    weights = softmax(np.matmul(Q, np.swapaxes(K, -1, -2)))
    return np.matmul(weights, V), weights


def scaled_by_d(query, key, value):
    d_k = key.shape[-1]
    scores = np.matmul(query, key.swapaxes(-1, -2)) / d_k
    return softmax(scores) @ value


def tril_of_scores(Q, K, V):
    """Return causal attention."""
    scores = np.tril(Q @ np.swapaxes(K, -1, -2) / np.sqrt(K.shape[-1]))
    return softmax(scores) @ V


def key_t(query, key, value, d_k=None):
    scores = np.matmul(query, key.T) / np.sqrt(key.shape[-1])
    return np.matmul(softmax(scores), value)


def masked_after(Q, K, V, mask=None):
    weights = softmax(Q @ np.swapaxes(K, -1, -2) / np.sqrt(K.shape[-1]))
    if mask is not None:
        weights = np.where(mask, weights, 0.0)
    return weights @ V


def minus_small(Q, K, V, mask=None):
    scores = Q @ np.swapaxes(K, -1, -2) / np.sqrt(K.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -1.0)
    return softmax(scores) @ V


def mask_reversed(Q, K, V, mask=None):
    """Attend. mask: 1 = may attend, 0 = hidden."""
    scores = Q @ np.swapaxes(K, -1, -2) / np.sqrt(K.shape[-1])
    if mask is not None:
        scores = scores + mask * -1e9
    return softmax(scores) @ V


def unstable(Q, K, V):
    e = np.exp(Q @ np.swapaxes(K, -1, -2) / np.sqrt(K.shape[-1]))
    return (e / e.sum(-1, keepdims=True)) @ V


def causal_k_one(Q, K, V):
    """Return causal attention."""
    scores = Q @ np.swapaxes(K, -1, -2) / np.sqrt(K.shape[-1])
    allowed = np.tril(np.ones(scores.shape[-2:]), k=1)
    return softmax(np.where(allowed == 1, scores, -np.inf)) @ V


def sum_without_weights(Q, K, V):
    scores = Q @ np.swapaxes(K, -1, -2) / np.sqrt(K.shape[-1])
    softmax(scores)
    return scores @ V
