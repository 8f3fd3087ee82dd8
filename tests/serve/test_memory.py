"""Memory of a server as the system counts it: what it says it holds is what it holds."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest
import torch

from glasshead.checkpoint import RunConfig, RunFolder
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.serve import memory
from glasshead.text.tokenizer import ByteTokenizer

from .byte_gpt import byte_gpt
from .conftest import HUNG, awaited, until
from .test_restart import Process

MB = 2**20


@pytest.mark.deep
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads memory from /proc")
@pytest.mark.parametrize("limit", [100 * MB, 1000 * MB])
def test_texts_take_no_more_memory_than_the_server_says(tmp_path, limit):
    """Ten texts took 2 GB where 0.1 GB were counted, whatever the limit."""
    config = GPTConfig(vocab_size=256, max_len=3072, n_layers=4, n_heads=8, d_model=64)
    run = RunConfig("gpt", asdict(config), {}, {})
    RunFolder.create(tmp_path / "gpt", run, ByteTokenizer(), GPT(config))
    server = Process(tmp_path / "gpt", tmp_path / "log", "--port", "0", "--seen-bytes", str(limit))
    try:
        with httpx.Client(base_url=server.url, timeout=HUNG) as client:

            def counted() -> float:
                text = client.get("/metrics").text
                return float(re.search(r"^glasshead_seen_bytes (\S+)", text, re.M)[1])

            assert client.post("/api/look", json={"model": "gpt", "text": "ab"}).status_code == 200
            before, one = resident(server.process.pid), 0.0
            for n in range(10):
                ask = {"model": "gpt", "text": chr(97 + n) * 2971}
                assert client.post("/api/atlas", json=ask).status_code == 200
                one = one or counted()
            seen = counted()
            assert one > 15 * MB
            assert min(limit, 10 * one) - 1.1 * one < seen < limit
            until(lambda: resident(server.process.pid) - before < 1.1 * seen + 60 * MB)
    finally:
        server.process.kill()
        server.process.wait(HUNG)
        server.process.stdout.close()


MEASURED = """
import resource, sys
from glasshead.checkpoint import load
from glasshead.errors import GlassheadError
from glasshead.model import gpt
load(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load(sys.argv[2])
except GlassheadError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.deep
@pytest.mark.skipif(sys.platform == "win32", reason="counts memory with resource")
@pytest.mark.parametrize("setting", ["d_ff", "d_head"])
def test_a_config_is_compared_with_its_file_before_anything_is_allocated(tmp_path, setting):
    """A d_ff of 2^19 in a run of 3 MB took 2 GB."""
    whole = byte_gpt(tmp_path / "whole")
    made_up = shutil.copytree(whole, tmp_path / "made-up")
    (made_up / "checksums.json").unlink()
    config = json.loads((made_up / "config.json").read_text("utf-8"))
    config["model"][setting] = 2**19
    (made_up / "config.json").write_text(json.dumps(config), "utf-8")
    command = [sys.executable, "-c", MEASURED, str(whole), str(made_up)]
    said, grown = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=HUNG
    ).stdout.splitlines()
    assert "config.json makes it" in said
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(grown) * unit < 100 * MB


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_giving_memory_back_works_or_does_nothing(monkeypatch, system):
    monkeypatch.setattr(memory.sys, "platform", system)
    kept = torch.randn(7, 11)
    before = kept.clone()
    memory.give_back_memory()
    assert torch.equal(kept, before)


def test_memory_is_given_back_after_work_and_only_then(monkeypatch):
    calls = []
    monkeypatch.setattr(memory, "SECONDS", 0.01)
    monkeypatch.setattr(memory, "give_back_memory", lambda: calls.append(work[0]))
    work = [0]

    async def watch():
        task = asyncio.ensure_future(memory.keep_giving_back(lambda: work[0]))
        await asyncio.sleep(0)
        for n in (1, 2, 3):
            work[0] = n
            while len(calls) < n:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
        task.cancel()

    awaited(watch())
    assert calls == [1, 2, 3]
