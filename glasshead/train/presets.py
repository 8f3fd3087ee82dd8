"""Ready sizes: settings of the model and of the training that go together."""

from dataclasses import dataclass, field
from typing import Any

from glasshead.errors import ConfigError, did_you_mean

__all__ = ["PRESETS", "Preset", "find_preset"]


@dataclass(frozen=True)
class Preset:
    says: str
    model: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)


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
        "about a minute on two cores of a laptop",
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
}


def find_preset(name: str) -> Preset:
    if name not in PRESETS:
        raise ConfigError(f"there is no preset '{name}'", hint=did_you_mean(name, PRESETS))
    return PRESETS[name]
