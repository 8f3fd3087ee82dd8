"""Calls that ran and are still to be checked and measured: those of many layers at a time.

On a GPU a short text's check, or its statistics, takes longer to start than to run, so layers of
one shape are taken together. Nothing waits for the device.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.hooks import AttentionCall
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring, recompute
from glasshead.observe.exactness import CheckedRows, Checks, checked_rows
from glasshead.observe.statistics import HeadStatistics, cell_side
from glasshead.observe.trace_storage import LayerTrace, map_tensors, measure
from glasshead.observe.visible_keys import count_visible

__all__ = ["UncheckedCall", "check_calls", "measure_calls", "measure_layers"]

# Limits of what is measured in one call: pairs of query and key by kind of device, bytes of queries
# and keys, cells of overviews.
PAIRS, BYTES, CELLS = {"cuda": 2**34, "cpu": 2**24}, 2**28, 2**28
ROUGH = 24  # an lse of the CPU kernel that is computed again

Options = Mapping[str, Any]  # of `observe`


@dataclass(eq=False)
class UncheckedCall:
    """One call of a layer. The tensors are copies: what the model runs next may overwrite its own.

    `call` describes the rules; they are derived from the model's mask when they are first used.
    """

    layer_trace: LayerTrace
    call: AttentionCall
    q: Tensor  # (B, H, T, D)
    k: Tensor  # (B, H_kv, S, D)
    rows: CheckedRows
    lse: Tensor | None  # (B, H, T)
    place: tuple[int, int]  # its first row and its first key

    @property
    def nbytes(self) -> int:
        return self.q.nbytes + self.k.nbytes + self.rows.v.nbytes

    @cached_property
    def flat(self) -> Tensor | None:
        """(B | 1, H | 1, T | 1) the rows with equal weight on all keys."""
        return None if self.call.flat is None else self.call.flat()

    @cached_property
    def mask(self) -> Mask:
        return self.call.mask.simplify(self.q.shape[2], self.k.shape[2])

    @property
    def scoring(self) -> Scoring:
        return self.call.scoring

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for calls that can be checked together."""
        weights = self.rows.weights
        return (
            *_same_rules(self.layer_trace, self.q, self.k, self.mask, self.scoring),
            self.rows.v.shape, self.rows.context.dtype, self.lse is None, id(self.flat),
            weights is None, id(self.call.sinks),
        )  # fmt: skip


def _is_rough(calls: list[UncheckedCall]) -> bool:
    """Whether the kernel's lse is too large to keep five digits of each weight in float32: its
    scores and ours are then rounded apart. Not asked on a GPU, where it would be waited for."""
    return any(
        x.lse is not None and x.lse.is_cpu and float(x.lse.nan_to_num(0, 0, 0).abs().max()) > ROUGH
        for x in calls
    )


def _add_sinks(lse: Tensor, sinks: Tensor | None) -> Tensor:
    """Return the log-sum-exp over the keys and a sink of each head."""
    return lse if sinks is None else torch.logaddexp(lse, sinks.detach().to(lse)[:, None])


def check_calls(calls: Iterable[UncheckedCall], checks: Checks, keep_lse: bool) -> None:
    """Check the calls, and set the lse of each if it is kept."""
    for some in _groups((call.key, call) for call in calls):
        first, n = some[0], len(some)
        B, _, T, _ = first.q.shape
        mask, scoring, rows = first.mask, first.scoring, [call.rows for call in some]
        lse = None
        if first.lse is not None and not (keep_lse and _is_rough(some)):
            lse = _hide_empty_rows(_cat([call.lse for call in some]), mask, n, first.k.shape[2])
        elif keep_lse or first.call.sinks is not None:
            found = [recompute(x.q, x.k, mask, scoring, lse=True)[1] for x in some]
            lse = _add_sinks(_cat(found), first.call.sinks)
        if lse is not None:
            for call, part in zip(some, lse.chunk(n), strict=True):
                call.lse = part
        flat = first.flat
        given = CheckedRows(
            T=T, q=_cat([x.q for x in rows]), k=_cat([x.k for x in rows]),
            v=_cat([x.v for x in rows]), context=_cat([x.context for x in rows]),
            lse=None if lse is None else lse[:, :, checked_rows(T)],
            flat=flat if flat is None or len(flat) == 1 else flat.repeat(n, 1, 1),
            weights=None if rows[0].weights is None else _cat([x.weights for x in rows]),
            rounded_scores=rows[0].rounded_scores,
        )  # fmt: skip
        layers = [call.layer_trace.layer for call in some]
        checks.add(layers, given, _repeated(mask, n, B), scoring)


