"""SIGINT and SIGTERM ask a run to save and end; a second one ends the process at once.

Not so under torchrun, which passes on what the terminal sent to all of them already.
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interrupt"]


class Interrupt:
    """Within `with Interrupt() as interrupt:`, `interrupt.signal` is the signal that came.

    `patient`: those that come after it change nothing.
    """

    def __init__(self, patient: bool = False) -> None:
        self.signal: signal.Signals | None = None
        self._patient = patient
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():  # others get no signals
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        if not self._patient:
            for known in self._before:
                signal.signal(known, signal.SIG_DFL)
