"""`glasshead check`, `glasshead.testing` and the plugin for pytest."""

import json

import pytest

import glasshead
from glasshead.cli import run
from glasshead.testing import assert_attention
from tests.lab.check.sources import FUNCTION, MODULE, load

pytest_plugins = ["pytester"]


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "right.py").write_text(FUNCTION)
    (tmp_path / "wrong.py").write_text(MODULE.replace("diagonal=1)", "diagonal=2)"))
    (tmp_path / "odd.py").write_text("def attention(q, k, v, colour): return q\n")
    return tmp_path


def test_exit_codes_are_right_wrong_and_unknown(written, capsys):
    assert run(["check", "right.py:attention", "--lang", "en"]) == 0
    assert "right" in capsys.readouterr().out
    assert run(["check", "wrong.py:CausalSelfAttention", "--lang", "en"]) == 1
    out = capsys.readouterr().out
    assert "a position sees the next one" in out
    assert "wrong.py:" in out
    assert "glasshead lesson 4" in out
    assert run(["check", "odd.py:attention"]) == 2
    assert "no value is known for the parameter 'colour'" in capsys.readouterr().err
    assert run(["check", "odd.py:attention", "--with", "colour=3"]) == 1


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("right.py:atention", "did you mean 'attention'"),
        ("rigt.py:attention", "did you mean 'right.py'"),
        ("right.py", "does not say what to check"),
        ("no.such.module:x", "cannot import"),
    ],
)
def test_a_wrong_target_is_explained(written, target, says, capsys):
    assert run(["check", target]) == 2
    assert says in capsys.readouterr().err


def test_json_is_for_programs(written, capsys):
    assert run(["check", "wrong.py:CausalSelfAttention", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert not data["right"]
    assert data["mistakes"][0]["name"] == "causal-leaks-next"
    assert data["counterexample"]["got"] != data["counterexample"]["expected"]
    assert run(["check", "odd.py:attention", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["right"] is None


def test_chinese(written, capsys):
    assert run(["check", "wrong.py:CausalSelfAttention", "--lang", "zh"]) == 1
    assert "能看到下一个" in capsys.readouterr().out


def test_assert_attention(tmp_path):
    right = load(FUNCTION, "attention", tmp_path)
    assert_attention(right)
    with pytest.raises(AssertionError, match="NaN"):
        assert_attention(right, strict=True)
    module = load(MODULE, "CausalSelfAttention", tmp_path)
    assert_attention(module(24, 4), causal=True)
    with pytest.raises(AssertionError, match="sees the future"):
        assert_attention(
            lambda q, k, v: (q @ k.mT / k.size(-1) ** 0.5).softmax(-1) @ v, causal=True
        )
    assert glasshead.check(right).ok


def test_the_plugin_checks_targets_and_has_a_fixture(written, pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # it may be installed
    pytester.makepyfile(
        "import torch\n"
        "def test_it(assert_attention):\n"
        "    assert_attention(torch.nn.functional.scaled_dot_product_attention)\n"
    )
    target = written / "wrong.py"
    plugin = ["-p", "glasshead.pytest_plugin", "-p", "no:cacheprovider"]
    done = pytester.runpytest(*plugin, "--check-attention", f"{target}:CausalSelfAttention")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*a position sees the next one*"])
