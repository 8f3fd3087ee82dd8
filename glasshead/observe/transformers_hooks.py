"""Hooks on models of the `transformers` library, through its attention interface.

Each of its attention layers calls `ALL_ATTENTION_FUNCTIONS.get_interface` for the function to run.
While a hook is attached, that function is returned with the hooks around it. The model's own choice
(`config._attn_implementation`) stays as it is: models take other branches and build other masks for
other names, so registering a name of ours could change what they compute.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glasshead.attention.hook_calls import hidden_pairs
from glasshead.attention.hooks import AttentionCall, AttentionHook, PendingCall
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.errors import AblationError, MaskError, RecordingError
from glasshead.observe.kernel_lse import collect_lse, keep_lse
from glasshead.observe.kernel_masks import FLASH, count_filled, flash_rule, flex_mask

__all__ = ["attach_transformers_hooks", "check_kernel", "parse_mask"]

KERNELS = ("sdpa", "eager", *FLASH, "flex_attention")
HIDES = -1e4  # numbers in a mask that hide a pair: exp(-1e4) is 0 beside the other keys of a row
ABSORBS = -1e8  # scores of common size vanish when such a number is added to them in float32

_hooks: dict[nn.Module, tuple[AttentionHook, ...]] = {}
_interfaces: list[Any] = []  # whose functions run with hooks
_hiding = 0  # how many of them hide pairs
_masks: list[tuple[Tensor, "ParsedMask"]] = []  # the latest, and what they parse to
_answers: list[tuple[Any, str, Any]] = []  # what else was read from the latest


@contextmanager
def attach_transformers_hooks(hooks: Mapping[nn.Module, AttentionHook]) -> Iterator[None]:
    """Attach one hook to each of these attention layers inside the `with`."""
    global _hiding
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for interface in (ALL_ATTENTION_FUNCTIONS, *map(_own_interface, hooks)):
        # On the object that all models use, and those that a few have besides; not on the class.
        if interface is not None and "get_interface" not in vars(interface):
            get = partial(_get_with_hooks, type(interface).get_interface, interface)
            interface.get_interface = get
            _interfaces.append(interface)
    for module, hook in hooks.items():
        _hooks[module] = (*_hooks.get(module, ()), hook)
    hiding = sum(hook.hides for hook in hooks.values())
    _hiding += hiding
    try:
        with collect_lse():
            yield
    finally:
        _hiding -= hiding
        for module, hook in hooks.items():
            left = tuple(one for one in _hooks.pop(module) if one is not hook)
            if left:
                _hooks[module] = left
        if not _hooks:
            for interface in _interfaces:
                del interface.get_interface
            _interfaces.clear()
            _masks.clear()
            _answers.clear()


def _own_interface(module: nn.Module) -> Any:
    return getattr(sys.modules[type(module).__module__], "ALL_ATTENTION_FUNCTIONS", None)


def check_kernel(where: str, name: str | None) -> None:
    """Raise unless attention on this kernel can be recorded."""
    if name and name not in KERNELS:
        raise RecordingError(
            f"{where} cannot be recorded: it runs on '{name}'",
            hint='model.set_attn_implementation("sdpa")',
        )


def _get_with_hooks(
    get: Callable[..., Any], interface: Any, name: str, default: Callable[..., Any]
) -> Callable[..., Any]:
    return partial(_attend, get(interface, name, default), name)


class _KernelCall(NamedTuple):
    """A call of a function of the attention interface."""

    kernel: str
    module: nn.Module
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Any
    args: tuple[Any, ...]
    options: dict[str, Any]

    @property
    def is_causal(self) -> bool:
        """Whether the fused kernel, called without a mask, is causal.

        It then aligns queries with the first keys, not with the last ones.
        """
        return self.kernel == "sdpa" and self.wants_causal and self.q.shape[2] > 1

    @property
    def wants_causal(self) -> bool:
        causal = self.options.get("is_causal")
        return bool(getattr(self.module, "is_causal", True) if causal is None else causal)


def _attend(
    function: Callable[..., Any], kernel: str, module: nn.Module, query: Tensor, key: Tensor,
    value: Tensor, attention_mask: Any = None, *args: Any, **options: Any,
) -> Any:  # fmt: skip
    """Run a function of the attention interface, and the module's hooks around it."""
    call = _KernelCall(kernel, module, query, key, value, attention_mask, args, options)
    mask, emptied = _hide(call) if _hiding else (attention_mask, None)
    out, lse = keep_lse(function, module, query, key, value, mask, *args, **options)
    context = _run_hooks(call, mask, out, emptied, lse)
    return out if context is None else (context.transpose(1, 2), *out[1:])


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _hide(call: _KernelCall) -> tuple[Any, Tensor | None]:
    """Return the mask without the pairs that hooks hide, and the rows (B | 1, H | 1, T) that are
    left without keys."""
    hooks, mask = _hooks.get(call.module, ()), call.mask
    (_, H, T, _), S, device = call.q.shape, call.k.shape[2], call.q.device
    cross = any(_is_cross(hook) for hook in hooks)
    # Caches of transformers may drop keys or hold empty places: then an index is no position.
    known = T > 1 if cross else T == S
    hidden = hidden_pairs(hooks, PendingCall(H, T, S, cross, 0 if known else None, device))
    if hidden is None:
        return mask, None
    _check_hiding(_where(hooks), call)
    before = _to_bool(mask)
    if before is None:
        before = torch.ones(T, S, dtype=torch.bool, device=device)
        before = before.tril() if call.is_causal else before
    after = before & ~hidden
    if mask is None and call.kernel == "sdpa":
        mask = after[None]
    else:
        mask = call.q.new_zeros(1) if mask is None else mask
        least = 0 if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
        mask = mask.masked_fill(~after, least)
    return mask, ~after.any(-1)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _run_hooks(
    call: _KernelCall, mask: Any, out: Any, emptied: Tensor | None, lse: Tensor | None
) -> Tensor | None:
    """Run the module's hooks after a call; return the context if they replaced it."""
    hooks, (q, k, v) = _hooks.get(call.module, ()), call[2:5]
    if not hooks:
        return None
    autocast = torch.is_autocast_enabled(q.device.type)
    if autocast:
        # Both kernels receive their inputs in autocast's dtype.
        dtype = torch.get_autocast_dtype(q.device.type)
        q, k, v = (x.to(dtype) for x in (q, k, v))
    T, cross = q.shape[2], any(_is_cross(hook) for hook in hooks)
    sinks = call.options.get("s_aux")
    if len(q) == 1 < len(k):  # queries that are learned are the same for all
        q = q.expand(len(k), -1, -1, -1)
    causal = mask is None and call.is_causal
    if call.kernel == "flex_attention":
        mask = _read_once(mask, lambda: flex_mask(mask, T, k.shape[2], q.device))
    filled = T if causal else _count_filled(call.kernel, mask, T, k.shape[2], cross)
    if filled < k.shape[2]:
        k, v = k[:, :, :filled], v[:, :, :filled]
        mask = _read_once(mask, lambda: mask[..., :filled]) if isinstance(mask, Tensor) else mask
    given = context = out[0].transpose(1, 2)  # (B, H, T, D)

    def describe() -> tuple[Mask, Scoring]:
        _check_recordable(_where(hooks), call, mask)
        known = None
        if call.kernel in FLASH:
            known = flash_rule(mask, call.wants_causal, call.options, T, k.shape[2])
        rules, scoring = _mask_and_scoring(_where(hooks), mask, causal, q, k, call.options, known)
        if autocast and call.kernel == "sdpa" and scoring.bias is not None:
            scoring = replace(scoring, bias=scoring.bias.to(q.dtype))
        return rules, scoring

    finished = AttentionCall(
        q, k, v, given, describe, cross, rounded_scores=call.kernel != "sdpa",
        padding=partial(_real_queries, call.mask, T, cross),
        # With sinks some models return weights before, some after the sinks took theirs.
        weights=out[1] if sinks is None and isinstance(out[1], Tensor) else None,
        # A sink takes all the weight of a row whose keys are hidden.
        flat=None if sinks is not None else partial(_flat_rows, mask, emptied),
        lse=lse, sinks=sinks,
    )  # fmt: skip
    if emptied is not None:
        context = context.masked_fill(emptied[..., None], 0)
    for hook in hooks:
        context = hook.after(finished, context)
    return None if context is given else context


