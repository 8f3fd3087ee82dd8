"""Run the learner's code inside a small model: train it like a rung of the ladder, see its heads.

The model has the sizes of rung 9: width 32, four heads of width 8, blocks of 8 characters. `parts`
of an exercise's module says which of its parts are the learner's. The weights are read from
whatever computes them: with the identity for values, attention returns its weights.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from rich.console import RenderableType
from rich.text import Text
from torch import Tensor, nn
from torch.nn import functional as F

from glasshead.lab.exercises.catalog import Exercise
from glasshead.lab.exercises.learner import load_file
from glasshead.lab.texts import Language, read_texts

__all__ = ["LookModel", "LookParts", "look", "read_weights", "train_look"]

TEXTS = read_texts(__file__)
WIDTH, HEADS, BLOCK, LAYERS = 32, 4, 8, 3
BATCH, RATE, STEPS = 32, 1e-2, 300
HEAD_WIDTH = WIDTH // HEADS  # not less than BLOCK, so that the identity fits into values

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # (B, H, T, D) each -> context


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return causal attention, (B, H, T, D)."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _split(x: Tensor, n_heads: int) -> Tensor:
    return x.reshape(*x.shape[:2], n_heads, -1).transpose(1, 2)


def _merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


class LookAttention(nn.Module):
    """Self-attention of which some parts are the learner's."""

    def __init__(self, parts: "LookParts") -> None:
        super().__init__()
        self.parts = parts
        self.query, self.key, self.value = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3)
        )  # fmt: skip
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.parts.split(f(x), HEADS) for f in (self.query, self.key, self.value))
        return self.out(self.parts.merge(self.parts.attend(q, k, v)))


def _feed_forward() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))


def _add(x: Tensor, norm: nn.Module, layer: nn.Module) -> Tensor:
    return x + layer(norm(x))


@dataclass(frozen=True)
class LookParts:
    """What the model is made of; an exercise replaces some of it."""

    attend: Attend = causal
    split: Callable[[Tensor, int], Tensor] = _split
    merge: Callable[[Tensor], Tensor] = _merge
    attention: Callable[["LookParts"], nn.Module] = LookAttention
    feed_forward: Callable[[], nn.Module] = _feed_forward
    add: Callable[[Tensor, nn.Module, nn.Module], Tensor] = _add
    model: Callable[[int, "LookParts"], nn.Module] | None = None  # the whole of it


class LookBlock(nn.Module):
    def __init__(self, parts: LookParts) -> None:
        super().__init__()
        self.parts = parts
        self.attention, self.feed_forward = parts.attention(parts), parts.feed_forward()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.parts.add(x, self.norm1, self.attention)
        return self.parts.add(x, self.norm2, self.feed_forward)


