"""What a run writes and shows."""

import io
import json
import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from glasshead.training.plot import draw_losses, smooth
from glasshead.training.progress import ProgressBar, ProgressLines, Status, sparkline
from glasshead.training.run_log import RunLog

NOW = Status(step=1200, done=0.5, loss=2.5, tokens_per_s=34567.8, seconds_left=125)


@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8")), max_size=5))
def test_a_log_is_cut_back_to_where_it_was(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("log")
    log, samples = RunLog(folder, tensorboard=False), folder / "samples.txt"
    for step, line in enumerate(lines):
        log.write_sample(step, line)
    lengths, _ = log.sync()
    before = samples.read_bytes()
    assert all(line.encode() in before for line in lines)
    log.write_sample(97, "later\nand a torn line")
    log.truncate(lengths, 1)
    assert samples.read_bytes() == before
    samples.write_bytes(before + b"--- step 98\na torn li")
    log.truncate(dict.fromkeys(lengths, 10**9), 1)
    assert samples.read_bytes() == before + b"--- step 98\n"
    log.write_sample(99, "next")
    assert samples.read_bytes().endswith(b"next\n\n")


def test_metrics_are_json_without_nan(tmp_path):
    log = RunLog(tmp_path, tensorboard=False)
    log.write(3, {"loss": 0.1 + 0.2})
    with pytest.raises(ValueError):
        log.write(4, {"loss": float("nan")})
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 3, "loss": 0.1 + 0.2}


@pytest.mark.parametrize("n", [0, 1, 2, 400])
def test_a_picture_is_drawn_from_any_number_of_lines(tmp_path, n):
    lines = [{"step": i, "loss": 9 / (i + 1)} for i in range(n)]
    lines += [{"step": i, "val_loss": 10 / (i + 1), "best": True} for i in range(0, n, 20)]
    lines += [{"step": 3, "returned_from": 9, "rate": 0.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    draw_losses(tmp_path)
    assert (tmp_path / "loss.png").read_bytes()[:4] == b"\x89PNG"


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_smoothing_stays_within_what_it_smooths(values):
    smoothed = smooth(values)
    assert len(smoothed) == len(values)
    assert smoothed[0] == values[0]
    slack = 1e-9 * (1 + max(map(abs, values)))
    assert min(values) - slack <= min(smoothed) <= max(smoothed) <= max(values) + slack


@given(st.lists(st.floats(-1e6, 1e6)), st.integers(1, 30))
def test_a_sparkline_is_never_wider_than_asked(values, width):
    assert len(sparkline(values, width)) == min(width, len(values))


@given(st.floats(-1e6, 1e6), st.integers(1, 50), st.integers(1, 30))
@example(0.1, 5, 2)  # the mean of three is not quite the mean of two
def test_a_sparkline_of_equal_values_is_flat(value, n, width):
    assert set(sparkline([value] * n, width)) == {"▁"}


def test_lines_go_to_stderr_one_an_evaluation(capsys):
    listener = ProgressLines()
    listener.on_step(NOW)
    listener.on_evaluation(NOW, {"val_loss": 1.25}, best=True, sample="never\nshown")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "step  1,200  loss 2.5000  val_loss 1.2500 *  34,568 tokens/s  2:05 left\n"


def test_a_bar_is_drawn_at_most_ten_times_a_second():
    seconds = iter([*[0.0] * 2, 0.05, *[0.11] * 2, 0.2, *[0.22] * 2])  # twice where it is drawn
    file = io.StringIO()
    bar = ProgressBar(
        Console(file=file, force_terminal=True, width=100), clock=lambda: next(seconds)
    )
    shown = []
    with bar:
        for step in range(5):
            bar.on_step(replace(NOW, step=step))
            shown += re.findall(r"step (\d)", file.getvalue())[-1:]
    assert shown == ["0", "0", "2", "2", "4"]


def test_a_bar_shows_loss_speed_time_left_and_a_curve():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, color_system=None)
    with ProgressBar(console) as bar:
        for loss in (4.0, 3.0, 2.0):
            bar.on_log(10, {"loss": loss})
        bar.on_step(NOW)
        bar.on_evaluation(NOW, {"val_loss": 1.25}, best=False, sample="a\nsample [with] brackets")
        bar.say("back to step 3 [bold]")
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    for part in (
        "step 1,200",
        "loss 2.500",
        "█▅▁",
        "34,568 tokens/s",
        "2:05 left",
        "val_loss 1.2500",
    ):
        assert part in shown
    assert "a sample [with] brackets" in shown
    assert "back to step 3 [bold]" in shown
