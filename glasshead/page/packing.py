"""A run as the page's own engine reads it (`web/engine/`): what it is, and its parameters in bytes.

    packed = pack_run(run, entry, "int8")
    packed.told, packed.data            JSON, and the parameters
    rounding_cost(run, "int8")          how much rounding them changes the predictions, in nats

Matrices are rounded, vectors stay float32. In int8 each row has a factor, the largest of it / 127.
"""

import copy
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from glasshead import __version__
from glasshead.attention.position import (
    ALiBiPositions,
    Positions,
    RotaryPositions,
    SinusoidalPositions,
)
from glasshead.checkpoint import Run
from glasshead.checkpoint.run import parameters
from glasshead.errors import InputError
from glasshead.generation.beam import search
from glasshead.generation.stream import start_ids
from glasshead.generation.text_state import find_end_ids
from glasshead.generation.translation_rows import SpecialTokens
from glasshead.model.gpt import GPT
from glasshead.model.transformer import Encoder, Reader, Transformer
from glasshead.observe.wording import ROLES, STATISTICS
from glasshead.page.entries import Entry
from glasshead.page.examples import (
    describe_story,
    example_texts,
    known_words,
    story_pairs,
    world_languages,
)
from glasshead.page.look_answers import PRONOUNS
from glasshead.text.bpe import BPETokenizer
from glasshead.text.tokenizer import ByteTokenizer, CharTokenizer, WordTokenizer
from glasshead.text.word_patterns import javascript_pattern

__all__ = ["PackedRun", "Precision", "pack_run", "packed_size", "rounding_cost"]

Precision = Literal["float32", "float16", "int8"]

STORIES = 24  # pairs of a translator's examples
TEXTS = 8  # on which the cost of rounding is measured
VIEWS = {"gpt": ("look", "atlas", "steps", "write"), "reader": ("look", "atlas", "steps"),
         "encoder": ("look", "atlas", "steps"),
         "translator": ("look", "atlas", "steps", "translate")}  # fmt: skip


@dataclass(frozen=True, eq=False)
class PackedRun:
    told: dict[str, Any]
    data: bytes


def pack_run(run: Run, entry: Entry, precision: Precision) -> PackedRun:
    """Return a run as the page's engine takes it; raise for a model that it cannot run."""
    model: Any = run.model
    config = asdict(model.config)
    config["qk_eps"] = getattr(model.config, "qk_eps", 1e-6)
    config["residual"] = model.config.residual
    tensors, parts, at = dict[str, Any](), list[bytes](), 0
    constants, config["rope_gain"] = _constants(model)
    for name, tensor in (*parameters(model).items(), *constants.items()):
        kind = precision if tensor.dim() == 2 else "float32"
        data = _encode(tensor, kind)
        tensors[name] = {"shape": list(tensor.shape), "kind": kind, "at": at}
        parts.append(data + bytes(-len(data) % 4))
        at += len(parts[-1])
    writes = isinstance(model, GPT)
    told = {
        "kind": run.config.kind,
        "config": config,
        "tokenizer": _describe_tokenizer(run),
        "tensors": tensors,
        "entry": {**asdict(entry), "can": list(VIEWS[entry.kind])},
        "version": __version__,
        "examples": example_texts(run),
        "knows": known_words(run),
        "stories": _stories(run),
        "end_ids": sorted(find_end_ids(model, run.tokenizer, run.config)) if writes else [],
        "start_ids": start_ids(run.tokenizer) if writes else [],
        "wording": {"statistics": STATISTICS, "roles": ROLES, "pronouns": sorted(PRONOUNS)},
    }
    return PackedRun(told, b"".join(parts))


def packed_size(run: Run, precision: Precision) -> int:
    """Return how many bytes the parameters of a run take, without packing them."""
    size = {"float32": 4, "float16": 2, "int8": 1}[precision]
    total = 0
    for tensor in parameters(run.model).values():
        wide = tensor.dim() == 2
        rows = 4 * len(tensor) if wide and precision == "int8" else 0
        total += tensor.numel() * (size if wide else 4) + rows
    return total


def _encode(tensor: Tensor, kind: str) -> bytes:
    values = tensor.detach().float().cpu()
    if kind == "float32":
        return values.numpy().astype("<f4").tobytes()
    if kind == "float16":
        return values.clamp(-65504, 65504).numpy().astype("<f2").tobytes()
    factors, integers = _to_int8(values)
    return factors.numpy().astype("<f4").tobytes() + integers.numpy().astype(np.int8).tobytes()


def _to_int8(values: Tensor) -> tuple[Tensor, Tensor]:
    tiny = torch.finfo(torch.float32).tiny
    factors = values.abs().amax(1).clamp(min=tiny) / 127  # (rows,)
    return factors, (values / factors[:, None]).round().clamp(-127, 127)


