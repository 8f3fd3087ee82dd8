"""The rows of a recording as they come, while a model writes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from glasshead.observe.trace import Trace

__all__ = ["Step", "stream_steps"]


@dataclass(frozen=True)
class Step:
    """What one forward of the model added to a trace: these rows of each map that grows."""

    trace: "Trace"
    rows: slice

    def row(self, layer: int | str, head: int, batch: int = 0) -> Tensor:
        """Return the weights of the newest token, (S,), over the keys known so far."""
        T, S = self.trace.shape(layer)[2:]
        keys = slice(0, S if self.trace.layer(layer).kind == "cross" else S - (T - self.rows.stop))
        return self.trace.tile(layer, head, self.rows.stop - 1, keys, batch)[0]


def stream_steps(trace: "Trace", write: Callable[[], object] | None) -> Iterator[Step]:
    """Yield the steps of a trace; with `write`, which makes a model write, as they come."""
    if write is None:
        yield from _steps(trace, 0)
        return
    news: SimpleQueue[BaseException | int | None] = SimpleQueue()

    def run() -> None:
        try:
            write()
            news.put(None)
        except BaseException as error:  # raised where the steps are read
            news.put(error)

    done = len(trace.step_ends)
    trace.on_step = lambda: news.put(0)
    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        while (one := news.get()) is not None:
            if isinstance(one, BaseException):
                raise one
            for step in _steps(trace, done):
                done += 1
                yield step
    finally:
        trace.on_step = None
        thread.join()


def _steps(trace: "Trace", start: int) -> Iterator[Step]:
    ends = [0, *trace.step_ends]
    for n in range(start, len(ends) - 1):
        yield Step(trace, slice(ends[n], ends[n + 1]))
