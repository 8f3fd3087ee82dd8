"""Claims 20 to 25, made true and false with evidence by hand, and measured on tiny models."""

import json

import pytest
import torch

from glasshead.attention.hooks import AttentionHook
from glasshead.lab.attention_maps import gpt_attentions, record_weights
from glasshead.lab.claims import c25_sinks, load_claim
from glasshead.lab.claims.c22_rollout import rollout_rows
from glasshead.lab.claims.claim import Budget
from glasshead.lab.claims.drawing import render
from glasshead.lab.claims.story_models import StoryPlan
from glasshead.lab.claims.verdict import Verdict
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.observe.hooks import attach_hooks
from glasshead.observe.recording import observing
from glasshead.observe.rollout import rollout

LEARNED = {"losses": [1.0, 1.1], "unigram": 4.5, "rate": {}}
NOTHING = {"losses": [4.4, 4.5], "unigram": 4.5, "rate": {}}


def verdict(number, evidence, base=LEARNED):
    return load_claim(number).judge({**base, **evidence}).verdict


def cache(float32=0.0, bfloat16=0.0, apart=1e-7, without=8.0):
    kinds = {
        name: {"differ": [share] * 2, "apart": [apart] * 2}
        for name, share in (("float32", float32), ("bfloat16", bfloat16))
    }
    seconds = {"cached": [[1.0, 2.0]] * 2, "again": [[1.5, without]] * 2}
    return {"prompts": 32, "lengths": [16, 64], "kinds": kinds, "seconds": seconds}


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (cache(), Verdict.HOLDS),
        (cache(bfloat16=0.5), Verdict.HOLDS_WHEN),
        (cache(float32=0.1), Verdict.FAILS),
        (cache(apart=1e-3), Verdict.FAILS),
        (cache(without=2.0), Verdict.FAILS),  # no time is saved
    ],
)
def test_a_cache(evidence, expected):
    assert verdict(20, evidence) is expected


@pytest.mark.parametrize(
    ("untrained", "trained", "expected"),
    [
        (1.0, 1.5, Verdict.HOLDS),
        (0.1, 1.5, Verdict.HOLDS_WHEN),
        (0.1, 9.0, Verdict.HOLDS_WHEN),
    ],
)
def test_the_variance_of_scores(untrained, trained, expected):
    variances = {"random": [[1.0]] * 2, "untrained": [[untrained] * 4] * 2}
    evidence = {"variances": {**variances, "trained": [[trained] * 4] * 2}, "head_width": 16}
    assert verdict(21, evidence) is expected
    label = load_claim(21).judge({**NOTHING, **evidence}).label.en
    assert label == "cannot tell: the GPT did not learn its own task"


@pytest.mark.parametrize(
    ("rollout_", "last", "nearness", "expected"),
    [
        (0.7, 0.5, 0.2, Verdict.HOLDS),
        (0.7, 0.5, 0.9, Verdict.UNCLEAR),  # distance alone says as much
        (0.5, 0.5, 0.2, Verdict.FAILS),
    ],
)
def test_rollout_against_raw_weights(rollout_, last, nearness, expected):
    found = {"rollout": rollout_, "last": last, "mean": 0.1, "nearness": nearness}
    correlation = {name: [value, value + 0.01] for name, value in found.items()}
    evidence = {"correlation": correlation, "length": 32, "rows": 64}
    assert verdict(22, evidence) is expected
    assert verdict(22, evidence, NOTHING) is Verdict.UNCLEAR


def test_rollout_is_that_of_the_package():
    torch.manual_seed(3)
    model = GPT(GPTConfig(11, max_len=7, n_layers=3, n_heads=2, d_model=8)).eval()
    ids = torch.randint(11, (2, 7))
    with torch.no_grad(), record_weights(gpt_attentions(model)) as maps:
        model(ids)
    with torch.no_grad(), observing(model) as trace:
        model(ids)
    for row, ours in enumerate(rollout_rows(maps).double()):
        torch.testing.assert_close(ours, rollout(trace, batch=row), rtol=1e-5, atol=1e-6)


