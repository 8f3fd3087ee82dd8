"""Runs of ours as folders of the transformers library."""

import errno
import json
from dataclasses import asdict

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from glasshead.checkpoint import RunConfig, RunFolder, export_model, exporting, import_model, load
from glasshead.errors import CheckpointError, ConfigError, GlassheadError, InputError
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.pretrained import FAMILIES, family_for
from glasshead.text.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer
from glasshead.text.word_tokenizer import WordTokenizer
from glasshead.training.presets import PRESETS, presets_for

hf = pytest.importorskip("transformers", reason="needs transformers")

from tests.model import foreign  # noqa: E402

TEXT = "春江潮水连海平，海上明月共潮生。\nThe quick cat's mat: 12345  <eos>\tÀ\n"
TOKENIZERS = {
    "char": CharTokenizer.train(TEXT, ["<eos>"]),
    "byte": ByteTokenizer(["<eos>"]),
    "bpe": BPETokenizer.train(TEXT * 3, 283, ["<pad>", "<bos>", "<eos>"]),
}
MODERN = {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "head_bias": False}
FITTING = {
    "gpt2": ({"head_bias": False}, "GPT2LMHeadModel"),
    "gpt2 with biases": (
        {"head_bias": False, "qkv_bias": True, "tied": True, "feed_forward": "gelu-tanh"},
        "GPT2LMHeadModel",
    ),
    "gpt2 without biases": ({"head_bias": False, "bias": False}, "GPT2LMHeadModel"),
    "llama": ({**MODERN, "bias": False}, "LlamaForCausalLM"),
    "llama tied": ({**MODERN, "bias": False, "tied": True, "n_kv_heads": 2}, "LlamaForCausalLM"),
    "llama with biases": ({**MODERN}, "LlamaForCausalLM"),
    "llama with some": ({**MODERN, "bias": False, "qkv_bias": True}, "LlamaForCausalLM"),
    "llama scaled": (
        {**MODERN, "bias": False, "rope_scaling": "yarn:4,32,1,16"},
        "LlamaForCausalLM",
    ),
    "qwen3": (
        {**MODERN, "bias": False, "qk_norm": True, "norm_eps": 1e-6, "d_head": 10},
        "Qwen3ForCausalLM",
    ),
    "qwen3 with relu2": (
        {**MODERN, "bias": False, "qk_norm": True, "qk_eps": 1e-5, "feed_forward": "relu2"},
        "Qwen3ForCausalLM",
    ),
    "llama with relu2 and biases": ({**MODERN, "feed_forward": "relu2"}, "LlamaForCausalLM"),
    "qwen3 with biases": (
        {**MODERN, "bias": False, "qk_norm": True, "qk_eps": 1e-5, "qkv_bias": True},
        "Qwen3ForCausalLM",
    ),
}  # fmt: skip


