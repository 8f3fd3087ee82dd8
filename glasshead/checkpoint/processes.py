"""The processes that train one model together: which one this is, and how they agree.

`torchrun` starts them and tells each by its environment who it is. The first one reads, writes and
speaks; the others do what it does.
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

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

__all__ = ["ALONE", "Processes", "join_processes"]

PATIENCE = timedelta(days=7)  # the first one may tokenise, or evaluate, for hours


@dataclass(frozen=True, eq=False)
class Processes:
    """By itself, a process is the first and the only one: then nothing is sent, nobody waited for.

    >>> ALONE.broadcast("all is well"), ALONE.all_true(True)
    ('all is well', True)
    """

    rank: int = 0
    size: int = 1
    local: int = 0  # among those on this machine: the number of its GPU
    here: int = 1  # how many those are
    talk: Any = None  # a group over sockets, beside the one that the devices use
    saving: Any = None  # another, because a checkpoint is written while the training goes on

    @property
    def first(self) -> bool:
        return self.rank == 0

    def check_device(self, name: str) -> None:
        """That there is one for each process."""
        gpus = torch.cuda.device_count()
        if self.size > 1 and ":" in name:
            raise ConfigError(
                f"device ({name}) is one, but there are {self.size} processes",
                hint="--device cuda; CUDA_VISIBLE_DEVICES says which",
            )
        if self.size > 1 and name == "cuda" and self.here > gpus:
            raise ConfigError(
                f"{self.here} processes on a machine with {gpus} GPUs",
                hint=f"torchrun --nproc-per-node {gpus}, or --device cpu",
            )

    def broadcast(self, word: Any = None) -> Any:
        """What the first one says, for all of them, as soon as it says it."""
        if self.size == 1:
            return word
        words = [word]
        dist.broadcast_object_list(words, src=0, group=self.talk, device=torch.device("cpu"))
        return words[0]

    def all_true(self, true: bool) -> bool:
        """Whether it is true for every one."""
        return self.max(float(not true)) == [0.0]

    def max(self, *numbers: float) -> list[float]:
        """Of each number the largest that any has."""
        if self.size == 1:
            return list(numbers)
        found = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.talk)
        return list(found.tolist())

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all; x becomes it. On a GPU nobody waits for it."""
        if self.size > 1:
            dist.all_reduce(x)
        return x


ALONE = Processes()


@contextmanager
def join_processes() -> Iterator[Processes]:
    """This process among those that `torchrun` started; by itself, where it did not."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    from torch.distributed.distributed_c10d import PrefixStore  # not every torch has it
    from torch.distributed.rendezvous import rendezvous

    local, here = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    backend = "gloo"
    if here <= torch.cuda.device_count():
        torch.cuda.set_device(local)
        backend = "cpu:gloo,cuda:nccl"
    try:
        store, rank, _ = next(rendezvous("env://"))
        store = PrefixStore(_name_of_start(store, rank, size), store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
        talk, saving = (dist.new_group(backend="gloo", timeout=PATIENCE) for _ in range(2))
        yield Processes(rank, size, local, here, talk, saving)
    except RuntimeError as error:
        if not _is_loss(error):
            raise
        if os.environ["RANK"] == "0":
            print("another process ended, so this one ends too", file=sys.stderr)
        time.sleep(5)  # torchrun ends it sooner, and names the one that failed, not this one
        sys.exit(1)
    finally:  # its threads would end the process with SIGABRT
        if dist.is_initialized():
            dist.destroy_process_group()


def _name_of_start(store: "Store", rank: int, size: int) -> str:
    """The same for all processes, and another each time that torchrun starts them.

    It keeps the store in which they find each other, with all that those which are no more wrote
    there: addresses where nobody listens. So each greets the first one, until that has heard it.
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


def _is_loss(error: RuntimeError) -> bool:
    """Whether it says that another process is gone. Gloo has no class of its own for it."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)
