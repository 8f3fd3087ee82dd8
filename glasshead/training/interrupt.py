"""SIGINT, SIGTERM and SIGHUP ask a run to save and end; a second one ends the process at once.

SIGHUP comes when the terminal is closed.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["catch_signals"]

HANGUP = getattr(signal, "SIGHUP", None)  # Windows has none
SIGNALS = [signal.SIGINT, signal.SIGTERM, *([HANGUP] if HANGUP else [])]


@contextmanager
def catch_signals(*, repeatedly: bool = False) -> Iterator[list[signal.Signals]]:
    """Yield a list to which SIGINT, SIGTERM and SIGHUP are appended as they arrive.

    `repeatedly` also catches all but the first: torchrun passes on a signal that the terminal has
    sent to every process already.
    """
    received: list[signal.Signals] = []
    before: dict[signal.Signals, Any] = {}

    def catch(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))
        if not repeatedly:
            for known in before:
                signal.signal(known, signal.SIG_DFL)

    if threading.current_thread() is threading.main_thread():  # others get no signals
        for number in SIGNALS:
            # nohup ignores SIGHUP, so that a run outlives its terminal.
            if number != HANGUP or signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, catch)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
