"""`glasshead generate`, as it is typed."""

import json
import os
import subprocess
import sys

import pytest

from glasshead.cli.generate import Samples
from glasshead.generation.stream import TextPiece
from glasshead.text.tokenizer import ByteTokenizer, CharTokenizer
from tests.cli.test_cli import is_a_mistake
from tests.generation.runs import make_run

TEXT = "春江潮水连海平，海上明月共潮生。\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "poems", CharTokenizer.train(TEXT))


def test_prompt_and_continuation_go_to_stdout_and_the_rest_to_stderr(cli, run):
    code, out, err = cli("generate", run, "春江", "--max-tokens", "20", "--seed", "3")
    assert code == 0
    assert out.startswith("春江")
    assert len(out.removesuffix("\n")) in (21, 22)  # a last line end is not doubled
    assert set(out) <= set(TEXT)
    assert err.startswith("seed 3, 20 tokens, ")


def test_a_sample_that_ends_its_line_gets_no_second_line_end(capsys):
    samples = Samples("a", 2)
    samples.add(TextPiece(0, "b\n", "length"))
    samples.add(TextPiece(1, "c", "length"))
    assert capsys.readouterr().out == "ab\n---\nac\n"


def test_a_seed_repeats_a_sample_and_is_shown_when_it_was_drawn(cli, run):
    first = cli("generate", run, "春")
    seed = first.err.split(",")[0].split()[1]
    assert cli("generate", run, "春", "--seed", seed).out == first.out
    assert cli("generate", run, "春").out != first.out


def test_several_samples_are_one_batch_divided_by_lines(cli, run):
    one = cli("generate", run, "春", "--seed", "5", "--max-tokens", "9", "--n", "1").out
    three = cli("generate", run, "春", "--seed", "5", "--max-tokens", "9", "--n", "3").out
    samples = three.split("---\n")
    assert len(set(samples)) == 3
    assert samples[0] == one
    assert all(sample.startswith("春") for sample in samples)


def test_json_has_a_line_for_each_sample(cli, run):
    args = ("generate", run, "春江", "--n", "3", "--seed", "7", "--max-tokens", "9")
    code, out, _ = cli(*args, "--json")
    samples = sorted(map(json.loads, out.splitlines()), key=lambda one: one["sample"])
    assert code == 0
    assert [one["sample"] for one in samples] == [0, 1, 2]
    expected = {"prompt": "春江", "finish": "length", "tokens": 9, "seed": 7}
    assert all(expected.items() <= one.items() for one in samples)
    plain = "---\n".join(one["prompt"] + one["text"].removesuffix("\n") + "\n" for one in samples)
    assert cli(*args).out == plain


def test_the_prompt_comes_from_stdin_less_one_line_end(cli, run, stdin):
    stdin("春江\n".encode())
    args = ("--seed", "1", "--max-tokens", "5")
    from_pipe = cli("generate", run, *args).out
    stdin("春江\n".encode())
    assert cli("generate", run, "-", *args).out == from_pipe
    assert cli("generate", run, "春江", *args).out == from_pipe


def test_an_empty_prompt_begins_anywhere(cli, run, stdin):
    stdin(b"", terminal=True)
    out = cli("generate", run, "--seed", "1", "--max-tokens", "5").out
    assert len(out.removesuffix("\n")) >= 4
    assert cli("generate", run, "", "--seed", "1", "--max-tokens", "5").out == out


def test_a_stop_string_ends_the_text_and_is_not_printed(cli, run):
    args = ("generate", run, "春", "--seed", "2", "--max-tokens", "30")
    free = cli(*args).out
    stop = free[4:6]
    cut = cli(*args, "--stop", "不", "--stop", stop).out
    assert cut == free[: free.index(stop, 1)] + "\n"


def test_sampling_flags_reach_the_sampler(cli, run):
    greedy = cli("generate", run, "春", "--temperature", "0", "--seed", "1").out
    assert cli("generate", run, "春", "--top-k", "1", "--seed", "2").out == greedy
    assert cli("generate", run, "春", "--top-p", "0.001", "--seed", "3").out == greedy
    assert cli("generate", run, "春", "--min-p", "1", "--seed", "4").out == greedy
    penalised = ("--temperature", "0", "--repetition-penalty", "9")
    assert cli("generate", run, "春", *penalised).out != greedy


def test_a_prompt_longer_than_max_len_is_cut_and_says_so(cli, run):
    code, out, err = cli("generate", run, "春江潮水" * 5, "--max-tokens", "3")
    assert code == 0
    assert out.startswith("春江潮水" * 5)
    assert "the prompt has 20 tokens: only the last 13 (max_len) are read" in err


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
def test_every_precision_gives_text(cli, run, precision):
    code, out, _ = cli("generate", run, "春", "--max-tokens", "30", "--precision", precision)
    assert code == 0
    assert len(out) >= 31


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["春x"], "character 'x' (U+0078) at line 1, column 2"),
        (["春", "--temperature", "-1"], "temperature (-1.0) must be at least 0"),
        (["春", "--max-tokens", "0"], "max_tokens (0)"),
        (["春", "--n", "0"], "n (0)"),
        (["春", "--seed", "-4"], "--seed '-4' must be at least 0"),
        (["春", "--stop", ""], "a stop string is empty"),
        (["春", "--device", "abacus"], "unknown device 'abacus'"),
        (["春", "--temprature", "1"], "no option '--temprature'"),
    ],
)
def test_mistakes_are_one_line_and_a_hint(cli, run, args, message):
    outcome = cli("generate", run, *args)
    assert is_a_mistake(outcome)
    assert message in outcome.err


def test_a_folder_that_is_no_run_is_a_mistake(cli, tmp_path):
    assert is_a_mistake(cli("generate", tmp_path, "春"))


@pytest.mark.parametrize("prompt", ["春江 潮水", "春" * 400])
def test_a_prompt_before_the_run_is_told_the_order(cli, run, prompt):
    message, hint = is_a_mistake(cli("generate", prompt, run))
    assert message == f"{prompt} does not exist"
    right = f"glasshead generate {run} '{prompt}'"
    assert hint == f"the run comes first, then the prompt: {right}"


def test_stdin_that_is_not_utf8_is_a_mistake(cli, run, stdin):
    stdin(b"\xb4\xba")
    outcome = cli("generate", run)
    assert is_a_mistake(outcome)
    assert "invalid UTF-8 at byte 0" in outcome.err


def test_text_arrives_while_the_model_still_writes(tmp_path):
    """A program that reads the pipe gets whole characters long before the end."""
    run = make_run(tmp_path / "bytes", ByteTokenizer())
    command = [sys.executable, "-m", "glasshead", "generate", str(run), "春江"]
    with subprocess.Popen(
        [*command, "--max-tokens", "1000000", "--seed", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdout is not None
        seen = b""
        while len(seen) < 100:
            seen += os.read(process.stdout.fileno(), 100)
        assert process.poll() is None  # more than a pipe holds is still to come
        process.kill()
    assert seen.startswith("春江".encode())
