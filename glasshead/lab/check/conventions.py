"""Read the conventions of a target from its text: layout, polarity, whether it is causal."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from glasshead.lab.check.calling import Caller, frameworks, in_double
from glasshead.lab.check.layouts import (
    DENSE_FORMS,
    HEADS,
    KEY_FORMS,
    KINDS,
    WIDTHS,
    Encoding,
    TensorLayout,
)  # fmt: skip
from glasshead.lab.check.projections import matrix_role, named_arrays
from glasshead.lab.check.roles import by_role, declared_polarity
from glasshead.lab.check.target import SIZES, CheckTarget, called_method

__all__ = [
    "causal_hint", "flatten_matrices", "make_matrices", "mask_kinds", "possible_callers",
    "stated_layout", "stated_mask", "stored_width",
]  # fmt: skip


def stored_width(target: CheckTarget) -> int | None:
    """Return the width that the parameters of an object have been made for."""
    if target.owner is None or target.made_with:
        return None
    for each in named_arrays(target.owner):
        if matrix_role(each.name) in ("q", "k", "v", "qkv") and each.array.ndim == 2:
            return each.array.shape[1] if each.linear else each.array.shape[0]
    return None


def possible_callers(target: CheckTarget, given: Mapping[str, Any]) -> Iterator[Caller]:
    roles = by_role(target.parameters)
    width_form = target.owner is not None and bool(named_arrays(target.owner))
    width_form = width_form or bool({"heads", "matrix", "params"} & roles.keys()) or "x" in roles
    layouts = WIDTHS if width_form else HEADS
    if width_form and target.owner is None and {"q", "k", "v"} <= roles.keys():
        layouts = [*WIDTHS, *HEADS]
    stated = stated_layout(target)
    if "heads" in roles and layouts[0] is WIDTHS[0]:  # the width is still to be split
        stated = stated.replace("D", "C")
    if stated in {layout.axes for layout in layouts}:
        layouts = [layout for layout in layouts if layout.axes == stated]
    if width_form and getattr(target.owner, "batch_first", None) is False:
        layouts = [TensorLayout("TBC")]
    matrices = make_matrices(target)
    masks = [each for each in target.parameters if each.role == "mask" and each.required]
    for framework in frameworks(target):
        for dtype in ("float64", "float32"):
            changed = in_double(target, dtype) if framework == "torch" else target
            for layout in layouts:
                caller = Caller(changed, framework, layout, dtype, (), matrices, given)
                if not masks:
                    yield caller
                    continue
                yield caller  # None may do for a mask without a default
                for form in DENSE_FORMS[:3] + KEY_FORMS[:2]:
                    for kind in mask_kinds(declared_polarity(masks[0].name, target.documentation)):
                        yield caller.having(encodings=((masks[0].name, Encoding(form, kind)),))


_LETTERS = {
    "B": r"b|batch|batch_?size|n|bs|bsz|nb",
    "H": r"h|heads?|n_?heads?|num_?heads?|nh|hq|h_?kv",
    "T": r"t|s|l|seq|seq_?len|len|length|time|tokens?|n_?tokens|seq_?len_?[qk]|[lt]_?[qk]"
         r"|sequence|steps?|n",
    "D": r"d|d_?k|d_?v|dim|head_?dim|e|d_?head|hd|features?|dh|head_?size",
    "C": r"c|d_?model|embed_?dim|n_?embd|emb|embedding|width|hidden(_size)?|channels?",
}  # fmt: skip


def stated_layout(target: CheckTarget) -> str:
    """Return the layout that the documentation or a comment states for the inputs, or ""."""
    for found in re.finditer(
        r"[(\[]((?:\s*[A-Za-z_]+\s*,){1,3}\s*[A-Za-z_]+\s*)[)\]]", documentation(target)
    ):
        names = [name.strip().lower() for name in found[1].split(",")]
        letters = ""
        for name in names:
            fitting = [
                c for c, rule in _LETTERS.items() if re.fullmatch(rule, name) and c not in letters
            ]
            letters += fitting[0] if fitting else "?"
        if letters in {"BHTD", "BTHD", "TBHD", "BTC", "TBC"}:
            return letters
        if letters in ("BTD", "TBD", "TD", "TC", "HTD"):
            return letters
    return ""


def documentation(target: CheckTarget) -> str:
    """Return the documentation, and the comments of the lines of the signature."""
    head = target.source.partition(":\n")[0]
    if target.owner is None:
        return f"{inspect.getdoc(target.function) or ''}\n{head}"
    docs = (
        inspect.getdoc(each) or "" for each in (type(target.owner), called_method(target.owner))
    )
    return "\n".join((*docs, head))


def stated_mask(name: str, text: str) -> str:
    """Return the form of a mask whose shape the text gives, or "".

    >>> stated_mask("mask", "mask: (B, S), True = real")
    'BS'
    >>> stated_mask("mask", "mask (batch, 1, T, S): True where a query may look")
    'B1TS'
    """
    shape = r"[(\[]\s*(\w+(?:\s*,\s*\w+){1,3})\s*[)\]]"
    found = re.search(rf"\b{re.escape(name)}\b[^\n]*?{shape}", text)
    found = found or re.search(rf"\bmask\b[^.]{{0,60}}?{shape}", text)
    if found is None:
        return ""
    names = [each.strip().lower() for each in found[1].split(",")]
    first = "B" if re.fullmatch(_LETTERS["B"], names[0]) else "1" if names[0] == "1" else "T"
    middle = ["1" if each == "1" else "" for each in names[1:-1]]
    forms = {
        2: "BS" if first == "B" else "TS",
        3: first + "1S" if middle == ["1"] else "BTS",
        4: "B11S" if middle == ["1", "1"] else f"{first}1TS" if middle[:1] == ["1"] else "BHTS",
    }
    form = forms[len(names)]
    return form if form in (*DENSE_FORMS, *KEY_FORMS) else ""


def mask_kinds(declared: str) -> list[str]:
    kinds = list(KINDS)
    if declared:
        kinds.sort(key=lambda kind: kind.rpartition("-")[2] != declared)
    return kinds


def make_matrices(target: CheckTarget) -> dict[str, Any]:
    """Return matrices for a function that takes its parameters as arguments."""
    rng = np.random.default_rng(5)
    C = SIZES["width"]

    def make(name: str) -> Any:
        role = matrix_role(name)
        columns = C * max(len(role), 1) if role in ("qkv", "kv") else C
        if re.match(r"b(?![a-z]*w)|.*bias", name.lower()):
            return rng.normal(0, 0.5, columns)
        return rng.normal(0, C**-0.5, (C, columns))

    out: dict[str, Any] = {}
    for each in target.parameters:
        if each.role in ("matrix", "vector"):
            out[each.name] = make(each.name)
        elif each.role == "params":
            keys = _keys_of(target.source, each.name)
            if isinstance(keys, int):
                out[each.name] = tuple(make("qkvo"[n]) for n in range(keys))
            elif keys:
                out[each.name] = {key: make(key) for key in keys}
    return out


def _keys_of(source: str, name: str) -> list[str] | int:
    """Return the keys with which a dict is read, or into how many names it is unpacked."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return []
    keys: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=found), slice=ast.Constant(value=str(key))) if (
                found == name
            ):
                keys.append(key)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id=found)) if (
                found == name
            ):
                return len(names)
    if any(isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Name) for n in ast.walk(tree)):
        strings = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
        keys += [s for s in strings if isinstance(s, str) and s.isidentifier() and matrix_role(s)]
    return list(dict.fromkeys(keys))


def flatten_matrices(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from flatten_matrices(value, key)
    elif isinstance(tree, tuple):
        for n, value in enumerate(tree):
            yield from flatten_matrices(value, "qkvo"[n])
    else:
        yield name, tree


def causal_hint(target: CheckTarget) -> bool:
    """Say whether the target itself says that it hides the future, with or without doing it."""
    for name in ("causal", "is_causal", "masked"):
        if getattr(target.owner, name, None) is False:
            return False
    if re.search(r"causal", target.name, re.I):
        return True
    first = documentation(target).strip().partition("\n")[0]
    if re.search(r"causal|autoregressive|future", first, re.I):
        return True
    return _always_calls(target.source, ("tril", "triu"))


def _always_calls(source: str, names: Sequence[str]) -> bool:
    """Say whether a source calls one of the functions outside of any condition."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return False

    def visit(node: ast.AST) -> bool:
        if isinstance(node, (ast.If, ast.IfExp)):
            return False
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in names:
                return True
        return any(visit(child) for child in ast.iter_child_nodes(node))

    return visit(tree)
