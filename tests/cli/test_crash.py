"""A fault of the program is one line, a file with the traceback, and exit code 70."""

import pytest

from glasshead import cli as package
from glasshead.errors import ConfigError
from glasshead.machine import pick_device


def fail_with(monkeypatch, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(package.typer.main, "get_command", fail)


@pytest.mark.parametrize("error", [ZeroDivisionError("no"), PermissionError(13, "no", "x")])
def test_a_fault_leaves_its_traceback_in_a_file(cli, monkeypatch, tmp_path, error):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fail_with(monkeypatch, error)
    code, out, err = cli("world")
    assert (code, out) == (70, "")
    [path] = (tmp_path / "glasshead").iterdir()
    assert str(path) in err.splitlines()[0]
    assert "Traceback" not in err
    assert f"{type(error).__name__}: " in path.read_text(encoding="utf-8")


def test_a_device_without_support_is_refused():
    with pytest.raises(ConfigError, match="device 'mps' is not supported"):
        pick_device("mps")


def test_an_exception_shows_its_hint():
    assert ConfigError("a", hint="b").__notes__ == ["hint: b"]
