"""Claim 2, made true and false; and its gradients against autograd's."""

import pytest
import torch

from glasshead.lab.claims import c02_gradients
from glasshead.lab.claims.c02_gradients import CLAIM
from glasshead.lab.claims.verdict import Verdict
from tests.lab.claims.cases import verdict_of


def test_it_holds_with_the_large_heads_that_it_speaks_of():
    assert verdict_of(CLAIM) is Verdict.HOLDS


def test_it_holds_only_when_heads_are_wide_if_narrow_ones_are_meant_too(monkeypatch):
    monkeypatch.setattr(c02_gradients, "LARGE", 8)
    assert verdict_of(CLAIM) is Verdict.HOLDS_WHEN


def test_it_does_not_hold_when_the_scale_does_nothing():
    assert verdict_of(CLAIM, scale=lambda D: 1.0) is Verdict.FAILS


def test_it_does_not_hold_where_all_heads_are_narrow(monkeypatch):
    monkeypatch.setattr(c02_gradients, "WIDTHS", (2, 3))
    assert verdict_of(CLAIM) is Verdict.FAILS


def test_the_norm_of_the_jacobian_is_autograds():
    q, k, v, g = torch.randn(4, 1, 1, 5, 7, generator=torch.Generator().manual_seed(3))
    norms, _ = c02_gradients._gradients(q, k, v, g, 0.7)
    for row in range(5):
        scores = 0.7 * q[0, 0, row] @ k[0, 0].T
        jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), scores)
        assert norms[row].item() == pytest.approx(jacobian.norm().item(), rel=1e-4)
