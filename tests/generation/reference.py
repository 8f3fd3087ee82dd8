"""Plain decoding to compare with: one text, no cache, nothing but the model and `choose`."""

import random
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from glasshead.generation.sampling import PLAIN, SamplingConfig, choose
from glasshead.model.gpt import GPT


def decode_plainly(
    model: GPT,
    prompt: Sequence[int],
    config: SamplingConfig = PLAIN,
    *,
    max_tokens: int,
    stop_ids: Collection[int] = (),
    seed: int = 0,
    row: int = 0,
    logits: list[Tensor] | None = None,
) -> list[int]:
    """Return the new ids. What each was picked from, (V,), is appended to `logits`."""
    max_len, device = model.config.max_len, model.embedding.weight.device
    text, stream = list(prompt), random.Random(f"{seed} {row}")
    start = max(0, len(text) - max_len)
    training = model.training
    model.eval()
    for _ in range(max_tokens):
        if len(text) - start > max_len:
            start = len(text) - max(1, max_len // 2)
        with torch.no_grad():
            last = model(torch.tensor([text[start:]], device=device))[:, -1]
        seen = None
        if config.repetition_penalty != 1:
            seen = torch.zeros_like(last, dtype=torch.bool)
            seen[0, text] = True
        if logits is not None:
            logits.append(last[0])
        token = int(choose(last, config, [stream.random()], seen))
        if token in stop_ids:
            break
        text.append(token)
    model.train(training)
    return text[len(prompt) :]
