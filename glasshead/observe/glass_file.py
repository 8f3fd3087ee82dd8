"""The .glass file: a safetensors file whose header says in JSON what the tensors are.

Any safetensors reader can open it. Queries, keys and log-sum-exp lie in it in their own dtype, and
masks that layers share lie in it once. Opening reads the header; a tensor is read where it is
looked at.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from glasshead.attention.hooks import Layer
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.errors import GlassheadError, InputError, near_file
from glasshead.observe.statistics import HeadStatistics
from glasshead.observe.trace import Trace
from glasshead.observe.trace_storage import LayerTrace, RecordedCall

__all__ = ["VERSION", "read_glass", "write_glass"]

VERSION = 1
# Statistics that are (B, H, T), and (B, H).
PER_ROW = ("lse", "row_sum", "sizes", "concentration", "distance", "self_weight",
           "previous_weight", "first_weight")  # fmt: skip
PER_HEAD = ("diagonality", "vertical", "slash")


def write_glass(atlas: Trace, path: Path) -> None:
    """Write to a file beside it first, so that `path` is the old file or the whole new one."""
    tensors: dict[str, Tensor] = {}
    shared: dict[Any, str] = {}
    memories: set[int] = set()

    def put(name: str, x: Tensor | None) -> str | None:
        if x is None:
            return None
        x = _narrow(x.detach())
        key = (x.data_ptr(), x.shape, x.stride(), x.dtype)
        if key not in shared:
            shared[key] = name
            memory = x.untyped_storage().data_ptr()
            kept = x.cpu().contiguous()
            # The library takes no two tensors from one piece of memory.
            tensors[name] = kept.clone() if memory in memories else kept
            memories.add(memory)
        return shared[key]

    header = {
        "model": atlas.model,
        "top_k": atlas.top_k,
        "ids": put("ids", atlas.ids),
        "tokens": _tokens_out(atlas.tokens),
        "source_tokens": _tokens_out(atlas.source_tokens),
        "about": atlas.about,
        "layers": [
            {**asdict(layer), "record": _record_out(atlas.layer_traces.get(layer.index), put)}
            for layer in atlas.layers
        ],
    }
    try:
        text = json.dumps(header, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"`about` holds what JSON cannot: {error}", hint="use text, numbers, lists and dicts"
        ) from None
    # Safetensors has no file without tensors.
    tensors = tensors or {"nothing": torch.zeros(1)}
    temporary = path.with_name(f".{path.name}.new")
    try:
        save_file(tensors, temporary, {"glass": str(VERSION), "header": text})
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{path} cannot be written: {error}", hint="is there such a folder, and room in it?"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def read_glass(path: Path) -> Trace:
    if not path.is_file():
        raise InputError(
            f"{path} does not exist", hint=near_file(path, "glasshead atlas writes such files")
        )
    try:
        file = safe_open(path, framework="pt")
        about = file.metadata() or {}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise _damaged(path, error) from None
    if "glass" not in about:
        raise InputError(
            f"{path} is not a .glass file", hint="it has tensors, but nothing says what they are"
        )
    if about["glass"] != str(VERSION):
        raise InputError(
            f"{path} has version {about['glass'][:20]} of the format, and this program knows "
            f"version {VERSION}",
            hint="a newer glasshead may read it",
        )
    try:
        header = json.loads(about["header"])
        json.dumps(header, ensure_ascii=False).encode()  # raises where it has half a character
        return _atlas(header, file.get_tensor)
    except (
        SafetensorError, GlassheadError, OSError, ValueError, RuntimeError, KeyError, TypeError,
        AttributeError, IndexError, RecursionError, ArithmeticError,
    ) as error:  # fmt: skip
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> InputError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    other = path.suffix != ".glass"
    return InputError(
        f"{path} is damaged, or no .glass file ({reason})",
        hint="name a run, or what glasshead atlas wrote" if other else "write it again",
    )


def _narrow(x: Tensor) -> Tensor:
    """The tensor without the copies of an expanded dim, which broadcasting brings back."""
    for dim, (size, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        if stride == 0 and size > 1:
            x = x.narrow(dim, 0, 1)
    return x


Put = Callable[[str, Tensor | None], str | None]


def _record_out(record: LayerTrace | None, put: Put) -> dict[str, Any] | None:
    if record is None:
        return None
    at = record.layer.index
    return {
        "shape": list(record.shape),
        "q": put(f"{at}.q", record.q),
        "k": put(f"{at}.k", record.k),
        "lse": put(f"{at}.lse", record.lse),
        "spans": [_span_out(span, f"{at}.{n}", put) for n, span in enumerate(record.calls)],
        "statistics": _statistics_out(record.statistics, f"{at}.statistics", put),
    }


def _span_out(span: RecordedCall, at: str, put: Put) -> dict[str, Any]:
    mask, scoring = span.mask, span.scoring
    return {
        "place": [span.row, span.T, span.key, span.S],
        "causal": mask.causal,
        "window": mask.window,
        "keys": put(f"{at}.keys", mask.keys),
        "documents": put(f"{at}.documents", mask.documents),
        "dense": put(f"{at}.dense", mask.dense),
        "scale": scoring.scale,
        "softcap": scoring.softcap,
        "slopes": put(f"{at}.slopes", scoring.slopes),
        "bias": put(f"{at}.bias", scoring.bias),
    }


def _statistics_out(found: HeadStatistics | None, at: str, put: Put) -> dict[str, Any] | None:
    if found is None:
        return None
    out: dict[str, Any] = {}
    for field in fields(found):
        value = getattr(found, field.name)
        if isinstance(value, Tensor):
            value = {"tensor": put(f"{at}.{field.name}", value)}
        out[field.name] = value
    return out


def _tokens_out(tokens: list[list[str | bytes]] | None) -> Any:
    """Pieces that are no text by themselves are bytes, and written as hexadecimal."""
    if tokens is None:
        return None
    return [
        [{"bytes": piece.hex()} if isinstance(piece, bytes) else piece for piece in sequence]
        for sequence in tokens
    ]


def _tokens_in(tokens: Any) -> Any:
    if tokens is None:
        return None
    return [
        [piece if isinstance(piece, str) else bytes.fromhex(piece["bytes"]) for piece in sequence]
        for sequence in tokens
    ]


def _atlas(header: Any, get: Callable[[str], Tensor]) -> Trace:
    taken: dict[str, Tensor] = {}

    def take(name: str | None) -> Tensor | None:
        if name is None:
            return None
        if name not in taken:
            taken[name] = get(name)
        return taken[name]

    layers = [
        Layer(int(each["index"]), str(each["name"]), each["kind"], each["part"])
        for each in header["layers"]
    ]
    for layer in layers:
        known = layer.kind in ("self", "cross") and layer.part in (None, "encoder", "decoder")
        _need(known, f"layer {layer.index} is of no known kind or part")
    atlas = Trace(
        layers,
        model=str(header["model"]),
        ids=take(header["ids"]),
        tokens=_tokens_in(header["tokens"]),
        source_tokens=_tokens_in(header["source_tokens"]),
        about=dict(header["about"]),
        top_k=int(header["top_k"]),
    )
    for layer, each in zip(layers, header["layers"], strict=True):
        if each["record"] is not None:
            atlas.layer_traces[layer.index] = _record_in(layer, each["record"], take)
    return atlas


Take = Callable[[str | None], Tensor | None]


def _record_in(layer: Layer, found: Any, take: Take) -> LayerTrace:
    B, H, T, S = (_count(n) for n in found["shape"])
    q, k, lse = (take(found[name]) for name in ("q", "k", "lse"))
    spans = [_span_in(each, take) for each in found["spans"]]
    row = 0
    for span in spans:
        _need(span.row == row and span.key + span.S <= S, "a span does not fit the shape")
        row += span.T
        span.mask.check(B, H, span.T, span.S)
        bias, slopes = span.scoring.bias, span.scoring.slopes
        if bias is not None:
            whole = (B, H, span.T, span.S)
            _need(torch.broadcast_shapes(bias.shape, whole) == whole, "a bias of a wrong shape")
        _need(slopes is None or slopes.shape == (H,), "slopes of a wrong shape")
    statistics = _statistics_in(found["statistics"], (B, H, T, S), take)
    if q is None or k is None or lse is None:
        _need(q is k is lse is None and not spans, "q, k or lse is missing")
        return LayerTrace(layer, (B, H, T, S), statistics=statistics)
    _need(row == T, "the spans are not as long as the shape says")
    fits = q.dim() == k.dim() == 4 and q.shape[:3] == (B, H, T) and lse.shape == (B, H, T)
    fits = fits and k.shape[0] == B and k.shape[2:] == (S, q.shape[3])
    _need(fits and k.shape[1] > 0 and H % k.shape[1] == 0, "q, k and lse do not fit together")
    _need(all(x.is_floating_point() for x in (q, k, lse)), "q, k or lse is no float")
    return LayerTrace(layer, (B, H, T, S), spans, q, k, lse, statistics)


def _span_in(found: Any, take: Take) -> RecordedCall:
    keys, documents, dense = (take(found[name]) for name in ("keys", "documents", "dense"))
    window = found["window"]
    mask = Mask(
        bool(found["causal"]), None if window is None else _count(window), keys, documents, dense
    )
    scale, softcap = (
        None if found[name] is None else float(found[name]) for name in ("scale", "softcap")
    )
    row, T, key, S = (_count(n) for n in found["place"])
    scoring = Scoring(scale, softcap, take(found["slopes"]), take(found["bias"]))
    return RecordedCall(row, T, key, S, mask, scoring)


def _statistics_in(
    found: Any, shape: tuple[int, int, int, int], take: Take
) -> HeadStatistics | None:
    if found is None:
        return None
    values: dict[str, Any] = {
        name: take(value["tensor"]) if isinstance(value, dict) else value
        for name, value in found.items()
    }
    B, H, T, S = shape
    high, wide = values["overview_cell"] = tuple(_count(n) for n in values["overview_cell"])
    statistics = HeadStatistics(**values)
    cells = (B, H, -(-T // high), -(-S // wide))
    copies = (statistics.duplicate, statistics.induction)
    _need(
        statistics.entropy.shape == (B, H, T)
        and statistics.received.shape == (B, H, S)
        and statistics.overview_mean.shape == statistics.overview_max.shape == cells
        and all(_broadcasts(getattr(statistics, name), (B, H, T)) for name in PER_ROW)
        and all(_broadcasts(getattr(statistics, name), (B, H)) for name in PER_HEAD)
        and all(x is None or _broadcasts(x, (B, H)) for x in copies)
        and _broadcasts(statistics.lookers, (B, H, S)),
        "the statistics do not fit the shape",
    )
    return statistics


def _broadcasts(x: Tensor, shape: tuple[int, ...]) -> bool:
    """`write_glass` leaves out the copies of what was expanded."""
    pairs = zip(x.shape, shape, strict=True)
    return all(mine in (1, whole) for mine, whole in pairs)


def _count(n: Any) -> int:
    # Beyond 64 bits torch raises OverflowError at some later use.
    _need(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**63, f"{n!r} is no count")
    return int(n)


def _need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
