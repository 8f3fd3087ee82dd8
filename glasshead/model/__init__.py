"""Models: `layers.py` holds the parts, `gpt.py` the decoder-only model made of them."""
