import json
import os
import subprocess
import sys

import pytest

from glasshead import machine


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    machine.amx_crashes.cache_clear()
    yield tmp_path / "glasshead/amx.json"
    machine.amx_crashes.cache_clear()


def test_without_amx_there_is_nothing_to_settle(fresh, monkeypatch) -> None:
    monkeypatch.setattr(machine, "cpu_flags", lambda: frozenset({"avx2"}))
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    assert machine.settle_half_precision() is False
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_a_crash_found_once_is_remembered_and_kept_clear_of(fresh, monkeypatch) -> None:
    monkeypatch.setattr(machine, "cpu_flags", lambda: frozenset({"amx_tile"}))
    monkeypatch.setattr(machine, "_PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    assert machine.settle_half_precision() is True
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == machine.SAFE_ISA
    assert list(json.loads(fresh.read_text()).values()) == [True]
    monkeypatch.setattr(machine, "_PROBE", "pass")
    machine.amx_crashes.cache_clear()
    assert machine.amx_crashes() is True


def test_a_probe_that_fails_otherwise_proves_nothing(fresh, monkeypatch) -> None:
    monkeypatch.setattr(machine, "cpu_flags", lambda: frozenset({"amx_tile"}))
    monkeypatch.setattr(machine, "_PROBE", "raise SystemExit(1)")
    assert machine.amx_crashes() is False
    assert not fresh.exists()


def test_the_users_own_limit_is_left_alone(fresh, monkeypatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert machine.settle_half_precision() is False
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"


def test_half_precision_works_once_settled() -> None:
    code = (
        "from glasshead.machine import settle_half_precision as s; s();"
        "import torch; x = torch.ones(4, 64, 64, dtype=torch.bfloat16); print((x @ x).sum().item())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == 4 * 64**3