def _count_filled(kernel: str, mask: Any, T: int, S: int, cross: bool) -> int:
    """Return how many of the keys are filled; caches of a fixed size have places to spare."""
    allowed = None if cross or kernel in FLASH or T >= S else _to_bool(mask)
    if allowed is None:
        return S
    found: int = _read_once(mask, lambda: count_filled(allowed, T, S), "filled")
    return found


def _read_once(mask: Any, read: Callable[[], Any], kind: str = "") -> Any:
    """Return what `read` returns; the layers of a model share their mask, and the answer."""
    for known, what, found in _answers:
        if known is mask and what == kind and mask is not None:
            return found
    found = read()
    _answers[:] = [*_answers[-7:], (mask, kind, found)]
    return found


def _flat_rows(mask: Any, emptied: Tensor | None) -> Tensor | None:
    """Return the rows with equal weight on all keys; those that hooks emptied have weight 0."""
    flat = _parse_once(mask).flat if isinstance(mask, Tensor) and mask.dim() > 2 else None
    return flat if flat is None or emptied is None else flat & ~emptied


def _where(hooks: tuple[AttentionHook, ...]) -> str:
    layer = next((hook.layer for hook in hooks if hook.layer is not None), None)
    return "this attention" if layer is None else str(layer)


def _is_cross(hook: AttentionHook) -> bool:
    return hook.layer is not None and hook.layer.kind == "cross"


