"""Read the projections of a module from its parameters, whatever they are called.

A name tells the role; where names say nothing, the order does: q, k, v, out. What cannot be told is
returned as several readings, and the one that computes what the module computes is right.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from glasshead.lab.check.pipeline import Array, Projections
from glasshead.lab.check.roles import role_of

__all__ = ["Named", "extra_names", "head_counts", "matrix_role", "named_arrays", "readings"]

_FUSED = {"qkv": "qkv", "c_attn": "qkv", "in_proj": "qkv", "query_key_value": "qkv",
          "attn_in": "qkv", "kv": "kv", "key_value": "kv"}  # fmt: skip
_WORDS = {
    "q": {"q", "query", "queries", "wq", "qproj", "toq", "qw", "lq", "qlin", "ql", "que"},
    "k": {"k", "key", "keys", "wk", "kproj", "tok", "kw", "lk", "klin", "kl"},
    "v": {"v", "value", "values", "wv", "vproj", "tov", "vw", "lv", "vlin", "vl", "val"},
    "out": {"o", "out", "output", "wo", "proj", "cproj", "dense", "unify", "fc", "final", "ow",
            "projection", "concat", "unifyheads", "oproj", "lo", "outproj", "combine", "mix",
            "w0", "toout", "merge"},
}  # fmt: skip
_ENDS = re.compile(r"[._]?(weights?|kernel|bias|matrix|w|b)$", re.I)


@dataclass(frozen=True, eq=False)
class Named:
    """A parameter as it is stored; `linear` if it is known to be (out, in)."""

    name: str
    array: Array
    linear: bool | None = None


def named_arrays(owner: Any) -> list[Named]:
    """Return all parameters of a torch module, or all arrays of another object."""
    if hasattr(owner, "named_parameters") and hasattr(owner, "named_modules"):
        return list(_torch_arrays(owner))
    return list(_plain_arrays(owner, "", set()))


def _torch_arrays(module: Any) -> Iterator[Named]:
    import torch

    kinds = dict(module.named_modules())
    for name, value in module.named_parameters():
        holder, _, last = name.rpartition(".")
        kind = type(kinds[holder]).__name__
        linear = True if isinstance(kinds[holder], torch.nn.Linear) else None
        if kind == "Conv1D" and last == "weight":
            linear = False
        elif isinstance(kinds[holder], torch.nn.MultiheadAttention):
            linear = True
        yield Named(name, value.detach().double().numpy(), linear)


def _plain_arrays(value: Any, name: str, seen: set[int]) -> Iterator[Named]:
    if id(value) in seen or len(seen) > 2000:
        return
    seen.add(id(value))
    if hasattr(value, "named_parameters") and name:
        yield from (replace(each, name=f"{name}.{each.name}") for each in _torch_arrays(value))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _plain_arrays(item, f"{name}.{key}".strip("."), seen)
    elif isinstance(value, (list, tuple)):
        for n, item in enumerate(value):
            yield from _plain_arrays(item, f"{name}.{n}".strip("."), seen)
    elif (array := _as_array(value)) is not None:
        if array.ndim:
            yield Named(name, array)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        weights = getattr(value, "weights", None)
        if isinstance(weights, list) and weights and hasattr(weights[0], "path"):  # Keras
            yield from (Named(w.path.replace("/", "."), np.asarray(w, float)) for w in weights)
            return
        for key, item in vars(value).items():
            if not callable(item) or hasattr(item, "__dict__"):
                yield from _plain_arrays(item, f"{name}.{key}".strip("."), seen)


def _as_array(value: Any) -> Array | None:
    if hasattr(value, "detach"):
        value = value.detach().cpu().double().numpy()
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return None
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return None
    return array.astype(np.float64) if array.dtype.kind == "f" else None


def matrix_role(name: str) -> str:
    """Return "q", "k", "v", "out", "qkv", "kv" or "", for the name of a parameter.

    >>> [matrix_role(n) for n in ("heads.0.key.weight", "c_attn.weight", "W_o", "linears.2.weight")]
    ['k', 'qkv', 'out', '']
    """
    stem = _ENDS.sub("", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)).lower()
    if not stem:
        return ""
    last = [part for part in stem.split(".") if not part.isdigit()][-2:]
    for text in reversed(last):
        for word, role in _FUSED.items():
            if re.search(rf"(^|_|to|w){word}($|_|proj|\d)", text):
                return role
        words = [w for w in re.split(r"[_\d]+", text) if w]
        for role in ("q", "k", "v", "out"):
            if _WORDS[role] & {*words, "".join(words)}:
                return role
    return ""


def is_bias(each: Named) -> bool:
    return each.array.ndim == 1 or bool(re.search(r"(^|[._])(b|bias)[._]?\w?$|bias", each.name))


def extra_names(arrays: list[Named]) -> list[str]:
    """Return the parameters that are no projection: norms, gates, tables of positions."""
    matrices = [each for each in arrays if each.array.ndim >= 2 and not is_bias(each)]
    named = [each for each in matrices if matrix_role(each.name)]
    if named:
        out = [each.name for each in matrices if not matrix_role(each.name)]
    else:
        out = [each.name for each in matrices[4:]]
    one = [each.name for each in arrays if each.array.ndim == 1 and not is_bias_of(each)]
    return out + one + [e.name for e in arrays if e.array.ndim == 3 and is_bias(e)]


def is_bias_of(each: Named) -> bool:
    return "bias" in each.name or bool(re.search(r"(^|[._])b[._]?\w*$", each.name))


def head_counts(owner: Any, made_with: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of heads that an object or its constructor's arguments state."""
    found: dict[str, int] = {}
    config = getattr(owner, "config", None) or getattr(owner, "cfg", None)
    own = getattr(owner, "__dict__", {})
    sources = [made_with, getattr(config, "__dict__", {}), own]
    inner = [] if not hasattr(owner, "modules") else [vars(m) for m in owner.modules()][1:]
    for n, source in enumerate([*sources, *inner]):
        if n >= len(sources) and "heads" in found:
            break
        for name, value in source.items():
            role = role_of(name.strip("_"), calling=False)
            if role in ("heads", "kv_heads", "head_width") and isinstance(value, int):
                found[role] = value
    return found