def _rounded(tensor: Tensor, precision: Precision) -> Tensor:
    if tensor.dim() != 2 or precision == "float32":
        return tensor
    if precision == "float16":
        return tensor.float().clamp(-65504, 65504).half().to(tensor.dtype)
    factors, integers = _to_int8(tensor.float())
    return (factors[:, None] * integers).to(tensor.dtype)


def _constants(model: nn.Module) -> tuple[dict[str, Tensor], float]:
    """Return what positions compute from settings, as torch rounds it, and the gain of rotations.

    A source's and a translation's positions are of one kind.
    """
    for module in model.modules():
        match module:
            case RotaryPositions():
                gain = 1.0 if module.scaling is None else module.scaling.gain
                return {"frequencies": module.frequencies()}, gain
            case SinusoidalPositions():
                return {"frequencies": module.frequencies()}, 1.0
            case ALiBiPositions():
                return {"slopes": module.slopes()}, 1.0
            case Positions():
                return {}, 1.0
    return {}, 1.0


def _describe_tokenizer(run: Run) -> dict[str, Any]:
    tokenizer = run.tokenizer
    told: dict[str, Any] = {
        "kind": tokenizer.kind,
        "specials": tokenizer.specials,
        "size": tokenizer.vocab_size,
        "marks": [list(one) for one in tokenizer.marks],
        "lowercase": run.config.lowercase,
    }
    match tokenizer:
        case CharTokenizer():
            return {**told, "characters": tokenizer.characters}
        case ByteTokenizer():
            return told
        case WordTokenizer():
            return {**told, "words": tokenizer.words}
        case BPETokenizer():
            return {**told, **_describe_bpe(tokenizer)}
    raise InputError(
        f"the tokenizer of {run.path.name} ({tokenizer.kind}) does not run in a page",
        hint="a model with characters, bytes, words or a byte-level BPE does",
    )


def _describe_bpe(tokenizer: BPETokenizer) -> dict[str, Any]:
    data = json.loads(tokenizer.to_json())
    pattern = javascript_pattern(data.get("pre_tokenizer"))
    plain = data["model"].get("ignore_merges") is not True
    if pattern is None or not plain:
        raise InputError(
            "its tokenizer cuts text by rules of its own, which the page does not have",
            hint="a model whose BPE was trained here, or GPT-2's, can be exported",
        )
    added = {token["id"]: token for token in data.get("added_tokens", [])}
    merges = [one.split(" ") if isinstance(one, str) else one for one in data["model"]["merges"]]
    vocabulary = data["model"]["vocab"]
    return {
        "vocabulary": {word: number for word, number in vocabulary.items() if number not in added},
        "merges": merges,
        "pattern": pattern,
        "added": {n: one["content"] for n, one in added.items() if not one["special"]},
    }


def _stories(run: Run) -> dict[str, Any]:
    """Stories for a translator of the embedded world; none for others."""
    langs = world_languages(run.config.data) if isinstance(run.model, Transformer) else []
    if len(langs) != 2:
        return {"langs": None, "pairs": []}
    source, target = langs
    found = islice(story_pairs(source, target), STORIES)
    pairs = [[describe_story(story, source, target) for story in both] for _, both in found]
    return {"langs": langs, "pairs": pairs}


# -- the cost of rounding --


@torch.no_grad()
def rounding_cost(run: Run, precision: Precision) -> float | None:
    """Return the mean KL divergence, in nats a token, of the rounded model's predictions.

    It is what rounding adds to the loss on texts that the model itself would write. Measured on
    the example texts; None for a model that predicts nothing.
    """
    if isinstance(run.model, Encoder):
        return None
    small = copy.deepcopy(run.model)
    for tensor in parameters(small).values():
        tensor.copy_(_rounded(tensor, precision))
    total, count = 0.0, 0
    for batch in _example_batches(run):
        before, after = (_log_probs(model, batch) for model in (run.model, small))
        total += float((before.exp() * (before - after)).sum())
        count += len(before)
    return max(0.0, total / max(1, count))


def _example_batches(run: Run) -> Iterator[tuple[Tensor, ...]]:
    """Yield ids of a text; of a translator those of a source and of its translation."""
    model: Any = run.model
    longest = model.config.max_len
    for example in example_texts(run)[:TEXTS]:
        text = example["text"].lower() if run.config.lowercase else example["text"]
        ids = run.tokenizer.prompt_ids(text)[:longest]
        if not ids:
            continue
        if not isinstance(model, Transformer):
            yield (torch.tensor([ids]),)
            continue
        marks = SpecialTokens.of(run.tokenizer, model)
        [[found]] = search(model, [ids], marks)
        yield torch.tensor([ids]), torch.tensor([[marks.bos, *found.ids]])


def _log_probs(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """(T, V)"""
    assert isinstance(model, GPT | Reader | Transformer)
    logits: Tensor = model(*batch)
    return logits[0].double().log_softmax(-1)
