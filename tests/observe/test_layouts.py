"""The PTX of the packed sweep supposes where Hopper leaves a product. It is compiled for it, which
needs no GPU, and the tensors that it works on are looked at."""

import ast
import re

import pytest

pytestmark = pytest.mark.deep
SUMS = ("lse", "received", "out", "cell_sum", "slopes")
NUMBERS = ("scale", "softcap", "per_key")


def compiled(slots, wide, **rules):
    """The sweep for heads of 64, as Triton hands it to LLVM."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from glasshead.observe.programs.packed_sweep import sweep_pairs
    from glasshead.observe.programs.ptx import column_sum_ptx, insertion_ptx

    names = ("CAUSAL", "WINDOW", "KEYS", "DOCUMENTS", "CAP", "ALIBI")
    insert, spread = insertion_ptx(slots), column_sum_ptx(16)
    constants = {name: rules.get(name, False) for name in names} | {
        "D": 64, "BD": 64, "WARPS": 4, "BN": 128, "TOP": slots, "TALL": 128, "WIDE": wide,
        "STAGES": 3, "INSERT": insert[0], "INSERT_TYPES": insert[1], "SPREAD": spread[0],
        "SPREAD_TYPES": spread[1],
    }  # fmt: skip
    kinds = dict.fromkeys(SUMS, "*fp32") | dict.fromkeys(NUMBERS, "fp32")
    kinds |= {"q": "*bf16", "k": "*bf16", "keys": "*i8"}
    kinds |= dict.fromkeys(("documents", "top_out", "cell_max"), "*i32")
    signature = {
        name: "constexpr" if name in constants else kinds.get(name, "i32")
        for name in sweep_pairs.arg_names
    }
    places = {(sweep_pairs.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(sweep_pairs, signature, places)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    return made.asm["ttgir"]


def bases(layout, defined):
    """Which element each bit of a register's, a thread's and a warp's number leads to."""
    if cut := re.fullmatch(r"#ttg\.slice<\{dim = (\d+), parent = (.*)\}>", layout):
        parent, dim = bases(cut[2], defined), int(cut[1])
        return {bit: [at[:dim] + at[dim + 1 :] for at in to] for bit, to in parent.items()}
    if layout in defined:
        return bases(defined[layout], defined)
    found = re.match(r"#ttg\.linear<\{register = (.*?), lane = (.*?), warp = (.*?), block", layout)
    assert found, layout
    return dict(
        zip(("register", "lane", "warp"), map(ast.literal_eval, found.groups()), strict=True)
    )


def laid_out(shape, layout, defined):
    """`bases` within the shape; registers that hold the same again are left out."""
    found = {
        bit: [[x if x < n else 0 for x, n in zip(at, shape, strict=True)] for at in to]
        for bit, to in bases(layout, defined).items()
    }
    return found | {"register": [at for at in found["register"] if any(at)]}


def powers(n):
    return [1 << bit for bit in range((n - 1).bit_length())]


def test_threads_hold_what_the_assembly_supposes(tmp_path, monkeypatch):
    pytest.importorskip("triton", reason="Triton is not installed")
    slots, wide = 8, 32  # four cells to a group
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # 3.9 asks which is meant
    text = compiled(slots, wide, CAUSAL=True)
    defined = dict(re.findall(r"^(#\w+) = (#ttg\.\S.*)$", text, re.M))
    lists = {
        "register": [[8, 0, 0], *([0, n, 0] for n in powers(slots // 2))],
        "lane": [[0, 0, 1], [0, 0, 2], [1, 0, 0], [2, 0, 0], [4, 0, 0]],
        "warp": [[16, 0, 0], [32, 0, 0]],
    }
    columns = {
        "register": [[0, 0, 4 * n] for n in powers(16)],
        "lane": [[0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 2, 0], [0, 4, 0]],
        "warp": [[1, 0, 0], [2, 0, 0]],
    }
    cells = {
        "register": [[0, 0, n, 0] for n in powers(128 // wide)],
        "lane": [[0, 0, 0, 1], [0, 0, 0, 2], [0, 1, 0, 0], [0, 2, 0, 0], [0, 4, 0, 0]],
        "warp": [[1, 0, 0, 0], [2, 0, 0, 0]],
    }
    seen = {"prmt": 0, "redux": 0, "add.v2": 0}
    for line in text.splitlines():
        if "elementwise_inline_asm" not in line or "shfl" not in line:
            continue
        kind = next(kind for kind in seen if kind in line)
        expected = {"prmt": lists, "redux": cells, "add.v2": columns}[kind]
        for sizes, layout in re.findall(
            r"tensor<([\dx]+)x\w\d+, (.*?)>(?=, tensor|\s*->|\s*loc|$)", line
        ):
            assert laid_out([int(n) for n in sizes.split("x")], layout, defined) == expected
            seen[kind] += 1
    assert all(seen.values())
