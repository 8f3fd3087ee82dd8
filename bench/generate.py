"""Generation: tokens a second of a GPT-2 of 124M parameters drawn at random, greedily.

A whole call of `generate` is clocked, the prompt included, beside transformers' `generate` of the
same parameters. The limit is what the memory allows: a token of each text reads every parameter
once, and the keys and values of its past.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from bench.machine import bandwidth
from bench.peers import missing_package, to_transformers
from bench.table import Row, Settings
from bench.timing import time_in_turns
from glasshead.generation.decode import generate
from glasshead.generation.int8 import to_int8
from glasshead.generation.sampling import GREEDY
from glasshead.model.gpt import GPT, GPTConfig

__all__ = ["rows"]

PROMPT = 32
GPT2 = {"vocab_size": 50257, "max_len": 1024, "n_layers": 12, "n_heads": 12, "d_model": 768}
TINY = {"vocab_size": 512, "max_len": 128, "n_layers": 2, "n_heads": 2, "d_model": 64}
Texts = list[list[int]]


@dataclass(frozen=True)
class Case:
    precision: str
    batch: int
    tokens: int
    peer: str  # the precision it is compared with
    cache: str = ""  # of transformers; its default when empty

    def __str__(self) -> str:
        return f"{self.precision}, batch {self.batch}, {self.tokens} tokens after {PROMPT}"


def cases(settings: Settings) -> list[Case]:
    if settings.quick:
        return [Case("float32", 1, 4, "float32")]
    if settings.on_gpu:
        return [
            Case("bf16", 1, 256, "bf16"),
            Case("bf16", 1, 256, "bf16", "static"),
            Case("bf16", 64, 256, "bf16"),
        ]
    return [
        Case("float32", 1, 64, "float32"),
        Case("bf16", 1, 64, "bf16"),
        Case("int8", 1, 64, "float32"),
        Case("float32", 16, 64, "float32"),
    ]


def our_run(model: GPT, case: Case, said: dict[str, Texts]) -> Callable[[], None]:
    prompts = [range(PROMPT)] * case.batch

    def run() -> None:
        steps = generate(model, prompts, GREEDY, max_tokens=case.tokens)
        said["ours"] = [list(text) for text in zip(*steps, strict=True)]

    return run


def their_run(model: Any, case: Case, said: dict[str, Texts]) -> Callable[[], None]:
    prompt = torch.arange(PROMPT, device=model.device).repeat(case.batch, 1)
    settings: dict[str, Any] = {
        "max_new_tokens": case.tokens,
        "do_sample": False,
        "pad_token_id": 0,
    }
    if case.cache:
        settings["cache_implementation"] = case.cache

    def run() -> None:
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), **settings)
        said["theirs"] = out[:, PROMPT:].tolist()

    return run


def in_precision(model: GPT, precision: str) -> GPT:
    if precision == "int8":
        return to_int8(model)
    return copy.deepcopy(model).bfloat16() if precision == "bf16" else model


def limit(model: GPT, case: Case, settings: Settings) -> float:
    c = model.config
    size = {"float32": 4, "bf16": 2, "int8": 1}[case.precision]
    kept = 4 if case.precision == "int8" else size
    read = size * (sum(p.numel() for p in model.parameters()) - c.max_len * c.d_model)
    past = 2 * c.n_layers * c.d_model * (PROMPT + case.tokens / 2) * kept
    return case.batch * bandwidth(settings.device, settings.quick) / (read + case.batch * past)


def rows(settings: Settings) -> list[Row]:
    torch.manual_seed(1)
    shape: dict[str, Any] = TINY if settings.quick else GPT2
    config = GPTConfig(
        **shape, feed_forward="gelu-tanh", qkv_bias=True, tied=True, head_bias=False, init="gpt2"
    )
    model = GPT(config).to(settings.device).eval()
    reason = missing_package("transformers")
    found = []
    for case in cases(settings):
        peer = "transformers" + (f", {case.cache} cache" if case.cache else "")
        if case.peer != case.precision:
            peer += f", {case.peer}"
        said: dict[str, Texts] = {}
        runs = {"ours": our_run(in_precision(model, case.precision), case, said)}
        if not reason:
            theirs = to_transformers(in_precision(model, case.peer))
            runs["theirs"] = their_run(theirs, case, said)
        repeats = min(settings.repeats, 3) if settings.on_gpu else settings.repeats
        seconds = time_in_turns(runs, repeats, settings.device)
        speed = {name: case.batch * case.tokens / taken for name, taken in seconds.items()}
        at_best = limit(model, case, settings)
        note = reason or alike(**said)
        found.append(
            Row(str(case), peer, "tokens/s", speed["ours"], speed.get("theirs"), at_best, note)
        )
    return found


def alike(ours: Texts, theirs: Texts) -> str:
    """Count the tokens of a text before the first that differs."""
    same = []
    for one, other in zip(ours, theirs, strict=True):
        pairs = zip(one, other, strict=True)
        same.append(next((i for i, (a, b) in enumerate(pairs) if a != b), len(one)))
    return f"the first {min(same)} of {len(ours[0])} tokens are the same"


if __name__ == "__main__":
    from bench.__main__ import main

    main("generate")
