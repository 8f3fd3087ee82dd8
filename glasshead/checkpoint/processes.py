"""The processes that train one model together, as `torchrun` starts them.

The first one reads data, writes files and prints; the others follow it.
"""

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from glasshead.errors import ConfigError
from glasshead.messages import translate

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

__all__ = ["ALONE", "Processes", "join_processes"]

TIMEOUT = timedelta(days=7)  # the first process may tokenise or evaluate for hours


@dataclass(frozen=True, eq=False)
class Processes:
    """This process among all. A single process is the first, and communicates with none.

    >>> ALONE.broadcast("ready"), ALONE.all_true(True)
    ('ready', True)
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among those on this machine: the number of its GPU
    local_size: int = 1  # processes on this machine
    cpu_group: Any = None  # over sockets, besides the group that the devices use
    save_group: Any = None  # another, because checkpoints are written while the training continues

    @property
    def first(self) -> bool:
        return self.rank == 0

    def check_device(self, name: str) -> None:
        """Raise ConfigError unless there is a device for each process."""
        gpus = torch.cuda.device_count()
        if self.size > 1 and ":" in name:
            raise ConfigError(
                f"device ({name}) is a single one, but there are {self.size} processes",
                hint="use --device cuda, and choose GPUs with CUDA_VISIBLE_DEVICES",
            )
        if self.size > 1 and name == "cuda" and self.local_size > gpus:
            raise ConfigError(
                f"{self.local_size} processes need as many GPUs, but this machine has {gpus}",
                hint=f"use torchrun --nproc-per-node {gpus}, or --device cpu",
            )

    def broadcast(self, value: Any = None) -> Any:
        """Return the value of the first process in all of them; they wait for it."""
        if self.size == 1:
            return value
        values, cpu = [value], torch.device("cpu")
        dist.broadcast_object_list(values, src=0, group=self.cpu_group, device=cpu)
        return values[0]

    def all_true(self, true: bool) -> bool:
        """Return whether it is true in every process."""
        return self.max(float(not true)) == [0.0]

    def max(self, *numbers: float) -> list[float]:
        """Return, for each of the numbers, the largest of any process."""
        if self.size == 1:
            return list(numbers)
        found = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.cpu_group)
        return list(found.tolist())

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum over all processes, in place, without synchronizing with a GPU."""
        if self.size > 1:
            dist.all_reduce(x)
        return x


ALONE = Processes()


@contextmanager
def join_processes() -> Iterator[Processes]:
    """Connect the processes that `torchrun` started; without it, yield `ALONE`."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    from torch.distributed.distributed_c10d import PrefixStore  # not every torch has it
    from torch.distributed.rendezvous import rendezvous

    local_rank, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    backend = "gloo"
    if local_size <= torch.cuda.device_count():
        torch.cuda.set_device(local_rank)
        backend = "cpu:gloo,cuda:nccl"
    try:
        store, rank, _ = next(rendezvous("env://"))
        store = PrefixStore(_agree_on_prefix(store, rank, size), store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
        groups = (dist.new_group(backend="gloo", timeout=TIMEOUT) for _ in range(2))
        yield Processes(rank, size, local_rank, local_size, *groups)
    except RuntimeError as error:
        if not _lost_process(error):
            raise
        if os.environ["RANK"] == "0":
            print(translate("another process ended, so this one ends too"), file=sys.stderr)
        time.sleep(5)  # torchrun ends it sooner, and then names the one that failed first
        sys.exit(1)
    finally:  # its threads would end the process with SIGABRT
        if dist.is_initialized():
            dist.destroy_process_group()


def _agree_on_prefix(store: "Store", rank: int, size: int) -> str:
    """Return a string that is the same in all processes, and new each time torchrun starts them.

    The store still has entries of processes that ended, such as addresses where nothing listens.
    Every process therefore exchanges a random number with the first one, until both have seen it.
    """
    mine = secrets.token_hex(8)
    if rank:
        store.set(f"hello {rank}", mine)
        while not (said := store.get(f"welcome {rank}").decode()).startswith(mine):
            time.sleep(0.01)
        store.set(f"here {rank}", said)
        return said.removeprefix(mine)
    for other in range(1, size):
        here = f"here {other}"
        while True:
            said = store.get(f"hello {other}").decode() + mine
            store.set(f"welcome {other}", said)
            if store.check([here]) and store.get(here).decode() == said:
                break
            time.sleep(0.01)
    return mine


def _lost_process(error: RuntimeError) -> bool:
    """Return whether the error means that another process ended. Gloo has no class for it."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)