def pruning(gradient, random):
    """Losses that rise by a tenth once this share of eight heads is gone."""

    def curve(share):
        return [[1.0 + 0.1 * (n > share * 8) for n in range(9)]] * 2

    orders = {"gradient": gradient, "ablation": gradient, "random": random, "reversed": 0.0}
    return {"heads": 8, "without": {name: curve(share) for name, share in orders.items()}}


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (pruning(0.5, 0.5), Verdict.HOLDS),
        (pruning(0.5, 0.125), Verdict.HOLDS_WHEN),
        (pruning(0.125, 0.125), Verdict.FAILS),
    ],
)
def test_pruning(evidence, expected):
    assert verdict(23, evidence) is expected
    assert verdict(23, evidence, NOTHING) is Verdict.UNCLEAR


@pytest.mark.parametrize(
    ("plain", "yarn", "expected"),
    [
        ((0.0, 0.01), (0.0, 0.0), Verdict.HOLDS),
        ((0.0, 0.5), (0.0, 0.0), Verdict.HOLDS_WHEN),
        ((0.3, 0.5), (0.1, 0.0), Verdict.HOLDS_WHEN),
        ((0.3, 0.5), (0.1, 0.2), Verdict.FAILS),
    ],
)
def test_longer_texts(plain, yarn, expected):
    rows = {"plain": plain, "linear": (0.4, 0.4), "yarn": yarn, "alibi": (0.0, 0.0)}
    worse = {arm: [[value] * 2 for value in values] for arm, values in rows.items()}
    evidence = {"block": 32, "times": [2, 4], "worse": worse}
    trained = {"rotary": LEARNED, "alibi": LEARNED}
    assert verdict(24, {**evidence, "trained": trained}) is expected
    assert verdict(24, {**evidence, "trained": {"rotary": NOTHING}}) is Verdict.UNCLEAR


@pytest.mark.parametrize(
    ("plain", "free", "expected"),
    [
        (0.5, 0.1, Verdict.HOLDS),
        (0.5, 0.48, Verdict.FAILS),
        (0.5, 0.33, Verdict.UNCLEAR),
        (0.05, 0.01, Verdict.UNCLEAR),  # there is no sink
    ],
)
def test_sinks(plain, free, expected):
    sides = {"plain": plain, "free": free}
    evidence = {
        "steps": 9,
        "length": 32,
        "unigram": 4.5,
        "rates": {side: {"best": 1e-3, "edge": False} for side in sides},
        "loss": {side: [1.0, 1.1] for side in sides},
        "first": {side: [value] * 2 for side, value in sides.items()},
        "most": {side: [value] * 2 for side, value in sides.items()},
        "given": {"plain": [1.0] * 2, "free": [0.6] * 2},
    }
    assert verdict(25, evidence) is expected
    evidence["loss"]["free"] = [4.4, 4.5]
    assert verdict(25, evidence) is Verdict.UNCLEAR


class Keep(AttentionHook):
    def __init__(self):
        self.call = None

    def after(self, call, context):
        self.call, self.context = call, context
        return context


def test_a_free_sink_is_softmax_over_one_more_score_of_0():
    torch.manual_seed(5)
    model = GPT(GPTConfig(11, max_len=7, n_layers=1, n_heads=2, d_model=10, positions="none"))
    [layer], keep = gpt_attentions(model), Keep()
    with attach_hooks({layer: c25_sinks.FreeSink()}), attach_hooks({layer: keep}):
        model(torch.randint(11, (2, 7))).sum().backward()
    q, k, v = (x.double() for x in (keep.call.q, keep.call.k, keep.call.v))
    hidden = torch.ones(7, 7, dtype=torch.bool).triu(1)
    scores = (q @ k.mT / 5**0.5).masked_fill(hidden, -torch.inf)
    nowhere = torch.zeros(2, 2, 7, 1, dtype=torch.double)
    wanted = torch.cat([scores, nowhere], -1).softmax(-1)[..., :-1] @ v
    torch.testing.assert_close(keep.context.double(), wanted, rtol=1e-5, atol=1e-6)
    assert layer.qkv.weight.grad.abs().sum() > 0


@pytest.mark.deep
@pytest.mark.parametrize("number", range(20, 26))
def test_they_are_measured_and_drawn(number):
    claim = load_claim(number)
    change = {"steps": 3, "rates": (3e-3,)}
    change = change if number == 25 else {"plan": StoryPlan(3, block=16, rates=(3e-3,))}
    evidence = json.loads(json.dumps(claim.measure(Budget(True, (0, 1)), **change)))
    finding = claim.judge(evidence)
    assert number == 20 or finding.verdict is Verdict.UNCLEAR  # nothing is learned in three steps
    for lang in ("en", "zh"):
        assert render(claim, evidence, lang).startswith(b"\x89PNG")
