"""Call a target on a case, in its own layout, with its own arrays and its own kind of mask."""

import copy
import inspect
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from glasshead.errors import InputError
from glasshead.lab.check.layouts import Encoding, TensorLayout
from glasshead.lab.check.memory import (
    CallError,
    cache_flags,
    pieces,
    reset,
    returned_cache,
)  # fmt: skip
from glasshead.lab.check.pipeline import Array, Case
from glasshead.lab.check.roles import Parameter
from glasshead.lab.check.target import SIZES, CheckTarget, called_method

__all__ = [
    "CallAnswer",
    "CallError",
    "Caller",
    "NotCallable",
    "copied",
    "frameworks",
    "in_double",
    "learned",
]


@dataclass(frozen=True, eq=False)
class CallAnswer:
    """What a target returned, in the layout of the case."""

    out: Array
    weights: Array | None = None
    raw: Any = None
    shape: tuple[int, ...] = ()


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
    fresh: bool = True  # call a copy of the object, so that nothing it keeps changes the next call
    stepwise: bool = False  # reads one token a call, and keeps what it has read

    def having(self, **changes: Any) -> "Caller":
        return replace(self, **changes)

    def array(self, x: Array) -> Any:
        """Convert to the target's kind of array; floats to its dtype."""
        if x.dtype.kind == "f":
            x = x.astype("float64" if self.dtype == "bfloat16" else self.dtype)
        if self.framework == "numpy":
            return x.copy()  # a target may write into it
        if self.framework == "jax":
            import jax.numpy as jnp

            return jnp.asarray(x)
        import torch

        tensor = torch.from_numpy(x.copy())
        return tensor.to(getattr(torch, self.dtype)) if x.dtype.kind == "f" else tensor

    def __call__(self, case: Case, **extra: Any) -> CallAnswer:
        """Return the target's answer; raise CallError if it has none."""
        if self.fresh:
            return self.having(target=copied(self.target), fresh=False)(case, **extra)
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
        if self.stepwise:
            return self._call_by_token(case, extra)
        return self.target.function(**{**self.arguments(case), **extra})

    def _call_after_past(self, case: Case, extra: Mapping[str, Any]) -> Any:
        """Read the first `past` tokens in two pieces, then the queries with what is kept."""
        caller = self.having(target=copied(self.target))  # its state must not be kept here
        cached: dict[str, Any] = cache_flags(self.target, 0)
        for start, end in pieces(case.past):
            part = case.k[..., start:end, :]
            raw = caller.call_raw(replace(case, q=part, k=part, v=part, past=0), **extra, **cached)
            cached = {**cache_flags(self.target, end), **returned_cache(self.target, raw)}
        return caller.call_raw(replace(case, k=case.q, v=case.q, past=0), **extra, **cached)

    def _call_by_token(self, case: Case, extra: Mapping[str, Any]) -> Array:
        """Give the tokens one by one to a copy of the object, and join what it returns."""
        caller = self.having(target=copied(self.target), stepwise=False)
        reset(caller.target)
        rows = []
        for n in range(case.sizes[1]):
            token = case.q[..., n : n + 1, :]
            one = replace(case, q=token, k=token, v=token)
            rows.append(caller.read(caller.call_raw(one, **extra), one).out)
        return self.layout.write(np.concatenate(rows, axis=-2))

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
        usual = isinstance(each.default, int) and role != "max_len"  # a block of keys has a size
        if role in sizes and (each.required or usual):
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
            case "sinks" | "relative":
                return self.array(learned(role, case)) if each.required else _LEAVE_OUT
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


def learned(role: str, case: Case) -> Array:
    """Return what a module would have learned: a sink for each head, a bias for each distance."""
    H = case.q.shape[1] if case.q.ndim == 4 else SIZES["heads"]
    _, T, S = case.sizes
    rng = np.random.default_rng(11)
    if role == "sinks":
        return np.asarray(rng.normal(0.5, 1.0, H))
    return np.asarray(rng.normal(0.0, 1.0, (H, 2 * max(T, S) - 1)))


def _mode(framework: str) -> AbstractContextManager[Any]:
    if framework == "torch":
        import torch

        return torch.no_grad()
    if framework == "jax":
        return _jax_mode()
    return nullcontext()


@contextmanager
def _jax_mode() -> Iterator[None]:
    """Use float64, and compile each new shape fast: what is computed is tiny."""
    import jax

    name = "jax_disable_most_optimizations"
    before = getattr(jax.config, name, None)
    if before is not None:
        jax.config.update(name, True)
    try:
        with jax.enable_x64(True) if hasattr(jax, "enable_x64") else nullcontext():
            yield
    finally:
        if before is not None:
            jax.config.update(name, before)


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


class NotCallable(InputError):
    """The target gave no answer to any way of calling it."""

    def __init__(self, target: CheckTarget, problems: Sequence[CallError]) -> None:
        self.problems = problems
        # A missing parameter says more than what a wrong shape led to.
        first = min(problems, key=lambda e: e.cause is not None, default=None)
        super().__init__(
            f"{target.name} cannot be called with small tensors: {first}",
            hint="give what is missing with --with name=value, or check a function around it",
        )


def copied(target: CheckTarget) -> CheckTarget:
    """Return the target with a copy of its object, and so of what that keeps between calls."""
    if target.owner is None or _is_keras(target):  # a layer of Keras is copied by its config
        return target
    try:
        owner = copy.deepcopy(target.owner)
    except Exception:  # it holds something that cannot be copied
        return target
    function = owner if callable(owner) else called_method(owner)
    return replace(target, owner=owner, function=function)


def in_double(target: CheckTarget, dtype: str = "float64") -> CheckTarget:
    """Return the target with a copy of its module in evaluation mode, in another precision."""
    if not is_torch(target):
        return target
    import torch

    owner = copy.deepcopy(target.owner).to(getattr(torch, dtype)).eval()
    return replace(target, owner=owner, function=owner)
