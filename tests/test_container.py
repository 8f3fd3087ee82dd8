"""The Dockerfile, read and followed as far as it goes without a container."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests.documents import commands

ROOT = Path(__file__).resolve().parents[1]


def instructions() -> list[tuple[str, str]]:
    """The word and the rest of each instruction; what stands on several lines is joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", "")
    lines = [line for line in text.splitlines() if line.strip()]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def last(word: str) -> str:
    return [rest for name, rest in instructions() if name == word][-1]


def test_it_serves_as_a_user_without_rights_and_reports_its_health():
    names = [name for name, _ in instructions()]
    assert max(n for n, name in enumerate(names) if name == "FROM") < names.index("USER")
    assert int(last("USER")) > 0
    line = [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]
    assert commands.wrongs(" ".join(line)) == []
    assert "/healthz" in last("HEALTHCHECK")


def test_the_build_sees_all_that_the_wheel_is_made_of():
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "*"
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert all((ROOT / name).exists() for name in kept)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    made_of = {*wheel["packages"], *wheel["force-include"], project["project"]["readme"]}
    assert {
        "pyproject.toml",
        "constraints.txt",
        *made_of,
        *project["project"]["license-files"],
    } <= kept
    assert "hf" in project["project"]["optional-dependencies"]


@pytest.mark.deep
def test_its_command_serves_and_its_check_knows_whether_it_does(tmp_path):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    _, *entry = json.loads(last("ENTRYPOINT"))
    folder, *rest = json.loads(last("CMD"))
    assert folder == "/models"
    _, *check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    check = [sys.executable, *(word.replace("8000", port) for word in check)]
    command = [sys.executable, "-m", "glasshead", *entry, str(tmp_path), *rest, "--port", port]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(check, capture_output=True).returncode != 0
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert "?key=" in server.stdout.readline()  # listening; then it loads and answers
            while subprocess.run(check, capture_output=True).returncode != 0:
                assert server.poll() is None
                time.sleep(0.2)
        finally:
            server.terminate()
    assert server.returncode == 0
