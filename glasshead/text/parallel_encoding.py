"""Encode parts of a text in order, in this process or in several.

The cuts between parts depend on the text alone, so the number of processes changes nothing.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import numpy as np

from glasshead.errors import ConfigError
from glasshead.text.base_tokenizer import Ids
from glasshead.text.tokenizer import Tokenizer, tokenizer_from_json

__all__ = ["EncodedUnit", "Part", "Unit", "encode_units"]

FEW = 8 << 20  # characters: encoding so many is faster than starting processes


@dataclass(frozen=True)
class Part:
    """A part of a document."""

    text: str
    ends: bool = False  # the document ends after it
    drops: bool = False  # the document turned out to be unreadable and is dropped


@dataclass(frozen=True)
class Unit:
    """Parts that are encoded together."""

    parts: list[Part]
    position: int  # bytes of the files up to their end


@dataclass(frozen=True, eq=False)
class EncodedUnit:
    ids: Ids  # of all parts
    counts: list[int]  # ids of each part


def encode_units(
    units: Iterable[Unit], tokenizer: Tokenizer, separator: int | None, workers: int
) -> Generator[tuple[Unit, EncodedUnit]]:
    """Yield each unit with its ids; `separator` is added after every document."""
    waiting_units, done = iter(units), 0
    for unit in waiting_units:
        yield unit, _encode(unit, tokenizer, separator)
        done += sum(len(part.text) for part in unit.parts)
        # Looking up characters or bytes is faster than sending the text to another process.
        if workers > 1 and tokenizer.kind == "bpe" and done >= FEW:
            yield from _in_pool(waiting_units, tokenizer, separator, workers)


def _encode(unit: Unit, tokenizer: Tokenizer, separator: int | None) -> EncodedUnit:
    arrays, counts = [], []
    for part in unit.parts:
        ids = tokenizer.encode_ids(part.text)
        if part.ends and separator is not None:
            ids = np.append(ids, np.int32(separator))
        arrays.append(ids)
        counts.append(len(ids))
    return EncodedUnit(np.concatenate(arrays), counts)


def _in_pool(
    units: Iterator[Unit], tokenizer: Tokenizer, separator: int | None, workers: int
) -> Iterator[tuple[Unit, EncodedUnit]]:
    # Spawned, not forked: a copy of a process with running threads can deadlock.
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(tokenizer.to_json(), separator),
    )
    waiting: deque[tuple[Unit, Future[EncodedUnit]]] = deque()
    try:
        for unit in units:
            waiting.append((unit, pool.submit(_work, unit)))
            if len(waiting) > 2 * workers:  # enough to keep all busy; more would only fill memory
                ready, future = waiting.popleft()
                yield ready, future.result()
        while waiting:
            ready, future = waiting.popleft()
            yield ready, future.result()
    except BrokenProcessPool:
        raise ConfigError(
            "a tokenising process ended unexpectedly",
            hint="in a script, put the call under `if __name__ == '__main__':`; or pass workers=1",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_state: dict[str, tuple[Tokenizer, int | None]] = {}


def _start_worker(tokenizer: str, separator: int | None) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it and ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _state["worker"] = tokenizer_from_json(tokenizer), separator


def _end_with_parent() -> None:
    """Exit when the parent does: a killed parent cannot end its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(unit: Unit) -> EncodedUnit:
    return _encode(unit, *_state["worker"])
