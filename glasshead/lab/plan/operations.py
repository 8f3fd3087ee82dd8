"""Count the operations that torch dispatches: their arithmetic, bytes moved, and bytes in use.

>>> with OperationCounter() as counter:
...     y = torch.ones(3, 5) @ torch.ones(5, 7)
>>> list(summarize(counter.kernels))[-1]  # 3 x 7 x 5 products and as many sums
Operation(kind='matmul', flops=210.0, bytes=284, rows=0.0)
"""

import weakref
from collections import Counter
from collections.abc import Collection
from itertools import count, groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

__all__ = ["Kernel", "Operation", "OperationCounter", "fuse", "summarize"]

aten = torch.ops.aten
# Fused attention: products of queries and keys that it computes, and the place of the queries.
ATTENTION = {
    aten._scaled_dot_product_flash_attention: (2, 0),
    aten._scaled_dot_product_flash_attention_for_cpu: (2, 0),
    aten._scaled_dot_product_flash_attention_backward: (5, 1),
    aten._scaled_dot_product_flash_attention_for_cpu_backward: (5, 1),
}
GATHERS = (aten.embedding, aten.gather, aten.index)  # read no more than they return
ALLOCATIONS = (aten.empty, aten.empty_like, aten.new_empty)  # neither read nor write


class Operation(NamedTuple):
    """All that the time of one kernel depends on."""

    kind: str  # "matmul", "attention" or "pointwise"
    flops: float
    bytes: int  # read and written
    rows: float = 0.0  # of attention: arithmetic for each key that all queries see


class Kernel(NamedTuple):
    """One recorded call that computes something."""

    kind: str
    flops: float
    rows: float
    reads: dict[int, int]  # bytes by number of the storage
    writes: dict[int, int]

    def times(self, n: int) -> "Kernel":
        reads, writes = ({key: n * size for key, size in x.items()} for x in self[3:])
        return Kernel(self.kind, n * self.flops, n * self.rows, reads, writes)


class OperationCounter(TorchDispatchMode):
    """Record what torch does inside the `with`, on real tensors or on the meta device."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []
        self.calls = 0  # of torch operations, views included
        self.allocated: dict[int, int] = {}  # bytes of each storage made inside and not yet freed
        self.in_use = self.peak = 0  # their sum, and its maximum
        self.gradients = self.peak_without_gradients = 0
        self._numbers: dict[int, int] = {}  # of storages by address, which torch uses again
        self._next = count()
        self._last: Any = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, func._overloadpacket
        if name is aten._local_scalar_dense and args[0].is_meta:
            # Python asks for a number: answer as in a step whose numbers are all finite.
            return self._last is not aten.isnan
        self.calls, self._last = self.calls + 1, name
        inputs = _tensors((args, kwargs))
        known = {self.number(x) for x in inputs}
        out = func(*args, **kwargs)
        outputs = _tensors(out)
        writes = {self.number(x, new=True): _nbytes(x) for x in outputs}
        is_view = writes.keys() <= known and not func._schema.is_mutable
        if is_view or name in ALLOCATIONS:
            return out
        reads = {self.number(x): _nbytes(x) for x in inputs}
        if name in GATHERS:
            reads = {n: min(size, _nbytes(outputs[0])) for n, size in reads.items()}
        self.kernels.append(Kernel(*_work(name, args, kwargs, out), reads, writes))
        self.peak = max(self.peak, self.in_use)
        without = self.in_use - self.gradients
        self.peak_without_gradients = max(self.peak_without_gradients, without)
        return out

    def number(self, x: Tensor, new: bool = False) -> int:
        """Return the number of x's storage; `new` ones count as in use until torch frees them."""
        storage = x.untyped_storage()
        address = storage._cdata
        if address not in self._numbers:
            number = self._numbers[address] = next(self._next)
            weakref.finalize(storage, self._free, address, number)
            if new:
                self.allocated[number] = storage.nbytes()
                self.in_use += storage.nbytes()
        return self._numbers[address]

    def _free(self, address: int, number: int) -> None:
        self._numbers.pop(address, None)
        self.in_use -= self.allocated.pop(number, 0)


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def _nbytes(x: Tensor) -> int:
    return min(x.numel() * x.itemsize, x.untyped_storage().nbytes())  # less if it is expanded


def _work(name: Any, args: Any, kwargs: Any, out: Any) -> tuple[str, float, float]:
    """Return kind, flops and rows of an operation."""
    if name in ATTENTION:
        products, place = ATTENTION[name]
        rows = 2.0 * products * args[place].numel()
        return "attention", rows * args[place + 1].shape[2], rows
    if name in flop_registry:
        return "matmul", float(flop_registry[name](*args, **kwargs, out_val=out)), 0.0
    return "pointwise", 0.0, 0.0


def summarize(kernels: list[Kernel], share: float = 1.0) -> Counter[Operation]:
    """Count equal operations; fused attention computes only a `share` of all pairs."""
    return Counter(
        Operation(
            kernel.kind,
            kernel.flops * (share if kernel.kind == "attention" else 1.0),
            sum(kernel.reads.values()) + sum(kernel.writes.values()),
            kernel.rows,
        )
        for kernel in kernels
    )


def fuse(kernels: list[Kernel], kept: Collection[int]) -> list[Kernel]:
    """Merge neighbouring pointwise kernels into one, as a compiler does.

    A merged kernel writes only what a later kernel reads or what is `kept` after the last one.
    """
    last_read = {n: place for place, kernel in enumerate(kernels) for n in kernel.reads}
    fused, end = list[Kernel](), 0
    for kind, run in groupby(kernels, lambda kernel: kernel.kind):
        group = list(run)
        end += len(group)
        if kind != "pointwise":
            fused += group
            continue
        reads, writes = dict[int, int](), dict[int, int]()
        for kernel in group:
            reads |= {n: size for n, size in kernel.reads.items() if n not in writes}
            writes |= kernel.writes
        writes = {n: size for n, size in writes.items() if n in kept or last_read.get(n, -1) >= end}
        fused.append(Kernel("pointwise", 0.0, 0.0, reads, writes))
    return fused
