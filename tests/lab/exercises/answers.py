"""Typical wrong answers: the name each must get, and the edit of the solution that makes it."""

# exercise -> (name of the mistake, old, new)
WRONG: dict[str, list[tuple[str, str, str]]] = {
    "softmax": [
        ("softmax-overflow", "torch.exp(scores - top)", "torch.exp(scores)"),
        ("softmax-first", "    top =", "    return torch.softmax(scores, 0)\n    top ="),
        ("global-max", "scores.amax(-1, keepdim=True)", "scores.max()"),
        ("no-sum", "powers / powers.sum(-1, keepdim=True)", "powers"),
        ("keepdim", "powers.sum(-1, keepdim=True)", "powers.sum(-1)"),
        ("softmax-over-all", "powers.sum(-1, keepdim=True)", "powers.sum()"),
        ("no-exp", "torch.exp(scores - top)", "scores"),
        ("input-changed", "    top =", "    scores -= scores.amax(-1, keepdim=True)\n    top ="),
        ("nothing-returned", "return powers /", "powers /"),
        ("syntax", "def softmax(scores):", "def softmax(scores)"),
    ],
    "scores": [
        ("scale-missing", " / q.shape[-1] ** 0.5", ""),
        ("scale-doubled", "** 0.5", ""),
        ("scale-multiplied", "/ q.shape[-1] ** 0.5", "* q.shape[-1] ** 0.5"),
        ("scale-length", "q.shape[-1] ** 0.5", "k.shape[-2] ** 0.5"),
        ("all-transposed", "k.transpose(-2, -1)", "k.transpose(0, 1)"),
        ("k-not-transposed", "k.transpose(-2, -1)", "k"),
        ("elementwise", "q @ k.transpose(-2, -1)", "q * k"),
        ("softmax-over-queries", "dim=-1", "dim=-2"),
        ("softmax-missing", "torch.softmax(scores(q, k), dim=-1)", "scores(q, k)"),
        ("values-from-keys", "weights @ v", "weights @ k"),
    ],
    "causal-mask": [
        ("causal-start-aligned", " + (S - T)", ""),
        ("causal-inverted", "queries >=", "queries <"),
        ("causal-strict", "queries >=", "queries >"),
        ("square-mask", "torch.arange(S)", "torch.arange(T)"),
        ("mask-inverted", "~allowed, float", "allowed, float"),
        ("mask-after-softmax", 'scores = scores.masked_fill(~allowed, float("-inf"))', "pass"),
        ("nan-empty-row", "weights.masked_fill(~allowed, 0.0)", "weights"),
        ("mask-times-infinity", 'scores.masked_fill(~allowed, float("-inf"))',
         'scores + (~allowed) * float("-inf")'),
        ("mask-multiplied", 'scores.masked_fill(~allowed, float("-inf"))', "scores * allowed"),
        ("scale-missing", " / q.shape[-1] ** 0.5", ""),
        ("not-bool", "queries >= torch.arange(S)", "(queries >= torch.arange(S)).int()"),
    ],
}  # fmt: skip

# Right answers in other styles: (old, new) edits of the solution.
RIGHT: dict[str, list[tuple[str, str]]] = {
    "softmax": [("scores - top", "scores - scores.logsumexp(-1, keepdim=True)")],
    "scores": [("q @ k.transpose(-2, -1)", 'torch.einsum("...td,...sd->...ts", q, k)')],
    "causal-mask": [
        ("return queries >= torch.arange(S)",
         "return torch.tril(torch.ones(T, S), diagonal=S - T) == 1"),
        ("return weights.masked_fill(~allowed, 0.0) @ v", "return weights.nan_to_num() @ v"),
    ],
}  # fmt: skip
