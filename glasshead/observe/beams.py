"""Beams of `generate()`: the rows of a recording follow the sentences that are returned.

While a model searches, each row of its batch is a place for a beam, and beams change places at
every step. The search returns, for each sentence it chose and each of its tokens, the place in
which the token was computed: by that, the recorded queries, keys and log-sum-exp are put together.
"""

import copy
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.attention.mask import Mask
from glasshead.errors import RecordingError
from glasshead.observe.trace_storage import LayerTrace, RecordedCall, map_tensors

__all__ = ["follow_sentences", "watch_beams"]

# Gets the places (n, steps), the sentences, and the number of places.
Finish = Callable[[Tensor, Tensor, int], None]


@contextmanager
def watch_beams(
    modules: Iterable[nn.Module], begin: Callable[[], None], finish: Finish
) -> Iterator[None]:
    """Call `begin` and `finish` around each beam search of a model of transformers, one of these
    modules."""
    if "transformers" not in sys.modules:
        yield
        return
    from transformers import GenerationMixin

    owner: Any = GenerationMixin
    original, own = owner._beam_search, {*modules}

    @wraps(original)
    def search(self: Any, *args: Any, **options: Any) -> Any:
        if self not in own:
            return original(self, *args, **options)
        wanted = options["generation_config"].return_dict_in_generate
        options["generation_config"] = copy.copy(options["generation_config"])
        options["generation_config"].return_dict_in_generate = True
        begin()
        found = original(self, *args, **options)
        ids = args[0] if args else options["input_ids"]
        finish(found.beam_indices, found.sequences, len(ids))
        return found if wanted else found.sequences

    owner._beam_search = search
    try:
        yield
    finally:
        owner._beam_search = original


def follow_sentences(found: LayerTrace, places: Tensor, sinks: bool) -> None:
    """Put the rows of a layer together by the places (n, steps) of n sentences; -1 is after the
    end. With sinks, rows sum to less than 1."""
    if found.q is None or found.k is None:
        return
    slots, calls = found.shape[0], found.calls[: places.shape[1]]
    alive = places >= 0
    places = places.clamp(min=0).to(found.q.device)
    T = calls[-1].row + calls[-1].T
    S = max(call.key + call.S for call in calls)
    row_place = torch.empty(len(places), T, dtype=torch.long, device=places.device)
    key_place = torch.empty(len(places), S, dtype=torch.long, device=places.device)
    ended = torch.zeros(len(places), T, dtype=torch.bool, device=places.device)
    known = 0
    for step, call in enumerate(calls):
        row_place[:, call.row : call.row + call.T] = places[:, step, None]
        ended[:, call.row : call.row + call.T] = ~alive[:, step, None].to(places.device)
        key_place[:, known : call.key + call.S] = places[:, step, None]
        known = max(known, call.key + call.S)
    assert found.lse is not None
    found.q, found.lse = _take(found.q, row_place), _take(found.lse, row_place)
    found.lse = found.lse.masked_fill(ended[:, None], -torch.inf)
    found.k = _take(found.k, key_place)
    found.calls = [
        _of_sentences(call, places[:, step], alive[:, step], slots)
        for step, call in enumerate(calls)
    ]
    found.shape = (len(places), found.shape[1], T, S)
    found.forget_statistics()
    _check(found, ended, sinks)


def _take(x: Tensor, place: Tensor) -> Tensor:
    """Return x (slots, H, n, ...) with entry i of sequence b taken from slot place[b, i]."""
    steps = torch.arange(place.shape[1], device=place.device)
    return x.transpose(1, 2)[place, steps].transpose(1, 2)


def _of_sentences(call: RecordedCall, places: Tensor, alive: Tensor, slots: int) -> RecordedCall:
    """Return a call whose mask and scoring are those of the sentences at one step."""

    def take(x: Tensor) -> Tensor:
        return x[places.to(x.device)] if x.dim() > 1 and len(x) == slots else x

    mask = map_tensors(call.mask, take)
    if not bool(alive.all()):
        mask = mask & Mask(keys=alive[:, None].expand(-1, call.S))
    flat = None if call.flat is None else take(call.flat)
    return replace(call, mask=mask, scoring=map_tensors(call.scoring, take), flat=flat)


def _check(found: LayerTrace, ended: Tensor, sinks: bool) -> None:
    """Raise unless the weights of each sentence's last row sum to 1."""
    B, H, _, S = found.shape
    for b in range(B):
        rows = (~ended[b]).nonzero()
        if not len(rows):
            continue
        row = int(rows[-1])
        for h in range(H):
            total = float(found.tile(b, h, slice(row, row + 1), slice(0, S)).sum())
            if total > 1 + 1e-3 or (total < 1 - 1e-3 and not sinks):
                raise RecordingError(
                    f"the beams of {found.layer} could not be followed: row {row} sums to "
                    f"{total:.4g}",
                    hint="record model(...) on the sentences that generate() returned",
                )
