"""Presets: settings of the model, the data and the training that go together."""

from dataclasses import dataclass, field
from typing import Any

from glasshead.errors import ConfigError, did_you_mean

__all__ = ["PRESETS", "Preset", "find_preset", "presets_for"]


@dataclass(frozen=True)
class Preset:
    says: str  # what it is for
    model: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)  # settings of the dataset
    task: str = "text"


# What most models share today: rotary positions, RMS norms, no biases.
_MODERN = {
    "positions": "rotary", "norm": "rms", "bias": False, "head_bias": False, "init": "gpt2"
}  # fmt: skip
# As a Qwen3 has one epsilon for all norms, so that what these presets train can be exported.
_NANOGPT = {**_MODERN, "feed_forward": "relu2", "qk_norm": True, "qk_eps": 1e-5}
_NANO = {"n_layers": 4, "n_heads": 4, "d_model": 128, "max_len": 64}
_PAIRS_TINY = {"n_layers": 2, "n_heads": 4, "d_model": 128, "max_len": 64}
_WORLD = {"n_layers": 2, "n_heads": 4, "d_model": 64, "max_len": 64, "dropout": 0.0}

PRESETS = {
    "nano": Preset(
        "a minute and a half on two cores",
        {**_NANOGPT, **_NANO},
        {"steps": 800, "batch_size": 16},
    ),
    "tiny": Preset(
        "ten minutes or so on a laptop",
        {**_NANOGPT, "n_layers": 6, "n_heads": 4, "d_model": 256, "max_len": 128},
        {"steps": 2500, "batch_size": 32},
    ),
    "small": Preset(
        "for a GPU, or a night",
        {**_NANOGPT, "n_layers": 8, "n_heads": 8, "d_model": 512, "max_len": 512, "dropout": 0.1},
        {"steps": 5000, "batch_size": 64},
    ),
    "llama": Preset(
        "nano as a small Llama, which `glasshead export` takes to other programs",
        {**_MODERN, **_NANO, "feed_forward": "swiglu"},
        {"steps": 800, "batch_size": 16},
        {"portable": True},
    ),
    "gpt2": Preset(
        "GPT-2 of 124 million parameters as it was, for a large GPU",
        {
            "n_layers": 12, "n_heads": 12, "d_model": 768, "max_len": 1024, "vocab_size": 50257,
            "feed_forward": "gelu-tanh", "qkv_bias": True, "head_bias": False, "tied": True,
            "init": "gpt2",
        },
        {
            "steps": 20000, "batch_size": 16, "accumulate": 8, "optimizer": "adamw", "lr": 6e-4,
            "schedule": "cosine", "final_lr": 0.1,
        },
    ),
    # Found on Multi30k, validation only: Muon learns in a quarter of AdamW's steps, R-Drop is
    # worth three BLEU, bpe_dropout costs some at this length of training. Without compiling,
    # because lengths change from batch to batch.
    "pairs": Preset(
        "some ten thousand sentence pairs: minutes on a GPU, hours on a laptop",
        {
            "n_layers": 4, "n_heads": 4, "d_model": 256, "d_ff": 1024, "dropout": 0.2,
            "weight_dropout": 0.1, "vocab_size": 8000,
        },
        {
            "steps": 2000, "lr": 3e-3, "beta2": 0.98, "weight_decay": 1e-4, "warmup": 0.05,
            "schedule": "cosine", "ema": 0.998, "compile": "off",
        },
        {"label_smoothing": 0.1, "rdrop": 5.0, "max_tokens": 16000},
        "pairs",
    ),
    "pairs-tiny": Preset(
        "a few thousand short pairs: a minute or two on a laptop",
        _PAIRS_TINY,
        {"steps": 1000, "ema": 0.99, "lr": 2e-3, "compile": "off"},
        {"label_smoothing": 0.1, "max_tokens": 1024, "eval_pairs": 200},
        "pairs",
    ),
    "marian": Preset(
        "pairs-tiny as a small Marian, which `glasshead export` takes to other programs",
        {
            **_PAIRS_TINY, "positions": "sinusoidal-split", "norm_place": "post",
            "feed_forward": "silu", "head_bias": True,
        },
        {"steps": 1000, "ema": 0.99, "lr": 2e-3, "compile": "off"},
        {"label_smoothing": 0.1, "max_tokens": 1024, "eval_pairs": 200},
        "pairs",
    ),
    # With a wider feed-forward or an untied head, the reader is as often right, but finds the word
    # less by attention, which then shows less of how it does so.
    "reader": Preset(
        "what the pronouns of the embedded world stand for: half a minute on one core",
        {**_WORLD, "d_ff": 64},
        {"steps": 1400, "batch_size": 64},
        task="refer",
    ),
    "translator": Preset(
        "the embedded world from one language to another: a minute on one core",
        {**_WORLD, "d_ff": 128},
        {"steps": 800},
        {"max_tokens": 2048},
        "world",
    ),
}  # fmt: skip


def presets_for(task: str) -> list[str]:
    """Return the names of a task's presets; the first is the default.

    >>> presets_for("text")
    ['nano', 'tiny', 'small', 'llama', 'gpt2']
    """
    return [name for name, preset in PRESETS.items() if preset.task == task]


def find_preset(name: str, task: str) -> Preset:
    """Return a preset by name; raise ConfigError if it is not for this task."""
    fitting = presets_for(task)
    if name not in PRESETS:
        raise ConfigError(f"unknown preset '{name}'", hint=did_you_mean(name, PRESETS))
    if name not in fitting:
        raise ConfigError(
            f"preset '{name}' is for {PRESETS[name].task}, not for {task}",
            hint=f"choose one of: {', '.join(fitting)}",
        )
    return PRESETS[name]
