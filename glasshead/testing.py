"""Assert in a test that attention is right, in the manner of `torch.testing`.

    from glasshead.testing import assert_attention

    def test_my_attention():
        assert_attention(my_attention, causal=True)

With pytest, the fixture `assert_attention` is the same, and `pytest --check-attention
my_model.py:Attention` runs a check as a test (`glasshead/pytest_plugin.py`).
"""

from typing import Any

__all__ = ["assert_attention"]


def assert_attention(
    target: Any, *, causal: bool | None = None, strict: bool = False, **given: Any
) -> None:
    """Raise AssertionError, with the mistake and a counterexample, unless attention is right.

    Args:
        target: what `glasshead.check` takes: a function, a module, a class, a model.
        causal: whether it should hide the future; None to find out.
        strict: also raise for warnings: NaN in empty rows, overflow, trouble in half precision.
        given: values for parameters of the call or the constructor that are not known.

    Raises:
        AssertionError: it is wrong.
        InputError: it cannot be checked.

    >>> import torch
    >>> assert_attention(torch.nn.functional.scaled_dot_product_attention)
    """
    from glasshead.lab.check.report import check, show

    report = check(target, causal=causal, given=given)
    if not report.ok or (strict and report.warnings):
        raise AssertionError("\n".join(line.plain for line in show(report)))
