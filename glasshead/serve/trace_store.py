"""Recorded traces, kept in memory by id while the page uses them."""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from glasshead.errors import NotFoundError
from glasshead.observe.trace import Trace
from glasshead.observe.trace_storage import LayerTrace
from glasshead.observe.view import ViewConfig
from glasshead.page.look_answers import LookView

__all__ = ["StoredTrace", "TraceStore", "tensor_bytes"]


@dataclass(eq=False)
class StoredTrace:
    """A trace in the store.

    Several threads may read it at once; statistics and Look views need `lock`.
    """

    id: str
    model: str
    key: Any  # text and options of the request
    trace: Trace
    size: int | None = None  # bytes in memory without caches; None for the bytes of its tensors
    whole: Callable[[], bool] = lambda: True  # False if its file may no longer be read
    lock: threading.RLock = field(default_factory=threading.RLock)
    _view: LookView | None = None

    def look_view(self, config: ViewConfig) -> LookView:
        """Return the view with these options; the last one is kept, with its cached maps."""
        if self._view is None or self._view.config != config:
            self._view = LookView(self.trace, config)
        return self._view

    @property
    def cached_bytes(self) -> int:
        return self.trace.cached_bytes + (self._view.cached_bytes if self._view else 0)


class TraceStore:
    """Traces by id; the least recently used are dropped first."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.max_count, self.max_bytes = max_count, max_bytes
        self._traces: OrderedDict[str, StoredTrace] = OrderedDict()
        self._sizes: dict[str, int] = {}  # at their last use
        self._lock = threading.Lock()

    def put(self, trace: Trace, model_id: str, key: Any, **settings: Any) -> str:
        """Store a trace and return its id: the same model and key always give the same id.

        `key` is any JSON value. `size` and `whole` are for a trace whose tensors are in a file.
        """
        name = trace_id(model_id, key)
        with self._lock:
            self._traces.pop(name, None)
            self._traces[name] = new = StoredTrace(name, model_id, key, trace, **settings)
            self._make_room(new)
        return name

    def entry(self, name: str) -> StoredTrace:
        with self._lock:
            stored = self._traces.get(name)
            if stored is None or not stored.whole():
                self._drop(name)
                raise NotFoundError(
                    f"there is no recorded text '{name[:80]}', or no longer",
                    hint="record the text again: POST /api/look",
                )
            self._traces.move_to_end(name)
            self._make_room(stored)
            return stored

    def _make_room(self, newest: StoredTrace) -> None:
        """Update the size of `newest`, whose caches may have grown, and drop old traces."""
        size = tensor_bytes(newest.trace) if newest.size is None else newest.size
        self._sizes[newest.id] = size + newest.cached_bytes
        while len(self._traces) > 1 and (
            len(self._traces) > self.max_count or self._bytes() > self.max_bytes
        ):
            self._drop(next(iter(self._traces)))

    def _drop(self, name: str) -> None:
        self._traces.pop(name, None)
        self._sizes.pop(name, None)

    def get(self, name: str) -> Trace:
        return self.entry(name).trace

    def has(self, model_id: str, key: Any) -> str | None:
        """Return the id of the trace with this model and key, or None."""
        with self._lock:
            name = trace_id(model_id, key)
            return name if name in self._traces else None

    def __len__(self) -> int:
        return len(self._traces)

    @property
    def bytes(self) -> int:
        with self._lock:
            return self._bytes()

    def _bytes(self) -> int:
        return sum(self._sizes.values())


def trace_id(model_id: str, key: Any) -> str:
    """
    >>> trace_id("poems", {"text": "春江"}) == trace_id("poems", {"text": "春江"})
    True
    """
    text = json.dumps([model_id, key], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def tensor_bytes(trace: Trace) -> int:
    """Return the bytes of all its tensors; shared storage counts once."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for record in trace.layer_traces.values()
        for tensor in _tensors(record)
    }
    return sum(storages.values())


def _tensors(record: LayerTrace) -> Iterator[Tensor]:
    of_masks = (v for span in record.calls for part in (span.mask, span.scoring)
                for v in vars(part).values())  # fmt: skip
    measured = record.statistics
    of_heads = () if measured is None else (getattr(measured, f.name) for f in fields(measured))
    for value in (record.q, record.k, record.lse, *of_masks, *of_heads):
        if isinstance(value, Tensor):
            yield value
