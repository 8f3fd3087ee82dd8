"""Tiny translators of every kind, in float64 so that only a mistake can change a token."""

from dataclasses import asdict
from pathlib import Path

import torch
from hypothesis import strategies as st

from glasshead.checkpoint import RunConfig, RunFolder
from glasshead.generation.translation_rows import SpecialTokens
from glasshead.model.transformer import Transformer, TransformerConfig
from glasshead.text.tokenizer import BPETokenizer, Tokenizer

VOCAB, MAX_LEN = 11, 29
PAD, BOS, EOS = 0, 1, 2
MARKS = SpecialTokens(BOS, EOS, (PAD, BOS))
SPECIALS = ("<pad>", "<bos>", "<eos>")


def tiny(seed: int = 0, sharp: float = 1.0, **fields: object) -> Transformer:
    """`sharp` multiplies the logits."""
    torch.manual_seed(seed)
    settings = {"max_len": MAX_LEN, "n_layers": 1, "n_decoder_layers": 2, "n_heads": 2,
                "d_model": 12, "d_ff": 17, "dropout": 0.5, "tied": False, "pad": PAD}  # fmt: skip
    model = Transformer(TransformerConfig(**({"vocab_size": VOCAB} | settings | fields)))
    with torch.no_grad():
        model.head.weight.mul_(sharp)
    return model.double()


models = st.builds(
    tiny,
    seed=st.integers(0, 2**16),
    sharp=st.sampled_from([1.0, 3.0, 9.0]),
    positions=st.sampled_from(["none", "learned", "sinusoidal", "rotary", "alibi"]),
    norm_place=st.sampled_from(["pre", "post"]),
    n_kv_heads=st.sampled_from([None, 1]),
    qk_norm=st.booleans(),
)
sources = st.lists(st.integers(3, VOCAB - 1), min_size=1, max_size=13)


def make_translator(
    path: Path,
    tokenizer: Tokenizer,
    data: dict[str, object] | None = None,
    seed: int = 0,
    **fields: object,
) -> Path:
    """The folder of a run whose model is tiny, untrained, and moved by what it reads."""
    torch.manual_seed(seed)
    size = {"max_len": 64, "n_layers": 2, "n_decoder_layers": 3, "n_heads": 4, "d_model": 32,
            "tied": False, "shared": False}  # fmt: skip
    pad = tokenizer.specials["<pad>"]
    config = TransformerConfig(vocab_size=tokenizer.vocab_size, pad=pad, **(size | fields))
    model = Transformer(config)
    with torch.no_grad():
        model.head.weight.mul_(4)
        for block in model.decoder.blocks:
            block.cross.qkv.weight.mul_(2)
            block.cross.out.weight.mul_(3)
    about = RunConfig(kind="transformer", model=asdict(config), train={}, data=data or {})
    RunFolder.create(path, about, tokenizer, model)
    return path


def small_bpe(text: str, merges: int = 40) -> BPETokenizer:
    return BPETokenizer.train(text, vocab_size=256 + len(SPECIALS) + merges, specials=SPECIALS)
