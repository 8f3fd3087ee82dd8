"""Call a target on a case, in its own layout, with its own arrays and its own kind of mask."""

import copy
import inspect
import re
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from glasshead.lab.check.pipeline import Array, Case
from glasshead.lab.check.roles import Parameter
from glasshead.lab.check.target import SIZES, CheckTarget, called_method

__all__ = ["LAYOUTS", "CallAnswer", "Caller", "Encoding", "TensorLayout", "copied", "frameworks"]


@dataclass(frozen=True)
class TensorLayout:
    """How tensors are laid out: letters of B, H, T and D; `heads` if H is given by the caller."""

    axes: str

    @property
    def heads(self) -> bool:
        return "D" in self.axes

    @property
    def batch(self) -> bool:
        return "B" in self.axes

    def write(self, x: Array) -> Array:
        """Turn (B, H, T, D) or (B, T, C) into this layout."""
        full = "BHTD" if x.ndim == 4 else "BTC"
        for axis, letter in reversed(list(enumerate(full))):
            if letter not in self.axes:
                x = np.asarray(x.take(0, axis=axis))
        kept = [letter for letter in full if letter in self.axes]
        return np.ascontiguousarray(x.transpose([kept.index(letter) for letter in self.axes]))

    def read(self, x: Array, full: str) -> Array:
        """Turn this layout into (B, H, T, D) or (B, T, C)."""
        x = x.transpose([self.axes.index(letter) for letter in full if letter in self.axes])
        for axis, letter in enumerate(full):
            if letter not in self.axes:
                x = np.expand_dims(x, axis)
        return x


HEADS = [TensorLayout(axes) for axes in ("BHTD", "BTHD", "BTD", "TD", "TBD", "TBHD", "THD", "HTD")]
WIDTHS = [TensorLayout(axes) for axes in ("BTC", "TBC", "TC")]
LAYOUTS = {layout.axes: layout for layout in [*HEADS, *WIDTHS]}


@dataclass(frozen=True)
class Encoding:
    """How a mask is given: its shape, and what its numbers mean."""

    form: str  # letters of B, H, T and S, 1 for a dimension of one; "N": lengths
    kind: str  # "keep", "hide", "int-keep", "int-hide", "float-keep", "add"

    @property
    def of_keys(self) -> bool:
        return self.form in KEY_FORMS

    @property
    def polarity(self) -> str:
        return self.kind.rpartition("-")[2]

    def encode(self, allowed: Array, keys: Array | None, heads: int) -> Array:
        """Encode (B, T, S) allowed pairs, or (B, S) keys, as the target takes them."""
        if self.form == "N":
            assert keys is not None
            return keys.sum(-1)
        source = allowed[:, None] if keys is None else keys[:, None, None]  # (B, 1, T or 1, S)
        if "H" in self.form:
            source = np.repeat(source, heads, axis=1)
        if self.form == "(BH)TS":
            source = source.repeat(heads, axis=1).reshape(-1, *source.shape[2:])
        else:
            sizes = dict(zip("BHTS", source.shape, strict=True))
            source = source if "B" in self.form else source[:1]
            sizes["B"] = source.shape[0]
            source = source.reshape([1 if c == "1" else sizes[c] for c in self.form])
        match self.kind:
            case "keep":
                return source
            case "hide":
                return ~source
            case "int-keep":
                return source.astype(np.int64)
            case "int-hide":
                return (~source).astype(np.int64)
            case "float-keep":
                return source.astype(np.float64)
        return np.where(source, 0.0, -np.inf)


DENSE_FORMS = ("TS", "BTS", "B1TS", "11TS", "BHTS", "(BH)TS")
KEY_FORMS = ("BS", "B1S", "B11S", "S", "11S", "N")
KINDS = ("keep", "hide", "int-keep", "int-hide", "float-keep", "add")


@dataclass(frozen=True, eq=False)
class CallAnswer:
    """What a target returned, in the layout of the case."""

    out: Array
    weights: Array | None = None
    raw: Any = None
    shape: tuple[int, ...] = ()


class CallError(Exception):
    """The target cannot be called so: `cause` is its own error, or None if the result is odd."""

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        super().__init__(message)
        self.cause = cause


def is_torch(target: CheckTarget) -> bool:
    return hasattr(target.owner, "named_parameters") and not _is_keras(target)


def _is_keras(target: CheckTarget) -> bool:
    return any(each.__module__.split(".")[0] == "keras" for each in type(target.owner).__mro__)


def frameworks(target: CheckTarget) -> list[str]:
    """Return the kinds of arrays to try, by what the target's module imports."""
    if is_torch(target):
        return ["torch"]
    function = target.function if target.owner is None else type(target.owner).__init__
    names = getattr(inspect.unwrap(function), "__globals__", {})
    modules = {
        name: value.__name__.partition(".")[0]
        for name, value in names.items()
        if inspect.ismodule(value)
    }
    used = {top for name, top in modules.items() if re.search(rf"\b{name}\b", target.source)}
    used = used or set(modules.values())
    used.add((getattr(target.function, "__module__", "") or "").partition(".")[0])
    if "keras" in used or _is_keras(target):
        return ["numpy"]
    likely = [name for name in ("jax", "torch", "numpy") if name in used]
    return list(dict.fromkeys([*likely, "torch", "numpy"]))


