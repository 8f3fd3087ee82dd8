"""Watch models of the `transformers` library through its attention interface.

Each of its attention layers asks `ALL_ATTENTION_FUNCTIONS.get_interface` for the function that does
the work. While someone listens, the answer is that same function with an ear on it. The model's
own choice (`config._attn_implementation`) stays as it is, on purpose: models take other branches
and build other masks for other names, so a name of ours could change what they compute.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.errors import MaskError, RecordingError
from glasshead.observe.recorder import Recorder

__all__ = ["described", "listening"]


class _Listener:
    def __init__(self, layers: Mapping[nn.Module, int], recorder: Recorder) -> None:
        self.layers, self.recorder = layers, recorder
        self.masks: list[tuple[Tensor, tuple[Mask, Tensor | None]]] = []

    def hear(
        self,
        name: str,
        module: nn.Module,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Any,
        out: Tensor,
        options: dict[str, Any],
    ) -> None:
        index = self.layers[module]
        _refuse(index, name, mask, options)
        if torch.is_autocast_enabled(q.device.type):
            # Both kernels get their inputs in autocast's dtype.
            dtype = torch.get_autocast_dtype(q.device.type)
            q, k, v = (x.to(dtype) for x in (q, k, v))
        B, H, T, _ = q.shape
        fused = name == "sdpa"
        if mask is None:
            causal = options.get("is_causal")
            causal = getattr(module, "is_causal", True) if causal is None else causal
            rules, bias = Mask(causal=fused and bool(causal) and T > 1), None
            if rules.causal:  # the fused kernel lines queries up with the first keys
                k, v = k[:, :, :T], v[:, :, :T]
        else:
            rules, bias = self._described(mask)
        extra = options.get("position_bias")
        if extra is not None:
            extra = extra[..., : k.shape[2]]
            bias = extra if bias is None else bias + extra
        scoring = Scoring(options.get("scaling"), options.get("softcap"), bias=bias)
        try:
            rules.check(B, H, T, k.shape[2])
        except MaskError as error:
            raise RecordingError(
                f"layer {index} cannot be recorded: {error}",
                hint="choose other layers with layers=[...]",
            ) from None
        self.recorder.take(
            index, q, k, v, rules, scoring, out.transpose(1, 2), rounded_scores=not fused
        )

    def _described(self, mask: Tensor) -> tuple[Mask, Tensor | None]:
        for known, found in self.masks:  # the layers of a model share theirs
            if known is mask:
                return found
        found = described(mask)
        self.masks = [*self.masks[-3:], (mask, found)]
        return found


_listeners: list[_Listener] = []


@contextmanager
def listening(layers: Mapping[nn.Module, int], recorder: Recorder) -> Iterator[None]:
    """Tell the recorder of each call of these layers."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    interface: Any = ALL_ATTENTION_FUNCTIONS
    for module, index in layers.items():
        _refuse_kernel(index, getattr(getattr(module, "config", None), "_attn_implementation", ""))
    listener = _Listener(layers, recorder)
    _listeners.append(listener)
    if len(_listeners) == 1:
        # On the one object that all models ask, not on its class.
        interface.get_interface = partial(_with_an_ear, type(interface).get_interface, interface)
    try:
        yield
    finally:
        _listeners.remove(listener)
        if not _listeners:
            del interface.get_interface


def _with_an_ear(
    get: Callable[..., Any], interface: Any, name: str, default: Callable[..., Any]
) -> Callable[..., Any]:
    return partial(_attend, get(interface, name, default), name)


def _attend(
    real: Callable[..., Any],
    name: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    out = real(module, query, key, value, attention_mask, *args, **kwargs)
    _tell(name, module, query, key, value, attention_mask, out[0], args, kwargs)
    return out


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _tell(
    name: str,
    module: nn.Module,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Any,
    out: Tensor,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    for listener in _listeners:
        if module in listener.layers:
            if args:
                raise RecordingError(
                    f"layer {listener.layers[module]} gives its attention {len(args)} options "
                    "without names",
                    hint="choose other layers with layers=[...]",
                )
            listener.hear(name, module, q, k, v, mask, out, kwargs)


def _refuse_kernel(index: int, name: str | None) -> None:
    if name and name not in ("sdpa", "eager"):
        raise RecordingError(
            f"layer {index} cannot be recorded: it runs on '{name}'",
            hint='model.set_attn_implementation("sdpa")',
        )


def _refuse(index: int, name: str, mask: Any, options: dict[str, Any]) -> None:
    _refuse_kernel(index, name)
    if options.get("dropout"):
        raise RecordingError(
            f"layer {index} drops weights at random (dropout {options['dropout']})",
            hint="call model.eval() before observing it",
        )
    reasons = {
        "it has attention sinks: part of each row's weight goes to no key": options.get("s_aux")
        is not None,
        "its keys lie in a paged cache": options.get("cache") is not None,
        f"its mask is a {type(mask).__name__}": not (mask is None or isinstance(mask, Tensor)),
    }
    for reason, holds in reasons.items():
        if holds:
            raise RecordingError(
                f"layer {index} cannot be recorded: {reason}",
                hint="choose other layers with layers=[...]",
            )


def described(mask: Tensor) -> tuple[Mask, Tensor | None]:
    """A mask tensor as a rule, and what it adds to the scores besides.

    The rule is causal, window and padding where these say it all, so that nothing of size T x S
    need be kept; else the tensor itself.

    >>> rule, bias = described(torch.ones(1, 1, 5, 5).tril().bool())
    >>> rule.causal, rule.dense, bias
    (True, None, None)
    """
    bias = None
    if mask.dtype != torch.bool:
        # The library writes the least number, not -inf, where nothing may be seen.
        hidden = mask <= torch.finfo(mask.dtype).min / 2
        if bool((mask.masked_fill(hidden, 0) != 0).any()):
            bias = mask.masked_fill(hidden, 0)
        mask = ~hidden
    if mask.dim() != 4 or mask.shape[1] != 1:
        return Mask(dense=mask), bias
    keys = mask.any(2)[:, 0]  # (B, S)
    padding = None if bool(keys.all()) else keys
    causal, window = _reach(mask)
    for guess in (
        Mask(causal, None, padding),
        Mask(causal, window, padding),
        Mask(causal, window),
    ):
        if _says(guess, mask):
            return guess, bias
    return Mask(dense=mask), bias


def _bands(T: int, S: int) -> Iterator[slice]:
    step = max(1, 2**22 // max(1, S))
    return (slice(start, min(start + step, T)) for start in range(0, T, step))


def _reach(mask: Tensor) -> tuple[bool, int | None]:
    """Whether no row sees past its own position, and how far from it any row sees."""
    T, S = mask.shape[2:]
    ahead = behind = 0
    j = torch.arange(S, device=mask.device)
    for rows in _bands(T, S):
        i = torch.arange(rows.start, rows.stop, device=mask.device)[:, None] + (S - T)
        distance = torch.where(mask[:, :, rows], j - i, 0)
        ahead, behind = max(ahead, int(distance.max())), max(behind, -int(distance.min()))
    return ahead == 0, max(ahead, behind) + 1


def _says(rule: Mask, mask: Tensor) -> bool:
    T, S = mask.shape[2:]
    for rows in _bands(T, S):
        allowed = rule.allowed(T, S, rows, device=mask.device)
        part = mask[:, :, rows]
        if not bool((part if allowed is None else part == allowed).all()):
            return False
    return True
