"""Models whose mechanism is known, because their parameters are set by hand."""

import torch
from torch import nn

from glasshead.model.gpt import GPT, GPTConfig
from glasshead.text.tokenizer import CharTokenizer

V, T, HEADS = 41, 67, 5
PREVIOUS, INDUCTION = (0, 2), (1, 3)  # which heads it is made of
SHARP = 60.0

TOKENIZER = CharTokenizer("".join(sorted(chr(ord("0") + i) for i in range(V))))


@torch.no_grad()
def induction_model() -> GPT:
    """A GPT of two layers that predicts what followed the token last time, and nothing else.

    The residual stream has four parts: the token, the position, the token before (written by head
    2 of layer 0), and the prediction (written by head 3 of layer 1). The other heads write nothing:
    their queries and keys are random, so that their attention looks like that of any head.
    """
    torch.manual_seed(5)
    width = 3 * V + T
    config = GPTConfig(
        vocab_size=V, max_len=T, n_layers=2, n_heads=HEADS, d_model=width, d_head=max(V, T),
        norm_place="none", feed_forward="none", bias=False, head_bias=False,
    )  # fmt: skip
    model = GPT(config).eval()
    token, place = slice(0, V), slice(V, V + T)
    before, answer = slice(V + T, 2 * V + T), slice(2 * V + T, width)
    for block in model.blocks:
        n = HEADS * block.attention.d_head
        nn.init.normal_(block.attention.qkv.weight[: 2 * n], std=0.05)
        block.attention.qkv.weight[2 * n :] = 0
        block.attention.out.weight.zero_()
    model.embedding.weight.zero_()
    model.embedding.weight[:, token] = torch.eye(V)
    model.positions.table.weight.zero_()
    model.positions.table.weight[:, place] = torch.eye(T)
    shift = torch.zeros(T, T)
    shift[torch.arange(T - 1), torch.arange(1, T)] = 1  # position i asks for i - 1
    _set(model, PREVIOUS, (place, shift), (place, torch.eye(T)), token, before)
    _set(model, INDUCTION, (token, torch.eye(V)), (before, torch.eye(V)), token, answer)
    model.head.weight.zero_()
    model.head.weight[:, answer] = 9 * torch.eye(V)
    return model


def _set(model: GPT, head, query, key, read: slice, write: slice) -> None:
    """Let a head compare parts of the residual stream, and move a part to another."""
    layer, h = head
    attention = model.blocks[layer].attention
    D = attention.d_head
    q, k, v = attention.qkv.weight.view(3, HEADS, D, -1)[:, h]
    for x, (part, matrix) in ((q, query), (k, key)):
        x.zero_()
        x[: len(matrix), part] = matrix
    q *= SHARP * D**0.5 / 4
    v[: read.stop - read.start, read] = torch.eye(read.stop - read.start)
    out = attention.out.weight.view(-1, HEADS, D)[:, h]
    out[write, : write.stop - write.start] = torch.eye(write.stop - write.start)