class LookModel(nn.Module):
    """A GPT of the sizes of rung 9. ids (B, T) -> logits (B, T, V)."""

    def __init__(self, vocab_size: int, parts: LookParts) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, WIDTH)
        self.positions = nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.Sequential(*(LookBlock(parts) for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocab_size)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def look(exercise: Exercise, path: Path, lang: Language) -> Iterator[RenderableType]:
    """Yield what is to be seen; the learner's code is executed in this process."""
    mine = load_file(path)
    if hasattr(exercise.module, "look"):  # it has something of its own to show
        yield from exercise.module.look(mine, lang)
        return
    parts = replace(LookParts(), **exercise.module.parts(mine))
    yield from look_at_model(parts, lang)


def look_at_model(parts: LookParts, lang: Language) -> Iterator[RenderableType]:
    from glasshead.lab.ladder import climb

    text = LookText()
    torch.manual_seed(0)
    model = (parts.model or LookModel)(text.vocab_size, parts)
    before, after = train_look(model, text)
    [ours] = climb([9], text.ladder, steps=STEPS)
    yield Text(TEXTS["losses"].format(steps=STEPS, before=before, after=after, ours=ours.val)[lang])
    yield from draw_heads(model, text, lang)


class LookText:
    """The ladder's own text."""

    @cached_property
    def ladder(self) -> Any:
        from glasshead.lab.ladder import read_text

        return read_text(None)

    @property
    def vocab_size(self) -> int:
        return int(self.ladder.tokenizer.vocab_size)

    @cached_property
    def sentence(self) -> str:
        """Return the first characters of a line of the part that is not trained on."""
        ids = self.ladder.corpus.validation[: 50 * BLOCK]
        lines = self.ladder.tokenizer.decode([int(i) for i in ids]).split("\n")
        return next(line for line in lines[1:] if len(line) >= BLOCK)[:BLOCK]

    def ids(self, text: str) -> Tensor:
        return torch.as_tensor(self.ladder.tokenizer.encode_ids(text)).long()[None]


def train_look(model: nn.Module, text: LookText, steps: int = STEPS) -> tuple[float, float]:
    """Train as a rung is trained, on the same batches; return the loss before and after."""
    from glasshead.text.batches import TextBatches

    parts = (text.ladder.corpus.training, text.ladder.corpus.validation)
    train, held = (TextBatches(ids, batch_size=BATCH, block=BLOCK, seed=0) for ids in parts)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    with one_thread():
        before = _loss(model, held)
        for step in range(steps):
            batch = train.at(step)
            logits = model(batch.ids)
            F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
        return before, _loss(model, held)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread, which is faster for small models."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@torch.no_grad()
def _loss(model: nn.Module, held: Any) -> float:
    was_training = model.training
    model.eval()
    batches = held.evenly_spaced(50)
    losses = [F.cross_entropy(model(b.ids).flatten(0, 1), b.targets.flatten()) for b in batches]
    model.train(was_training)
    return torch.stack(losses).mean().item()


def draw_heads(model: nn.Module, text: LookText, lang: Language) -> Iterator[RenderableType]:
    """Yield a map of each head of the first and of the last layer."""
    from glasshead.lab.exercises.maps import map_rows

    layers = read_weights(model, text.ids(text.sentence))
    for n in (0, len(layers) - 1):
        yield Text("")
        yield Text(TEXTS["layer"].format(n=n, text=text.sentence)[lang], style="bold")
        names = [TEXTS["head"].format(n=h)[lang] for h in range(HEADS)]
        yield from map_rows(layers[n], list(text.sentence), names)


@torch.no_grad()
def read_weights(model: nn.Module, ids: Tensor) -> list[Tensor]:
    """Return the weights of each layer for one sequence, (H, T, T)."""
    found: list[Tensor] = []
    layers = [m for m in model.modules() if _is_attention(m)]

    def read(layer: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        found.append(weights_of(layer, args[0], out))

    handles = [layer.register_forward_hook(read) for layer in layers]
    was_training = model.training
    model.eval()
    try:
        model(ids)
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    return found


def _is_attention(module: nn.Module) -> bool:
    return all(hasattr(module, name) for name in ("query", "key", "value", "out")) or hasattr(
        module, "heads"
    )


def weights_of(layer: nn.Module, x: Tensor, out: Tensor) -> Tensor:
    """Return the weights, (H, T, T): what comes out when the values are the identity."""
    T = x.shape[1]
    eye = torch.eye(T, HEAD_WIDTH).repeat(1, HEADS)[None]  # (1, T, C)
    swapped: dict[Any, Any] = {}

    def answer(module: Any, replacement: Callable[[Tensor], Tensor]) -> None:
        swapped[module] = module.forward
        module.forward = replacement

    for module in layer.modules():
        if hasattr(module, "value"):
            value: Any = module.value
            answer(value, lambda given, width=value.out_features: eye[..., :width])  # type: ignore[misc]
    if isinstance(getattr(layer, "out", None), nn.Module):
        answer(layer.out, lambda given: given)
    try:
        context = type(layer).forward(layer, x)  # not through the hooks
    finally:
        for each, forward in swapped.items():
            each.forward = forward
    return context[0].reshape(T, HEADS, HEAD_WIDTH)[..., :T].transpose(0, 1)
