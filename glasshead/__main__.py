"""Start the command line. From here on Ctrl-C is one line: also while the commands are imported."""

import os
import signal
from types import FrameType
from typing import NoReturn

__all__ = ["main"]


def main() -> None:
    # Where the user or nohup ignores Ctrl-C, it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    from glasshead.cli import main as run_commands

    run_commands()


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """End at once: an exception in the middle of an import may be lost or show as another."""
    line = "stopped by Ctrl-C"
    try:
        from glasshead.messages import translate

        line = translate(line)
    except Exception:  # it is being imported
        pass
    os.write(2, f"{line}\n".encode(errors="replace"))
    os._exit(130)


if __name__ == "__main__":
    main()