def _to_bool(mask: Any) -> Tensor | None:
    """Return True where a query may attend; None if the mask is not a tensor."""
    if not isinstance(mask, Tensor):
        return None
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def _real_queries(mask: Any, T: int, cross: bool) -> Tensor | None:
    allowed = _to_bool(mask)
    if cross or allowed is None or allowed.dim() != 4 or allowed.shape[3] < T:
        return None
    return allowed.any(dim=(1, 2))[:, allowed.shape[3] - T :]  # keys that some query may see


def _mask_and_scoring(
    where: str, mask: Tensor | None, causal: bool, q: Tensor, k: Tensor, options: dict[str, Any],
    known: Mask | None,
) -> tuple[Mask, Scoring]:  # fmt: skip
    """Return the arguments of the kernel as a Mask and a Scoring."""
    (B, H, T, _), S = q.shape, k.shape[2]
    rules, bias = (known or Mask(causal=causal)), None
    if known is None and mask is not None:
        rules, bias = _parse_once(mask)[:2]
    extra = options.get("position_bias")
    if extra is not None:
        extra = extra[..., :S]
        bias = extra if bias is None else bias + extra
    try:
        rules.check(B, H, T, S)
    except MaskError as error:
        raise RecordingError(
            f"{where} cannot be recorded: {error}", hint="choose other layers with layers=[...]"
        ) from None
    return rules, Scoring(options.get("scaling"), options.get("softcap"), bias=bias)


def _parse_once(mask: Tensor) -> "ParsedMask":
    for known, found in _masks:  # the layers of a model share theirs
        if known is mask:
            return found
    found = parse_mask(mask)
    _masks[:] = [*_masks[-3:], (mask, found)]
    return found


def _check_recordable(where: str, call: _KernelCall, mask: Any) -> None:
    """Raise if the call computes something besides softmax(q · k) with this mask."""
    check_kernel(where, call.kernel)
    if call.options.get("dropout"):
        raise RecordingError(
            f"{where} drops weights at random (dropout {call.options['dropout']})",
            hint="call model.eval() before observing it",
        )
    given = {name for name, value in call.options.items() if value is not None}
    reasons = {
        f"it calls its attention with {len(call.args)} unnamed options": bool(call.args),
        "its keys are in a paged cache": "cache" in given,
        f"its mask is a {type(mask).__name__}": not (mask is None or isinstance(mask, Tensor)),
    }
    for reason, holds in reasons.items():
        if holds:
            raise RecordingError(
                f"{where} cannot be recorded: {reason}",
                hint="choose other layers with layers=[...]",
            )