def make(path, tokenizer=TOKENIZERS["char"], **fields):
    torch.manual_seed(0)
    size = {"max_len": 61, "n_layers": 2, "n_heads": 4, "d_model": 24, "vocab_size": 307}
    config = GPTConfig(**{**size, **fields})
    model = GPT(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    RunFolder.create(path, RunConfig("gpt", asdict(config), {}, {}), tokenizer, model)
    return path


@torch.no_grad()
@pytest.mark.parametrize("name", FITTING)
def test_a_run_becomes_the_same_model_of_theirs(name, tmp_path):
    fields, architecture = FITTING[name]
    run = make(tmp_path / "run", **fields)
    assert export_model(run, tmp_path / "out").architecture == architecture
    theirs, about = hf.AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert type(theirs).__name__ == architecture
    assert not any(about.values())
    ids = torch.randint(307, (2, 59))
    torch.testing.assert_close(theirs.eval()(ids).logits, load(run).model(ids), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("family", ["gpt2", "llama", "llama with some", "qwen3"])
def test_tokenizers_of_ours_give_the_same_ids_there(family, name, tmp_path):
    tokenizer = TOKENIZERS[name]
    export_model(make(tmp_path / "run", tokenizer, **FITTING[family][0]), tmp_path / "out")
    theirs = hf.AutoTokenizer.from_pretrained(tmp_path / "out")
    # There, unlike here, a special that is typed is one.
    text = TEXT.replace("<eos>", "")
    ids = tokenizer.encode_ids(text).tolist()
    assert theirs(text)["input_ids"] == ids
    assert theirs.decode(ids) == text
    assert theirs.eos_token_id == tokenizer.specials["<eos>"]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["eos_token_id"] == tokenizer.specials["<eos>"]
    assert config["bos_token_id"] == tokenizer.specials.get("<bos>")


def test_no_special_is_taken_for_another(tmp_path):
    """Llama's settings would otherwise say that id 2 ends a text."""
    run = make(tmp_path / "run", CharTokenizer.train(TEXT), **FITTING["llama"][0])
    export_model(run, tmp_path / "out")
    model = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.config.eos_token_id is None
    assert model.generation_config.eos_token_id is None


@pytest.mark.parametrize("name", presets_for("text"))
def test_what_a_preset_trains_can_be_exported(name):
    model = {"vocab_size": 307, **PRESETS[name].model}
    assert family_for("gpt", GPTConfig(**model)).architecture


def test_a_gate_that_differs_from_up_is_refused(tmp_path):
    out = tmp_path / "out"
    export_model(make(tmp_path / "run", **FITTING["qwen3 with relu2"][0]), out)
    tensors = load_file(out / "model.safetensors")
    tensors["model.layers.1.mlp.gate_proj.weight"][3, 5] += 1
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"gate_proj.weight and .* differ"):
        load(out)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, ["head_bias=true (not false)"]),
        ({"head_bias": False, "window": 7}, ["window=7 (not none)"]),
        ({"head_bias": False, "norm_place": "post"}, ["norm_place=post"]),
        ({"head_bias": False, "softcap": 5.0}, ["softcap=5.0"]),
        ({**MODERN, "feed_forward": "gelu", "logit_softcap": 9.0},
         ["feed_forward=gelu (not swiglu or relu2)", "logit_softcap=9.0 (not none)"]),
        ({**MODERN, "bias": False, "qk_norm": True},
         ["from llama: qk_norm=true (not false)", "from qwen3: "]),
        ({"n_layers": 0, "positions": "none"}, ["n_layers=0", "positions=none"]),
    ],
)  # fmt: skip
def test_a_model_that_no_family_can_hold_is_refused_with_what_stands_in_the_way(
    fields, named, tmp_path
):
    with pytest.raises(ConfigError) as found:
        export_model(make(tmp_path / "run", **fields), tmp_path / "out")
    for name in named:
        assert name in str(found.value)
    assert not (tmp_path / "out").exists()


