"""What `glasshead check` knows of attention, for exercises: its reference and its mistakes."""

from collections.abc import Callable, Collection, Iterator

import numpy as np
import torch
from torch import Tensor

from glasshead.lab.check.mistakes import MISTAKES, pairs
from glasshead.lab.check.pipeline import Array, Case, Projections, Step, run
from glasshead.lab.exercises.judging import Wrong

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


def right_attention(
    make: MakeCase, params: Projections | None = None, steps: dict[str, Step] | None = None
) -> Callable[..., Tensor]:
    """Return a function from the arguments of `make` to the context, in the shape of q."""

    def compute(*args: Tensor) -> Tensor:
        case = make(*args)
        work = run(case, params or Projections(), steps or {})
        return _like(args[0], work.context, params is not None)

    return compute


def attention_mistakes(
    make: MakeCase,
    params: Projections | None = None,
    *,
    leave_out: Collection[str] = (),
    two: bool = True,
) -> Iterator[Wrong]:
    """Yield each mistake of the checker as a wrong answer; then two at a time."""
    for mistake in [*MISTAKES, *(pairs() if two else ())]:
        if mistake.name.partition("+")[0] not in leave_out:
            yield mistake.name, right_attention(make, params, dict(mistake.steps))


def _like(q: Tensor, context: Array, projected: bool) -> Tensor:
    out = torch.from_numpy(np.ascontiguousarray(context)).double()
    if projected or q.ndim == 4:
        return out
    return out.reshape(*q.shape[:-1], out.shape[-1]) if _fits(q, out) else out


def _fits(q: Tensor, out: Tensor) -> bool:
    return out.numel() == q[..., 0].numel() * out.shape[-1]