@dataclass(frozen=True, eq=False)
class Caller:
    """Calls one target in one way."""

    target: CheckTarget
    framework: str
    layout: TensorLayout
    dtype: str = "float64"
    encodings: tuple[tuple[str, Encoding], ...] = ()  # of each mask parameter, one or two
    matrices: Mapping[str, Array] = field(default_factory=dict)  # for a function that takes them
    given: Mapping[str, Any] = field(default_factory=dict)

    def having(self, **changes: Any) -> "Caller":
        return replace(self, **changes)

    def array(self, x: Array) -> Any:
        """Convert to the target's kind of array; floats to its dtype."""
        if x.dtype.kind == "f":
            x = x.astype("float64" if self.dtype == "bfloat16" else self.dtype)
        if self.framework == "numpy":
            return x
        if self.framework == "jax":
            import jax.numpy as jnp

            return jnp.asarray(x)
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(x))
        return tensor.to(getattr(torch, self.dtype)) if x.dtype.kind == "f" else tensor

    def __call__(self, case: Case, **extra: Any) -> CallAnswer:
        """Return the target's answer; raise CallError if it has none."""
        try:
            with warnings.catch_warnings(), _mode(self.framework), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                raw = self.call_raw(case, **extra)
        except CallError:
            raise
        except Exception as error:
            raise CallError(f"{type(error).__name__}: {error}", error) from error
        return self.read(raw, case)

    def call_raw(self, case: Case, **extra: Any) -> Any:
        if case.past:
            return self._call_after_past(case, extra)
        return self.target.function(**{**self.arguments(case), **extra})

    def _call_after_past(self, case: Case, extra: Mapping[str, Any]) -> Any:
        """Read the first `past` tokens, then the queries with what the first call has kept."""
        from glasshead.lab.check.caching import flags, kept

        caller = self.having(target=copied(self.target))  # its state must not be kept here
        first = case.k[..., : case.past, :]
        raw = caller.call_raw(replace(case, q=first, k=first, v=first, past=0),
                              **extra, **flags(self.target, 0))  # fmt: skip
        cached = {**flags(self.target, case.past), **kept(self.target, raw)}
        return caller.call_raw(replace(case, k=case.q, v=case.q, past=0), **extra, **cached)

    def arguments(self, case: Case) -> dict[str, Any]:
        listed = self.target.parameters
        roles = {each.role for each in listed}
        self_attention = case.k is case.q
        out: dict[str, Any] = {}
        for each in listed:
            if each.name in self.given:
                out[each.name] = self.given[each.name]
                continue
            value = self._argument(each, case, self_attention)
            if value is _LEAVE_OUT:
                if each.required:
                    raise CallError(f"no value is known for the parameter '{each.name}'")
                continue
            out[each.name] = value
        if not self_attention and not roles & {"k", "v", "memory"}:
            raise CallError("it takes one sequence only")
        return out

    def _argument(self, each: Parameter, case: Case, self_attention: bool) -> Any:
        role, given = each.role, case.options
        tensors = {"q": case.q, "k": case.k, "v": case.v, "x": case.q}
        if role in tensors:
            return self.array(self.layout.write(tensors[role]))
        if role == "memory":
            if self_attention and not each.required:
                return _LEAVE_OUT
            return self.array(self.layout.write(case.k))
        if role in ("mask", "lengths"):
            return self._mask(each, case)
        if each.name in self.matrices:
            value = self.matrices[each.name]
            return _tree(value, self.array)
        sizes = {
            "heads": given.get("heads", SIZES["heads"]),
            "kv_heads": given.get("kv_heads", SIZES["kv_heads"]),
            "head_width": case.q.shape[-1] // (1 if self.layout.heads else SIZES["heads"]),
            "width": case.q.shape[-1],
            "max_len": case.sizes[1],
        }
        if role in sizes and (each.required or isinstance(each.default, int)):
            return sizes[role]
        match role:
            case "causal":
                return case.causal
            case "dropout":
                return 0.0 if each.required or isinstance(each.default, float) else _LEAVE_OUT
            case "training":
                return False
            case "deterministic":
                return True
            case "window" | "softcap" | "slopes" if role in given:
                value = given[role]
                return self.array(value) if isinstance(value, np.ndarray) else value
            case "scale" if each.required:
                return case.q.shape[-1] ** -0.5
            case "rng" if each.required:
                return _random_key(self.framework)
            case "wants_weights" | "cache" | "positions" if each.required:
                return None if role != "wants_weights" else False
        return _LEAVE_OUT

    def _mask(self, each: Parameter, case: Case) -> Any:
        known = [encoding for name, encoding in self.encodings if name == each.name]
        if case.options.get("mask_of", each.name) != each.name:
            return _LEAVE_OUT
        if case.allowed is None and case.keys is None:
            if not each.required:
                return _LEAVE_OUT
            return self._all_allowed(known[0], case) if known else None
        keys = None if case.allowed is not None else case.keys
        fitting = [encoding for encoding in known if encoding.of_keys == (keys is not None)]
        if not fitting:
            return None if each.required else _LEAVE_OUT
        given = True if case.allowed is None else case.allowed
        allowed = np.broadcast_to(given, case.sizes)
        return self.array(fitting[0].encode(allowed, keys, self._n_heads(case)))

    def _n_heads(self, case: Case) -> int:
        return case.q.shape[1] if case.q.ndim == 4 else SIZES["heads"]

    def _all_allowed(self, encoding: Encoding, case: Case) -> Any:
        B, T, S = case.sizes
        keys = np.ones((B, S), bool) if encoding.of_keys else None
        allowed = np.ones((B, T, S), bool)
        return self.array(encoding.encode(allowed, keys, self._n_heads(case)))

    def read(self, raw: Any, case: Case) -> CallAnswer:
        """Find the context, and the weights if there are any, in what was returned."""
        arrays = list(_arrays(raw))
        _, T, S = case.sizes
        for n, array in enumerate(arrays):
            out = self._read_context(array, case)
            if out is not None:
                weights = next((a for m, a in enumerate(arrays)
                                if m != n and a.shape[-2:] == (T, S)), None)  # fmt: skip
                return CallAnswer(out, weights, raw, array.shape)
        shapes = ", ".join(str(a.shape) for a in arrays) or type(raw).__name__
        raise CallError(f"it returns {shapes} for q of {self.layout.write(case.q).shape}")

    def _read_context(self, array: Array, case: Case) -> Array | None:
        B, T, _ = case.sizes
        if case.q.ndim == 3:
            wanted = [B if c == "B" else T if c == "T" else array.shape[-1] if array.ndim else 0
                      for c in self.layout.axes]  # fmt: skip
            return self.layout.read(array, "BTC") if list(array.shape) == wanted else None
        H, D = case.q.shape[1], case.v.shape[-1]
        sizes = {"B": B, "H": H, "T": T, "D": D}
        full = "".join(c for c in "BHTD" if c in self.layout.axes)
        for axes in dict.fromkeys((self.layout.axes, full, full.replace("HT", "TH"))):
            if array.shape == tuple(sizes[c] for c in axes):
                return TensorLayout(axes).read(array, "BHTD")
        if array.shape == (B, T, H * D) and "H" in self.layout.axes:
            return array.reshape(B, T, H, D).swapaxes(1, 2)
        return None


