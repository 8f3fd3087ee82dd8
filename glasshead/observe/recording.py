"""Record the attention of any model while it runs, without changing a bit of what it computes.

    with observing(model) as seen:
        model(ids)
    seen.tile(layer=3, head=0, rows=slice(0, 64), cols=slice(0, 64))

The model runs on its own kernels. What they were given is caught: queries and keys after rotary
and norms, the mask, the scale, cap and biases of the scores. From these every weight follows
exactly (`attention/hooks.py` for our models, `observe/transformers_hooks.py` for those of the
`transformers` library).

Each call is checked on the spot: for a few rows exp(scores - lse) @ v must be the context that
came out. What does not pass is refused; nothing is shown that may be wrong.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from glasshead.attention.hooks import AttentionCall, AttentionHook, Layer
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.errors import ConfigError, RecordingError, did_you_mean
from glasshead.observe.atlas import Trace
from glasshead.observe.hooks import attached
from glasshead.observe.layers import choose, find
from glasshead.observe.record import Room
from glasshead.observe.recorder import Recorder
from glasshead.observe.transformers_hooks import check_kernel

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
) -> Iterator[Trace]:
    """Record what the model's attention does inside the `with`.

    Args:
        model: one of ours, one of `transformers`, or a module that holds such.
        layers: which layers of attention, by index or by module name; all when None.
        keep: "tensors" keeps q, k and lse: exact tiles, and statistics when asked for.
            "statistics" measures each layer as it runs (on a GPU, those of a short text together)
            and keeps no more than that. "both".
        ids: (B, T) token ids, for the statistics that compare tokens.
        tokens, source_tokens: what to write beside the map (`Trace.tokens`).
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
    seen = Trace(
        [layer for layer, _ in found if layer.index in wanted],
        model=type(getattr(model, "_orig_mod", model)).__name__,
        ids=ids,
        tokens=tokens,
        source_tokens=source_tokens,
        top_k=top_k,
    )
    recorder = Recorder(seen, keep, Room(in_memory, folder))
    hooks: dict[nn.Module, AttentionHook] = {}
    for layer, module in found:
        if layer.index in wanted:
            hooks[module] = _RecordHook(layer, module, recorder)
    with attached(hooks):
        yield seen
    recorder.together.measure()
    if recorder.calls == 0:
        raise RecordingError(
            f"no layer of {seen.model} reported any attention",
            hint="call the model inside `with observing(model)`; if it was called, its attention "
            "takes a way around the one that can be watched",
        )


class _RecordHook(AttentionHook):
    """Gives each call of one layer to the recorder."""

    def __init__(self, layer: Layer, module: nn.Module, recorder: Recorder) -> None:
        self.layer, self.module, self.recorder = layer, module, recorder
        config = getattr(module, "config", None)
        if not isinstance(module, MultiHeadAttention):
            kernel = getattr(config, "_attn_implementation", "")
            check_kernel(f"layer {layer.index} ({layer.name})", kernel)

    def after(self, call: AttentionCall, context: Tensor) -> Tensor:
        assert self.layer is not None
        dropout = self.module.dropout if isinstance(self.module, MultiHeadAttention) else 0
        if self.module.training and dropout:
            raise RecordingError(
                f"layer {self.layer.index} drops weights at random (dropout {dropout})",
                hint="call model.eval() before observing it",
            )
        self.recorder.take(self.layer.index, call)
        return context
