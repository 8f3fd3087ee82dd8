# mypy: ignore-errors
"""Pairs of float16 in one 32-bit word: one instruction computes both, one shuffle moves both."""

import os

import triton
import triton.language as tl

# The interpreter runs no assembly, and reduces by its own sums and maxima only.
ASSEMBLY = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1")


@triton.jit
def low(pair):
    return (pair & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def high(pair):
    return (pair >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def word(a, b):
    """Pack two float16 into one int32, `a` in the low half."""
    a = a.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    b = b.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32)
    return a | (b << 16)


@triton.jit
def pair(a, b):
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [a, b], dtype=tl.int32, is_pure=True, pack=1
        )
    return word(a, b)


@triton.jit
def add_pairs(a, b):
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "add.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
        )
    return word(low(a) + low(b), high(a) + high(b))


@triton.jit
def multiply_pairs(a, b):
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "mul.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
        )
    return word(low(a) * low(b), high(a) * high(b))


@triton.jit
def max_pairs(a, b):
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "max.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
        )
    return word(tl.maximum(low(a), low(b)), tl.maximum(high(a), high(b)))


@triton.jit
def reduce_sum_pairs(pairs, AXIS: tl.constexpr):
    if ASSEMBLY:
        return tl.reduce(pairs, AXIS, add_pairs)
    return word(tl.sum(low(pairs), AXIS), tl.sum(high(pairs), AXIS))


@triton.jit
def reduce_max_pairs(pairs, AXIS: tl.constexpr, KEEP: tl.constexpr):
    if ASSEMBLY:
        return tl.reduce(pairs, AXIS, max_pairs, keep_dims=KEEP)
    return word(tl.max(low(pairs), AXIS, keep_dims=KEEP), tl.max(high(pairs), AXIS, keep_dims=KEEP))


@triton.jit
def largest(pairs):
    """Return the bits of the larger of two float16 that are not negative."""
    return tl.maximum(pairs & 0xFFFF, (pairs >> 16) & 0xFFFF)
