"""`glasshead prune`: the least needed heads go, the model stays a model."""

import json

import pytest
import torch

import glasshead
from glasshead.roles.pruning import remove_heads
from tests.roles.circuits import INDUCTION, PREVIOUS, induction_model


@pytest.fixture
def text(tmp_path):
    """Repeats, which the planted model needs both of its heads for."""
    parts = ["".join(chr(ord("0") + (7 * i + s) % 41) for i in range(29)) for s in range(60)]
    path = tmp_path / "my.txt"
    path.write_text("".join(part * 2 for part in parts))
    return path


@pytest.fixture
def run(tmp_path):
    from dataclasses import asdict

    from glasshead.checkpoint import RunConfig, RunFolder
    from tests.roles.circuits import TOKENIZER

    model = induction_model()
    config = RunConfig("gpt", asdict(model.config), {}, {"task": "text"})
    RunFolder.create(tmp_path / "planted", config, TOKENIZER, model)
    return tmp_path / "planted"


def test_the_heads_that_nothing_needs_go_first(cli, run, text, tmp_path):
    args = ("prune", run, text, "--tokens", "59", "--share", "0.8", "--json", "-o", tmp_path / "p")
    code, out, err = cli(*args)
    assert code == 0, err
    steps = json.loads(out)
    assert steps[-1]["share"] == 0.8
    assert len(steps[-1]["heads"]) == 8
    assert {INDUCTION, PREVIOUS} & {tuple(head) for head in steps[-1]["heads"]} == set()
    assert steps[-1]["loss"] == pytest.approx(steps[0]["loss"], abs=1e-4)
    pruned, whole = glasshead.load(tmp_path / "p"), glasshead.load(run)
    ids = torch.randint(0, 41, (2, 53))
    heads = [tuple(head) for head in steps[-1]["heads"]]
    with glasshead.ablating(whole.model, heads=heads):
        expected = whole.model(ids)
    torch.testing.assert_close(pruned.model(ids), expected)


def test_a_removed_head_is_an_ablated_head():
    torch.manual_seed(0)
    config = glasshead.GPTConfig(vocab_size=31, n_layers=2, n_heads=3, d_model=33, max_len=19)
    model, ids = glasshead.GPT(config).eval(), torch.randint(0, 31, (2, 17))
    with glasshead.ablating(model, heads=[(0, 1), (1, 2)]):
        expected = model(ids)
    before = model(ids)
    remove_heads(model, [(0, 1), (1, 2)])
    torch.testing.assert_close(model(ids), expected)
    assert not torch.allclose(before, expected)


def test_mistakes_have_a_hint(cli, run, text, tmp_path):
    code, _, err = cli("prune", run, text, "--share", "1.5")
    assert code == 2
    assert "the share 1.5 is not between 0 and 1" in err
    (tmp_path / "short.txt").write_text("0123")
    code, _, err = cli("prune", run, tmp_path / "short.txt")
    assert code == 2
    assert "2 windows" in err
