"""Runs of ours as one GGUF file."""

import pytest
import torch

from glasshead.checkpoint import export_model, import_model, load
from glasshead.errors import CheckpointError, GlassheadError
from glasshead.text.bpe import split_gpt2_words
from glasshead.text.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer

gguf = pytest.importorskip("gguf", reason="needs gguf")
hf = pytest.importorskip("transformers", reason="needs transformers")

from tests.model.test_pretrained_export import FITTING, TEXT, TOKENIZERS, make  # noqa: E402

BPE = BPETokenizer.train(TEXT * 3, 283, ["<eos>"], split_gpt2_words)
REFUSED = {"llama scaled", "qwen3 with biases", "qwen3 with relu2", "llama with relu2 and biases"}
HELD = [name for name in FITTING if name.startswith(("llama", "qwen3")) and name not in REFUSED]


@pytest.mark.parametrize("name", HELD)
def test_a_file_gives_back_the_parameters_bit_for_bit(name, tmp_path):
    run = make(tmp_path / "run", BPE, **FITTING[name][0])
    made = export_model(run, tmp_path / "models" / "m.gguf")
    assert (made.path, made.architecture) == (tmp_path / "models" / "m.gguf", FITTING[name][1])
    assert [p.name for p in made.path.parent.iterdir()] == ["m.gguf"]
    again = load(import_model(made.path, tmp_path / "again").path)
    mine = load(run)
    ids = torch.randint(307, (2, 59))
    torch.testing.assert_close(again.model(ids), mine.model(ids), rtol=0, atol=1e-5)
    for part in ("folder", "other"):  # with the biases that theirs has and ours may lack
        export_model(run if part == "folder" else tmp_path / "again", tmp_path / part)
    both = [hf.AutoModelForCausalLM.from_pretrained(tmp_path / p) for p in ("folder", "other")]
    there, back = (model.state_dict() for model in both)
    assert there.keys() == back.keys()
    assert all(torch.equal(there[key], back[key]) for key in there)


@pytest.mark.parametrize("tokenizer", [BPE, TOKENIZERS["char"], TOKENIZERS["byte"]])
def test_a_file_gives_back_the_tokenizer(tokenizer, tmp_path):
    run = make(tmp_path / "run", tokenizer, **FITTING["llama"][0])
    again = load(import_model(export_model(run, tmp_path / "m.gguf").path, tmp_path / "back").path)
    assert again.tokenizer.encode_ids(TEXT).tolist() == tokenizer.encode_ids(TEXT).tolist()
    assert again.tokenizer.specials == tokenizer.specials
    assert again.config.data["imported"]["ids"]["eos_token_id"] == tokenizer.specials["<eos>"]


def test_the_transformers_library_reads_the_words_the_same(tmp_path):
    export_model(make(tmp_path / "run", BPE, **FITTING["llama"][0]), tmp_path / "m.gguf")
    theirs = hf.AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    text = TEXT.replace("<eos>", "")
    assert theirs(text)["input_ids"] == BPE.encode_ids(text).tolist()


@torch.no_grad()
def test_the_transformers_library_reads_the_same_model(tmp_path):
    pytest.importorskip("accelerate", reason="transformers reads GGUF with accelerate only")
    run = make(tmp_path / "run", BPE, **{**FITTING["llama"][0], "n_kv_heads": 2})
    export_model(run, tmp_path / "m.gguf")
    theirs = hf.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf").eval()
    ids = torch.randint(307, (2, 59))
    torch.testing.assert_close(theirs(ids).logits, load(run).model(ids), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("dtype", "kind"), [(torch.bfloat16, "BF16"), (torch.float16, "F16")])
def test_half_the_bits_stay_half_the_bits(dtype, kind, tmp_path):
    from safetensors.torch import load_file, save_file

    run = make(tmp_path / "run", BPE, **FITTING["llama"][0])
    file = run / "model.safetensors"
    halves = {name: tensor.to(dtype) for name, tensor in load_file(file).items()}
    save_file(halves, file)
    made = export_model(run, tmp_path / "m.gguf").path
    kinds = {t.name: t.tensor_type.name for t in gguf.GGUFReader(made).tensors}
    assert (kinds["token_embd.weight"], kinds["output_norm.weight"]) == (kind, "F32")
    again = load_file(import_model(made, tmp_path / "again").path / "model.safetensors")
    assert all(torch.equal(again[name].float(), halves[name].float()) for name in halves)


