"""Models: `layers.py` holds the blocks, `gpt.py` and `transformer.py` the models made of them.

The names below are imported when they are first used.
"""

from typing import TYPE_CHECKING

from glasshead.lazy import lazy_names

if TYPE_CHECKING:
    from glasshead.model.gpt import *
    from glasshead.model.layers import Block as Block
    from glasshead.model.layers import CrossBlock as CrossBlock
    from glasshead.model.layers import FeedForward as FeedForward
    from glasshead.model.layers import GatedFeedForward as GatedFeedForward
    from glasshead.model.loss import *
    from glasshead.model.transformer import *

_NAMES = {
    "gpt": ["GPT", "GPTConfig"],
    "layers": ["Block", "CrossBlock", "FeedForward", "GatedFeedForward"],
    "loss": ["feature_loss", "head_loss", "next_token_loss"],
    "transformer": [
        *("Decoder", "Encoder", "LayerCaches", "Memory"),
        *("Reader", "Transformer", "TransformerConfig"),
    ],
}

if not TYPE_CHECKING:  # a type checker then finds names that do not exist
    __all__ = [name for names in _NAMES.values() for name in names]
    __getattr__, __dir__ = lazy_names(__name__, globals(), _NAMES)
