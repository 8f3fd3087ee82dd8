"""Nothing that a text says commands the terminal it is printed on."""

import io
import sys

import pytest
from rich.console import Console

from glasshead.cli.atlas import _progress_bars
from glasshead.cli.lesson import _wait_for_enter
from glasshead.cli.screen import protect_stdout
from glasshead.cli.terminal import ProgressDisplay, say
from glasshead.messages import escape_controls
from glasshead.training.progress import ProgressBar, Status, new_listener

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202eabc\u2066 \x9b2J \rover"
ESCAPED = escape_controls(HOSTILE)


@pytest.fixture
def terminal(monkeypatch):
    """Call it in the test, when its streams are in place."""

    def use() -> None:
        for stream in (sys.stdout, sys.stderr):
            monkeypatch.setattr(stream, "isatty", lambda: True)
        monkeypatch.setenv("TERM", "xterm-256color")

    return use


def test_control_and_direction_characters_are_escaped_and_others_are_not():
    assert ESCAPED.isprintable()
    assert ESCAPED.startswith(r"\x1b[31mred\x1b]0;title\x07 \u202eabc\u2066 \x9b2J \rover")
    plain = "line\r\n\tא tab é 中文 👩\u200d👧 \u00a0"
    assert escape_controls(plain) == plain


def test_what_is_printed_to_a_terminal_is_escaped(capsys, terminal):
    terminal()
    with protect_stdout():
        print(HOSTILE)
        sys.stdout.writelines([HOSTILE])
    say(HOSTILE)
    out, err = capsys.readouterr()
    assert out == f"{ESCAPED}\n{ESCAPED}"
    assert err == f"{ESCAPED}\n"


@pytest.mark.parametrize("terminal_is", ["stdout", "stderr"])
def test_each_stream_is_escaped_by_what_it_is_itself(capsys, monkeypatch, terminal_is):
    """As in `glasshead … | head`, or with the notes in a file."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(getattr(sys, name), "isatty", lambda name=name: name == terminal_is)
    with protect_stdout():
        print(HOSTILE)
    say(HOSTILE)
    shown = dict(zip(("stdout", "stderr"), capsys.readouterr(), strict=True))
    assert shown.pop(terminal_is) == f"{ESCAPED}\n"
    assert [*shown.values()] == [f"{HOSTILE}\n"]


def test_what_is_piped_is_not_changed(capsys):
    with protect_stdout():
        print(HOSTILE)
    say(HOSTILE)
    assert capsys.readouterr() == (f"{HOSTILE}\n",) * 2


def test_tables_keep_their_own_colours_and_escape_what_stands_in_them(cli, terminal):
    terminal()
    out = cli("steps", "red \u202eabc sun").out
    assert r"\u202eabc" in out
    assert "\u202e" not in out
    assert "\x1b[" in out  # the command's own


def test_samples_and_messages_of_a_training_are_escaped():
    screen = io.StringIO()
    bar = ProgressBar(Console(file=screen, force_terminal=True, color_system=None, width=80))
    bar.say(HOSTILE)
    bar.on_evaluation(Status(1, 0.5, 1.0, 1.0, 1.0), {}, False, HOSTILE)
    assert screen.getvalue().count(r"\x1b[31mred") == 2
    assert "\x1b" not in screen.getvalue()
    bar.say("a hint that can be copied: " + "x" * 80)
    assert "x" * 80 in screen.getvalue()  # not broken over lines


@pytest.mark.parametrize("terminal_is", ["stdout", "stderr"])
def test_what_is_shown_on_stderr_depends_on_stderr_alone(capsys, monkeypatch, terminal_is):
    """Bars and codes that move the cursor are for a terminal; a file or a pipe gets lines."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(getattr(sys, name), "isatty", lambda name=name: name == terminal_is)
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = terminal_is == "stderr"
    assert isinstance(new_listener(), ProgressBar) is shown
    assert ProgressDisplay()._bar.disable is not shown
    with _progress_bars() as add_bar:
        add_bar("reading")(3, 7)
    assert (capsys.readouterr().err != "") is shown
    assert _wait_for_enter("more?")
    assert capsys.readouterr().err == "more? " + "\x1b[1A\x1b[2K" * shown