def test_words_of_a_list_are_refused(tmp_path):
    run = make(tmp_path / "words", WordTokenizer(["a", "b"]), **FITTING["gpt2"][0])
    with pytest.raises(GlassheadError, match="word"):
        export_model(run, tmp_path / "out")


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    run = make(tmp_path / "run", **FITTING["gpt2"][0])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="exists already"):
        export_model(run, tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_of_two_that_make_the_same_folder_neither_touches_the_other(tmp_path, monkeypatch):
    run, out = make(tmp_path / "run", **FITTING["gpt2"][0]), tmp_path / "out"
    export_model(run, tmp_path / "alone" / "out")
    expected = {p.name: p.read_bytes() for p in (tmp_path / "alone" / "out").iterdir()}
    write, turns = exporting.write_tensors, []

    def interrupted(*args):
        turns.append(None)
        if len(turns) == 1:
            export_model(run, out)  # the other begins and ends while this one is half done
            out.rename(tmp_path / "other")
        write(*args)

    monkeypatch.setattr(exporting, "write_tensors", interrupted)
    export_model(run, out)
    for folder in (out, tmp_path / "other"):
        assert {p.name: p.read_bytes() for p in folder.iterdir()} == expected
    assert sorted(p.name for p in tmp_path.iterdir()) == ["alone", "other", "out", "run"]


def test_an_export_that_fails_leaves_nothing(tmp_path, monkeypatch):
    run = make(tmp_path / "run", **FITTING["gpt2"][0])

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(exporting, "write_tensors", full)
    with pytest.raises(CheckpointError, match=r"cannot write .*out: No space left"):
        export_model(run, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_run_whose_parameters_are_not_its_settings_is_refused(tmp_path):
    run = make(tmp_path / "run", **FITTING["gpt2"][0])
    (run / "checksums.json").unlink()
    file = run / "config.json"
    data = json.loads(file.read_text())
    for changes, said in (({"d_model": 28}, "shape"), ({"n_layers": 3}, "lacks")):
        file.write_text(json.dumps({**data, "model": {**data["model"], **changes}}))
        with pytest.raises(CheckpointError, match=said):
            export_model(run, tmp_path / "out")


def test_every_family_takes_back_the_settings_that_it_writes():
    from glasshead.model.pretrained import ForeignConfig

    for fields, _ in FITTING.values():
        config = GPTConfig(**{"vocab_size": 307, "d_model": 24, **fields})
        family = family_for("gpt", config)
        again = family.config(ForeignConfig(family.settings(config)))
        assert family.settings(again) == {
            **family.settings(config),
            **{n: 0.0 for n in family.settings(config) if "drop" in n},
        }
        assert family_for("gpt", again, family.name) is FAMILIES[family.name]


def test_a_trained_model_scores_the_same_loss_there(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "".join(f"{n} times {n % 7} is {n * (n % 7)}.\n" for n in range(2000))
    (tmp_path / "text.txt").write_text(text)
    flags = (
        "--positions rotary --norm rms --feed-forward swiglu --no-qk-norm --no-bias "
        "--no-head-bias --tied --steps 20 --max-len 31 --n-layers 2 --d-model 32 "
        "--eval-batches 2 --out run"
    )
    assert cli("train", "text.txt", *flags.split()).code == 0
    assert cli("export", "run", "-o", "out").code == 0
    loaded = load("run")
    theirs = hf.AutoModelForCausalLM.from_pretrained("out").eval()
    tokenizer = hf.AutoTokenizer.from_pretrained("out")
    held = text[-3000:]
    ids = torch.tensor(tokenizer(held)["input_ids"])
    assert ids.tolist() == loaded.tokenizer.encode_ids(held).tolist()
    blocks = ids[: len(ids) // 31 * 31].view(-1, 31)
    with torch.no_grad():
        ours = loaded.model(blocks)[:, :-1].flatten(0, 1)
        mine = F.cross_entropy(ours, blocks[:, 1:].flatten()).item()
        other = theirs(blocks, labels=blocks).loss.item()
    assert mine == pytest.approx(other, abs=1e-4)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "`text.txt`" in card
    assert str(tmp_path) not in card
    best = min(
        row["val_loss"]
        for row in map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
        if "val_loss" in row
    )
    assert f"{best:.4f}" in card


@pytest.mark.parametrize(
    ("fitting", "tokenizer", "brings"),
    [("llama", "char", True), ("llama", "byte", True), ("llama", "bpe", False),
     ("llama", "endless", False), ("qwen3", "char", False), ("gpt2", "char", False)],
)  # fmt: skip
def test_a_llama_brings_what_converters_read_characters_from(tmp_path, fitting, tokenizer, brings):
    ours = TOKENIZERS.get(tokenizer, CharTokenizer.train(TEXT))
    run = make(tmp_path / "run", ours, **FITTING[fitting][0])
    out = export_model(run, tmp_path / "out").path
    about = json.loads((out / "tokenizer_config.json").read_text())
    assert (out / "tokenizer.model").exists() is brings
    assert (about.get("add_bos_token") is False) is brings
    if brings:
        text = TEXT.replace("<eos>", " ")  # theirs reads the word as the token
        ids = hf.AutoTokenizer.from_pretrained(out).encode(text)
        assert ids == ours.encode_ids(text).tolist()


def test_the_ids_that_end_a_text_are_those_of_the_generation_config(tmp_path):
    path = foreign.folder(tmp_path / "theirs", eos_token_id=3)
    ends = {"eos_token_id": [3, 5]}
    (path / "generation_config.json").write_text(json.dumps(ends))
    run = import_model(path, tmp_path / "run")
    assert run.config.data["imported"]["ids"] == ends
    export_model(run.path, tmp_path / "out")
    written = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert written.items() >= ends.items()
