"""Folders that are broken, lie, or mean harm: one line that says so, and nothing made of them."""

import json
import shlex
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from glasshead.checkpoint import import_model
from glasshead.errors import GlassheadError

pytest.importorskip("transformers", reason="needs transformers")

from tests.model import foreign
from tests.observe.peak_memory import peak_memory


@pytest.fixture
def theirs(tmp_path):
    return foreign.folder(tmp_path / "theirs")


@pytest.fixture
def sharded(tmp_path):
    return foreign.save(foreign.build("llama"), tmp_path / "theirs", max_shard_size="20KB")


def refused(path, tmp_path):
    """The message, after a look at what the refusal left behind and what it took."""
    before = peak_memory()
    with pytest.raises(GlassheadError) as found:
        import_model(path, tmp_path / "run")
    assert peak_memory() - before < 100  # MiB
    assert found.value.hint
    assert "\n" not in str(found.value)
    assert [entry for entry in tmp_path.iterdir() if "run" in entry.name] == []
    return str(found.value)


def edit(file, **changes):
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, **changes}))


def write(file, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def one(shape, start, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize("keep", [0, 3, 8, 500, -1])
def test_a_truncated_file(theirs, tmp_path, keep):
    file = theirs / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    assert "model.safetensors is damaged" in refused(theirs, tmp_path)


@pytest.mark.parametrize(
    "header",
    [
        {"a": one([4], 0, 16)},
        {"a": one([10**9], 0, 4 * 10**9)},
        {"a": one([2**62, 4], 0, 16)},
        {"a": one([-1], 0, 4)},
        {"a": one([1], 0, 4), "b": one([1], 0, 4)},
        {"a": one([1], 4, 8)},
        {"a": one([1], 0, 4, "F99")},
        {"a": "tensor"},
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, '
        b'"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
        b"[" * 100_000,
        b"not JSON",
    ],
)
def test_a_header_that_lies(theirs, tmp_path, header):
    write(theirs / "model.safetensors", header, b"\0" * 4)
    assert "model.safetensors is damaged" in refused(theirs, tmp_path)


@pytest.mark.parametrize("size", [2**63, 2**40, 2**20])
def test_a_header_that_is_said_to_be_longer_than_the_file(theirs, tmp_path, size):
    file = theirs / "model.safetensors"
    file.write_bytes(size.to_bytes(8, "little") + file.read_bytes()[8:])
    assert "is damaged" in refused(theirs, tmp_path)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_hidden_layers": 1_000_000}, "1000000 layers"),
        ({"num_hidden_layers": 2**31}, "num_hidden_layers"),
        ({"num_hidden_layers": 3}, "layers.2"),
        ({"num_hidden_layers": 1}, "layers.1"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers"),
        ({"hidden_size": 2**30}, "shape"),
        ({"hidden_size": 25}, "shape"),
        ({"hidden_size": None}, "hidden_size"),
        ({"vocab_size": 2**30}, "shape"),
        ({"vocab_size": 5}, "the model 5"),
        ({"intermediate_size": -31}, "intermediate_size"),
        ({"num_key_value_heads": 4}, "n_kv_heads"),
        ({"num_key_value_heads": 3}, "shape"),
        ({"head_dim": 3}, "even head width"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"hidden_act": "tanh"}, "hidden_act"),
        ({"attention_bias": True}, "bias"),
        ({"tie_word_embeddings": True}, "differ, but config.json says"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 0}}, "factor"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2, "mscale": 0.7}}, "mscale"),
        ({"rope_parameters": [1]}, "rope_parameters"),
        ({"model_type": "mamba"}, "mamba"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"model_type": "gpt2", "n_layer": 2, "n_head": 3}, "lacks"),
    ],
)  # fmt: skip
def test_a_config_that_is_not_the_tensors(theirs, tmp_path, changes, named):
    edit(theirs / "config.json", **changes)
    assert named in refused(theirs, tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '{"a": 1, "a": 2}', "\xff"])
def test_a_config_that_is_none(theirs, tmp_path, text):
    (theirs / "config.json").write_bytes(text.encode("latin-1"))
    assert "config.json" in refused(theirs, tmp_path)


