"""A long atlas made in a second: exact, because its keys come from few kinds.

A key is what stands there (one of 48 words) and in which part of the text. How many of each kind a
row can see is counted, so its log-sum-exp is a sum over kinds, not over keys.
"""

import torch
from torch import Tensor

from glasshead.attention.hooks import Layer
from glasshead.attention.mask import Mask
from glasshead.attention.scores import Scoring
from glasshead.observe.trace import Trace
from glasshead.observe.trace_storage import LayerTrace, RecordedCall

__all__ = ["SCRIPT", "long_atlas"]

KINDS, PART, D, HEADS = 48, 4096, 16, 2
SCRIPT = "<img src=x onerror=alert(1)></script>"  # a token like any other


def long_atlas(n: int) -> Trace:
    generator = torch.Generator().manual_seed(3)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    parts = -(-n // PART)
    words = torch.randint(KINDS, (n,), generator=generator)
    turn = torch.arange(parts)[:, None] * torch.tensor([0.7, 1.9, 0.11, 0.31])
    place = torch.cat([turn.cos(), turn.sin(), torch.zeros(parts, D - 8)], 1)  # (parts, D)
    kinds = torch.cat([torch.zeros(HEADS, KINDS, 8), some(HEADS, KINDS, D - 8)], 2)
    keys = kinds[:, None] * 1.5 + place[:, None] * 3  # (H, parts, KINDS, D)
    keys[:, 0, words[0]] += 3.0  # what stands first is a sink
    q = 0.9 * some(HEADS, n, D) + keys[:, torch.arange(n) // PART, words]
    k = keys[:, torch.arange(n) // PART, words]
    lse = torch.stack([_lse(*one, words) for one in zip(q, keys, strict=True)])
    layer = Layer(0, "blocks.0.attention", "self")
    tokens = [chr(0x4E00 + int(word)) for word in words]
    tokens[5] = SCRIPT
    seen = Trace([layer], model="Made up", tokens=tokens)
    span = RecordedCall(0, n, 0, n, Mask(causal=True), Scoring())
    seen.layer_traces[0] = LayerTrace(layer, (1, HEADS, n, n), [span], q[None], k[None], lse[None])
    return seen


def _lse(q: Tensor, keys: Tensor, words: Tensor) -> Tensor:
    """(n,) in float64 from scores of kinds, each counted as often as it is seen."""
    found, seen = [], torch.zeros(len(keys) * KINDS, dtype=torch.float64)
    flat = keys.flatten(0, 1).double() / D**0.5
    for part, (rows, here) in enumerate(zip(q.split(PART), words.split(PART), strict=True)):
        own = slice(part * KINDS, (part + 1) * KINDS)
        upto = torch.nn.functional.one_hot(here, KINDS).double().cumsum(0)  # (rows, KINDS)
        before = rows.double() @ flat[: own.start].T + seen[: own.start].log()
        now = rows.double() @ flat[own].T + upto.log()
        found.append(torch.cat([before, now], 1).logsumexp(1))
        seen[own] = upto[-1]
    return torch.cat(found).float()
