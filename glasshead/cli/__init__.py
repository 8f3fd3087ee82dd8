"""The command line: parse, call, print.

Each command is a function in a module of its own. `--help` imports all of these modules, so they
import NumPy, torch and other slow packages inside the function.
"""

import errno
import inspect
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from glasshead import __version__
from glasshead.cli import (
    ask,
    atlas,
    check,
    claims,
    demo,
    doctor,
    exercise,
    export,
    generate,
    heads,
    import_,
    ladder,
    lesson,
    look,
    plan,
    prune,
    score,
    serve,
    steps,
    train,
    translate,
    why,
    world,
)
from glasshead.cli.flags import GroupedCommand
from glasshead.cli.help import LocalizedHelp
from glasshead.cli.screen import protect_stdout
from glasshead.cli.terminal import report, say
from glasshead.errors import GlassheadError, InputError, did_you_mean
from glasshead.machine import wait_passively
from glasshead.messages import VARIABLE

__all__ = ["COMMANDS", "app", "main", "run"]

# In the order of `--help`: to learn, to train and use, to look into models, to import and export.
COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "ask": ask.ask,
    "steps": steps.steps,
    "lesson": lesson.lesson,
    "exercise": exercise.exercise,
    "check": check.check,
    "ladder": ladder.ladder,
    "claims": claims.claims,
    "world": world.world,
    "train": train.train,
    "generate": generate.generate,
    "translate": translate.translate,
    "score": score.score,
    "look": look.look,
    "heads": heads.heads,
    "why": why.why,
    "prune": prune.prune,
    "atlas": atlas.atlas,
    "serve": serve.serve,
    "import": import_.import_,
    "export": export.export,
    "plan": plan.plan,
    "doctor": doctor.doctor,
}
CRASHED = 70  # EX_SOFTWARE
_FIRST = {"train", "look", "import"}  # `--help` prints an empty line before these

# typer ships its own copy of click, older versions use click itself; this is the class of either.
UsageError: Any = typer.BadParameter.__mro__[1]


class Commands(LocalizedHelp, TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands:
            known = [*self.commands, "--help", "--version"]
            raise InputError(f"there is no command '{args[0]}'", hint=did_you_mean(args[0], known))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # typer would end without a word
            raise typer.Abort from None

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        with formatter.section("Commands"):
            for word, command in self.commands.items():
                if word in _FIRST:
                    formatter.write_paragraph()
                line = command.get_short_help_str(limit=1000)  # write_dl breaks it where needed
                formatter.write_dl([(word.ljust(width), line)])


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"glasshead {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _glasshead(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print it.")
    ] = False,
) -> None:
    """Build a Transformer from its attention up, train it, and see what every head attends to.

    New here? `demo` trains three small models in a minute or two and shows what they look at; after
    each command, --help says what it does and gives examples.

    \b
    Examples:
      glasshead demo
      glasshead steps "Hello shiny sun!" --query shiny
      glasshead train my.txt
      glasshead look --help
    """
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


for _word, _function in COMMANDS.items():
    app.command(_word, cls=GroupedCommand)(_function)


def main() -> None:
    wait_passively()
    if callable(signal.getsignal(signal.SIGINT)):  # commands clean up, unlike the start
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Commands say it themselves, in the user's language.
    warnings.filterwarnings("ignore", message=".* also ran attention that cannot be recorded")
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code; print a user's mistake instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        # Print the code of a character that the terminal cannot show.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    try:
        _check_language()
        command: Any = typer.main.get_command(app)
        with protect_stdout():
            code = command.main(args=list(args), prog_name="glasshead", standalone_mode=False)
            sys.stdout.flush()
        return code or 0
    except GlassheadError as error:
        report(str(error), error.hint)
        return 2
    except UsageError as error:
        report(*_explain_usage(error, args))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        say("stopped by Ctrl-C")
        return 130
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python complains when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            return _report_crash(error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        report("cannot write the output: no space left on device", "free some space")
        return 2
    except Exception as error:
        if _is_out_of_memory(error):
            report("memory ran out", "close other programs, or ask for less")
            return 2
        return _report_crash(error)


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether Python, NumPy or torch could not allocate; torch says so by words alone."""
    words = "not enough memory", "can't allocate memory", "CUDA out of memory"
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _report_crash(error: Exception) -> int:
    """Write the traceback of a fault of this program to the cache; print one line about it."""
    import traceback

    text = "".join(traceback.format_exception(error))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = cache / "glasshead" / f"crash-{os.getpid()}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"glasshead {__version__}: {sys.argv}\n{text}", encoding="utf-8")
    except OSError:
        sys.stderr.write(text)  # the only place left
        return CRASHED
    report(
        f"glasshead failed ({type(error).__name__}); the details are in {path}",
        "this is a fault of glasshead: report it with that file",
    )
    return CRASHED


def _check_language() -> None:
    value = os.environ.get(VARIABLE, "")
    if value and not value.lower().startswith(("en", "zh")):
        raise InputError(f"{VARIABLE} ({value}) must be en or zh", hint=f"unset {VARIABLE}")


# What typer says about a wrong value, in the words of pydantic or click, and what we say.
_MISTAKES = {
    r"should be a valid integer,|is not a valid int": "is not a whole number",
    r"should be a valid number,|is not a valid float": "is not a number",
    r"should be greater than or equal to (.*)": r"must be at least \1",
    r"is not in the range x>=(.*)": r"must be at least \1",
}


def _explain_usage(error: Any, args: Sequence[str]) -> tuple[str, str]:
    """Return the message and the hint for a command line that cannot be parsed."""
    word = args[0] if args and args[0] in COMMANDS else ""
    path = f"glasshead {word}".strip()
    if hasattr(error, "possibilities"):  # an option that does not exist
        option, params = error.option_name, error.ctx.command.params
        known = [name for p in params for name in (*p.opts, *p.secondary_opts) if name[0] == "-"]
        hint = did_you_mean(option, [*known, "--help"])
        if not hint.startswith("did"):
            hint = hint if len(known) <= 12 else f"'{path} --help' lists the options"
            hint += "; put text that begins with '-' after '--'"
        return f"{path} has no option '{option}'", hint
    message = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    hint = f"see '{path} --help'"
    if message.startswith("Missing") and (example := _first_example(word)):
        hint = f"try: {example}; or {hint}"
    elif message.startswith("Got unexpected"):
        hint = f"put a text of several words in quotes; or {hint}"
    for theirs, ours in _MISTAKES.items():
        if found := re.search(theirs, message):
            return f"{_parameter_with_value(error.param, args)} {found.expand(ours)}", hint
    return message[:1].lower() + message[1:], hint


def _parameter_with_value(param: Any, args: Sequence[str]) -> str:
    for word, following in zip(args, [*args[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in param.opts:
            return f"{name} {value if equals else following!r}"
    words = [word for word in args[1:] if word[:1] != "-"]
    return f"{param.metavar} {words[0]!r}" if words else f"{param.metavar}"


def _first_example(word: str) -> str:
    lines = (inspect.getdoc(COMMANDS[word]) or "").splitlines()
    return next((line.strip() for line in lines if line.startswith("  ")), "")
