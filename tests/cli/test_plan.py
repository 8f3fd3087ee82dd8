"""`glasshead plan`, as it is typed, and the page that is made of what it prints."""

import json
import re
import shlex
from dataclasses import asdict
from pathlib import Path

import pytest

from glasshead.checkpoint import RunConfig, RunFolder
from glasshead.lab.plan.tables import amount, duration
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.text.tokenizer import CharTokenizer

DOCS = Path(__file__).resolve().parents[2] / "docs"
TINY = "--n-layers 2 --n-heads 3 --d-model 24 --vocab-size 67 --max-len 32 --batch-size 5"


def test_it_prints_memory_time_and_speed(cli):
    code, out, err = cli("plan", "gpt2", "--batch-size", "16")
    assert (code, err) == (0, "")
    for words in ("124,439,808", "1 x h200", "logits", "matrix products", "tokens/s", "Muon"):
        assert words.lower() in out.lower()
    assert "all-reduce" not in out


def test_several_gpus_have_a_table_of_messages(cli):
    out = cli("plan", "llama-1b", "--gpus", "16", "--parallel", "fsdp").out
    assert "reduce-scatter" in out
    assert "waiting for other GPUs" in out


def test_chinese_where_it_is_asked_for(cli):
    out = cli("plan", "gpt2", "--gpus", "4", "--lang", "zh").out
    for words in ("参数", "激活值", "每个 GPU 的内存", "梯度", "词元/秒"):
        assert words in out


def test_json_is_one_object_with_plain_numbers(cli):
    code, out, err = cli("plan", "llama-8b", "--gpus", "8", "--tensor", "8", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["parameters"]["total"] == 8_030_261_248
    assert data["layout"] == {"gpus": 8, "parallel": "ddp", "tensor": 8, "context": 1, "data": 1}
    assert data["training"]["step"] == pytest.approx(sum(data["training"]["seconds"].values()))
    assert {"generating", "observing"} <= data.keys()


def test_what_does_not_fit_says_so_and_what_would(cli):
    code, out, _ = cli("plan", "llama-8b", "--batch-size", "16")
    assert code == 0
    assert "does not fit" in out
    assert re.search(r"this would fit: --gpus \d+ --parallel fsdp", out)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["gtp2"], "'gtp2' is not a preset"),
        (["nano"], "the vocabulary size of nano is not known"),
        (["gpt2", "--gpu", "h300"], "no data sheet for the device 'h300'"),
        (["gpt2", "--gpus", "6", "--tensor", "4"], "gpus (6) must be divisible"),
        (["gpt2", "--d-model", str(12 * 10**11)], "width 1,200,000,000,000"),
        (["gpt2", "--vocab-size", str(10**20)], "and 100,000,000,000,000,000,000 tokens"),
        (["gpt2", "--n-layers", "0"], "n_layers (0) must be from 1 to 10,000"),
        (["gpt2", "--n-layers", "1000000000"], "n_layers (1000000000) must be from 1"),
        (["gpt2", "--gpus", "2", "--measure"], "--measure runs on one device"),
    ],
)
def test_a_mistake_is_one_line_and_a_hint(cli, args, message):
    code, out, err = cli("plan", *args)
    assert (code, out) == (2, "")
    assert message in err
    assert "hint: " in err


def test_a_run_is_planned_by_its_folder(cli, tmp_path):
    config = GPTConfig(vocab_size=5, max_len=17, n_layers=1, n_heads=3, d_model=21)
    about, tokenizer = RunConfig("gpt", asdict(config), {}, {}), CharTokenizer.train(["a b c"])
    run = RunFolder.create(tmp_path / "run", about, tokenizer, GPT(config)).path
    data = json.loads(cli("plan", run, "--json", "--batch-size", "7").out)
    assert (data["model"], data["batch_size"]) == (asdict(config), 7)


def test_measuring_tells_expected_and_measured(cli):
    code, out, err = cli("plan", *shlex.split(TINY), "--gpu", "cpu", "--measure", "--json")
    assert (code, err) == (0, "")
    found = {(one["what"], one["unit"]): one for one in json.loads(out)["measured"]}
    assert set(found) == {
        *((what, unit) for what in ("train", "decode", "observe") for unit in "sB"),
        ("prefill", "s"),
    }
    assert all(one["measured"] > 0 and one["probed"] > 0 for one in found.values())


@pytest.mark.parametrize("page", ["scaling.md", "scaling.zh.md"])
def test_the_page_shows_what_the_command_prints(cli, page):
    text = (DOCS / page).read_text(encoding="utf-8")
    shown = re.findall(r"```bash\nglasshead (plan [^\n]*)\n```\n```text\n(.*?)```", text, re.DOTALL)
    assert shown
    for command, output in shown:
        printed = [line.rstrip() for line in cli(*shlex.split(command)).out.strip().splitlines()]
        assert output.splitlines() == printed
        speed = json.loads(cli(*shlex.split(command), "--json").out)["training"]["tokens_per_s"]
        assert re.search(r"(\d+) (?:days|天)", text)[1] == f"{1e12 / speed / 86400:.0f}"
    base, rows = re.search(r"\| `glasshead (.*) …`.*\n\|[-:|]+\n((?:\|.*\n)+)", text).groups()
    for row in rows.splitlines():
        flags, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        data = json.loads(cli(*shlex.split(base), *shlex.split(flags.strip("`")), "--json").out)
        assert cells == figures(data["training"], "zh" in page)
    # What stands beside what was measured.
    plan = json.loads(cli(*shlex.split("plan gpt2 --batch-size 64 --optimizer adamw --json")).out)
    last = text.rpartition("\n## ")[2]
    planned = re.findall(r"^\| [^|]+ \| ([\d.]+) \| [\d.]+ \|$", last, re.MULTILINE)
    assert planned == [f"{1000 * s:.3g}" for s in plan["training"]["seconds"].values() if s]


def figures(training, chinese):
    memory = amount(training["memory"]["peak"], "B")
    if not training["fits"]:
        memory += "，放不下" if chinese else ", does not fit"
    return [
        memory,
        duration(training["step"]),
        duration(training["seconds"]["communication"]),
        amount(training["tokens_per_s"]),
    ]
