"""Tiny models of every kind, in float64 so that only a mistake can change a token."""

import torch
from hypothesis import strategies as st

from glasshead.model.gpt import GPT, GPTConfig

VOCAB, MAX_LEN = 23, 11
POSITIONS = ["none", "learned", "sinusoidal", "rotary", "alibi"]


def tiny(seed: int = 0, **fields: object) -> GPT:
    torch.manual_seed(seed)
    settings = {
        "vocab_size": VOCAB,
        "max_len": MAX_LEN,
        "n_layers": 2,
        "n_heads": 6,
        "d_model": 24,
        "dropout": 0.5,
    }
    return GPT(GPTConfig(**(settings | fields))).double()


models = st.builds(
    tiny,
    seed=st.integers(0, 2**16),
    positions=st.sampled_from(POSITIONS),
    n_layers=st.sampled_from([0, 1, 3]),
    n_kv_heads=st.sampled_from([None, 1, 2, 3]),
    window=st.sampled_from([None, 1, 4]),
    qk_norm=st.booleans(),
    softcap=st.sampled_from([None, 2.0]),
    norm_place=st.sampled_from(["pre", "post"]),
)
prompts = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=2 * MAX_LEN)
