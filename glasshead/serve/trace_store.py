"""Recorded traces, kept in memory by id while the page uses them."""

import hashlib
import json
import sys
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
    in_file: bool = False  # whether the tensors that it has now stay in a file
    whole: Callable[[], bool] = lambda: True  # False if its file may no longer be read
    lock: threading.RLock = field(default_factory=threading.RLock)
    _view: LookView | None = None
    _measured: int = -1  # layers with statistics when `_size` was computed
    _size: int = 0

    def __post_init__(self) -> None:
        self._mapped = tensor_bytes(self.trace) if self.in_file else 0

    def look_view(self, config: ViewConfig) -> LookView:
        """Return the view with these options; the last one is kept, with its cached maps."""
        if self._view is None or self._view.config != config:
            self._view = LookView(self.trace, config)
        return self._view

    @property
    def bytes(self) -> int:
        """The memory that it takes now: tensors, statistics once measured, and caches."""
        measured = sum(one.statistics is not None for one in self.trace.layer_traces.values())
        if measured != self._measured:
            self._measured = measured
            self._size = tensor_bytes(self.trace) - self._mapped + _token_bytes(self.trace)
        view = self._view
        return self._size + self.trace.cached_bytes + (view.cached_bytes if view else 0)


class TraceStore:
    """Traces by id; the least recently used are dropped first."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.max_count, self.max_bytes = max_count, max_bytes
        self._traces: OrderedDict[str, StoredTrace] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, trace: Trace, model_id: str, key: Any, **settings: Any) -> StoredTrace:
        """Store a trace; the same model and key always give the same id.

        `key` is any JSON value. `in_file` and `whole` are for a trace whose tensors are in a file.
        """
        name = trace_id(model_id, key)
        new = StoredTrace(name, model_id, key, trace, **settings)
        with self._lock:
            self._traces.pop(name, None)
            self._traces[name] = new
        self.make_room()
        return new

    def find(self, model_id: str, key: Any) -> StoredTrace | None:
        """Return what is stored for this model and key."""
        return self._find(trace_id(model_id, key))

    def entry(self, name: str) -> StoredTrace:
        if (stored := self._find(name)) is None:
            raise NotFoundError(
                f"there is no recorded text '{name[:80]}', or no longer",
                hint="record the text again: POST /api/look",
            )
        return stored

    def _find(self, name: str) -> StoredTrace | None:
        with self._lock:
            stored = self._traces.get(name)
            if stored is None or not stored.whole():
                self._traces.pop(name, None)
                return None
            self._traces.move_to_end(name)
            return stored

    def make_room(self) -> None:
        """Drop the traces that were not used for the longest time, as long as there are too many.

        They grow while they are used, so this is called after each use.
        """
        with self._lock:
            while len(self._traces) > 1 and (
                len(self._traces) > self.max_count or self._bytes() > self.max_bytes
            ):
                self._traces.popitem(last=False)

    def get(self, name: str) -> Trace:
        return self.entry(name).trace

    def __len__(self) -> int:
        return len(self._traces)

    @property
    def bytes(self) -> int:
        with self._lock:
            return self._bytes()

    def _bytes(self) -> int:
        return sum(stored.bytes for stored in self._traces.values())


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


def _token_bytes(trace: Trace) -> int:
    texts = (trace.tokens, trace.source_tokens)
    return sum(sys.getsizeof(token) for text in texts for part in text or () for token in part)


def _tensors(record: LayerTrace) -> Iterator[Tensor]:
    of_masks = (v for call in record.calls for part in (call.mask, call.scoring)
                for v in vars(part).values())  # fmt: skip
    measured = record.statistics
    of_heads = () if measured is None else (getattr(measured, f.name) for f in fields(measured))
    flat = (call.flat for call in record.calls)
    for value in (record.q, record.k, record.lse, *of_masks, *of_heads, *flat):
        if isinstance(value, Tensor):
            yield value
