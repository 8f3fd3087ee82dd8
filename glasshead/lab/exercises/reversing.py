"""A toy language for translators: the sentence backwards. Its alignment is known."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from rich.console import RenderableType
from rich.text import Text
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.lab.exercises.learner import LearnerFile
from glasshead.lab.exercises.looking import TEXTS, WIDTH, LookAttention, LookParts, one_thread
from glasshead.lab.texts import Language

__all__ = ["ReversalModel", "learner_translator", "show_reversal"]

LETTERS = "abcdefghij"
LENGTH = 7  # at most; not more than the width of a head
STEPS, BATCH, RATE = 500, 64, 5e-3
START = PADDING = len(LETTERS)


class PlainCross(nn.Module):
    """Cross-attention of four heads, (B, T, C), (B, S, C), (B, S) -> (B, T, C)."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        split, merge = LookParts().split, LookParts().merge
        q, k, v = split(self.query(x), 4), split(self.key(memory), 4), split(self.value(memory), 4)
        mask = keep[:, None, None, :]
        return self.out(merge(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))


class ReversalBlock(nn.Module):
    """A pre-norm block: self-attention, cross-attention where there is some, feed-forward."""

    def __init__(self, cross: nn.Module | None) -> None:
        super().__init__()
        parts = LookParts()
        self.itself = LookAttention(parts) if cross is not None else PlainCross()
        self.cross, self.feed_forward = cross, parts.feed_forward()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))

    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        y = self.norms[0](x)
        if self.cross is None:
            x = x + self.itself(y, y, more[0])
        else:
            x = x + self.itself(y)
            x = x + self.cross(self.norms[1](x), *more)
        return x + self.feed_forward(self.norms[2](x))


class ReversalModel(nn.Module):
    """An encoder-decoder of one block each, with any cross-attention."""

    def __init__(self, cross: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.source, self.target = (nn.Embedding(len(LETTERS) + 1, WIDTH) for _ in range(2))
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.encoder, self.decoder = ReversalBlock(None), ReversalBlock(cross())
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, len(LETTERS))

    def forward(self, source: Tensor, keep: Tensor, target: Tensor) -> Tensor:
        at = self.positions(torch.arange(LENGTH))
        memory = self.norms[0](self.encoder(self.source(source) + at[: source.shape[1]], keep))
        x = self.decoder(self.target(target) + at[: target.shape[1]], memory, keep)
        return self.head(self.norms[1](x))


def learner_translator(mine: LearnerFile) -> nn.Module:
    """Return the learner's translator, with ready-made attention."""
    decoder = mine.DecoderBlock(LookAttention(LookParts()), PlainCross(),
                                LookParts().feed_forward(), WIDTH)  # fmt: skip
    made: nn.Module = mine.Translator(
        len(LETTERS) + 1, len(LETTERS) + 1, WIDTH, LENGTH, [ReversalBlock(None)], [decoder]
    )
    return made


def show_reversal(model: nn.Module, lang: Language, steps: int = STEPS) -> Iterator[RenderableType]:
    """Train, then yield how much is right and the maps of cross-attention for one sentence."""
    from glasshead.lab.exercises.maps import map_rows

    _train(model, steps)
    model.eval()
    with torch.no_grad():
        source, keep, target = _batch(500)
        guess = model(source, keep, _shifted(target))[..., : len(LETTERS)].argmax(-1)
        right = (guess == target)[keep].double().mean().item()
        yield Text(TEXTS["reversal"].format(steps=steps, right=100 * right)[lang])
        word = "jcbhae"
        ids = torch.tensor([[LETTERS.index(c) for c in word]])
        weights = _cross_weights(model, ids)
    names = [TEXTS["head"].format(n=h)[lang] for h in range(len(weights))]
    yield Text(TEXTS["columns"].format(source=" ".join(word))[lang], style="bold")
    yield from map_rows(weights, list(word[::-1]), names)


def _train(model: nn.Module, steps: int) -> None:
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    with one_thread():
        for _ in range(steps):
            source, keep, target = _batch(BATCH)
            logits = model(source, keep, _shifted(target))[..., : len(LETTERS)]
            F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PADDING).backward()
            optimizer.step()
            optimizer.zero_grad()


def _batch(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return source, keep and target; each target is its source backwards, then padding."""
    lengths = torch.randint(2, LENGTH + 1, (n, 1))
    at = torch.arange(LENGTH)
    keep = at < lengths
    source = torch.randint(len(LETTERS), (n, LENGTH)).masked_fill(~keep, PADDING)
    turned = source.gather(1, (lengths - 1 - at).clamp(min=0)).masked_fill(~keep, PADDING)
    return source, keep, turned


def _shifted(target: Tensor) -> Tensor:
    return F.pad(target[:, :-1], (1, 0), value=START)


def _cross_weights(model: nn.Module, source: Tensor) -> Tensor:
    """Return the weights of the cross-attention, (H, T, S): its values become the identity."""
    from glasshead.lab.exercises.looking import HEAD_WIDTH, HEADS

    S = source.shape[1]
    eye = torch.eye(S, HEAD_WIDTH).repeat(1, HEADS)[None]
    layer: Any
    [layer] = [m.cross for m in model.modules() if getattr(m, "cross", None) is not None]
    found: list[Any] = []

    def read(module: Any, args: Any) -> None:
        value, out = module.value.forward, module.out.forward
        module.value.forward, module.out.forward = (lambda given: eye), (lambda given: given)
        try:
            found.append(type(module).forward(module, *args))
        finally:
            module.value.forward, module.out.forward = value, out

    handle = layer.register_forward_pre_hook(read)
    keep = torch.ones_like(source, dtype=torch.bool)
    model(source, keep, _shifted(source.flip(1)))
    handle.remove()
    context = found[0][0]
    return context.reshape(S, HEADS, HEAD_WIDTH)[..., :S].transpose(0, 1)
