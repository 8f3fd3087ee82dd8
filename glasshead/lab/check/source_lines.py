"""The line of a source where a mistake shows, found by what the line does."""

import ast
import re
import textwrap

from glasshead.lab.check.target import CheckTarget

__all__ = ["find_line"]

_SOFTMAX = r"softmax|\.exp\(|exp\("
_PRODUCT = r"@|matmul|einsum|bmm|\.dot\("
_SCALE = r"sqrt|\*\*\s*-?\s*0?\.5|scale|rsqrt"
_SPLIT = r"view|reshape|rearrange|unflatten|np\.split|chunk"
_FILL = r"masked_fill|where|-?1e\d+|inf|finfo"
_CAUSAL = r"tril|triu|is_causal|causal|arange"

# Which lines to look for, the first that is found; the last match where the name has "last".
_PATTERNS: dict[str, list[str]] = {
    "scale-missing": [rf"(?=.*(score|sim|att|logit|dots|energy|wei)).*({_PRODUCT})", _PRODUCT],
    "scale": [_SCALE, _PRODUCT],
    "softmax": [_SOFTMAX],
    "causal-start-aligned": [r"tril|triu", _CAUSAL],
    "causal-missing": [r"masked_fill|where|tril|triu", _CAUSAL, _SOFTMAX],
    "causal": [r"tril|triu", r"arange", _CAUSAL, _FILL],
    "mask-after-softmax": [r"\*=?\s*\w*(mask|tril|causal)|masked_fill", _FILL],
    "mask-inverted": [r"masked_fill|where", _FILL],
    "mask-ignored": [r"mask"],
    "mask": [r"masked_fill|where\(", r"\*\s*\w*mask|\+\s*\w*mask|mask", _FILL],
    "padding": [r"pad.*None|\[:, *None|unsqueeze|mask"],
    "heads-merge": [f"last:{_SPLIT}"],
    "heads-batch": [f"last:{_SPLIT}", r"transpose|permute|swapaxes"],
    "heads": [_SPLIT, _PRODUCT],
    "not-contiguous": [r"last:\.view\("],
    "gqa": [r"repeat|tile|expand|broadcast"],
    "qk": [_PRODUCT],
    "k-not": [_PRODUCT],
    "weights": [f"last:{_PRODUCT}"],
    "values": [r"\bv\b.*=|value", f"last:{_PRODUCT}"],
    "keys": [r"\bk\b.*=|key"],
    "queries": [r"\bq\b.*=|quer"],
    "output": [r"last:return"],
    "cross": [r"\b(k|key|keys)\b.*=|\bkv\b.*=", r"\bv\b.*="],
    "rotary": [r"rotat|rope|cos"],
    "alibi": [r"alibi|slope|bias"],
    "softcap": [r"tanh"],
    "window": [r"window"],
    "softmax-other": [r"\.sum\("],
    "softmax-not": [r"\.sum\(", _SOFTMAX],
    "sink": [r"sink.*(exp|sum)|(exp|sum).*sink", r"sink"],
    "bias-mixed": [r"\bv\b.*=.*(b|bias)"],
    "relative": [r"clamp|clip|arange", r"rel"],
    "norm-axis": [r"norm"],
    "residual": [r"\w+ = \w+ \+|return \w+ \+"],
    "empty": [r"cache\[|self\.\w*cache", _PRODUCT],
    "state": [r"self\.\w*(cache|past|k|v|state)\w*.*="],
    "input": [r"[-*/+]=|_\("],
    "cache": [r"cat\(|concat"],
    "dropout": [r"dropout|drop\("],
    "gradient": [r"detach|no_grad|\.data\b|\.numpy\(|\.item\(|tensor\("],
    "nan-empty-row": [r"-?(float\(.-?inf.\)|inf)|masked_fill", _SOFTMAX],
    "half": [r"1e\d+"],
    "slow": [r"\bfor\b|\bwhile\b"],
}


def find_line(target: CheckTarget, name: str) -> tuple[int, str] | None:
    """Return the number and the text of the line, or None if it cannot be told."""
    if not target.source:
        return None
    first = name.partition("+")[0]
    keys = sorted((k for k in _PATTERNS if first.startswith(k)), key=len)
    if not keys:
        return None
    lines = _code_lines(target.source)
    for pattern in _PATTERNS[keys[-1]]:
        last = pattern.startswith("last:")
        rule = re.compile(pattern.removeprefix("last:"))
        hits = [(n, line) for n, line in lines if rule.search(line)]
        if hits:
            number, line = hits[-1] if last else hits[0]
            return number + target.first_line, line.strip()
    return None


def _code_lines(source: str) -> list[tuple[int, str]]:
    """Return lines without comments, documentation, signatures and the constructor, if possible."""
    lines = [(n, line.partition("#")[0].rstrip()) for n, line in enumerate(source.splitlines())]
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return lines
    out: set[int] = set()
    later: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            start = node.body[0].lineno
            if isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
                start = (node.body[0].end_lineno or start) + 1
            inside = set(range(start - 1, node.end_lineno or start))
            (later if node.name in ("__init__", "build", "setup") else out).update(inside)
    ordered = [line for line in lines if line[0] in out - later]
    return ordered + [line for line in lines if line[0] in later]
