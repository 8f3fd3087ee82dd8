"""The .glass file: a safetensors file whose header describes the tensors in JSON.

Any safetensors reader can open it. Queries, keys and log-sum-exp keep their dtype, and a mask that
layers share is written once. Opening reads only the header; a tensor is read, and checked by its
digest, when it is needed.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from glasshead.attention.hooks import Layer
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.errors import GlassheadError, InputError, near_file
from glasshead.files.tensors import TensorFile, write_tensors
from glasshead.files.writing import atomic_write
from glasshead.messages import translate
from glasshead.observe.statistics import HeadStatistics
from glasshead.observe.trace import Trace
from glasshead.observe.trace_storage import LayerTrace, RecordedCall

__all__ = ["VERSION", "read_glass", "write_glass"]

VERSION = 1
# Statistics that are (B, H, T), and (B, H).
PER_ROW = ("lse", "row_sum", "sizes", "concentration", "distance", "self_weight",
           "previous_weight", "first_weight")  # fmt: skip
NULLABLE = ("duplicate", "induction")
PER_HEAD = ("diagonality", "vertical", "slash", *NULLABLE)

Put = Callable[[str, Tensor | None], str | None]  # stores a tensor, returns its name in the file
Get = Callable[[str | None], Tensor | None]


def write_glass(trace: Trace, path: Path) -> None:
    """Write to a temporary file and rename it, so that `path` is the old file or the new one."""
    tensors: dict[str, Tensor] = {}
    names: dict[Any, str] = {}

    def put(name: str, x: Tensor | None) -> str | None:
        if x is None:
            return None
        x = _narrow(x.detach())
        key = (x.data_ptr(), x.shape, x.stride(), x.dtype)
        if key not in names:
            names[key], tensors[name] = name, x.cpu()
        return names[key]

    header = {
        "model": trace.model,
        "top_k": trace.top_k,
        "overview": trace.options["overview"],
        "ids": put("ids", trace.ids),
        "tokens": _encode_tokens(trace.tokens),
        "source_tokens": _encode_tokens(trace.source_tokens),
        "about": trace.about,
        "layers": [
            {**asdict(layer), "record": _write_layer(trace.layer_traces.get(layer.index), put)}
            for layer in trace.layers
        ],
    }
    try:
        text = json.dumps(header, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`about` cannot be written as JSON: {error}",
            hint="use text, numbers, lists and dicts",
        ) from None
    tensors = tensors or {"nothing": torch.zeros(1)}  # safetensors needs at least one
    try:
        with atomic_write(path) as file:
            write_tensors(file, tensors, {"glass": str(VERSION), "header": text})
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error}",
            hint="check that the folder exists and the disk is not full",
        ) from None


def read_glass(path: Path) -> Trace:
    """Open a .glass file; raise InputError if it is missing, damaged or of another version."""
    if not path.is_file():
        raise InputError(
            f"{path} does not exist", hint=near_file(path, "glasshead atlas writes such files")
        )
    try:
        file = TensorFile(path)
        about = file.metadata
    except (OSError, ValueError) as error:
        raise _damage_error(path, error) from None
    if "glass" not in about:
        raise InputError(
            f"{path} is not a .glass file",
            hint="it is a safetensors file without the header of a .glass file",
        )
    if about["glass"] != str(VERSION):
        raise InputError(
            f"{path} has version {about['glass'][:20]} of the format, and this program knows "
            f"version {VERSION}",
            hint="open it with a newer glasshead",
        )
    try:
        header = json.loads(about["header"])
        json.dumps(header, ensure_ascii=False).encode()  # raises for half a surrogate pair
        trace = _read_trace(header, file)
    except (
        SafetensorError, GlassheadError, OSError, ValueError, RuntimeError, KeyError, TypeError,
        AttributeError, IndexError, RecursionError, ArithmeticError,
    ) as error:  # fmt: skip
        raise _damage_error(path, error) from None
    if not file.verified:
        print(translate(f"{path}: no checksums, loaded unverified"), file=sys.stderr)
    return trace


def _damage_error(path: Path, error: Exception) -> InputError:
    named = "" if isinstance(error, OSError) or type(error) is ValueError else type(error).__name__
    said = getattr(error, "strerror", None) or error
    reason = " ".join(f"{named}: {said}".removeprefix(": ").split())[:200]
    return InputError(
        f"{path} is damaged or not a .glass file ({reason})",
        hint="write it again with glasshead atlas"
        if path.suffix == ".glass"
        else "name a run, or a .glass file that glasshead atlas wrote",
    )


def _narrow(x: Tensor) -> Tensor:
    """Drop the copies of expanded dims, which broadcasting brings back."""
    for dim, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        if stride == 0 and size > 1:
            x = x.narrow(dim, 0, 1)
    return x


def _write_layer(stored: LayerTrace | None, put: Put) -> dict[str, Any] | None:
    if stored is None:
        return None
    at = stored.layer.index
    return {
        "shape": list(stored.shape),
        "q": put(f"{at}.q", stored.q),
        "k": put(f"{at}.k", stored.k),
        "lse": put(f"{at}.lse", stored.lse),
        "v": put(f"{at}.v", stored.v),
        "residual": put(f"{at}.residual", stored.residual),
        "spans": [_write_call(call, f"{at}.{n}", put) for n, call in enumerate(stored.calls)],
        "statistics": _write_statistics(stored.statistics, f"{at}.statistics", put),
    }


def _write_call(call: RecordedCall, at: str, put: Put) -> dict[str, Any]:
    rules = [(f.name, getattr(x, f.name)) for x in (call.mask, call.scoring) for f in fields(x)]
    return {
        "place": [call.row, call.T, call.key, call.S],
        "flat": put(f"{at}.flat", call.flat),
    } | {name: put(f"{at}.{name}", x) if isinstance(x, Tensor) else x for name, x in rules}


def _write_statistics(found: HeadStatistics | None, at: str, put: Put) -> dict[str, Any] | None:
    if found is None:
        return None
    values = {field.name: getattr(found, field.name) for field in fields(found)}
    return {
        name: {"tensor": put(f"{at}.{name}", x)} if isinstance(x, Tensor) else x
        for name, x in values.items()
    }


def _encode_tokens(tokens: list[list[str | bytes]] | None) -> Any:
    """Write tokens that are not valid text as hexadecimal bytes."""
    return tokens and [
        [{"bytes": token.hex()} if isinstance(token, bytes) else token for token in sequence]
        for sequence in tokens
    ]


def _decode_tokens(tokens: Any) -> Any:
    return tokens and [
        [token if isinstance(token, str) else bytes.fromhex(token["bytes"]) for token in sequence]
        for sequence in tokens
    ]


def _read_trace(header: Any, file: TensorFile) -> Trace:
    known: dict[str, Tensor] = {}
    later = _checked_later(header)

    def read_tensor(name: str | None) -> Tensor | None:
        if name is None:
            return None
        if name not in known:
            known[name] = file.read(name, check=name not in later)
        return known[name]

    def check(names: set[str]) -> None:
        for name in names:
            try:
                file.check(name, known[name])
            except ValueError as error:
                raise _damage_error(file.path, error) from None

    layers = [
        Layer(int(each["index"]), str(each["name"]), each["kind"], each["part"])
        for each in header["layers"]
    ]
    for layer in layers:
        fits = layer.kind in ("self", "cross") and layer.part in (None, "encoder", "decoder")
        _require(fits, f"layer {layer.index} has an unknown kind or part")
    overview = header.get("overview")  # older files do not say
    trace = Trace(
        layers,
        model=str(header["model"]),
        ids=read_tensor(header["ids"]),
        tokens=_decode_tokens(header["tokens"]),
        source_tokens=_decode_tokens(header["source_tokens"]),
        about=dict(header["about"]),
        top_k=int(header["top_k"]),
        overview=None if overview is None else _count(overview),
    )
    for layer, each in zip(layers, header["layers"], strict=True):
        if each["record"] is not None:
            found = _read_layer(layer, each["record"], read_tensor)
            found.checks = {p: partial(check, n) for p, n in _parts(each["record"]).items()}
            trace.layer_traces[layer.index] = found
    return trace


def _parts(record: Any) -> dict[str, set[str]]:
    """Return the names of the tensors of a layer that may be large, by what needs them."""
    statistics = record["statistics"] or {}
    return {
        "tensors": {record[name] for name in ("q", "k", "lse")} - {None},
        "statistics": {x["tensor"] for x in statistics.values() if isinstance(x, dict)} - {None},
    }


def _checked_later(header: Any) -> set[str]:
    """Return the names of the tensors that are checked when they are first used, not on opening."""
    records = [each["record"] for each in header["layers"] if each["record"]]
    return {name for record in records for names in _parts(record).values() for name in names}


def _read_layer(layer: Layer, found: Any, get: Get) -> LayerTrace:
    B, H, T, S = (_count(n) for n in found["shape"])
    q, k, lse = (get(found[name]) for name in ("q", "k", "lse"))
    calls = [_read_call(each, get) for each in found["spans"]]
    row = 0
    for call in calls:
        _require(call.row == row and call.key + call.S <= S, "a call does not fit the shape")
        row += call.T
        call.mask.check(B, H, call.T, call.S)
        bias, slopes = call.scoring.bias, call.scoring.slopes
        if bias is not None:
            whole = (B, H, call.T, call.S)
            fits = torch.broadcast_shapes(bias.shape, whole) == whole
            _require(fits, "a bias has a wrong shape")
        if call.flat is not None:
            rows = (B, H, call.T)
            fits = torch.broadcast_shapes(call.flat.shape, rows) == rows and call.flat.dim() == 3
            _require(fits and call.flat.dtype == torch.bool, "flat rows have a wrong shape")
        _require(slopes is None or slopes.shape == (H,), "slopes have a wrong shape")
    statistics = _read_statistics(found["statistics"], (B, H, T, S), get)
    if q is None or k is None or lse is None:
        _require(q is k is lse is None and not calls, "q, k or lse is missing")
        return LayerTrace(layer, (B, H, T, S), statistics=statistics)
    _require(row == T, "the calls are not as long as the shape says")
    fits = q.dim() == k.dim() == 4 and q.shape[:3] == (B, H, T) and lse.shape == (B, H, T)
    fits = fits and k.shape[0] == B and k.shape[2:] == (S, q.shape[3])
    fits = fits and q.shape[3] > 0 and k.shape[1] > 0 and H % k.shape[1] == 0
    _require(fits, "the shapes of q, k and lse do not fit together")
    _require(all(x.is_floating_point() for x in (q, k, lse)), "q, k or lse is not a float tensor")
    v, residual = get(found.get("v")), get(found.get("residual"))
    fits = v is None or (v.dim() == 4 and v.shape[:3] == k.shape[:3])
    fits = fits and (residual is None or (residual.dim() == 3 and residual.shape[:2] == (B, T)))
    _require(fits, "v or the residual stream has a wrong shape")
    return LayerTrace(layer, (B, H, T, S), calls, q, k, lse, v, residual, statistics)


def _read_call(found: Any, get: Get) -> RecordedCall:
    window = None if found["window"] is None else _count(found["window"])
    keys, documents, dense, slopes, bias = (
        get(found[name]) for name in ("keys", "documents", "dense", "slopes", "bias")
    )
    scale, softcap = (
        None if found[name] is None else float(found[name]) for name in ("scale", "softcap")
    )
    row, T, key, S = (_count(n) for n in found["place"])
    mask = Mask(bool(found["causal"]), window, keys, documents, dense)
    scoring, flat = Scoring(scale, softcap, slopes, bias), get(found.get("flat"))
    return RecordedCall(row, T, key, S, mask, scoring, flat)


def _read_statistics(
    found: Any, shape: tuple[int, int, int, int], get: Get
) -> HeadStatistics | None:
    if found is None:
        return None
    values: dict[str, Any] = {
        name: get(value["tensor"]) if isinstance(value, dict) else value
        for name, value in found.items()
    }
    B, H, T, S = shape
    high, wide = values["overview_cell"] = tuple(_count(n) for n in values["overview_cell"])
    statistics = HeadStatistics(**values)
    cells = (B, H, -(-T // high), -(-S // wide))
    # These may lack the copies of expanded dims.
    shapes = dict.fromkeys(PER_ROW, (B, H, T)) | dict.fromkeys(PER_HEAD, (B, H))
    _require(
        statistics.entropy.shape == (B, H, T)
        and statistics.received.shape == (B, H, S)
        and statistics.overview_mean.shape == statistics.overview_max.shape == cells
        and all(
            (name in NULLABLE and values[name] is None) or _broadcasts(values[name], shape)
            for name, shape in {**shapes, "lookers": (B, H, S)}.items()
        ),
        "the statistics do not fit the shape",
    )
    return statistics


def _broadcasts(x: Tensor, shape: tuple[int, ...]) -> bool:
    pairs = zip(x.shape, shape, strict=True)
    return all(mine in (1, whole) for mine, whole in pairs)


def _count(n: Any) -> int:
    # Beyond 64 bits torch raises OverflowError at some later use.
    is_count = isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**63
    _require(is_count, f"{n!r} is not a count")
    return int(n)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
