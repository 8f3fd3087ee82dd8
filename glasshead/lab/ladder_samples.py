"""What a rung changes in the code against the rung below, and what it writes."""

from collections.abc import Sequence

import torch

from glasshead.lab.rungs import RUNGS
from glasshead.model.gpt import GPT
from glasshead.text.tokenizer import CharTokenizer

__all__ = ["changes", "write_samples"]

PROMPTS = ("春江", "往事")
LENGTH = 24  # characters of a sample, with its prompt


def changes(number: int) -> list[str]:
    """Return what a rung changes in the config of the rung below, as lines of a diff.

    >>> changes(4)
    ['- n_heads = 1', '+ n_heads = 4']
    """
    below = RUNGS[number - 1] if number > 1 else None
    lines = []
    for name, value in RUNGS[number].model.items():
        before = below.model.get(name) if below else None
        if below is None:
            lines.append(f"+ {name} = {value!r}")
        elif value != before:
            lines += [f"- {name} = {before!r}"] if name in below.model else []
            lines.append(f"+ {name} = {value!r}")
    return lines


@torch.no_grad()
def write_samples(model: GPT, tokenizer: CharTokenizer, seed: int, start: str) -> tuple[str, ...]:
    """Continue each prompt whose characters the model knows, else `start`."""
    known = set(tokenizer.characters)
    prompts: Sequence[str] = [p for p in PROMPTS if set(p) <= known] or [start]
    was_training = model.training
    model.eval()  # without dropout
    try:
        return tuple(_continue(model, tokenizer, prompt, seed) for prompt in prompts)
    finally:
        model.train(was_training)


def _continue(model: GPT, tokenizer: CharTokenizer, prompt: str, seed: int) -> str:
    device = model.embedding.weight.device
    draw = torch.Generator().manual_seed(seed)
    ids = torch.as_tensor(tokenizer.encode_ids(prompt)).long()[None].to(device)
    while ids.shape[1] < LENGTH:
        logits = model(ids[:, -model.config.max_len :])[0, -1]
        new = torch.multinomial(logits.float().softmax(-1).cpu(), 1, generator=draw)
        ids = torch.cat([ids, new[None].to(device)], 1)
    return tokenizer.decode(ids[0].tolist())