@pytest.mark.parametrize(
    ("family", "tokenizer", "named"),
    [
        ("gpt2", BPE, "not gpt2"),
        ("llama scaled", BPE, "rope_scaling"),
        ("qwen3 with relu2", BPE, "hidden_act silu only"),
        ("qwen3 with biases", BPE, "no bias in o_proj"),
        ("llama", TOKENIZERS["bpe"], "cannot split words as this bpe"),
        ("llama", BPETokenizer.train("ab", 257, ["<eos>"], split_gpt2_words), "cannot split words"),
        ("llama", CharTokenizer.train(TEXT), "no <eos>"),
        ("llama", CharTokenizer.train("▁", ["<eos>"]), "characters is ▁"),
        ("llama", ByteTokenizer(), "no <eos>"),
    ],
)
def test_what_llama_cpp_could_not_run_is_refused(family, tokenizer, named, tmp_path):
    run = make(tmp_path / "run", tokenizer, **FITTING[family][0])
    with pytest.raises(GlassheadError, match=named) as found:
        export_model(run, tmp_path / "m.gguf")
    assert found.value.hint
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("tokenizer", [BPE, TOKENIZERS["char"], TOKENIZERS["byte"]])
def test_a_tokenizer_with_more_ids_than_the_model_is_refused(tokenizer, tmp_path):
    size = tokenizer.vocab_size
    for less, fits in ((0, True), (1, False)):
        shape = {**FITTING["llama"][0], "vocab_size": size - less}
        run, out = make(tmp_path / f"run-{less}", tokenizer, **shape), tmp_path / f"{less}.gguf"
        if fits:
            export_model(run, out)
        else:
            with pytest.raises(GlassheadError, match=f"has {size} ids, the model {size - 1}"):
                export_model(run, out)
        assert out.exists() == fits


def test_a_file_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "m.gguf").write_text("mine")
    with pytest.raises(CheckpointError, match="exists already"):
        export_model(make(tmp_path / "run", BPE, **FITTING["llama"][0]), tmp_path / "m.gguf")
    assert (tmp_path / "m.gguf").read_text() == "mine"


def test_a_folder_of_its_name_is_in_the_way(tmp_path):
    (tmp_path / "m.gguf").mkdir()
    with pytest.raises(CheckpointError, match=r"m\.gguf is a folder") as found:
        export_model(make(tmp_path / "run", BPE, **FITTING["llama"][0]), tmp_path / "m.gguf")
    assert "remove it" in found.value.hint
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.gguf", "run"]


@pytest.mark.parametrize("name", ["m", "m.gguf"])
def test_a_file_where_a_folder_must_be_is_in_the_way(name, tmp_path):
    (tmp_path / "notes").write_text("mine")
    run = make(tmp_path / "run", BPE, **FITTING["llama"][0])
    with pytest.raises(CheckpointError, match="a file is in the way") as found:
        export_model(run, tmp_path / "notes" / name)
    assert "room" not in found.value.hint


def test_of_two_that_write_the_same_file_neither_touches_the_other(tmp_path, monkeypatch):
    run = make(tmp_path / "run", BPE, **FITTING["llama"][0])
    export_model(run, tmp_path / "alone" / "m.gguf")
    out, write, inside = tmp_path / "m.gguf", gguf.GGUFWriter.write_tensor_data, []

    def meanwhile(writer, tensor):
        write(writer, tensor)
        if not inside:
            inside.append(writer)
            export_model(run, out)  # the other begins and ends while this one is half done
            out.rename(tmp_path / "other.gguf")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensor_data", meanwhile)
    export_model(run, out)
    expected = (tmp_path / "alone" / "m.gguf").read_bytes()
    assert out.read_bytes() == expected
    assert (tmp_path / "other.gguf").read_bytes() == expected
    assert sorted(p.name for p in tmp_path.iterdir()) == ["alone", "m.gguf", "other.gguf", "run"]


def test_a_disk_that_is_full_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(writer, tensor):
        raise OSError(28, "No space left on device")

    run = make(tmp_path / "run", BPE, **FITTING["llama"][0])
    monkeypatch.setattr(gguf.GGUFWriter, "write_tensor_data", full)
    with pytest.raises(CheckpointError, match="No space left") as found:
        export_model(run, tmp_path / "m.gguf")
    assert "make room" in found.value.hint
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
