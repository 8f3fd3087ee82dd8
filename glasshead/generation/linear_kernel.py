"""Triton kernels for one new token of each text: fused linear layers, and the pick of the best id.

A decoding step reads every parameter once and computes very little, so its time is that of reading
and of the number of kernels. Here a block takes five: norm with queries, keys and values;
attention; projection with residual; norm, up-projection and activation; down-projection with
residual. Import this module only where Triton is installed.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from glasshead.attention.norm import RMSNorm

__all__ = ["ACTIVATIONS", "PROGRAMS", "launch_options", "linear", "pick_best"]

ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "gelu-tanh": 3, "silu": 4, "relu2": 5}
EARLY = True
PROGRAMS = 264  # two for each multiprocessor of an H200


def linear(
    x: Tensor,
    layer: nn.Linear,
    *,
    norm: nn.Module | None = None,
    activation: str = "none",
    gate: nn.Linear | None = None,
    residual: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return residual + activation(layer(norm(x))) of x (B, K).

    With a gate, silu(gate(norm(x))) * layer(norm(x)) takes the place of the activation.
    """
    (B, K), N = x.shape, layer.out_features
    out = torch.empty(B, N, dtype=dtype or x.dtype, device=x.device)
    first = gate or layer
    second, biases = layer, [x if m.bias is None else m.bias for m in (first, layer)]
    has = {
        "ACTIVATION": ACTIVATIONS["silu" if gate else activation], "GATED": gate is not None,
        "BIAS": layer.bias is not None, "RESIDUAL": residual is not None, "K": K,
        **launch_options(x),
    }  # fmt: skip
    added = x if residual is None else residual
    with torch.cuda.device_of(x):
        if B == 1:
            wide = min(triton.next_power_of_2(K), 4096)
            rows = max(1, min(16384 // wide, triton.next_power_of_2(triton.cdiv(N, PROGRAMS))))
            _linear_of_one[(triton.cdiv(N, rows),)](
                x, first.weight, second.weight, *biases, added, out, *_norm_parameters(norm, x), N,
                NORM=_norm_kind(norm), **has, ROWS=rows, WIDE=wide, num_warps=4,
            )  # fmt: skip
        else:
            if norm is not None:  # once, not in each program
                rows, x = x, torch.empty_like(x)
                _norm_rows[(B,)](
                    rows, x, *_norm_parameters(norm, rows), NORM=_norm_kind(norm), K=K,
                    WIDE=triton.next_power_of_2(K), num_warps=4, **launch_options(x),
                )  # fmt: skip
            tall = min(64, max(16, triton.next_power_of_2(B)))
            cols = 64 if N > 16384 else 32 if N > 32 * PROGRAMS else 16
            _linear_of_many[(triton.cdiv(N, cols), triton.cdiv(B, tall))](
                x, first.weight, second.weight, *biases, added, out, B, N, **has,
                TALL=tall, COLS=cols, WIDE=256 // x.itemsize, num_warps=4, num_stages=3,
            )  # fmt: skip
    return out


def _norm_kind(norm: nn.Module | None) -> int:
    return 0 if norm is None else 2 if isinstance(norm, RMSNorm) else 1


def _norm_parameters(norm: nn.Module | None, x: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return the scale, bias and eps of a norm; any tensor for those it does not have."""
    if norm is None:
        return x, x, 0.0
    bias = norm.bias if isinstance(norm, nn.LayerNorm) else x
    return norm.weight, bias, norm.eps  # type: ignore[return-value]


def launch_options(x: Tensor) -> dict[str, bool]:
    """Let a kernel start before the one ahead of it has ended, where the GPU supports it."""
    able = EARLY and x.is_cuda and torch.version.hip is None
    able = able and torch.cuda.get_device_capability(x.device) >= (9, 0)
    return {"EARLY": able, "launch_pdl": able} if able else {"EARLY": False}


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _activate(y, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]
    if ACTIVATION == 1:
        y = tl.maximum(y, 0.0)
    elif ACTIVATION == 2:
        y = 0.5 * y * (1 + tl.erf(y * 0.7071067811865476))
    elif ACTIVATION == 3:
        y = y * tl.sigmoid(1.5957691216057308 * (y + 0.044715 * y * y * y))
    elif ACTIVATION == 4:
        y = y * tl.sigmoid(y)
    elif ACTIVATION == 5:
        y = tl.maximum(y, 0.0)
        y = y * y
    return y


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _linear_of_one(  # type: ignore[no-untyped-def]
    x, first, second, first_bias, second_bias, residual, out, norm_weight, norm_bias, eps, N,
    NORM: tl.constexpr, ACTIVATION: tl.constexpr, GATED: tl.constexpr, BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr, K: tl.constexpr, EARLY: tl.constexpr,
    ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, WIDE)
    # Parameters depend on no other kernel: they are loaded while the one before still runs.
    place = n[:, None].to(tl.int64) * K + k[None, :]
    inside = (n < N)[:, None] & (k < K)[None, :]
    params = tl.load(first + place, mask=inside, other=0.0)
    if GATED:
        more = tl.load(second + place, mask=inside, other=0.0)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    part = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
    mean, scale = 0.0, 1.0
    if NORM == 1:
        mean = tl.sum(part)
        for start in tl.static_range(WIDE, K, WIDE):
            mean += tl.sum(tl.load(x + start + k, mask=start + k < K, other=0.0).to(tl.float32))
        mean /= K
    if NORM > 0:
        square = tl.sum(tl.where(k < K, (part - mean) * (part - mean), 0.0))
        for start in tl.static_range(WIDE, K, WIDE):
            far = tl.load(x + start + k, mask=start + k < K, other=0.0).to(tl.float32) - mean
            square += tl.sum(tl.where(start + k < K, far * far, 0.0))
        scale = tl.rsqrt(square / K + eps)
    total = tl.zeros((ROWS,), tl.float32)
    other = tl.zeros((ROWS,), tl.float32)
    for start in tl.static_range(0, K, WIDE):
        if start > 0:
            inside = (n < N)[:, None] & (start + k < K)[None, :]
            params = tl.load(first + place + start, mask=inside, other=0.0)
            if GATED:
                more = tl.load(second + place + start, mask=inside, other=0.0)
            part = tl.load(x + start + k, mask=start + k < K, other=0.0).to(tl.float32)
        if NORM > 0:
            part = (part - mean) * scale
            part *= tl.load(norm_weight + start + k, mask=start + k < K, other=0.0).to(tl.float32)
            if NORM == 1:
                part += tl.load(norm_bias + start + k, mask=start + k < K, other=0.0).to(tl.float32)
            part = part.to(x.dtype.element_ty).to(tl.float32)
        total += tl.sum(params.to(tl.float32) * part[None, :], 1)
        if GATED:
            other += tl.sum(more.to(tl.float32) * part[None, :], 1)
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    if BIAS:
        total += tl.load(first_bias + n, mask=n < N, other=0.0).to(tl.float32)
        if GATED:
            other += tl.load(second_bias + n, mask=n < N, other=0.0).to(tl.float32)
    y = _activate(total, ACTIVATION)
    if GATED:
        y *= other
    if RESIDUAL:
        y += tl.load(residual + n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(out + n, y.to(out.dtype.element_ty), mask=n < N)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _norm_rows(  # type: ignore[no-untyped-def]
    x, out, weight, bias, eps,
    NORM: tl.constexpr, K: tl.constexpr, WIDE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    k = tl.arange(0, WIDE)
    there = k < K
    factor = tl.load(weight + k, mask=there, other=0.0).to(tl.float32)
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64) * K + k
    y = tl.load(x + row, mask=there, other=0.0).to(tl.float32)
    if NORM == 1:
        y = tl.where(there, y - tl.sum(y) / K, 0.0)
    y = y * tl.rsqrt(tl.sum(y * y) / K + eps) * factor
    if NORM == 1:
        y += tl.load(bias + k, mask=there, other=0.0).to(tl.float32)
    tl.store(out + row, y.to(out.dtype.element_ty), mask=there)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _linear_of_many(  # type: ignore[no-untyped-def]
    x, first, second, first_bias, second_bias, residual, out, B, N,
    ACTIVATION: tl.constexpr, GATED: tl.constexpr, BIAS: tl.constexpr,
    RESIDUAL: tl.constexpr, K: tl.constexpr, EARLY: tl.constexpr,
    TALL: tl.constexpr, COLS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * COLS + tl.arange(0, COLS)
    b = tl.program_id(1) * TALL + tl.arange(0, TALL)
    k = tl.arange(0, WIDE)
    rows = x + b[:, None].to(tl.int64) * K + k[None, :]
    if EARLY:
        tl.extra.cuda.gdc_wait()
    total = tl.zeros((TALL, COLS), tl.float32)
    other = tl.zeros((TALL, COLS), tl.float32)
    for start in tl.range(0, K, WIDE):
        there = start + k < K
        part = tl.load(rows + start, mask=(b < B)[:, None] & there[None, :], other=0.0)
        cells = n[None, :].to(tl.int64) * K + start + k[:, None]
        known = (n < N)[None, :] & there[:, None]
        params = tl.load(first + cells, mask=known, other=0.0)
        total = tl.dot(part, params, total, input_precision="ieee")
        if GATED:
            more = tl.load(second + cells, mask=known, other=0.0)
            other = tl.dot(part, more, other, input_precision="ieee")
    if BIAS:
        total += tl.load(first_bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
        if GATED:
            other += tl.load(second_bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    y = _activate(total, ACTIVATION)
    if GATED:
        y *= other
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    result = b[:, None].to(tl.int64) * N + n[None, :]
    written = (b < B)[:, None] & (n < N)[None, :]
    if RESIDUAL:
        y += tl.load(residual + result, mask=written, other=0.0).to(tl.float32)
    tl.store(out + result, y.to(out.dtype.element_ty), mask=written)


def pick_best(logits: Tensor, last: Tensor, ids: Tensor, count: Tensor) -> None:
    """Write the most probable id of each row of logits (B, V), the first of equals.

    It is written to last (B,) and to row `count` of ids (n, B); there as -1 if a logit is NaN or
    the largest is infinite.
    """
    with torch.cuda.device_of(logits):
        _pick_best[(logits.shape[0],)](
            logits, last, ids, count, V=logits.shape[1], WIDE=8192, num_warps=16,
            **launch_options(logits),
        )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _pick_best(  # type: ignore[no-untyped-def]
    logits, last, ids, count, V: tl.constexpr, WIDE: tl.constexpr, EARLY: tl.constexpr
):
    if EARLY:
        tl.extra.cuda.gdc_wait()
    row, rows = tl.program_id(0), tl.num_programs(0)
    j = tl.arange(0, WIDE)
    best = tl.full((WIDE,), -float("inf"), tl.float32)
    place = tl.zeros((WIDE,), tl.int32)
    wrong = tl.zeros((WIDE,), tl.int32)
    for start in range(0, V, WIDE):
        here = logits + row.to(tl.int64) * V + start + j
        x = tl.load(here, mask=start + j < V, other=-float("inf"))
        wrong = tl.where(x != x, 1, wrong)
        place = tl.where(x > best, start + j, place)
        best = tl.maximum(best, x)
    top = tl.max(best)
    first = tl.min(tl.where(best == top, place, V))
    finite = (tl.abs(top) < float("inf")) & (tl.max(wrong) == 0)
    tl.store(last + row, tl.where(finite, first, 0).to(tl.int64))
    tl.store(ids + tl.load(count) * rows + row, tl.where(finite, first, -1).to(tl.int64))
