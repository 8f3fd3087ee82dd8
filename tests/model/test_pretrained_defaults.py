"""A setting that config.json leaves out is the one that the transformers library then takes."""

import json

import pytest
import torch
from safetensors.torch import load_file

from glasshead.checkpoint import import_model, load
from glasshead.model.pretrained import FAMILIES
from glasshead.model.pretrained.family import ForeignConfig

hf = pytest.importorskip("transformers", reason="needs transformers")

from tests.model import foreign  # noqa: E402

KINDS = {
    "gpt2": hf.GPT2Config,
    "llama": hf.LlamaConfig,
    "qwen2": hf.Qwen2Config,
    "qwen3": hf.Qwen3Config,
    "bert": hf.BertConfig,
    "marian": hf.MarianConfig,
}
# What a small model says of itself; none of it is a default, so that each line tells by itself.
WRITTEN = {
    "llama": {
        "vocab_size": 293, "hidden_size": 60, "intermediate_size": 31, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 97,
        "head_dim": 14, "hidden_act": "relu", "rms_norm_eps": 1e-3, "tie_word_embeddings": True,
        "attention_bias": True, "mlp_bias": True,
    },
    "gpt2": {
        "vocab_size": 293, "n_positions": 97, "n_embd": 36, "n_layer": 2, "n_head": 3,
        "n_inner": 31, "activation_function": "relu", "layer_norm_epsilon": 1e-3,
        "tie_word_embeddings": False,
    },
    "bert": {
        "vocab_size": 293, "max_position_embeddings": 97, "num_hidden_layers": 2,
        "num_attention_heads": 6, "hidden_size": 60, "intermediate_size": 31, "hidden_act": "relu",
        "layer_norm_eps": 1e-3, "type_vocab_size": 3, "pad_token_id": 5,
    },
    "marian": {
        "vocab_size": 293, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 31, "decoder_ffn_dim": 31, "max_position_embeddings": 97,
        "encoder_layers": 2, "decoder_layers": 3, "d_model": 64, "activation_function": "relu",
        "scale_embedding": True,
    },
}  # fmt: skip
WRITTEN |= dict.fromkeys(("qwen2", "qwen3"), WRITTEN["llama"])
# Their configs have no such setting, or ours asks for it instead of guessing the size of a model.
NEEDED = {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
          "num_attention_heads"}  # fmt: skip
LACKS = {"qwen2": {"head_dim", "attention_bias", "mlp_bias"}, "qwen3": {"mlp_bias"}}
# Marian's two halves have to be alike, so neither can be left out alone.
PAIRED = {"encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim",
          "decoder_ffn_dim"}  # fmt: skip
# Their default, 32 heads of keys, fits only models with a multiple of 32 heads.
LEFT_OUT = {
    name: set(values)
    - LACKS.get(name, set())
    - PAIRED
    - (NEEDED if WRITTEN[name] is WRITTEN["llama"] else set())
    - ({"num_key_value_heads"} if name.startswith("qwen") else set())
    for name, values in WRITTEN.items()
}


@pytest.mark.parametrize(
    ("name", "setting"), [(name, each) for name in LEFT_OUT for each in sorted(LEFT_OUT[name])]
)
def test_a_setting_that_is_left_out_is_theirs(name, setting):
    short = {key: value for key, value in WRITTEN[name].items() if key != setting}
    default = getattr(KINDS[name](**short), setting)
    assert default != WRITTEN[name][setting]  # so the line says something
    family = FAMILIES[name]
    guessed = family.config(ForeignConfig(short))
    assert guessed == family.config(ForeignConfig({**short, setting: default}))
    assert guessed != family.config(ForeignConfig(WRITTEN[name]))


@torch.no_grad()
def test_a_qwen3_without_a_head_width_is_read_as_theirs(tmp_path):
    model = foreign.build("qwen3", head_dim=128)
    path = foreign.save(model, tmp_path / "theirs")
    config = json.loads((path / "config.json").read_text())
    assert config.pop("head_dim") == hf.Qwen3Config().head_dim
    (path / "config.json").write_text(json.dumps(config))
    assert (
        load_file(path / "model.safetensors")["model.layers.0.self_attn.q_norm.weight"].numel()
        == 128
    )
    ids = torch.randint(foreign.VOCABULARY, (3, 59))
    ours = load(import_model(path, tmp_path / "run").path).model
    torch.testing.assert_close(ours(ids), model(ids).logits, rtol=0, atol=1e-4)
