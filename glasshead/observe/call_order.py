"""Tell apart the calls of a layer while a model runs.

A text that grows       with a cache: new rows, and keys that go on from those before
A text read anew        without a cache: the whole text again, of which only the last rows are new
A layer used again      several times in one forward (images, shared layers): each use is a layer
Another text            is an error: it needs a recording of its own
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention.hooks import AttentionCall, AttentionHook, Layer
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.errors import RecordingError

__all__ = ["CallOrder", "PositionHook", "another_text", "last_rows", "nearly_same", "new_rows"]


class CallOrder:
    """Knows which use of a layer a call is, and where the queries of cross-attention are."""

    def __init__(self, n_layers: int) -> None:
        self.n_layers = n_layers
        self._inside = False
        self._uses: Counter[int] = Counter()
        self._positions: dict[str | None, tuple[int, int]] = {}  # T and position, by part
        self._rows: Counter[int] = Counter()  # that each layer of self-attention has read
        self._indices: dict[tuple[int, int], int] = {}  # of further uses

    @contextmanager
    def watch(self, model: nn.Module, ended: Callable[[], None]) -> Iterator[None]:
        """Notice each forward of the model inside the `with`; call `ended` after it."""

        @torch.compiler.disable  # type: ignore[untyped-decorator]
        def enter(*_: Any) -> None:
            self._inside = True
            self._uses.clear()

        @torch.compiler.disable  # type: ignore[untyped-decorator]
        def leave(*_: Any) -> None:
            self._inside = False
            ended()

        handles = [
            model.register_forward_pre_hook(enter),
            model.register_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def use(self, layer: Layer, T: int, S: int, known: int) -> Layer:
        """Return the layer, or a layer of its own for a further use in the same forward.

        A part of the model may run by itself, such as a vision tower before a text is written. A
        whole map (T = S) that cannot go on from the `known` rows is then a further use.
        """
        if not self._inside and (not known or T != S or T > known):
            return layer
        use = self._uses[layer.index] if self._inside else self._uses[layer.index] + 1
        self._uses[layer.index] += 1
        if not use:
            return layer
        index = self._indices.setdefault((layer.index, use), self.n_layers + len(self._indices))
        return replace(layer, index=index, name=f"{layer.name} (call {use + 1})")

    def note(self, layer: Layer, T: int, S: int) -> None:
        """Note a call of self-attention: its rows are those of the cross-attention beside it."""
        position = 0 if T == S else self._rows[layer.index]
        self._rows[layer.index] = position + T
        self._positions[layer.part] = T, position

    def position(self, layer: Layer, T: int) -> int | None:
        """Return the position of the first of T queries of cross-attention, if it is known."""
        found = self._positions.get(layer.part)
        return found[1] if found is not None and found[0] == T else None


class PositionHook(AttentionHook):
    """Notes where the rows of a layer are that is not recorded."""

    reads_only = True

    def __init__(self, layer: Layer, order: CallOrder) -> None:
        self.layer: Layer = layer
        self.order = order

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        if not call.cross:
            self.order.note(self.layer, call.q.shape[2], call.k.shape[2])
        return context


def new_rows(known: int, layer: Layer, call: AttentionCall, position: int | None) -> int:
    """Return how many of the call's rows are new to a layer with `known` rows."""
    T, S = call.q.shape[2], call.k.shape[2]
    if layer.kind == "self":
        if T != S or T <= known:
            return T
        if not call.mask.simplify(T, S).causal:
            raise another_text(layer, known, S)
        return T - known
    if position is None or position == known:
        return T
    if position or T <= known:
        raise another_text(layer, known, S)
    return T - known


def another_text(layer: Layer, known: int, S: int) -> RecordingError:
    return RecordingError(
        f"{layer} was called again, with keys that do not continue those of earlier calls ({known} "
        f"before, {S} now)",
        hint="another text needs another observing()",
    )


def nearly_same(a: Tensor, b: Tensor) -> Tensor:
    """Return whether two tensors are equal but for rounding: a bool tensor."""
    close = 1e-3 if a.dtype in (torch.float32, torch.float64) else 0.05
    return ((a - b).abs() <= close * b.abs().amax()).all()


def last_rows(call: AttentionCall, n: int) -> AttentionCall:
    """Return the last n rows of a call."""
    if n == call.q.shape[2]:
        return call

    def describe() -> tuple[Mask, Scoring]:
        mask, scoring = call.mask, call.scoring
        dense, bias = mask.dense, scoring.bias
        return (
            replace(mask, dense=None if dense is None else _last(dense, n)),
            replace(scoring, bias=None if bias is None else _last(bias, n)),
        )

    def flat() -> Tensor | None:
        rows = None if call.flat is None else call.flat()
        return rows if rows is None or rows.shape[-1] == 1 else rows[..., -n:]

    return replace(
        call, q=call.q[:, :, -n:], context=call.context[:, :, -n:], describe=describe, flat=flat,
        lse=None if call.lse is None else call.lse[:, :, -n:],
        weights=None if call.weights is None else call.weights[:, :, -n:],
    )  # fmt: skip


def _last(x: Tensor, n: int) -> Tensor:
    return x if x.dim() < 2 or x.shape[-2] == 1 else x[..., -n:, :]
