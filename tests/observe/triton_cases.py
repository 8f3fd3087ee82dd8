"""Cases for the Triton engine, on CUDA or under Triton's interpreter: each against the whole map.

python -m tests.observe.interpreted tests/observe/triton_cases.py [NAME ...]
"""

import sys
from collections.abc import Callable

import torch

from glasshead.attention.mask import Mask
from glasshead.attention.scores import PLAIN, Scoring
from glasshead.observe.statistics import HeadStatistics, observe
from tests.observe.dense import assert_matches, dense

# The packed sweep sums columns in float16.
ATOL = {torch.float32: 3e-6, torch.float16: 5e-4, torch.bfloat16: 5e-4}


def check(
    device: str, T: int, S: int, mask: Mask, scoring: Scoring = PLAIN, B: int = 1, H: int = 1,
    H_kv: int = 1, D: int = 16, dtype: torch.dtype = torch.float32, overview: int = 1024,
    top_k: int = 8, deterministic: bool = False, give_lse: bool = False, queries: bool = False,
) -> HeadStatistics:  # fmt: skip
    g = torch.Generator().manual_seed(T * S)
    q = torch.randn(B, H, T, D, generator=g).to(device, dtype)
    k = torch.randn(B, H_kv, S, D, generator=g).to(device, dtype)
    ids = torch.randint(0, 5, (B, S), generator=g).to(device) if T <= S else None
    counts = (torch.rand(B, T, generator=g) > 0.3).to(device) if queries else None
    found = dense(q, k, mask, scoring, counts)
    lse = torch.from_numpy(found.lse).to(device, torch.float32) if give_lse else None
    seen = observe(
        q, k, mask, scoring=scoring, lse=lse, ids=ids, queries=counts, top_k=top_k,
        overview=overview, engine="triton", deterministic=deterministic,
    )  # fmt: skip
    assert seen.engine == "triton"
    assert_matches(seen, found, mask, ids, ATOL[dtype])
    return seen


def both_ways_grouped(device: str) -> None:
    check(device, 29, 37, Mask(), B=2, H=2, overview=8)


def causal_across_blocks(device: str) -> None:
    check(device, 139, 293, Mask(causal=True), overview=3, give_lse=True, top_k=5)


def causal_half(device: str) -> None:
    check(device, 139, 293, Mask(causal=True), dtype=torch.float16, overview=32, D=24)


def packed_causal(device: str) -> None:
    seen = check(device, 139, 293, Mask(causal=True), dtype=torch.float16, overview=8, H=2, D=24)
    assert seen.overview_cell == (32, 64)
    check(device, 139, 293, Mask(causal=True), dtype=torch.float16, overview=2, give_lse=True,
          top_k=5)  # fmt: skip


def packed_lists(device: str) -> None:
    """Few and many strongest keys; keys that are nearly all equal, and too small for 16 bits."""
    mask = Mask(causal=True)
    check(device, 67, 67 + 128, mask, dtype=torch.float16, overview=4, top_k=1)
    check(device, 61, 61 + 256, mask, dtype=torch.float16, overview=4, top_k=19)
    check(device, 29, 257, mask, dtype=torch.float16, overview=16, top_k=11)  # cells of 16
    check(device, 61, 61 + 256, mask, Scoring(scale=0.01), dtype=torch.float16, overview=4)


def packed_both_ways(device: str) -> None:
    keys = torch.arange(131) < torch.tensor([[131], [90]])
    check(device, 67, 131, Mask(keys=keys.to(device)), dtype=torch.float16, B=2, H=2, overview=4,
          queries=True)  # fmt: skip
    check(device, 151, 67, Mask(window=17), dtype=torch.float16, overview=4)


def packed_every_rule(device: str) -> None:
    documents = (torch.arange(151) // 61)[None].to(device)
    scoring = Scoring(scale=0.9, softcap=3.0, slopes=torch.tensor([0.5, 0.1]).to(device))
    mask = Mask(causal=True, window=71, documents=documents)
    check(device, 139, 151, mask, scoring, H=2, dtype=torch.float16, overview=4)


def packed_empty_rows(device: str) -> None:
    check(device, 151, 67, Mask(causal=True), dtype=torch.float16, overview=4)


def windows(device: str) -> None:
    check(device, 67, 53, Mask(window=7), overview=2)
    check(device, 53, 61, Mask(causal=True, window=11), dtype=torch.float16, deterministic=True)


def every_rule(device: str) -> None:
    S = 41
    keys = torch.arange(S) < torch.tensor([[S], [30]])
    documents = torch.arange(S) // torch.tensor([[17], [11]])
    mask = Mask(causal=True, keys=keys.to(device), documents=documents.to(device))
    scoring = Scoring(scale=0.9, softcap=3.0, slopes=torch.tensor([0.5, 0.1]).to(device))
    check(device, 37, S, mask, scoring, B=2, H=2, queries=True)


def empty_rows(device: str) -> None:
    keys = torch.zeros(1, 31, dtype=torch.bool, device=device)
    seen = check(device, 23, 31, Mask(keys=keys))
    assert (seen.top_keys == -1).all()
    check(device, 41, 31, Mask(causal=True))


def the_same_bits_twice(device: str) -> None:
    first, second = (
        check(device, 67, 71, Mask(causal=True), dtype=torch.float16, deterministic=True)
        for _ in range(2)
    )
    assert torch.equal(first.received, second.received)
    assert torch.equal(first.overview_mean, second.overview_mean)


def other_strides(device: str) -> None:
    """Ids and lse as a user may hold them: (S, B) and (B, T, H), turned round; padding of NaN."""
    g = torch.Generator().manual_seed(3)
    T, S = 29, 37
    for B, H in ((2, 3), (1, 3)):
        q = torch.randn(B, H, T, 16, generator=g).to(device)
        k = torch.randn(B, H, S, 16, generator=g).to(device)
        ids = torch.randint(0, 5, (S, B), generator=g).to(device).T
        counts = torch.ones(B, T, dtype=torch.bool, device=device)
        counts[0, 7], q[0, :, 7] = False, torch.nan
        lse = observe(q, k, engine="tiles", queries=counts).lse.nan_to_num()
        lse = lse.transpose(1, 2).contiguous().transpose(1, 2)
        wanted, found = (
            observe(q, k, lse=lse, ids=ids, queries=counts, engine=engine)
            for engine in ("tiles", "triton")
        )
        for name in ("row_sum", "received", "lags", "duplicate", "induction", "overview_mean"):
            torch.testing.assert_close(getattr(found, name), getattr(wanted, name))


CASES: dict[str, Callable[[str], None]] = {
    case.__name__: case
    for case in (
        both_ways_grouped, causal_across_blocks, causal_half, packed_causal, packed_lists,
        packed_both_ways, packed_every_rule, packed_empty_rows, windows, every_rule, empty_rows,
        the_same_bits_twice, other_strides,
    )
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        CASES[name]("cpu")
