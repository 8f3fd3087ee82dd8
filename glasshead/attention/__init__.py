"""Attention, from five NumPy functions to fused kernels.

Read `steps.py` first, then `mask.py`, `scores.py`, `functional.py`, `multihead.py`. The names below
are imported when they are first used; `glasshead.attention.steps` needs NumPy only.
"""

from typing import TYPE_CHECKING

from glasshead.lazy import lazy_names

if TYPE_CHECKING:
    from glasshead.attention.cache import *
    from glasshead.attention.functional import *
    from glasshead.attention.hooks import *
    from glasshead.attention.mask import *
    from glasshead.attention.multihead import *
    from glasshead.attention.norm import *
    from glasshead.attention.position import *
    from glasshead.attention.rope_scaling import *
    from glasshead.attention.scores import Scoring as Scoring

_NAMES = {
    "cache": ["Cache", "FixedCache", "GrowingCache", "MemoryCache"],
    "functional": ["AttendResult", "allow_nan", "as_mask", "attend"],
    "hooks": ["AttentionCall", "AttentionHook", "Layer", "PendingCall"],
    "mask": ["ALLOW_ALL", "Mask", "padding"],
    "multihead": ["AttentionOutput", "MultiHeadAttention"],
    "norm": ["RMSNorm", "rms_norm"],
    "position": [
        *("ALiBiPositions", "LearnedPositions", "Positions", "RotaryPositions", "Rotation"),
        *("SinusoidalPositions", "SplitSinusoidalPositions", "alibi_slopes", "sinusoids"),
    ],
    "rope_scaling": [
        *("SCALINGS", "LinearScaling", "Llama3Scaling", "Scaling", "YarnScaling", "parse_scaling")
    ],
    "scores": ["Scoring"],
}

if not TYPE_CHECKING:  # a type checker then finds names that do not exist
    __all__ = [name for names in _NAMES.values() for name in names]
    __getattr__, __dir__ = lazy_names(__name__, globals(), _NAMES)
