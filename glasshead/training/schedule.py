"""Learning-rate schedules: the share of the peak, when `done` (0 to 1) of the run is done.

trapezoid      ./-----\\    warm-up, constant, then straight down
cosine         ./--__      warm-up, then half a cosine down
constant       ./-----     warm-up, then constant
inverse-sqrt   ./\\___      warm-up, then as one over the root of the step, as in the paper
"""

import math
from collections.abc import Callable

__all__ = ["SCHEDULES", "Schedule"]

# (done, warmup, cooldown, final): warmup and cooldown are shares of the run, final of the peak.
Schedule = Callable[[float, float, float, float], float]


def trapezoid(done: float, warmup: float, cooldown: float, final: float) -> float:
    """
    >>> [round(trapezoid(done, 0.1, 0.4, 0.0), 2) for done in (0.0, 0.05, 0.1, 0.6, 0.8, 1.0)]
    [0.0, 0.5, 1.0, 1.0, 0.5, 0.0]
    """
    down = (1 - done) / cooldown if cooldown else 1.0
    return min(_rise(done, warmup), final + (1 - final) * min(1.0, down))


def cosine(done: float, warmup: float, cooldown: float, final: float) -> float:
    """
    >>> [round(cosine(done, 0.0, 0.0, 0.1), 2) for done in (0.0, 0.5, 1.0)]
    [1.0, 0.55, 0.1]
    """
    if done < warmup:
        return _rise(done, warmup)
    after = min(1.0, (done - warmup) / max(1 - warmup, 1e-9))
    return final + (1 - final) * (1 + math.cos(math.pi * after)) / 2


def constant(done: float, warmup: float, cooldown: float, final: float) -> float:
    return _rise(done, warmup)


def inverse_sqrt(done: float, warmup: float, cooldown: float, final: float) -> float:
    """The paper's min(step^-0.5, step * warmup^-1.5), with the peak at 1.

    >>> [round(inverse_sqrt(done, 0.1, 0.0, 0.0), 2) for done in (0.05, 0.1, 0.4, 0.9)]
    [0.5, 1.0, 0.5, 0.33]
    """
    if done < warmup:
        return _rise(done, warmup)
    return max(final, math.sqrt(warmup / done)) if warmup else 1.0


def _rise(done: float, warmup: float) -> float:
    return min(1.0, done / warmup) if warmup else 1.0


SCHEDULES: dict[str, Schedule] = {
    "trapezoid": trapezoid,
    "cosine": cosine,
    "constant": constant,
    "inverse-sqrt": inverse_sqrt,
}
