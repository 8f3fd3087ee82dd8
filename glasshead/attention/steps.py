"""Attention in four small steps, with nothing but NumPy. Read it from top to bottom.

To a machine a word is a list of numbers, a vector. Here is "Hello shiny sun!":

>>> x = np.array([[0.34, 0.22, 0.54],   # Hello
...               [0.53, 0.34, 0.98],   # shiny
...               [0.29, 0.54, 0.93]])  # sun

Each vector knows its own word only. Attention gives every word a new vector that has looked at
the others. For that each word plays three parts: as a query `q` it asks, as a key `k` it is
compared with what is asked, as a value `v` it is what the asker takes home. A trained model makes
q, k and v from x with three learned matrices; here all three are x, so that a pencil can follow.

We watch "shiny", row 1. Step 1, the scores: multiply it with each word, number by number, and
add up. The more two vectors point the same way, the higher the score.

>>> s = scores(x, x)
>>> s[1].round(4)                       # 0.53 * 0.34 + 0.34 * 0.22 + 0.98 * 0.54 = 0.7842, ...
array([0.7842, 1.3569, 1.2487])

Step 2, the scale: vectors of more dimensions add up more numbers and so have larger scores;
dividing by the square root of the number of dimensions takes that out again.

>>> scale(s, 3)[1].round(4)
array([0.4528, 0.7834, 0.7209])

(The textbook leaves this step out of this example, and from here on so do we.)

Then the mask, where there is one: what must not be seen gets the score minus infinity. A model that
learns to predict the next word may look back but not ahead, so "shiny" must not see "sun". `causal`
makes that mask; True means "may attend".

>>> causal(3, 3)
array([[ True, False, False],
       [ True,  True, False],
       [ True,  True,  True]])
>>> mask(s, causal(3, 3))[1].round(4)
array([0.7842, 1.3569,   -inf])

Step 3, softmax: scores become weights, all positive and adding up to 1. This is the answer to
"how much does shiny look at each word?", without the mask and with it:

>>> softmax(s)[1].round(4)
array([0.2291, 0.4063, 0.3646])
>>> softmax(mask(s, causal(3, 3)))[1].round(4)
array([0.3606, 0.6394, 0.    ])

Step 4, the weighted sum: 23 % of Hello, 41 % of shiny and 36 % of sun, mixed into one vector. It is
called the context, and it is the new vector of "shiny".

>>> weighted_sum(softmax(s), x)[1].round(5)
array([0.39896, 0.38542, 0.86095])

That is all of it; `attend` does it in a row. Shapes: T queries look at S keys, a vector has
D numbers, and "..." stands for any stack of sentences or heads in front. Everything is computed
in float64, so that faster code can be measured against it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glasshead.errors import GlassheadError, MaskError, NotFiniteError, ShapeError

__all__ = ["Steps", "attend", "causal", "mask", "scale", "scores", "softmax", "weighted_sum"]

Array = NDArray[np.float64]

# A number too large for float64 is reported as an error below, not as a NumPy warning.
_quiet = np.errstate(over="ignore", invalid="ignore")


@_quiet
def scores(q: ArrayLike, k: ArrayLike) -> Array:
    """Step 1. How well each query fits each key: (..., T, D), (..., S, D) -> (..., T, S)."""
    q, k = _vectors("q", q), _vectors("k", k)
    if q.shape[-1] != k.shape[-1]:
        raise ShapeError(
            f"q has vectors of {q.shape[-1]} numbers but k has vectors of {k.shape[-1]}: "
            f"{q.shape} and {k.shape}",
            hint="give queries and keys vectors of the same number of dimensions",
        )
    _same_stack("q", q, "k", k)
    return _finite("q · k", q @ np.swapaxes(k, -1, -2))  # (..., T, S)


def scale(scores: ArrayLike, d_k: int) -> Array:
    """Step 2. Divide by the square root of d_k, the number of dimensions of a key."""
    if not d_k > 0:
        raise ShapeError(
            f"d_k ({d_k}) must be at least 1", hint="d_k is the number of dimensions of a key"
        )
    return _scores(scores) / np.sqrt(d_k)


def mask(scores: ArrayLike, allowed: ArrayLike) -> Array:
    """Before step 3. Keep scores that are allowed (True = may attend); set others to -inf."""
    scores, allowed = _scores(scores), _array("the mask", allowed, MaskError)
    if allowed.dtype != bool:
        raise MaskError(
            f"the mask has dtype {allowed.dtype}, but bool is needed",
            hint="True = may attend; convert ones and zeros with `allowed != 0`",
        )
    if not _broadcasts_to(allowed.shape, scores.shape):
        raise MaskError(
            f"the mask has shape {allowed.shape} but the scores have {scores.shape}",
            hint="a mask has a row for each query and a column for each key",
        )
    return np.where(allowed, scores, -np.inf)


@_quiet
def softmax(scores: ArrayLike) -> Array:
    """Step 3. Turn each row of scores into weights: e to the score, divided by the row's sum.

    Only differences of scores matter, so the row's largest is taken off first: e^0 = 1 cannot
    overflow. A row that may attend to nothing, all -inf, gets weights 0.

    >>> softmax([[1000.0, 1000.0, -np.inf], [-np.inf, -np.inf, -np.inf]])
    array([[0.5, 0.5, 0. ],
           [0. , 0. , 0. ]])
    """
    scores = _scores(scores)
    largest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)  # (..., T, 1)
    powers = np.exp(scores - np.where(largest > -np.inf, largest, 0.0))  # (..., T, S)
    total = powers.sum(axis=-1, keepdims=True)  # (..., T, 1)
    return powers / np.where(total > 0, total, 1.0)


@_quiet
def weighted_sum(weights: ArrayLike, v: ArrayLike) -> Array:
    """Step 4. Mix the values by their weights: (..., T, S), (..., S, D) -> (..., T, D)."""
    weights, v = _vectors("weights", weights), _vectors("v", v)
    if weights.shape[-1] != v.shape[-2]:
        raise ShapeError(
            f"there are weights for {weights.shape[-1]} keys but {v.shape[-2]} values: "
            f"{weights.shape} and {v.shape}",
            hint="give each key one value: k and v come from the same words",
        )
    _same_stack("weights", weights, "v", v)
    return _finite("weights · v", weights @ v)  # (..., T, D)


def causal(T: int, S: int) -> NDArray[np.bool_]:
    """Return the mask that hides the future, (T, S). The last query is at the last key.

    With the first S - T keys already in the past, query i sees the keys up to S - T + i:

    >>> causal(2, 4)
    array([[ True,  True,  True, False],
           [ True,  True,  True,  True]])
    """
    if T < 0 or S < 0:
        raise ShapeError(f"T ({T}) and S ({S}) must not be negative", hint="try causal(3, 3)")
    return np.arange(S) <= np.arange(T)[:, None] + (S - T)


@dataclass(frozen=True, eq=False)
class Steps:
    """All intermediate results, in order."""

    q: Array  # (..., T, D)
    k: Array  # (..., S, D)
    v: Array  # (..., S, D)
    scores: Array  # (..., T, S)
    scaled: Array  # (..., T, S)  the scores again where the scale was left out
    masked: Array  # (..., T, S)  the same again where there is no mask
    weights: Array  # (..., T, S)
    context: Array  # (..., T, D)


def attend(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    allowed: ArrayLike | None = None,
    scaled: bool = True,
) -> Steps:
    """All four steps, and the mask.

    >>> x = np.eye(2)                          # two words that have nothing in common
    >>> attend(x, x, x, allowed=causal(2, 2)).weights.round(2)
    array([[1.  , 0.  ],
           [0.33, 0.67]])
    """
    q, k, v = _vectors("q", q), _vectors("k", k), _vectors("v", v)
    raw = scores(q, k)
    in_scale = scale(raw, k.shape[-1]) if scaled else raw
    masked = in_scale if allowed is None else mask(in_scale, allowed)
    weights = softmax(masked)
    return Steps(q, k, v, raw, in_scale, masked, weights, weighted_sum(weights, v))


# The rest only checks inputs, so that a mistake is reported where it is made.


def _array(name: str, x: ArrayLike, mistake: type[GlassheadError]) -> NDArray[Any]:
    try:
        return np.asarray(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise mistake(
            f"{name} cannot be converted to a NumPy array: {error}",
            hint="give a list of rows of the same length",
        ) from error


def _numbers(name: str, x: ArrayLike) -> Array:
    array = _array(name, x, ShapeError)
    if not np.issubdtype(array.dtype, np.floating):
        raise ShapeError(
            f"{name} has dtype {array.dtype}, but floating-point numbers are needed",
            hint=f"integers look like ids, not vectors; to use them anyway: {name} * 1.0",
        )
    if array.ndim < 2:
        raise ShapeError(
            f"{name} has shape {array.shape}, but rows and columns are needed",
            hint=f"make one vector a table of one row: {name}[None, :]",
        )
    return array.astype(np.float64, copy=False)


def _vectors(name: str, x: ArrayLike) -> Array:
    return _finite(name, _numbers(name, x))


def _scores(x: ArrayLike) -> Array:
    """Scores may be -inf, which is what a mask writes, but not NaN or +inf."""
    array = _numbers("scores", x)
    _finite("scores", np.where(np.isneginf(array), 0.0, array))
    return array


def _finite(name: str, array: Array) -> Array:
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise NotFiniteError(
            f"{name} is {array[where]} at {where}, {int(bad.sum())} of {bad.size} numbers",
            hint="check upstream for a division by zero or a number that is too large",
        )
    return array


def _same_stack(name_a: str, a: Array, name_b: str, b: Array) -> None:
    try:
        np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"{name_a} {a.shape} and {name_b} {b.shape} do not fit together",
            hint="all dimensions but the last two must be the same, or 1",
        ) from None


def _broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False
