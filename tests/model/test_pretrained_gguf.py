"""Models in one GGUF file."""

import json

import numpy as np
import pytest
import torch

from glasshead.checkpoint import export_model, import_model, load
from glasshead.errors import InputError

hf = pytest.importorskip("transformers", reason="needs transformers")
gguf = pytest.importorskip("gguf", reason="needs gguf")

from tests.model import foreign  # noqa: E402

_THERE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def interleaved(weight, n_heads):
    """Queries and keys as llama.cpp has Llama's: dimension d of a head beside d + D/2."""
    halves = weight.reshape(n_heads, 2, len(weight) // n_heads // 2, -1)
    return halves.swapaxes(1, 2).reshape(weight.shape)


def write(path, model, quantise=None, **changes):
    """A file as llama.cpp's converter makes it of a model of theirs."""
    c, arch = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, arch)
    numbers = {
        "block_count": c.num_hidden_layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
        "attention.key_length": c.head_dim if arch != "qwen2" else c.hidden_size // 6,
        **changes,
    }
    for name, number in numbers.items():
        writer.add_uint32(f"{arch}.{name}", number)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", c.rms_norm_eps)
    writer.add_float32(f"{arch}.rope.freq_base", c.rope_parameters["rope_theta"])
    inner = foreign.tokenizer().backend_tokenizer
    vocabulary = sorted(inner.get_vocab(), key=inner.token_to_id)
    merges = json.loads(inner.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary)
    writer.add_token_types([3, *[1] * (len(vocabulary) - 1)])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ messages }}")
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        values, stem = tensor.numpy(), name.rpartition(".")[0]
        layer = ""
        if stem.startswith("model.layers."):
            number, _, stem = stem.removeprefix("model.layers.").partition(".")
            layer = f"blk.{number}."
        if arch == "llama" and stem in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = c.num_attention_heads if "q_proj" in stem else c.num_key_value_heads
            values = interleaved(values, heads)
        there = f"{layer}{_THERE[stem]}.{name.rpartition('.')[2]}"
        if quantise and values.ndim == 2:
            packed = gguf.quantize(values, quantise)
            writer.add_tensor(there, packed, raw_dtype=quantise)
        else:
            writer.add_tensor(there, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "llama tied", "llama attention bias", "qwen2", "qwen3"])
def test_a_file_gives_the_model_that_it_was_made_of(name, tmp_path):
    model = foreign.build(name)
    run = import_model(write(tmp_path / "model.gguf", model), tmp_path / "run")
    loaded = load(run.path)
    ids = torch.randint(foreign.VOCABULARY, (2, 53))
    torch.testing.assert_close(loaded.model(ids), model(ids).logits, rtol=0, atol=1e-4)
    expected = foreign.tokenizer()(foreign.TEXT)["input_ids"]
    assert loaded.tokenizer.prompt_ids(foreign.TEXT) == expected
    assert loaded.tokenizer.specials == {"<|endoftext|>": 0}
    assert run.config.data["imported"]["chat_template"] == "{{ messages }}"
    foreign.save(model, tmp_path / "theirs")
    export_model(run.path, tmp_path / "out")
    files = [tmp_path / part / "model.safetensors" for part in ("theirs", "out")]
    assert foreign.same_bytes(*files)


@torch.no_grad()
def test_quantised_tensors_become_the_numbers_that_they_stand_for(tmp_path):
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16}
    model = foreign.build("llama", **sizes)
    kind = gguf.GGMLQuantizationType.Q8_0
    run = import_model(write(tmp_path / "m.gguf", model, kind), tmp_path / "run")
    for parameter in model.parameters():
        if parameter.dim() == 2:
            packed = gguf.quantize(parameter.numpy(), kind)
            parameter.copy_(torch.from_numpy(gguf.dequantize(packed, kind)))
    ids = torch.randint(foreign.VOCABULARY, (2, 53))
    torch.testing.assert_close(load(run.path).model(ids), model(ids).logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("keep", [0, 3, 100, 5000, -1])
def test_a_truncated_file_is_refused(keep, tmp_path):
    file = write(tmp_path / "m.gguf", foreign.build("llama"))
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"m\.gguf"):
        import_model(file, tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"block_count": 1_000_000}, "1000000 layers"),
        ({"embedding_length": 2**30}, "shape"),
        ({"attention.head_count": 0}, "head_count"),
        ({"rope.dimension_count": 2}, "dimensions"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(changes, named, tmp_path):
    file = write(tmp_path / "m.gguf", foreign.build("llama"), **changes)
    with pytest.raises(InputError, match=named):
        import_model(file, tmp_path / "run")


def test_two_tensors_of_one_name_are_refused(tmp_path):
    file = write(tmp_path / "m.gguf", foreign.build("llama"))
    data = file.read_bytes()
    file.write_bytes(data.replace(b"blk.0.attn_v.weight", b"blk.0.attn_k.weight", 1))
    with pytest.raises(InputError, match=r"m\.gguf.*(two|duplicate)"):
        import_model(file, tmp_path / "run")


def test_a_length_that_lies_is_refused_before_anything_is_allocated(tmp_path):
    file = write(tmp_path / "m.gguf", foreign.build("llama"))
    data = bytearray(file.read_bytes())
    at = data.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens") + 4
    data[at : at + 12] = (0).to_bytes(4, "little") + (2**40).to_bytes(8, "little")  # single bytes
    file.write_bytes(data)
    with pytest.raises(InputError, match="it announces 1099511627776 bytes"):
        import_model(file, tmp_path / "run")
