"""PTX of the packed sweep, for what Triton cannot express: shuffles in which the threads of a warp
exchange different values. Each text works on all that a thread holds of a tensor.

A row's weights are held by four threads of a warp, l = lane % 4, and a column's by eight,
lane // 4: this is how Hopper leaves a product, and `tests/observe/test_layouts.py` checks it. All
threads of a warp must run it; the loops around it are the same for all.
"""

from functools import cache

__all__ = ["cell_sum_ptx", "column_sum_ptx", "insertion_ptx"]

SHUFFLE = "shfl.sync.bfly.b32 {}, {}, {}, 0x1f, 0xffffffff;"


@cache
def insertion_ptx(slots: int) -> tuple[str, str]:
    """Return PTX that inserts a group's largest weight of each row into its `slots` largest so far.

    Thread l keeps the lists of the rows number l: of part l // 2 of the rows, upper or lower eight
    of each 16. The four threads pass their maxima to it in two steps.

    Operands: the new list; for each of its places, the pair of largest weights of the thread in
    part one (upper row, then lower), the same in part two, the old list, and the group.
    """
    one, two, old, group = (slots * n for n in range(1, 5))
    lines = [
        "{ .reg .b32 lane, a, b, one, two, give, keep; .reg .pred up, odd; mov.u32 lane, %laneid;",
        "and.b32 a, lane, 2; setp.ne.u32 up, a, 0; and.b32 a, lane, 1; setp.ne.u32 odd, a, 0;",
    ]
    for name, at in (("one", one), ("two", two)):  # pairs become (upper row, lower row)
        lines.append(f"prmt.b32 a, ${at}, ${at + 1}, 0x5410;")
        lines.append(f"prmt.b32 b, ${at}, ${at + 1}, 0x7632; max.f16x2 {name}, a, b;")
    lines += [
        "selp.b32 give, one, two, up; selp.b32 keep, two, one, up;",
        SHUFFLE.format("give", "give", 2) + "max.f16x2 keep, keep, give;",
        SHUFFLE.format("give", "keep", 1) + "max.f16x2 keep, keep, give;",
        "shl.b32 a, keep, 16; and.b32 b, keep, 0xffff0000;",
        f"selp.b32 a, b, a, odd; or.b32 a, a, ${group};",
    ]
    for n in range(slots):  # the list is sorted; the least is dropped
        lines.append(f"max.s32 ${n}, ${old + n}, a; min.s32 a, ${old + n}, a;")
    return " ".join(lines) + " }", ",".join(["=&r"] * slots + ["r"] * 4 * slots)


@cache
def column_sum_ptx(n: int) -> tuple[str, str]:
    """Return PTX that adds sums of columns to memory, n pairs in parts held by eight threads.

    In each of three steps a thread keeps half of its pairs and passes the other half on. In the
    end each has n / 8 of its own, from pair (lane // 4) n / 8 on, and adds them.

    Operands: n results, not used; n pairs; n times the address of the group's sums.
    """
    lines = ["{ .reg .pred up; .reg .b32 lane, give, keep; mov.u32 lane, %laneid;"]
    lines.append(f".reg .b32 w<{n}>; .reg .b64 at, off; .reg .b16 a, b; .reg .f32 x, y;")
    lines += [f"mov.b32 w{i}, ${n + i};" for i in range(n)]
    left = n
    for bit in (16, 8, 4):
        left //= 2
        lines.append(f"and.b32 give, lane, {bit}; setp.ne.u32 up, give, 0;")
        for i in range(left):
            here, there = f"w{i}", f"w{i + left}"
            lines.append(f"selp.b32 give, {here}, {there}, up; selp.b32 keep, {there}, {here}, up;")
            lines.append(SHUFFLE.format("give", "give", bit) + f"add.f16x2 {here}, keep, give;")
    # Pair 4 i + l of the group is 8 bytes at 8 (4 i + l).
    lines.append("and.b32 give, lane, 3; shr.u32 keep, lane, 2;")
    lines.append(f"mad.lo.u32 give, keep, {4 * left}, give; shl.b32 give, give, 3;")
    lines.append(f"cvt.u64.u32 off, give; add.u64 at, ${2 * n}, off;")
    for i in range(left):
        lines.append(f"mov.b32 {{a, b}}, w{i}; cvt.f32.f16 x, a; cvt.f32.f16 y, b;")
        lines.append(f"red.relaxed.gpu.global.add.v2.f32 [at + {32 * i}], {{x, y}};")
    lines += [f"mov.b32 ${i}, 0;" for i in range(n)]
    return " ".join(lines) + " }", ",".join(["=r"] * n + ["r"] * n + ["l"] * n)


def cell_sum_ptx() -> str:
    """Return PTX with which a warp's first thread adds a cell's sum and maximum to memory.

    Operands: a result, not used; the thread's sum and largest; the addresses of the cell's.
    """
    lines = [
        "{ .reg .pred first; .reg .b32 most; .reg .f32 sum, other; mov.u32 most, %laneid;",
        "setp.eq.u32 first, most, 0; redux.sync.max.u32 most, $2, 0xffffffff; mov.f32 sum, $1;",
    ]
    for n in (16, 8, 4, 2, 1):
        lines.append(SHUFFLE.format("other", "sum", n) + "add.f32 sum, sum, other;")
    lines += [
        "@first red.relaxed.gpu.global.add.f32 [$3], sum;",
        "@first red.relaxed.gpu.global.max.s32 [$4], most; mov.b32 $0, 0; }",
    ]
    return " ".join(lines)