def readings(arrays: list[Named], width: int, counts: Mapping[str, int]) -> list[Projections]:
    """Return each way to read the parameters as projections, the most likely first."""
    weights = [each for each in arrays if each.array.ndim >= 2 and not is_bias(each)]
    biases = [each for each in arrays if each not in weights]
    if not any(matrix_role(each.name) for each in weights):
        order = ("qkv", "out") if len(weights) == 2 else ("q", "k", "v", "out")
        names = {each.name: role for each, role in zip(weights, order, strict=False)}
    else:
        names = {each.name: matrix_role(each.name) for each in weights}
    groups: dict[str, list[Named]] = {}
    for each in weights:
        if role := names[each.name]:
            groups.setdefault(role, []).append(each)
    bias_of: dict[str, Any] = {}
    for each in biases:
        holder = each.name.rpartition(".")[0]
        role = matrix_role(each.name) or next(
            (r for n, r in names.items() if n.rpartition(".")[0] == holder), ""
        )
        if role and each.array.ndim == 1 and is_bias_of(each):
            earlier = [bias_of[role]] if role in bias_of else []
            bias_of[role] = np.concatenate([*earlier, each.array])
    out: list[Projections] = []
    for transpose in (False, True):
        matrices = {
            role: joined
            for role, some in groups.items()
            if (joined := _join(role, some, width, transpose)) is not None
        }
        if matrices:
            out += _split_fused(matrices, bias_of, counts)
        if all(each.linear is not None for each in weights):
            break
    return out


def _join(role: str, some: list[Named], width: int, transpose: bool) -> Array | None:
    """Return one matrix (in, out) of all heads' matrices."""
    parts = [_matrix(role, each, width, transpose) for each in some]
    if any(part is None for part in parts):
        return None
    try:
        return np.concatenate([p for p in parts if p is not None], axis=0 if role == "out" else 1)
    except ValueError:
        return None


