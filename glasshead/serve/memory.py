"""Give freed memory back to the operating system, some seconds after it was used."""

import asyncio
import ctypes
import sys
from collections.abc import Callable

__all__ = ["give_back_memory", "keep_giving_back"]

SECONDS = 5.0  # between two times


def give_back_memory() -> None:
    """Return the pages that are free inside the heap; other systems than Linux do so by themselves.

    glibc keeps them, in an arena for each thread: a server would hold the most that each thread
    ever needed.
    """
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


async def keep_giving_back(work: Callable[[], object]) -> None:
    """Call `give_back_memory` now and then, whenever `work` has changed since the last time."""
    before = work()
    while True:
        await asyncio.sleep(SECONDS)
        if (now := work()) != before:
            before = now
            await asyncio.to_thread(give_back_memory)
