import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glasshead.attention.functional import attend
from glasshead.attention.mask import ALLOW_ALL, Mask, padding
from glasshead.errors import MaskError

from .cases import Case, cases


@settings(max_examples=100)
@given(cases(dtypes=(torch.float32,), score_parts=()))
def test_a_mask_allows_what_its_definition_allows(case: Case) -> None:
    allowed = case.mask.to_tensor(case.T, case.S)
    by_hand = torch.as_tensor(case.allowed_one_by_one())
    if allowed is None:
        assert by_hand.all()
    else:
        assert torch.equal(allowed.expand_as(by_hand), by_hand)


@settings(max_examples=100)
@given(cases(dtypes=(torch.float32,), score_parts=(), least=1), st.data())
def test_any_rectangle_of_a_mask_is_cut_from_the_whole(case: Case, data: st.DataObject) -> None:
    def some(n: int) -> slice:
        start = data.draw(st.integers(0, n - 1))
        return slice(start, data.draw(st.integers(start + 1, n)))

    rows, cols = some(case.T), some(case.S)
    whole = torch.as_tensor(case.allowed_one_by_one())[:, :, rows, cols]
    part = case.mask.to_tensor(case.T, case.S, rows, cols)
    assert whole.all() if part is None else torch.equal(part.expand_as(whole), whole)


@settings(max_examples=100)
@given(cases(dtypes=(torch.float32,), score_parts=(), least=1))
def test_nothing_outside_the_reachable_columns_is_allowed(case: Case) -> None:
    allowed = torch.as_tensor(case.allowed_one_by_one())
    for start in range(0, case.T, 3):
        rows = slice(start, min(start + 3, case.T))
        cols = case.mask.reachable_cols(rows, case.T, case.S)
        outside = allowed[:, :, rows].clone()
        outside[..., cols] = False
        assert not outside.any()


@settings(max_examples=100)
@given(cases(dtypes=(torch.float32,), score_parts=()))
def test_simplifying_hides_nothing_and_reveals_nothing(case: Case) -> None:
    whole = torch.as_tensor(case.allowed_one_by_one())
    simple = case.mask.simplify(case.T, case.S).to_tensor(case.T, case.S)
    assert whole.all() if simple is None else torch.equal(simple.expand_as(whole), whole)
    if not case.mask.may_have_empty_rows(case.T, case.S) and case.S:
        assert whole.any(-1).all()


def test_causal_is_aligned_to_the_end_of_the_keys() -> None:
    assert Mask(causal=True).to_tensor(2, 5).tolist() == [[True] * 4 + [False], [True] * 5]
    assert Mask(causal=True).to_tensor(3, 2).tolist() == [
        [False, False],
        [True, False],
        [True, True],
    ]


def test_both_masks_hold_at_once() -> None:
    a = Mask(causal=True, window=5, documents=torch.tensor([[0, 0, 1, 1, 1]]))
    b = Mask(window=2, documents=torch.tensor([[0, 0, 0, 0, 1]]), keys=torch.ones(1, 5).bool())
    both = (a & b).to_tensor(5, 5)
    assert torch.equal(both, a.to_tensor(5, 5) & b.to_tensor(5, 5))
    assert torch.equal((ALLOW_ALL & b).to_tensor(5, 5), b.to_tensor(5, 5))


def test_padding_never_changes_what_the_real_tokens_see() -> None:
    case = Case(B=2, T=5, S=7)
    q, k, v = case.tensors
    k[:, :, 5:] = 1e4  # whatever stands in the padding
    padded = attend(q, k, v, padding(torch.tensor([5, 5]), 7))
    short = attend(q, k[:, :, :5], v[:, :, :5])
    torch.testing.assert_close(padded.context, short.context)


def test_documents_in_one_row_are_as_if_apart() -> None:
    case = Case(B=1, T=7, S=7)
    q, k, v = case.tensors
    packed = attend(q, k, v, Mask(causal=True, documents=torch.tensor([[0, 0, 0, 1, 1, 1, 1]])))
    for part in (slice(0, 3), slice(3, 7)):
        alone = attend(q[:, :, part], k[:, :, part], v[:, :, part], Mask(causal=True))
        torch.testing.assert_close(packed.context[:, :, part], alone.context)


def test_a_window_sees_itself_and_that_many_less_one() -> None:
    seen = attend(*Case(T=7, S=7).tensors, Mask(causal=True, window=3), weights=True).weights
    assert (seen[0, 0] > 0).sum(-1).tolist() == [1, 2, 3, 3, 3, 3, 3]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Mask(window=0), r"window \(0\)"),
        (lambda: Mask(keys=torch.ones(2, 3)), "torch.float32"),
        (lambda: Mask(keys=torch.ones(2, 3, dtype=torch.int64)), "torch.int64"),
        (lambda: Mask(keys=torch.ones(3, dtype=torch.bool)), r"\(3,\)"),
        (lambda: Mask(dense=torch.zeros(5, 7)), "torch.float32"),
        (lambda: Mask(documents=torch.zeros(2, 7)), "torch.float32"),
    ],
)
def test_a_malformed_mask_is_refused(build, message: str) -> None:
    with pytest.raises(MaskError, match=message) as caught:
        build()
    assert caught.value.hint


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(5, 6, dtype=torch.bool), r"\(5, 6\).*\(2, 3, 5, 7\)"),
        (Mask(keys=torch.ones(2, 5, dtype=torch.bool)), r"\(2, 5\).*S=7"),
        (Mask(documents=torch.ones(3, 7, dtype=torch.int64)), r"\(3, 7\).*B=2"),
        ("causal", "a str"),
        (torch.zeros(5, 7), "torch.float32"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(mask, message: str) -> None:
    with pytest.raises(MaskError, match=message) as caught:
        attend(*Case().tensors, mask)
    assert caught.value.hint


def test_documents_need_a_position_for_each_query() -> None:
    case = Case(T=7, S=5)
    with pytest.raises(MaskError, match="T=7 queries look at S=5"):
        attend(*case.tensors, Mask(documents=torch.zeros(2, 5, dtype=torch.int64)))


def test_documents_of_both_masks_hold_at_once():
    a = Mask(documents=torch.tensor([[0, 0, 1, 1, 1]]))
    b = Mask(documents=torch.tensor([[0, 1, 0, 1, 1]]))
    assert torch.equal((a & b).to_tensor(5, 5), a.to_tensor(5, 5) & b.to_tensor(5, 5))