_LEAVE_OUT = object()


def _mode(framework: str) -> AbstractContextManager[Any]:
    if framework == "torch":
        import torch

        return torch.no_grad()
    if framework == "jax":
        import jax

        return jax.enable_x64(True) if hasattr(jax, "enable_x64") else nullcontext()
    return nullcontext()


def _random_key(framework: str) -> Any:
    if framework == "jax":
        import jax

        return jax.random.PRNGKey(0)
    return np.random.default_rng(0)


def _tree(value: Any, convert: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tree(item, convert) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_tree(item, convert) for item in value)
    return convert(value)


def _arrays(raw: Any) -> Any:
    """Yield the floating-point arrays in what was returned, in order."""
    if isinstance(raw, dict) or hasattr(raw, "items"):
        raw = list(raw.values())
    if isinstance(raw, (list, tuple)):
        for item in raw:
            yield from _arrays(item)
        return
    if hasattr(raw, "detach"):
        raw = raw.detach().cpu().double().numpy() if raw.is_floating_point() else None
    if raw is None or isinstance(raw, (str, bytes)):
        return
    if not hasattr(raw, "shape"):
        if hasattr(raw, "__dict__"):
            named = vars(raw)
            first = [named[n] for n in ("context", "out", "output") if n in named]
            yield from _arrays([*first, *named.values()])
        return
    array = np.asarray(raw)
    if array.dtype.kind == "f" or str(array.dtype) == "bfloat16":
        yield array.astype(np.float64)


def copied(target: CheckTarget) -> CheckTarget:
    """Return the target with a copy of its object, and so of what that keeps between calls."""
    if target.owner is None or _is_keras(target):  # a layer of Keras is copied by its config
        return target
    owner = copy.deepcopy(target.owner)
    function = owner if callable(owner) else called_method(owner)
    return replace(target, owner=owner, function=function)


def in_double(target: CheckTarget, dtype: str = "float64") -> CheckTarget:
    """Return the target with a copy of its module in evaluation mode, in another precision."""
    if not is_torch(target):
        return target
    import torch

    owner = copy.deepcopy(target.owner).to(getattr(torch, dtype)).eval()
    return replace(target, owner=owner, function=owner)
