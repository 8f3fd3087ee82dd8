"""The load test of bench/serve.py, a few seconds of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench" / "serve.py"


@pytest.mark.deep
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads memory from /proc")
def test_many_clients_of_whom_some_leave_do_no_harm_and_too_many_are_refused():
    command = [sys.executable, str(BENCH), "--clients", "24", "--seconds", "4", "--rest", "45"]
    command.append("--json")
    found = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=300).stdout)
    assert (found["errors"], found["first_errors"]) == (0, [])
    assert found["left_half_way"] >= 1
    assert found["answers"] >= 24
    assert found["texts_left_behind"] == 0
    assert found["answers_by_client"]["least"] >= 1
    assert found["memory_mb"]["last_quarter"] < found["memory_mb"]["third_quarter"] + 40
    # Half a minute after the last text its cache is freed, and then given back.
    assert found["memory_mb"]["after_rest"] < 1.1 * found["memory_mb"]["model_loaded"]
    burst = found["burst"]
    assert burst["answered"] + burst["refused_429"] == burst["requests"]
    assert burst["refused_429"] == burst["with_retry_after"] >= 1
    assert burst["answered"] >= 16
    assert (found["exit_code"], found["errors_logged"]) == (0, 0)
