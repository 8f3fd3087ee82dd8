"""Recordings of tiny models whose weights are far from equal, to be shown."""

import torch

from glasshead.generation.opening import open_inspectable
from glasshead.observe.trace import Trace
from glasshead.text.tokenizer import BPETokenizer
from tests.generation.runs import make_run
from tests.generation.translators import make_translator, small_bpe

TEXT = "那只小猫看见<蝴蝶> it's & $5，它饿了，它走了。"


def read(folder) -> Trace:
    """By a GPT whose tokens are parts of characters."""
    tokenizer = BPETokenizer.train(TEXT, vocab_size=258)
    subject = open_inspectable(make_run(folder / "cat", tokenizer, max_len=128, n_layers=3))
    with torch.no_grad():
        for block in subject.model.blocks:
            block.attention.qkv.weight.mul_(4)
    return subject.record(TEXT)


def translated(folder) -> Trace:
    text = "ein hund rennt durch den schnee. a dog runs through the snow." * 3
    path = make_translator(folder / "dog", small_bpe(text, 60))
    return open_inspectable(path).record("ein hund rennt")