def _matrix(role: str, each: Named, width: int, transpose: bool) -> Array | None:
    array = each.array
    if array.ndim == 2:
        turn = transpose if each.linear is None else each.linear
        if each.linear is None and role != "out" and array.shape[0] != array.shape[1]:
            turn = array.shape[0] != width
        elif each.linear is None and array.shape[0] != array.shape[1]:
            turn = array.shape[1] != width
        return array.T if turn else array
    if array.ndim == 3 and width in array.shape:
        place = array.shape.index(width)
        rest = np.moveaxis(array, place, -1 if role == "out" else 0)
        if role == "out":
            return rest.reshape(-1, width)  # (H, D, C)
        if place == 2:
            return np.moveaxis(array, 2, 0).reshape(width, -1)
        return rest.reshape(width, -1)  # (C, H, D)
    if array.ndim == 4 and width in array.shape and role in ("qkv", "kv"):
        return np.moveaxis(array, array.shape.index(width), 0).reshape(width, -1)
    return None


def _split_fused(
    matrices: dict[str, Array], biases: dict[str, Any], counts: Mapping[str, int]
) -> list[Projections]:
    out = []
    for n_heads in _possible_heads(matrices, counts):
        options = [_pieces(name, matrices, biases, n_heads, counts) for name in ("qkv", "kv")]
        for qkv, kv in product(*options):
            parts = {**matrices, **qkv[0], **kv[0]}
            bias = {**biases, **qkv[1], **kv[1]}
            if not {"q", "k", "v"} & parts.keys():
                continue
            head = next(parts[r] for r in "qkv" if r in parts).shape[1] // n_heads
            n_kv = parts["k"].shape[1] // head if "k" in parts and head else n_heads
            values: dict[str, Any] = {role: parts.get(role) for role in ("q", "k", "v", "out")}
            shifts = {f"{role}_bias": bias.get(role, 0.0) for role in ("q", "k", "v", "out")}
            out.append(Projections(n_heads, max(n_kv, 1), **values, **shifts))
    return out


def _possible_heads(matrices: dict[str, Array], counts: Mapping[str, int]) -> list[int]:
    if "heads" in counts:
        return [counts["heads"]]
    total = next((matrices[r].shape[1] for r in ("q", "v", "k") if r in matrices), 0)
    total = total or (matrices["qkv"].shape[1] // 3 if "qkv" in matrices else 1)
    if head := counts.get("head_width"):
        return [max(total // head, 1)]
    return [n for n in range(1, total + 1) if total % n == 0]


def _pieces(
    name: str, matrices: dict[str, Array], biases: dict[str, Any], heads: int, counts: Any
) -> list[tuple[dict[str, Array], dict[str, Any]]]:
    """Return the ways to cut a fused matrix into q, k and v."""
    if name not in matrices:
        return [({}, {})]
    matrix, bias = matrices[name], biases.get(name)
    roles = list(name)
    n, width = len(roles), matrix.shape[1]
    out = []

    def add(cut: Any) -> None:
        columns = cut(np.arange(width))
        pieces = {role: matrix[:, c] for role, c in zip(roles, columns, strict=True)}
        shifts = {} if bias is None else {r: bias[c] for r, c in zip(roles, columns, strict=True)}
        out.append((pieces, shifts))

    if width % n == 0 and counts.get("kv_heads", heads) == heads:
        add(lambda c: np.split(c, n))
        if (width // n) % heads == 0:
            add(lambda c: [x.ravel() for x in np.moveaxis(c.reshape(heads, n, -1), 1, 0)])
            add(lambda c: [x.ravel() for x in np.moveaxis(c.reshape(heads, -1, n), 2, 0)])
    if kv := counts.get("kv_heads"):
        head = counts.get("head_width", width // (heads + 2 * kv))
        if n == 3 and (heads + 2 * kv) * head == width:
            add(lambda c: np.split(c, [heads * head, (heads + kv) * head]))
        if n == 2 and 2 * kv * head == width:
            add(lambda c: np.split(c, 2))
    return out or [({}, {})]
