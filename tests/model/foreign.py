"""Folders with tiny models of the transformers library, of the families that can be imported."""

import torch
import transformers as hf
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = "The quick cat sat on the mat; it's happy. 小猫饿了，它在睡。"
VOCABULARY = 293  # a prime, and more than the tokenizer has

_GPT2 = {"n_positions": 97, "n_embd": 21, "n_layer": 2, "n_head": 3}
_LLAMA = {
    "hidden_size": 24,
    "intermediate_size": 31,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 97,
}


def _rope(kind, **numbers):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **numbers}}


LLAMA3 = _rope(
    "llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=37,
)
CASES = {
    "gpt2": (hf.GPT2Config, _GPT2),
    "gpt2 untied": (hf.GPT2Config, {**_GPT2, "tie_word_embeddings": False, "n_inner": 31}),
    "gpt2 relu": (hf.GPT2Config, {**_GPT2, "activation_function": "relu", "n_layer": 1}),
    "llama": (hf.LlamaConfig, _LLAMA),
    "llama tied": (hf.LlamaConfig, {**_LLAMA, "tie_word_embeddings": True, "head_dim": 10}),
    "llama one group": (hf.LlamaConfig, {**_LLAMA, "num_key_value_heads": 6}),
    "llama attention bias": (hf.LlamaConfig, {**_LLAMA, "attention_bias": True}),
    "llama mlp bias": (hf.LlamaConfig, {**_LLAMA, "mlp_bias": True, "rms_norm_eps": 1e-3}),
    "llama linear": (hf.LlamaConfig, {**_LLAMA, **_rope("linear", factor=3.0)}),
    "llama llama3": (hf.LlamaConfig, {**_LLAMA, "head_dim": 14, **LLAMA3}),
    "llama yarn": (
        hf.LlamaConfig,
        {
            **_LLAMA,
            "max_position_embeddings": 96,
            "head_dim": 14,
            **_rope("yarn", factor=4.0, original_max_position_embeddings=24),
        },
    ),
    "qwen2": (hf.Qwen2Config, {**_LLAMA, "rope_parameters": None}),
    "qwen3": (hf.Qwen3Config, {**_LLAMA, "head_dim": 10}),
    "qwen3 bias": (
        hf.Qwen3Config,
        {**_LLAMA, "head_dim": 10, "attention_bias": True, "rms_norm_eps": 1e-3},
    ),
}


def tokenizer():
    """Byte-level BPE, as GPT-2 has it."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=283,
        special_tokens=["<|endoftext|>"],
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    inner.train_from_iterator([TEXT] * 3, trainer)
    return hf.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|endoftext|>")


def shaken(model):
    """Parameters that are neither zero nor one, where drawn ones would be."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def build(name, **changes):
    kind, settings = CASES[name]
    torch.manual_seed(0)
    marks = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = kind(**{"vocab_size": VOCABULARY, **marks, **settings, **changes})
    return shaken(hf.AutoModelForCausalLM.from_config(config))


def save(model, path, **options):
    model.save_pretrained(path, **options)
    tokenizer().save_pretrained(path)
    return path


def folder(path, name="llama", **changes):
    return save(build(name, **changes), path)


def same_bytes(one, other):
    """Whether two safetensors files hold the same tensors, bit for bit."""
    a, b = load_file(one), load_file(other)
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype
        and a[name].shape == b[name].shape
        and torch.equal(
            a[name].contiguous().flatten().view(torch.uint8),
            b[name].contiguous().flatten().view(torch.uint8),
        )
        for name in a
    )


def their_greedy(model, ids, n):
    """All n ids, whether or not one of them ends a text."""
    model.generation_config.eos_token_id = None
    plain = hf.GenerationConfig(max_new_tokens=n, do_sample=False)
    found = model.generate(
        torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), generation_config=plain
    )
    return found[0, len(ids) :].tolist()
