"""What is written for other programs, read as they read it."""

import csv
import json

import numpy as np
import pytest
import torch

from glasshead.errors import InputError
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.roles.compare import changes
from glasshead.roles.files import as_json, head_rows, write_streaming, write_table
from glasshead.roles.naming import name_heads
from glasshead.roles.probes import ProbeSizes
from glasshead.roles.proof import Scope
from glasshead.roles.subject import subject_of_run
from tests.roles.circuits import HEADS, INDUCTION, PREVIOUS, TOKENIZER, V, induction_model
from tests.roles.test_naming import PROBES, text


@pytest.fixture(scope="module")
def found():
    return name_heads(subject_of_run("planted", induction_model(), TOKENIZER), [text()],
                      probes=PROBES)  # fmt: skip


def test_json_holds_roles_and_proofs(found):
    data = json.loads(json.dumps(as_json(found), allow_nan=False))
    assert data["roles"]["induction"]["heads"] == [list(INDUCTION)]
    assert data["proofs"]["induction"]["needed"] is True
    assert data["proofs"]["induction"]["rise"] > max(data["proofs"]["induction"]["others"])


def test_the_table_has_a_row_for_each_head(found, tmp_path):
    write_table(found, tmp_path / "heads.csv")
    lines = (tmp_path / "heads.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(lines))
    assert [(int(r["layer"]), int(r["head"])) for r in rows] == [
        (layer, h) for layer in range(2) for h in range(HEADS)
    ]
    assert [r["roles"] for r in rows][PREVIOUS[1]] == "previous"
    assert float(rows[HEADS + INDUCTION[1]]["score_induction"]) > 0.9
    assert list(rows[0]) == list(head_rows(found)[0])


def test_duo_attention_reads_which_heads_need_all_keys(found, tmp_path):
    """As its own reader does: a matrix of layers and heads of keys, 1 where all keys are needed."""
    write_streaming(found, tmp_path / "pattern")
    matrix = np.loadtxt(tmp_path / "pattern/full_attention_heads.tsv", dtype=float, delimiter="\t")
    config = json.loads((tmp_path / "pattern/config.json").read_text())
    assert matrix.shape == (2, HEADS)
    assert (config["sink_size"], config["recent_size"]) == (1, 128)
    assert ((0 <= matrix) & (matrix <= 1)).all()
    assert matrix[INDUCTION] == 1  # it retrieves
    assert matrix[PREVIOUS] < 1e-3


def test_heads_of_keys_take_the_query_head_that_needs_most(tmp_path):
    torch.manual_seed(1)
    model = GPT(GPTConfig(vocab_size=V, max_len=331, n_layers=1, n_heads=6, n_kv_heads=2,
                          d_model=60, positions="rotary"))  # fmt: skip
    one = name_heads(subject_of_run("grouped", model, TOKENIZER), [text(2000)],
                     probes=ProbeSizes(2, 311), scope=Scope(draws=0))  # fmt: skip
    write_streaming(one, tmp_path)
    matrix = np.loadtxt(tmp_path / "full_attention_heads.tsv", delimiter="\t")
    need = (1 - one.measured.streaming[0]).view(2, 3).amax(-1)
    np.testing.assert_allclose(matrix, need.numpy(), atol=1e-5)
    assert (matrix > 0.1).all()


def test_parquet_without_pyarrow_is_a_mistake_with_a_hint(found, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="needs pyarrow"):
        write_table(found, tmp_path / "heads.parquet")


def test_a_head_that_lost_its_role_is_a_change(found):
    model = induction_model()
    with torch.no_grad():
        model.blocks[1].attention.qkv.weight.view(3, HEADS, 67, -1)[:, INDUCTION[1]] = 0
    other = name_heads(subject_of_run("other", model, TOKENIZER), [text()], probes=PROBES)
    lost = [(one.head, one.role, one.appeared) for one in changes(found, other)]
    assert (INDUCTION, "induction", False) in lost
    assert (INDUCTION, "induction", True) in [
        (one.head, one.role, one.appeared) for one in changes(other, found)
    ]
    assert changes(found, found) == []
