"""Parts of text become ids, in order: in this process while they are few, then in several.

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
from glasshead.text.table_tokenizer import Ids
from glasshead.text.tokenizer import Tokenizer, tokenizer_from_json

__all__ = ["EncodedUnit", "Part", "Unit", "encode_units"]

FEW = 8 << 20  # characters: starting processes takes longer than encoding so many


@dataclass(frozen=True)
class Part:
    """A stretch of a document; after it the document ends, or turns out not to be one."""

    text: str
    ends: bool = False
    drops: bool = False


@dataclass(frozen=True)
class Unit:
    """Parts that travel together, and how far into the files they reach."""

    parts: list[Part]
    position: int


@dataclass(frozen=True, eq=False)
class EncodedUnit:
    ids: Ids  # of all parts
    counts: list[int]  # ids of each part
    n_bytes: list[int]  # bytes of text of each part


def encode_units(
    units: Iterable[Unit], tokenizer: Tokenizer, separator: int | None, workers: int
) -> Generator[tuple[Unit, EncodedUnit]]:
    """Each unit with its ids; `separator` follows the end of every document."""
    waiting_units, done = iter(units), 0
    for unit in waiting_units:
        yield unit, _encode(unit, tokenizer, separator)
        done += sum(len(part.text) for part in unit.parts)
        # Characters and bytes are table look-ups, faster than sending text to another process.
        if workers > 1 and tokenizer.kind == "bpe" and done >= FEW:
            yield from _in_pool(waiting_units, tokenizer, separator, workers)


def _encode(unit: Unit, tokenizer: Tokenizer, separator: int | None) -> EncodedUnit:
    arrays, counts, n_bytes = [], [], []
    for part in unit.parts:
        ids = tokenizer.encode_ids(part.text)
        n_bytes.append(int(tokenizer.byte_lengths[ids].sum()))
        if part.ends and separator is not None:
            ids = np.append(ids, np.int32(separator))
        arrays.append(ids)
        counts.append(len(ids))
    return EncodedUnit(np.concatenate(arrays), counts, n_bytes)


def _in_pool(
    units: Iterator[Unit], tokenizer: Tokenizer, separator: int | None, workers: int
) -> Iterator[tuple[Unit, EncodedUnit]]:
    # Spawned, not forked: a copy of a process with running threads can stand still for ever.
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
            "a process that helped to tokenise ended unexpectedly",
            hint="in a script, start under `if __name__ == '__main__':`; or pass workers=1",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_state: dict[str, tuple[Tokenizer, int | None]] = {}


def _start_worker(tokenizer: str, separator: int | None) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it and ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _state["worker"] = tokenizer_from_json(tokenizer), separator


def _end_with_parent() -> None:
    """A parent that is killed cannot end its workers, and they would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(unit: Unit) -> EncodedUnit:
    return _encode(unit, *_state["worker"])