@dataclass(frozen=True, eq=False)
class _Measurement:
    """One layer whose statistics are still to be measured."""

    layer_trace: LayerTrace
    q: Tensor
    k: Tensor
    mask: Mask
    scoring: Scoring
    lse: Tensor | None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for layers that can be measured together."""
        rules = _same_rules(self.layer_trace, self.q, self.k, self.mask, self.scoring)
        return *rules, self.lse is None


def measure_calls(calls: Iterable[UncheckedCall], ids: Tensor | None, options: Options) -> None:
    """Measure the layers of these calls, one call each."""
    _measure(
        (_Measurement(x.layer_trace, x.q, x.k, x.mask, x.scoring, x.lse) for x in calls),
        ids, options,
    )  # fmt: skip


def measure_layers(
    asked: LayerTrace, others: Iterable[LayerTrace], ids: Tensor | None, options: Options
) -> HeadStatistics:
    """Measure a recorded layer on the device that the model ran on; others of its kind with it if
    this takes no longer."""
    first = _from_tensors(asked)
    some = [first]
    for one in others:
        if len(asked.calls) == 1 and one.shape == asked.shape and one.statistics is None:
            if one is asked or len(one.calls) != 1 or one.q is None:
                continue
            if not _fits(first, len(some) + 1):
                break
            another = _from_tensors(one)
            some += [another] if another.key == first.key else []
    _measure(some, ids, options)
    assert asked.statistics is not None
    return asked.statistics


def _from_tensors(stored: LayerTrace) -> _Measurement:
    q, k, lse = (x.to(stored.device) for x in stored.tensors())
    mask, scoring = stored.mask_and_scoring()
    mask = map_tensors(mask, lambda x: x.to(stored.device))
    scoring = map_tensors(scoring, lambda x: x.to(stored.device))
    return _Measurement(stored, q, k, mask, scoring, lse)


def _measure(layers: Iterable[_Measurement], ids: Tensor | None, options: Options) -> None:
    for some in _groups((layer.key, layer) for layer in layers):
        first, n, B = some[0], len(some), len(some[0].q)
        q, k = _cat([x.q for x in some]), _cat([x.k for x in some])
        lse = None if first.lse is None else _cat([x.lse for x in some])
        mask = _repeated(first.mask, n, B)
        of_all = ids if ids is None or n == 1 or len(ids) != B else ids.repeat(n, 1)
        layer = first.layer_trace.layer
        with torch.autocast(q.device.type, enabled=False):
            found = measure(layer, q, k, mask, first.scoring, lse, of_all, options)
        for x, part in zip(some, _parts(found, n), strict=True):
            x.layer_trace.statistics = part


def _same_rules(
    stored: LayerTrace, q: Tensor, k: Tensor, mask: Mask, scoring: Scoring
) -> tuple[Any, ...]:
    rules = (*vars(mask).values(), *vars(scoring).values())
    return (
        stored.layer.kind, q.shape, k.shape, q.dtype, q.device,
        *(id(x) if isinstance(x, Tensor) else x for x in rules),
    )  # fmt: skip


def _groups(keyed: Iterable[tuple[Any, Any]]) -> Iterator[list[Any]]:
    """Yield items of equal keys together, as many as fit."""
    groups: dict[Any, list[Any]] = {}
    for key, one in keyed:
        some = groups.setdefault(key, [])
        if some and not _fits(one, len(some) + 1):
            yield groups.pop(key)
            some = groups.setdefault(key, [])
        some.append(one)
    yield from groups.values()


def _fits(one: Any, n: int) -> bool:
    """Whether n such layers are small enough to be taken together."""
    q, k = one.q, one.k
    if one.mask.dense is not None or one.scoring.bias is not None:
        return False
    (B, H, T, _), S = q.shape, k.shape[2]
    heads, cells = n * B * H, -(-T // cell_side(T)) * -(-S // cell_side(S))
    return (
        heads * T * S <= PAIRS.get(q.device.type, 0)
        and n * (q.nbytes + k.nbytes) <= BYTES
        and heads * cells <= CELLS
    )


def _cat(parts: list[Any]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _repeated(mask: Mask, n: int, B: int) -> Mask:
    """Return the mask of n batches of B in a row."""
    return mask if n == 1 else map_tensors(mask, lambda x: x if len(x) != B else x.repeat(n, 1))


def _hide_empty_rows(lse: Tensor, mask: Mask, n: int, S: int) -> Tensor:
    """Set the lse of rows that see no key to -inf: kernels give these other numbers."""
    T = lse.shape[2]
    if not mask.may_have_empty_rows(T, S):
        return lse
    visible, _ = count_visible(mask, T, S, None, lse.device)  # (B | 1, H | 1, T)
    visible = visible if len(visible) == 1 else visible.repeat(n, 1, 1)
    return lse.masked_fill(visible == 0, -torch.inf)


def _parts(found: HeadStatistics, n: int) -> list[HeadStatistics]:
    """Return the statistics of n layers that were measured as one batch. What has no batch
    (`lag_starts`), or 1 for all sequences, is the same for all."""
    if n == 1:
        return [found]
    values = vars(found)
    tensors = {id(x): x for x in values.values() if isinstance(x, Tensor)}  # some share one
    split = {
        key: x.chunk(n) if x.dim() > 1 and len(x) % n == 0 else [x] * n
        for key, x in tensors.items()
    }
    each: list[dict[str, Any]] = [
        {name: split[id(x)][i] if id(x) in split else x for name, x in values.items()}
        for i in range(n)
    ]
    return [HeadStatistics(**fields) for fields in each]