def _check_hiding(where: str, call: _KernelCall) -> None:
    mask, S = call.mask, call.k.shape[2]
    fits = isinstance(mask, Tensor) and mask.dim() == 4 and mask.shape[3] in (1, S)
    if call.kernel not in ("sdpa", "eager"):
        reason, hint = f"it runs on '{call.kernel}'", "use sdpa or eager"
    elif mask is not None and not fits:
        reason, hint = (
            f"its mask is a {type(mask).__name__} of another shape",
            "choose other layers",
        )
    else:
        return
    raise AblationError(f"edges of {where} cannot be hidden: {reason}", hint=hint)


class ParsedMask(NamedTuple):
    """A mask tensor as a rule."""

    rule: Mask
    bias: Tensor | None  # what it adds to the scores besides
    flat: Tensor | None  # (B | 1, H | 1, T | 1) rows with equal weight on all keys


def parse_mask(mask: Tensor) -> ParsedMask:
    """Return a mask tensor as a rule, what it adds to the scores besides, and its flat rows.

    The rule is made of causality, window, documents and padding if these are enough, so that
    nothing of size T x S is stored; else it holds the tensor itself, and the padding.

    >>> rule, bias, flat = parse_mask(torch.ones(1, 1, 5, 5).tril().bool())
    >>> rule.causal, rule.dense, bias, flat
    (True, None, None, None)
    """
    if mask.dtype == torch.bool:
        return ParsedMask(_find_rule(mask), None, None)
    # Models hide pairs by adding a very negative number: -10,000, -1e9, the least number or -inf.
    # A row in which every key has such a number is decided by how far they lie below the largest.
    top = mask.amax(-1, keepdim=True)
    low = (top <= HIDES) & (top > -torch.inf)
    # Scores vanish beside a number this large: what is left is equal weight on all keys.
    flat = ((top <= ABSORBS) & low & (mask.amin(-1, keepdim=True) == top))[..., 0]
    hidden = (mask - torch.where(low, top, 0) <= HIDES) | flat[..., None]
    bias = mask.masked_fill(hidden, 0)
    some_bias, some_flat = (x if bool(x.any()) else None for x in (bias, flat))
    return ParsedMask(_find_rule(~hidden), some_bias, some_flat)


def _find_rule(mask: Tensor) -> Mask:
    if mask.dim() != 4 or mask.shape[1] != 1:
        return Mask(dense=mask)
    T, S = mask.shape[2:]
    keys = mask.any(2)[:, 0]  # (B, S)
    padding = None if bool(keys.all()) else keys
    if T == 1:  # the same for all queries
        return Mask(keys=padding)
    if _matches(likely := Mask(True, None, padding), mask):
        return likely  # the other guesses wait for a GPU
    causal, window = _extent(mask)
    guesses = [Mask(causal, None, padding), Mask(causal, window, padding), Mask(causal, window)]
    if T == S:
        # A document begins at the first key that its rows see; rows that see none are padding.
        starts = mask[:, 0].byte().argmax(-1).masked_fill(~mask[:, 0].any(-1), -1)
        guesses.append(Mask(causal, None, padding, starts))
    return next((g for g in guesses if _matches(g, mask)), Mask(keys=padding, dense=mask))


def _bands(T: int, S: int) -> Iterator[slice]:
    step = max(1, 2**22 // max(1, S))
    return (slice(start, min(start + step, T)) for start in range(0, T, step))


def _extent(mask: Tensor) -> tuple[bool, int | None]:
    """Return whether no row sees past its own position, and the window that holds all pairs."""
    T, S = mask.shape[2:]
    ahead = behind = 0
    j = torch.arange(S, device=mask.device)
    for rows in _bands(T, S):
        i = torch.arange(rows.start, rows.stop, device=mask.device)[:, None] + (S - T)
        distance = torch.where(mask[:, :, rows], j - i, 0)
        ahead, behind = max(ahead, int(distance.max())), max(behind, -int(distance.min()))
    return ahead == 0, max(ahead, behind) + 1


def _matches(rule: Mask, mask: Tensor) -> bool:
    T, S = mask.shape[2:]
    for rows in _bands(T, S):
        allowed = rule.to_tensor(T, S, rows, device=mask.device)
        part = mask[:, :, rows]
        if not bool((part if allowed is None else part == allowed).all()):
            return False
    return True
