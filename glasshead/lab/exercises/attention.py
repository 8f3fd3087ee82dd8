"""What `glasshead check` knows of attention, for exercises: its reference and its mistakes."""

from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from glasshead.lab.check.mistakes import MISTAKES, USUAL, pairs
from glasshead.lab.check.pipeline import Array, Case, Projections, Step, run
from glasshead.lab.exercises.judging import LooseAnswer, Wrong

__all__ = ["as_case", "attention_mistakes", "right_attention"]

MakeCase = Callable[..., Case]


def as_case(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None = None, *,
    causal: bool = False, projected: bool = False,
) -> Case:  # fmt: skip
    """Return a case of the checker.

    Args:
        allowed: (T, S) or (B, T, S), True = may attend.
        projected: q, k and v are (B, T, C) to be projected; else (T, D), (B, T, D) or
            (B, H, T, D) as they are.
    """
    a, b, c = (_array(x) for x in (q, k, v))
    if not projected:
        a, b, c = (x.reshape(-1, 1, *x.shape[-2:]) if x.ndim < 4 else x for x in (a, b, c))
    mask = None if allowed is None else allowed.numpy().reshape(-1, *allowed.shape[-2:])
    return Case("", a, b, c, causal=causal, allowed=mask)


def _array(x: Tensor) -> Array:
    return x.detach().double().numpy()


def right_attention(make: MakeCase, params: Projections | None = None) -> Callable[..., Tensor]:
    """Return a function from the arguments of `make` to the context, in the shape of q."""

    def compute(*args: Tensor) -> Tensor:
        work = run(make(*args), params or Projections(), {})
        return _like(args[0], work.context, params is not None)

    return compute


def _wrong_attention(
    make: MakeCase, params: Projections | None, steps: Mapping[str, Step]
) -> Callable[..., LooseAnswer]:
    def compute(*args: Tensor) -> LooseAnswer:
        try:
            work = run(make(*args), params or Projections(), steps)
        except (ValueError, IndexError):  # it does not exist for these shapes
            nothing = torch.zeros(0)
            return LooseAnswer(nothing, nothing.bool())
        out = _like(args[0], work.context, params is not None)
        sure = np.ones(work.context.shape, bool)
        if work.unsure is not None:  # (B, T) rows where some divide by 0
            rows = ~work.unsure if work.context.ndim == 3 else ~work.unsure[:, None]
            if rows.shape == work.context.shape[:-1] or work.context.ndim == 4:
                sure = np.broadcast_to(rows[..., None], work.context.shape)
        return LooseAnswer(out, _like(args[0], sure, params is not None).bool())

    return compute


def attention_mistakes(
    make: MakeCase,
    params: Projections | None = None,
    *,
    leave_out: Collection[str] = (),
    two: bool = True,
) -> Iterator[Wrong]:
    """Yield each mistake of the checker as a wrong answer; then two at a time."""
    for mistake in [*MISTAKES, *(pairs(USUAL, USUAL) if two else ())]:
        if mistake.name.partition("+")[0] not in leave_out:
            yield mistake.name, _wrong_attention(make, params, mistake.steps)


def _like(q: Tensor, context: Array, projected: bool) -> Tensor:
    out = torch.from_numpy(np.ascontiguousarray(context)).double()
    if projected or q.ndim == 4:
        return out
    return out.reshape(*q.shape[:-1], out.shape[-1]) if _fits(q, out) else out


def _fits(q: Tensor, out: Tensor) -> bool:
    return out.numel() == q[..., 0].numel() * out.shape[-1]
