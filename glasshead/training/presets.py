"""Ready sizes: settings of the model and of the training that go together."""

from dataclasses import dataclass, field
from typing import Any

from glasshead.errors import ConfigError, did_you_mean

__all__ = ["PRESETS", "Preset", "find_preset", "presets_for"]


@dataclass(frozen=True)
class Preset:
    says: str
    model: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)  # of what it is trained on
    task: str = "text"


# What today's models share: positions in the rotation of q and k, RMS norms, no biases.
_MODERN: dict[str, Any] = {
    "positions": "rotary",
    "norm": "rms",
    "feed_forward": "relu2",
    "qk_norm": True,
    "bias": False,
    "head_bias": False,
    "init": "gpt2",
}

PRESETS = {
    "nano": Preset(
        "a minute and a half on two cores",
        {**_MODERN, "n_layers": 4, "n_heads": 4, "d_model": 128, "max_len": 64},
        {"steps": 800, "batch_size": 16},
    ),
    "tiny": Preset(
        "ten minutes or so on a laptop",
        {**_MODERN, "n_layers": 6, "n_heads": 4, "d_model": 256, "max_len": 128},
        {"steps": 2500, "batch_size": 32},
    ),
    "small": Preset(
        "for a GPU, or a night",
        {**_MODERN, "n_layers": 8, "n_heads": 8, "d_model": 512, "max_len": 512, "dropout": 0.1},
        {"steps": 5000, "batch_size": 64},
    ),
    "llama": Preset(
        "nano as a small Llama, which `glasshead export` takes to other programs",
        {
            **{name: _MODERN[name] for name in ("positions", "norm", "bias", "head_bias", "init")},
            "feed_forward": "swiglu",
            "n_layers": 4,
            "n_heads": 4,
            "d_model": 128,
            "max_len": 64,
        },
        {"steps": 800, "batch_size": 16},
        {"portable": True},
    ),
    "gpt2": Preset(
        "GPT-2 of 124 million parameters as it was, for a large GPU",
        {
            "n_layers": 12,
            "n_heads": 12,
            "d_model": 768,
            "max_len": 1024,
            "vocab_size": 50257,
            "feed_forward": "gelu-tanh",
            "qkv_bias": True,
            "head_bias": False,
            "tied": True,
            "init": "gpt2",
        },
        {
            "steps": 20000,
            "batch_size": 16,
            "accumulate": 8,
            "optimizer": "adamw",
            "lr": 6e-4,
            "schedule": "cosine",
            "final_lr": 0.1,
        },
    ),
    # Found on Multi30k, validation only: Muon learns in a quarter of AdamW's steps, R-Drop is
    # worth three BLEU, words cut at random (bpe_dropout) cost some at this length of training.
    "pairs": Preset(
        "some ten thousand sentence pairs: minutes on a GPU, hours on a laptop",
        {
            "n_layers": 4,
            "n_heads": 4,
            "d_model": 256,
            "d_ff": 1024,
            "dropout": 0.2,
            "weight_dropout": 0.1,
            "vocab_size": 8000,
        },
        {
            "steps": 2000,
            "lr": 3e-3,
            "beta2": 0.98,
            "weight_decay": 1e-4,
            "warmup": 0.05,
            "schedule": "cosine",
            "ema": 0.998,
            "compile": "off",  # lengths change from batch to batch
        },
        {"label_smoothing": 0.1, "rdrop": 5.0, "max_tokens": 16000},
        "pairs",
    ),
    "pairs-tiny": Preset(
        "a few thousand short pairs: a minute or two on a laptop",
        {"n_layers": 2, "n_heads": 4, "d_model": 128, "max_len": 64},
        {"steps": 1000, "ema": 0.99, "lr": 2e-3, "compile": "off"},
        {"label_smoothing": 0.1, "max_tokens": 1024, "eval_pairs": 200},
        "pairs",
    ),
    "marian": Preset(
        "pairs-tiny as a small Marian, which `glasshead export` takes to other programs",
        {
            "positions": "sinusoidal-split",
            "norm_place": "post",
            "feed_forward": "silu",
            "head_bias": True,
            "n_layers": 2,
            "n_heads": 4,
            "d_model": 128,
            "max_len": 64,
        },
        {"steps": 1000, "ema": 0.99, "lr": 2e-3, "compile": "off"},
        {"label_smoothing": 0.1, "max_tokens": 1024, "eval_pairs": 200},
        "pairs",
    ),
    # A narrow feed-forward and a tied head leave the finding of the word to attention: wider or
    # untied, the reader is as right, and attention shows less of how.
    "reader": Preset(
        "what the pronouns of the embedded world stand for: half a minute on one core",
        {"n_layers": 2, "n_heads": 4, "d_model": 64, "d_ff": 64, "max_len": 64, "dropout": 0.0},
        {"steps": 1400, "batch_size": 64},
        task="refer",
    ),
    "translator": Preset(
        "the embedded world from one language to another: a minute on one core",
        {"n_layers": 2, "n_heads": 4, "d_model": 64, "d_ff": 128, "max_len": 64, "dropout": 0.0},
        {"steps": 800},
        {"max_tokens": 2048},
        "world",
    ),
}


def presets_for(task: str) -> list[str]:
    """Their names; the first is the usual one.

    >>> presets_for("text")
    ['nano', 'tiny', 'small', 'llama', 'gpt2']
    """
    return [name for name, preset in PRESETS.items() if preset.task == task]


def find_preset(name: str, task: str) -> Preset:
    """The preset of that name, which must be for this task."""
    fitting = presets_for(task)
    if name not in PRESETS:
        raise ConfigError(f"there is no preset '{name}'", hint=did_you_mean(name, PRESETS))
    if name not in fitting:
        raise ConfigError(
            f"preset '{name}' is for {PRESETS[name].task}, not for {task}",
            hint=f"for {task} there are: {', '.join(fitting)}",
        )
    return PRESETS[name]
