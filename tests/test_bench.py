"""The benchmarks run, compare like with like, and write where they should and nowhere else."""

import doctest
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench import growth, growth_picture, observe_peers, table, train
from bench.__main__ import main
from bench.table import Row, write_between_markers
from glasshead.observe.statistics import observe

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.deep
def test_one_area_for_real_prints_a_table_keeps_it_and_leaves_the_page_alone(tmp_path):
    page = tmp_path / "results.md"
    page.write_text("# Results\n\nbefore\n\n## After\n\nafter\n")
    words = ["--area", "train", "--quick", "--device", "cpu", "--out", tmp_path, "--page", page]
    command = [sys.executable, "-m", "bench", *map(str, words)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    [file] = tmp_path.glob("*-cores.json")
    kept = json.loads(file.read_text())
    transformers, nanogpt = (Row(**row) for row in kept["areas"]["train"])
    assert transformers.ratio == transformers.ours / transformers.theirs > 0
    assert min(transformers.ours, transformers.limit) > 0
    ours, theirs = (float(word.strip(",")) for word in transformers.note.split() if "." in word)
    assert ours == pytest.approx(theirs, abs=1e-3)  # the same batches, the same steps
    assert nanogpt.theirs is None
    assert "no --peer-nanogpt: left out" in told
    text = page.read_text()
    assert text.startswith("# Results\n\nbefore\n\n## After\n\nafter\n")
    slug = file.stem
    block = text.split(f"<!-- bench:{slug} -->")[1].split(f"<!-- /bench:{slug} -->")[0]
    assert "**Train**" in block
    assert "transformers GPT-2" in block


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--area", "trian"], "unknown area 'trian'\n\nhint: one of attention"),
        (["--peer-nanogpt", "tests"], "tests has no model.py\n\nhint: "),
    ],
)
def test_a_mistake_is_named_with_a_hint(words, problem, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert problem in capsys.readouterr().err


def test_text_between_markers_is_replaced_and_what_is_outside_stays(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("1\n\n<!-- a -->\nold\n<!-- /a -->\n\n2 <!-- b --> x <!-- /b -->\n")
    for _ in range(2):  # the second changes nothing
        write_between_markers(page, "a", r"new \g<0>")
        after = "1\n\n<!-- a -->\n\nnew \\g<0>\n\n<!-- /a -->\n\n2 <!-- b --> x <!-- /b -->\n"
        assert page.read_text() == after


@pytest.mark.parametrize("work", growth.WORKS, ids=lambda work: work.__name__)
def test_growth_is_measured_by_real_work(work):
    size = growth.Size(length=17, width=64, batch=2, n_layers=1, vocab_size=31, device="cpu")
    for found in work(size).values():
        assert found.seconds > 0


def test_growth_is_drawn_and_told(tmp_path):
    points = [
        {"work": work, "axis": axis, "at": n, "ms": 0.5 * n**power, "mb": 3.0 * n}
        for axis in ("length", "batch")
        for work, power in (("train", 2), ("observe", 1))
        for n in (128, 256, 512)
    ]
    machine = {"slug": "cpu-2-cores", "name": "CPU, 2 cores", "torch": "2.13.0"}
    base = {"n_layers": 4, "width": 256, "length": 256, "batch": 1}
    kept = {"machine": machine, "base": base, "points": points}
    lines = growth.page(kept).splitlines()
    assert "| length | train | 128 | 512 | 8,192 to 131,072 | 384 to 1,536 | 2.0 | 1.0 |" in lines
    growth_picture.draw(kept, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_the_eager_statistics_are_those_of_observe():
    observe_peers.check_agreement(observe_peers.Workload(T=512, width=8))
    q, k, ids = observe_peers.inputs(observe_peers.Workload(T=64, heads=3, width=16))
    wrong = observe(q, 1.1 * k, observe_peers.CAUSAL, ids=ids)
    theirs = observe_peers.dense(q, k, ids)
    assert not torch.allclose(wrong.entropy, theirs["entropy"], atol=1e-5)


def test_a_row_is_the_better_the_larger_its_ratio_whatever_its_unit():
    assert Row("", "", "ms", ours=2.0, theirs=3.0).ratio == 1.5
    assert Row("", "", "tokens/s", ours=2.0, theirs=3.0).ratio == pytest.approx(2 / 3)
    assert Row("", "", "ms", ours=2.0, theirs=None, note="left out").ratio is None


@pytest.mark.parametrize("module", [growth_picture, table], ids=lambda module: module.__name__)
def test_examples_in_docstrings_hold(module):
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_operations_of_a_token_are_those_of_a_counted_model():
    model = train.GPT(train.TINY)
    c = train.TINY
    matrices = c.n_layers * 12 * c.d_model**2 + c.vocab_size * c.d_model
    attention = c.n_layers * c.max_len * c.d_model
    assert math.isclose(train.operations(model), 6 * (matrices + attention))