def test_a_tensor_that_is_missing_unknown_or_of_another_shape(theirs, tmp_path):
    file = theirs / "model.safetensors"
    tensors = load_file(file)
    name = "model.layers.1.mlp.up_proj.weight"
    for changed, said in (
        ({n: t for n, t in tensors.items() if n != name}, f"lacks '{name}'"),
        ({**tensors, "model.layers.1.extra": torch.ones(2)}, "has 'model.layers.1.extra'"),
        ({**tensors, name: tensors[name].T.contiguous()}, f"'{name}' of shape"),
        ({**tensors, name: tensors[name].to(torch.int32)}, f"'{name}' as torch.int32"),
        ({**tensors, name: tensors[name].to(torch.float8_e4m3fn)}, f"'{name}' as F8_E4M3"),
    ):
        save_file(changed, file)
        assert said in refused(theirs, tmp_path)


def test_shards_that_do_not_fit_their_index(sharded, tmp_path):
    index = sharded / "model.safetensors.index.json"
    table = json.loads(index.read_text())["weight_map"]
    name, file = next((n, f) for n, f in table.items() if [*table.values()].count(f) > 1)
    other = next(f for f in table.values() if f != file)
    whole = index.read_text()
    for changed, said in (
        ({**table, name: other}, "(1 tensors do not fit)"),
        ({n: f for n, f in table.items() if n != name}, f"has, unlike the index, '{name}'"),
        ({**table, "extra": file}, "lacks 'extra'"),
        ({**table, "extra": "model-9.safetensors"}, "model-9.safetensors is missing"),
        ([], "weight_map"),
        ({name: 3}, "weight_map"),
    ):
        edit(index, weight_map=changed)
        assert said in refused(sharded, tmp_path)
    index.write_text(whole)
    (sharded / other).unlink()
    assert f"{other} is missing" in refused(sharded, tmp_path)


@pytest.mark.parametrize(
    "shard",
    [
        "../secret.safetensors", "/etc/secret.safetensors", "a/../b.safetensors", "..", ".", "",
        "..\\secret.safetensors", "model.bin", "sub/model.safetensors",
    ],
)  # fmt: skip
def test_a_shard_outside_of_its_folder_is_not_opened(sharded, tmp_path, shard):
    (tmp_path / "secret.safetensors").write_bytes(b"not to be read")
    index = sharded / "model.safetensors.index.json"
    table = json.loads(index.read_text())["weight_map"]
    edit(index, weight_map={**table, "extra": shard})
    assert "not a safetensors file in its own folder" in refused(sharded, tmp_path)


def test_pickled_weights_are_refused_with_the_command_that_converts_them(theirs, tmp_path):
    tensors = load_file(theirs / "model.safetensors")
    (theirs / "model.safetensors").unlink()
    torch.save(tensors, theirs / "pytorch_model.bin")
    with pytest.raises(GlassheadError, match=r"pytorch_model\.bin, which is pickled") as found:
        import_model(theirs, tmp_path / "run")
    command = found.value.hint.partition("convert it: ")[2]
    python, *args = shlex.split(command)
    assert python == "python"
    subprocess.run([sys.executable, *args], check=True)
    assert load_file(theirs / "model.safetensors").keys() == tensors.keys()
    import_model(theirs, tmp_path / "run")


def test_a_folder_without_a_part(theirs, tmp_path):
    for name, said in (
        ("model.safetensors", "has no model.safetensors"),
        ("tokenizer.json", "has no tokenizer"),
        ("config.json", "config.json"),
    ):
        kept = (theirs / name).read_bytes()
        (theirs / name).unlink()
        assert said in refused(theirs, tmp_path)
        (theirs / name).write_bytes(kept)
    import_model(theirs, tmp_path / "run")


HUGE = '{"model": {"type": "BPE", "vocab": {"a": 4000000000}, "merges": []}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"model": {}}',
        HUGE + "}",
        HUGE + ', "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, '
        '"trim_offsets": true, "use_regex": true}}',
    ],
)
def test_a_tokenizer_that_is_damaged(theirs, tmp_path, text):
    (theirs / "tokenizer.json").write_text(text)
    assert "tokenizer.json" in refused(theirs, tmp_path)


def test_a_source_that_does_not_exist(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    assert "does not exist" in refused("models/none-of-this-name", tmp_path)
    assert "does not exist" in refused("../../etc/x", tmp_path)
    (tmp_path / "weights.txt").write_text("1 2 3")
    assert "neither a folder nor" in refused(tmp_path / "weights.txt", tmp_path)
