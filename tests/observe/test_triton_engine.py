"""The Triton engine: on CUDA where there is one, and under Triton's interpreter where there is
Triton. The interpreter must be chosen before Triton is imported, hence a process of its own."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from glasshead.observe.lags import bucket
from glasshead.observe.triton_lookups import sort_by_group
from tests.observe.triton_cases import CASES, check

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.mark.deep
def test_the_interpreted_programs_agree_with_the_whole_map():
    pytest.importorskip("triton", reason="Triton is not installed")
    run = [sys.executable, "-m", "tests.observe.interpreted", "tests/observe/triton_cases.py"]
    done = subprocess.run(
        run, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@needs_triton
@needs_cuda
@pytest.mark.parametrize("case", CASES)
def test_the_programs_agree_with_the_whole_map(case):
    CASES[case]("cuda")


@needs_triton
@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("D", [32, 40, 64, 96, 128, 192, 256])
def test_every_width_of_a_head_agrees(D, dtype):
    from glasshead.attention.mask import Mask

    check("cuda", 401, 499, Mask(causal=True), H=2, D=D, dtype=dtype, overview=16)


def test_entries_are_sorted_by_the_group_that_they_name():
    g = torch.Generator().manual_seed(0)
    named = torch.randint(0, 12, (500,), generator=g)  # 11 is no group
    order, group, first, end = sort_by_group(named, 11, 16)
    covered = []
    for block, start in zip(group.tolist(), first.tolist(), strict=True):
        if block >= 0:
            entries = order[start : min(start + 16, int(end[block]))]
            assert len(entries)
            assert (named[entries] == block).all()
            covered += entries.tolist()
    assert sorted(covered) == (named < 11).nonzero().flatten().tolist()


def test_buckets_start_at_powers_of_two_from_128_on():
    lags = torch.tensor([-5, 0, 1, 127, 128, 255, 256, 511, 512, 2**20])
    assert bucket(lags).tolist() == [-1, -1, -1, -1, 0, 0, 1, 1, 2, 13]
