"""What was recorded stays for a while, so that a page can look into it."""

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
    """A recorded text.

    Several threads may ask its atlas at once; `lock` is to be held for statistics and Look views.
    """

    id: str
    model: str
    key: Any  # what was asked: text and options
    atlas: Trace
    size: int | None = None  # bytes in memory, without what is looked at; None: of its tensors
    whole: Callable[[], bool] = lambda: True  # False if what it lies in may no longer be touched
    lock: threading.RLock = field(default_factory=threading.RLock)
    _view: LookView | None = None

    def look_view(self, config: ViewConfig) -> LookView:
        """The view with these options; the last one is kept, with the maps that it cached."""
        if self._view is None or self._view.config != config:
            self._view = LookView(self.atlas, config)
        return self._view

    @property
    def cached_bytes(self) -> int:
        return self.atlas.cached_bytes + (self._view.cached_bytes if self._view else 0)


class TraceStore:
    """Atlases by id; those not asked for the longest are forgotten first."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.max_count, self.max_bytes = max_count, max_bytes
        self._kept: OrderedDict[str, StoredTrace] = OrderedDict()
        self._sizes: dict[str, int] = {}  # as they were when last asked for
        self._lock = threading.Lock()

    def put(self, atlas: Trace, model_id: str, key: Any, **how: Any) -> str:
        """Keep it, and say under which id: the same model and key always give the same.

        `key` is anything that JSON can hold. `size` and `whole` are for one that lies in a file.
        """
        name = seen_id(model_id, key)
        with self._lock:
            self._kept.pop(name, None)
            self._kept[name] = new = StoredTrace(name, model_id, key, atlas, **how)
            self._make_room(new)
        return name

    def entry(self, name: str) -> StoredTrace:
        with self._lock:
            seen = self._kept.get(name)
            if seen is None or not seen.whole():
                self._forget(name)
                raise NotFoundError(
                    f"'{name[:80]}' was not recorded, or is forgotten",
                    hint="look at the text once more",
                )
            self._kept.move_to_end(name)
            self._make_room(seen)
            return seen

    def _make_room(self, newest: StoredTrace) -> None:
        """An atlas grows while it is looked at."""
        size = tensor_bytes(newest.atlas) if newest.size is None else newest.size
        self._sizes[newest.id] = size + newest.cached_bytes
        while len(self._kept) > 1 and (
            len(self._kept) > self.max_count or self._bytes() > self.max_bytes
        ):
            self._forget(next(iter(self._kept)))

    def _forget(self, name: str) -> None:
        self._kept.pop(name, None)
        self._sizes.pop(name, None)

    def get(self, name: str) -> Trace:
        return self.entry(name).atlas

    def has(self, model_id: str, key: Any) -> str | None:
        """The id under which the same was recorded already."""
        with self._lock:
            return name if (name := seen_id(model_id, key)) in self._kept else None

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        with self._lock:
            return self._bytes()

    def _bytes(self) -> int:
        return sum(self._sizes.values())


def seen_id(model_id: str, key: Any) -> str:
    """
    >>> seen_id("poems", {"text": "春江"}) == seen_id("poems", {"text": "春江"})
    True
    """
    asked = json.dumps([model_id, key], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()[:20]


def tensor_bytes(atlas: Trace) -> int:
    """The memory of all its tensors; what several share counts once."""
    memories = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for record in atlas.layer_traces.values()
        for tensor in _tensors(record)
    }
    return sum(memories.values())


def _tensors(record: LayerTrace) -> Iterator[Tensor]:
    of_masks = (v for span in record.calls for part in (span.mask, span.scoring)
                for v in vars(part).values())  # fmt: skip
    measured = record.statistics
    of_heads = () if measured is None else (getattr(measured, f.name) for f in fields(measured))
    for value in (record.q, record.k, record.lse, *of_masks, *of_heads):
        if isinstance(value, Tensor):
            yield value
