"""Wrong attentions that others wrote are found and named; right ones of theirs are not blamed.

They were written before their writer had read the checker. Those of `WITHOUT_NAME` are found but
have no name, those of `MISSED` are taken for right.
"""

import importlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from glasshead.lab.check.report import check
from tests.lab.check import right_functions, right_modules, right_third

STYLES = ("einsum", "functional", "fused", "keras", "loop", "module", "numpy", "second_einsum",
          "second_functional", "second_keras", "second_module", "second_numpy", "third_functional",
          "third_module", "third_model", "third_cache", "jax")  # fmt: skip
NEEDS_JAX = () if importlib.util.find_spec("jax") else ("jax",)
MODULES = [importlib.import_module(f"tests.lab.check.mutants.{style}_style")
           for style in STYLES if style not in NEEDS_JAX]  # fmt: skip
MUTANTS = [(module, name) for module in MODULES for name in module.MUTANTS]
# What makes no number wrong is told as a warning.
WARNINGS = {"softmax-overflow", "nan-empty-row", "half-fill", "keys-reversed", "low-precision"}
WITHOUT_NAME = {"SplitWrong", "np_norm_keys", "jx_vmap_heads", "jx_logits_bf16"}
MISSED = {
    "adds_bool",  # a right additive mask, if it were given numbers
    "RotaryAfterHeads",  # rotates q and k alike: attention without positions
}
QUICK = {
    "heads_summed", "alibi_wrong_sign", "mask_true_means_hidden", "sdpa_wrong_layout",
    "RotaryOppositeSigns", "RotaryQueriesOnly", "sdpa_softcap_missing_mask", "ValueKeyOrder",
    "HeadsWidthSwapped", "loop_skips_first", "HeadNanMask", "InvertedBook", "UnusedProjections",
    "FewerHeads", "BatchedMask", "key_t", "DropoutAlways", "all_heads_one_softmax",
    "MCacheTopLeft", "MCacheOrder", "MRopeCacheZero", "MCacheKept", "tf_inplace_scale", "np_dot_T",
    "th_rope_over_heads", "ThEmptySlots", "ThResidualOfNorm", "ThCausalKept", "ThGPTNotCausal",
    "tf_padding_on_queries", "tf_dropout_always", "EinMaskOuter", "KDropoutOn", "MBatchAxis",
}  # fmt: skip
# These are compiled.
SLOW_RIGHT = {"flex_plain", "flex_causal", "flex_window"}
QUICK_RIGHT = {*right_functions.RIGHT, *right_modules.RIGHT, *right_third.RIGHT} - SLOW_RIGHT


def _params(pairs, quick):
    def param(module, name):
        return pytest.param(module, name, marks=() if name in quick else pytest.mark.deep, id=name)

    return [param(*pair) for pair in pairs]


@pytest.mark.parametrize(("module", "name"), _params(MUTANTS, QUICK))
def test_a_mistake_of_another_hand_is_found_and_named(module, name):
    report = check(getattr(module, name), name=name)
    mistakes = [each.name for each in report.mistakes]
    true = module.MUTANTS[name]
    if name in MISSED:
        assert not mistakes  # take it off the list once it is found
        return
    if true in WARNINGS and not mistakes:
        assert true in [each.name for each in report.warnings]
        return
    assert mistakes
    if report.counterexample is not None:
        example = report.counterexample
        assert not np.allclose(example.got, example.expected, atol=1e-6)
    if name not in WITHOUT_NAME:
        assert true in mistakes[0].split("+")


RIGHT = [(m, name) for m in (right_functions, right_modules, right_third) for name in m.RIGHT]


@pytest.mark.parametrize(("module", "name"), _params(RIGHT, QUICK_RIGHT))
def test_what_another_hand_wrote_rightly_is_not_blamed(module, name):
    report = check(getattr(module, name), name=name)
    assert report.ok, [each.name for each in report.mistakes]


def test_there_are_enough_of_them():
    assert len(MUTANTS) >= 215
    assert len(RIGHT) >= 50
    assert len(MISSED) <= 0.05 * len(MUTANTS)
    assert len(MISSED | WITHOUT_NAME) <= 0.1 * len(MUTANTS)
    folder = Path(__file__).parent / "mutants"
    assert len(list(folder.glob("*_style.py"))) == len(STYLES)
