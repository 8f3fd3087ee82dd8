"""Record the attention of any model while it runs, without changing a bit of what it computes.

    with observing(model) as seen:
        model(ids)
    seen.tile(layer=3, head=0, rows=slice(0, 64), cols=slice(0, 64))

The model runs on its own kernels. What they were given is caught: queries and keys after rotary
and norms, the mask, the scale, cap and biases of the scores. From these every weight follows
exactly. Models of ours are watched by their attention's `watcher`, models of the `transformers`
library through its attention interface (`transformers_models.py`).

Each call is checked on the spot: for a few rows exp(scores - lse) @ v must be the context that
came out. What does not pass is refused; nothing is shown that may be wrong.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention.multihead import Look, MultiHeadAttention
from glasshead.errors import ConfigError, RecordingError, did_you_mean
from glasshead.observe.atlas import Atlas
from glasshead.observe.layers import choose, find
from glasshead.observe.record import Room
from glasshead.observe.recorder import Recorder

__all__ = ["observing"]

KEEPS = ("tensors", "statistics", "both")


@contextmanager
def observing(
    model: nn.Module,
    *,
    layers: Iterable[int | str] | None = None,
    keep: str = "tensors",
    ids: Tensor | None = None,
    tokens: Any = None,
    source_tokens: Any = None,
    top_k: int = 8,
    in_memory: int = 2**30,
    folder: Path | None = None,
) -> Iterator[Atlas]:
    """Record what the model's attention does inside the `with`.

    Args:
        model: one of ours, one of `transformers`, or a module that holds such.
        layers: which layers of attention, by index or by module name; all when None.
        keep: "tensors" keeps q, k and lse: exact tiles, and statistics when asked for.
            "statistics" measures each layer as it runs (on a GPU, those of a short text together)
            and keeps no more than that. "both".
        ids: (B, T) token ids, for the statistics that compare tokens.
        tokens, source_tokens: what to write beside the map (`Atlas.tokens`).
        top_k: how many keys of each row the statistics name.
        in_memory: bytes of tensors to keep in memory; what is more goes to files.
        folder: where those files lie; the system's place for temporary files when None.

    Calls that go on where the last one stopped (cached decoding) make one growing map. A second
    text needs a second `observing`.
    """
    if keep not in KEEPS:
        raise ConfigError(f"unknown keep '{keep}'", hint=did_you_mean(keep, KEEPS))
    found = find(model, partly=layers is not None)
    wanted = choose([layer for layer, _ in found], layers)
    seen = Atlas(
        [layer for layer, _ in found if layer.index in wanted],
        model=type(getattr(model, "_orig_mod", model)).__name__,
        ids=ids,
        tokens=tokens,
        source_tokens=source_tokens,
        top_k=top_k,
    )
    recorder = Recorder(seen, keep, Room(in_memory, folder))
    with ExitStack() as hooks:
        theirs: dict[nn.Module, int] = {}
        for layer, module in found:
            if layer.index not in wanted:
                continue
            if isinstance(module, MultiHeadAttention):
                hooks.enter_context(_watching(module, layer.index, recorder))
            else:
                theirs[module] = layer.index
        if theirs:
            from glasshead.observe.transformers_models import listening

            hooks.enter_context(listening(theirs, recorder))
        yield seen
    recorder.together.measure()
    if recorder.calls == 0:
        raise RecordingError(
            f"no layer of {seen.model} reported any attention",
            hint="call the model inside `with observing(model)`; if it was called, its attention "
            "takes a way around the one that can be watched",
        )


class _Watcher:
    """What an attention of ours calls. An object and not a function: torch.compile's guards see
    an object come and go, so no compiled code outlives the watching."""

    def __init__(self, module: MultiHeadAttention, index: int, recorder: Recorder) -> None:
        self.module, self.index, self.recorder = module, index, recorder
        self.before = module.watcher

    def __call__(self, look: Look) -> Tensor | None:
        self._take(look)
        return None if self.before is None else self.before(look)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _take(self, look: Look) -> None:
        if self.module.training and self.module.dropout:
            raise RecordingError(
                f"layer {self.index} drops weights at random (dropout {self.module.dropout})",
                hint="call model.eval() before observing it",
            )
        self.recorder.take(
            self.index, look.q, look.k, look.v, look.mask, look.scoring, look.context,
            lse=look.lse, cross=look.cross, rounded_scores=look.q.dtype.itemsize < 4,
        )  # fmt: skip


@contextmanager
def _watching(module: MultiHeadAttention, index: int, recorder: Recorder) -> Iterator[None]:
    before = module.watcher
    module.watcher = _Watcher(module, index, recorder)
    try:
        yield
    finally:
        module.watcher = before
