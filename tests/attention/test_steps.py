"""The NumPy steps against the numbers of the textbooks, and against what must always hold."""

import doctest
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from glasshead.attention import steps
from glasshead.attention.steps import attend, causal, mask, scale, scores, softmax, weighted_sum
from glasshead.errors import MaskError, NotFiniteError, ShapeError

HELLO = np.array([[0.34, 0.22, 0.54], [0.53, 0.34, 0.98], [0.29, 0.54, 0.93]])
JOURNEY = np.array(
    [
        [0.43, 0.15, 0.89],
        [0.55, 0.87, 0.66],
        [0.57, 0.85, 0.64],
        [0.22, 0.58, 0.33],
        [0.77, 0.25, 0.10],
        [0.05, 0.80, 0.55],
    ]
)


def close(actual, expected, digits):
    """Equal to as many digits as the expected numbers were written with."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=0.51 * 10**-digits)


# --- the textbooks' numbers ---


def test_hello_shiny_sun():
    s = attend(HELLO, HELLO, HELLO, scaled=False)
    close(s.scores[1], [0.7842, 1.3569, 1.2487], 4)
    close(s.weights[1], [0.229134, 0.406265, 0.364602], 6)
    close(s.context[1], [0.39896, 0.38542, 0.86095], 5)


def test_hello_shiny_sun_as_printed_is_slightly_off():
    printed = np.array([0.3992, 0.3858, 0.8610])
    off = np.abs(attend(HELLO, HELLO, HELLO, scaled=False).context[1] - printed)
    assert (off > 0.51e-4).tolist() == [True, True, False]


def test_your_journey_starts_with_one_step():
    s = attend(JOURNEY, JOURNEY, JOURNEY, scaled=False)
    close(s.weights[1], [0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581], 4)
    close(s.context[1], [0.4419, 0.6515, 0.5683], 4)


def test_first_query_of_the_chapter_on_self_attention():
    k = np.array([[0.4, 0.1, 0.6], [0.8, 0.2, 0.3], [0.1, 0.7, 0.2]])
    v = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    s = attend(np.array([[0.2, 0.5, 0.1]]), k, v)
    close(s.scores[0], [0.19, 0.29, 0.39], 2)
    close(s.weights[0], [0.31428, 0.33296, 0.35275], 5)
    close(s.context[0], [4.11541, 5.11541, 6.11541], 5)


def test_the_story_in_the_docstring_is_true():
    failed, attempted = doctest.testmod(steps)
    assert failed == 0
    assert attempted > 8


# --- the traps of the textbooks ---


def test_causal_mask_makes_no_nan_where_ones_times_infinity_does():
    with np.errstate(invalid="ignore"):
        trap = np.triu(np.ones((6, 6)), k=1) * -np.inf
    assert np.isnan(trap).sum() == 21
    masked = mask(scores(JOURNEY, JOURNEY), causal(6, 6))
    assert np.isneginf(masked).sum() == 15
    assert not np.isnan(masked).any()
    assert not np.isnan(softmax(masked)).any()


def test_scaling_is_on_unless_left_out():
    s = attend(JOURNEY, JOURNEY, JOURNEY)
    np.testing.assert_array_equal(s.scaled, s.scores / np.sqrt(3))
    assert not np.allclose(s.weights, attend(JOURNEY, JOURNEY, JOURNEY, scaled=False).weights)


def test_a_batch_is_its_sentences_even_when_batch_length_and_width_are_equal():
    x = np.random.default_rng(5).normal(size=(3, 3, 3))  # where x.T is wrong without an error
    whole = attend(x, x, x)
    for b in range(3):
        alone = attend(x[b], x[b], x[b])
        np.testing.assert_allclose(whole.scores[b], alone.scores, atol=1e-14)
        np.testing.assert_allclose(whole.context[b], alone.context, atol=1e-14)
    assert not np.allclose(whole.scores, x @ x.T)


def test_masking_before_softmax_keeps_rows_at_one_and_after_does_not():
    s = attend(JOURNEY, JOURNEY, JOURNEY, causal(6, 6))
    np.testing.assert_allclose(s.weights.sum(-1), 1, atol=1e-15)
    after = np.where(causal(6, 6), attend(JOURNEY, JOURNEY, JOURNEY).weights, 0).sum(-1)
    assert (after[:5] < 0.9).all()


def test_a_row_that_may_attend_to_nothing_is_zero_and_not_uniform():
    allowed = np.ones((6, 6), dtype=bool)
    allowed[2] = False
    s = attend(JOURNEY, JOURNEY, JOURNEY, allowed)
    assert (s.weights[2] == 0).all()
    assert (s.context[2] == 0).all()
    np.testing.assert_allclose(np.delete(s.weights, 2, axis=0).sum(-1), 1, atol=1e-15)


# --- what must always hold ---

numbers = st.floats(-1e3, 1e3, allow_subnormal=False)
lengths = st.sampled_from([0, 1, 2, 3, 5, 7])


@st.composite
def problems(draw, min_keys=0):
    """q, k, v and a mask with any stack in front, T != S and sizes down to nothing."""
    stack = draw(st.sampled_from([(), (2,), (1, 3), (2, 0)]))
    T, S, D, E = draw(lengths), draw(lengths.filter(lambda n: n >= min_keys)), 3, 5
    q = draw(arrays(float, (*stack, T, D), elements=numbers))
    k = draw(arrays(float, (*stack, S, D), elements=numbers))
    v = draw(arrays(float, (*stack, S, E), elements=numbers))
    return q, k, v, draw(arrays(bool, (T, S)))


@given(problems())
def test_rows_sum_to_one_or_may_attend_to_nothing(problem):
    q, k, v, allowed = problem
    s = attend(q, k, v, allowed)
    sums = np.broadcast_to(allowed.any(-1).astype(float), s.weights.shape[:-1])
    np.testing.assert_allclose(s.weights.sum(-1), sums, atol=1e-12)
    assert (s.weights >= 0).all()
    assert (np.where(allowed, 0, s.weights) == 0).all()
    assert s.context.shape == (*q.shape[:-1], v.shape[-1])
    assert (s.context[..., ~allowed.any(-1), :] == 0).all()


@given(problems(min_keys=1))
def test_context_lies_between_the_values(problem):
    q, k, v, _ = problem
    context = attend(q, k, v).context
    assert (context <= v.max(-2, keepdims=True) + 1e-9).all()
    assert (context >= v.min(-2, keepdims=True) - 1e-9).all()


@given(arrays(float, (5, 7), elements=numbers), arrays(float, (5, 1), elements=numbers))
def test_adding_a_number_to_a_row_of_scores_changes_no_weight(s, shift):
    np.testing.assert_allclose(softmax(s + shift), softmax(s), atol=1e-9)


@given(problems(min_keys=1), st.randoms(use_true_random=False))
def test_shuffled_keys_give_the_same_context_and_shuffled_queries_shuffle_it(problem, random):
    q, k, v, allowed = problem
    keys, queries = list(range(k.shape[-2])), list(range(q.shape[-2]))
    random.shuffle(keys)
    random.shuffle(queries)
    context = attend(q, k, v, allowed).context
    moved = attend(
        q[..., queries, :], k[..., keys, :], v[..., keys, :], allowed[np.ix_(queries, keys)]
    ).context
    # A BLAS may round a score of 1e6 differently at another place; a weight moves by as much.
    rounding = 8 * np.finfo(float).eps * (np.abs(q) @ np.abs(k).swapaxes(-1, -2)).max(initial=0)
    tolerance = 1e-9 + rounding * np.abs(v).max(initial=0)
    np.testing.assert_allclose(moved, context[..., queries, :], atol=tolerance)


@given(arrays(float, (3, 5), elements=st.floats(allow_nan=False).filter(lambda x: x < np.inf)))
def test_no_score_is_too_large_or_too_small_for_softmax(s):
    weights = softmax(s)
    np.testing.assert_allclose(weights.sum(-1), (s > -np.inf).any(-1).astype(float), atol=1e-12)
    assert (np.take_along_axis(weights, s.argmax(-1, keepdims=True), -1) >= weights).all()


@given(lengths, lengths)
def test_the_last_query_sees_every_key_and_each_one_before_it_one_less(T, S):
    allowed = causal(T, S)
    assert allowed.shape == (T, S)
    assert allowed.sum(-1).tolist() == [max(0, S - T + i + 1) for i in range(T)]
    assert all((row[:-1] >= row[1:]).all() for row in allowed)


def test_the_future_does_not_change_the_past():
    changed = JOURNEY.copy()
    changed[4:] += 100
    before = attend(JOURNEY, JOURNEY, JOURNEY, causal(6, 6)).context
    after = attend(changed, changed, changed, causal(6, 6)).context
    np.testing.assert_array_equal(before[:4], after[:4])
    assert not np.allclose(before[4:], after[4:])


def test_one_new_query_over_old_keys_is_the_last_row():
    last = attend(JOURNEY[5:], JOURNEY, JOURNEY, causal(1, 6))
    whole = attend(JOURNEY, JOURNEY, JOURNEY, causal(6, 6))
    np.testing.assert_allclose(last.context[0], whole.context[5], atol=1e-15)


def test_single_precision_goes_in_and_double_comes_out():
    half = HELLO.astype(np.float16)
    assert attend(half, half, half).context.dtype == np.float64


def test_one_table_of_keys_serves_a_stack_of_queries():
    q = np.random.default_rng(7).normal(size=(2, 5, 3))
    np.testing.assert_array_equal(scores(q, HELLO)[1], scores(q[1], HELLO))


# --- mistakes ---

MISTAKES = {
    "integers": (ShapeError, lambda: scores(np.ones((2, 3), int), HELLO), "q has dtype int64"),
    "booleans": (ShapeError, lambda: softmax(np.ones((2, 3), bool)), "scores has dtype bool"),
    "words": (ShapeError, lambda: scores([["a", "b"]], HELLO), "q has dtype <U1"),
    "one vector": (ShapeError, lambda: scores(HELLO[0], HELLO), "q has shape (3,)"),
    "ragged": (ShapeError, lambda: scores([[1.0], [1.0, 2.0]], HELLO), "q cannot be converted"),
    "widths": (ShapeError, lambda: scores(HELLO[:, :2], HELLO), "of 2 numbers but k has vectors"),
    "values": (ShapeError, lambda: attend(HELLO, HELLO, JOURNEY), "for 3 keys but 6 values"),
    "stacks": (
        ShapeError,
        lambda: scores(np.ones((2, 5, 3)), np.ones((7, 5, 3))),
        "q (2, 5, 3) and k (7, 5, 3) do not fit together",
    ),
    "no width": (ShapeError, lambda: scale(HELLO, 0), "d_k (0) must be at least 1"),
    "negative length": (ShapeError, lambda: causal(-1, 3), "T (-1) and S (3) must not be negative"),
    "additive mask": (MaskError, lambda: mask(HELLO, np.zeros((3, 3))), "has dtype float64"),
    "mask of ones": (MaskError, lambda: mask(HELLO, np.ones((3, 3), int)), "has dtype int64"),
    "ragged mask": (MaskError, lambda: mask(HELLO, [[True], [True, False]]), "the mask cannot"),
    "mask shape": (
        MaskError,
        lambda: attend(HELLO, HELLO, HELLO, causal(2, 3)),
        "the mask has shape (2, 3) but the scores have (3, 3)",
    ),
    "mask larger than the scores": (
        MaskError,
        lambda: mask(HELLO, np.ones((2, 3, 3), bool)),
        "the mask has shape (2, 3, 3)",
    ),
    "nan in q": (
        NotFiniteError,
        lambda: scores([[np.nan, 1.0]], [[1.0, 1.0]]),
        "q is nan at (0, 0)",
    ),
    "nan in v": (NotFiniteError, lambda: weighted_sum([[1.0]], [[np.nan]]), "v is nan"),
    "infinite k": (NotFiniteError, lambda: scores([[1.0]], [[np.inf]]), "k is inf"),
    "infinite score": (NotFiniteError, lambda: softmax([[np.inf, 0.0]]), "scores is inf at (0, 0)"),
    "overflow": (NotFiniteError, lambda: scores([[1e200]], [[1e200]]), "q · k is inf"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_with_its_values_and_a_hint(name):
    kind, call, text = MISTAKES[name]
    with pytest.raises(kind) as caught:
        call()
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_the_steps_need_numpy_and_not_torch():
    code = "import sys, glasshead.attention.steps; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
