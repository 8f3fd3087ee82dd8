"""A cache of cells that a server uses from several threads."""

from collections import OrderedDict
from threading import Lock

from glasshead.observe.pooling import Cells

__all__ = ["CellCache"]


class CellCache:
    """The latest cells, at most `size` parts of them. A server uses it from several threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._values: OrderedDict[tuple[int, ...], Cells] = OrderedDict()
        self._lock = Lock()

    def get(self, key: tuple[int, ...]) -> Cells | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: tuple[int, ...], value: Cells) -> None:
        with self._lock:
            self._values[key] = value
            while len(self._values) > self.size:
                self._values.popitem(last=False)

    @property
    def bytes(self) -> int:
        with self._lock:
            return sum(each.mean.nbytes + each.max.nbytes for each in self._values.values())
