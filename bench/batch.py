"""How many tokens a second come of one text at a time, and of many together.

    python bench/batch.py [--texts 16] [--tokens 64] [--repeats 5] [--small]

Two models on this machine's cores: of GPT-2's shape (124M parameters) and a small one. Prompts have
5 to 59 tokens; reading them is part of the time. Alone is `generate`, one prompt after the other;
both take turns, and medians are compared. The same tokens must come out.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from glasshead.generation.batch import GenerationBatch, chunk_size
from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY
from glasshead.model.gpt import GPT, GPTConfig

GPT2 = {"vocab_size": 50257, "max_len": 1024, "n_layers": 12, "n_heads": 12, "d_model": 768}
SMALL = {"vocab_size": 4096, "max_len": 256, "n_layers": 4, "n_heads": 4, "d_model": 256}

Texts = list[list[int]]


def alone(model: GPT, prompts: Texts, tokens: int) -> Texts:
    found = []
    for prompt in prompts:
        steps = generate(model, [prompt], GREEDY, max_tokens=tokens)
        found.append([token for [token] in steps if token is not None])
    return found


def together(model: GPT, prompts: Texts, tokens: int) -> Texts:
    batch = GenerationBatch(model, chunk=chunk_size(model))
    keys = [batch.join(prompt, GREEDY, max_tokens=tokens) for prompt in prompts]
    found: dict[int, list[int]] = {}
    while batch.texts:
        for new in batch.step():
            found.setdefault(new.key, []).extend([] if new.id is None else [new.id])
    return [found[key] for key in keys]


def measure(name: str, model: GPT, prompts: Texts, tokens: int, repeats: int) -> None:
    ways: dict[str, Callable[[GPT, Texts, int], Texts]] = {"alone": alone, "together": together}
    outputs = {way: run(model, prompts[:2], 3) for way, run in ways.items()}  # warms up
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, run in ways.items():
            start = time.perf_counter()
            outputs[way] = run(model, prompts, tokens)
            times[way].append(time.perf_counter() - start)
    total = len(prompts) * tokens
    speed = {way: total / statistics.median(took) for way, took in times.items()}
    ratios = [a / b for a, b in zip(times["alone"], times["together"], strict=True)]
    pairs = zip(outputs["alone"], outputs["together"], strict=True)
    same = sum(a == b for a, b in pairs)
    print(
        f"{name:22} alone {speed['alone']:8.1f} tokens/s, {len(prompts)} together "
        f"{speed['together']:8.1f}: {statistics.median(ratios):5.2f} times "
        f"({min(ratios):.2f} to {max(ratios):.2f}); same tokens: {same} of {len(prompts)} texts"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--small", action="store_true", help="only the small model")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"{args.threads} threads, torch {torch.__version__}, medians of {args.repeats}")
    shapes = {"small": SMALL} if args.small else {"small": SMALL, "GPT-2 shape": GPT2}
    for name, shape in shapes.items():
        torch.manual_seed(1)
        model = GPT(GPTConfig(**shape, init="gpt2", tied=True, head_bias=False)).eval()
        generator = torch.Generator().manual_seed(2)
        lengths = torch.randint(5, 60, (args.texts,), generator=generator).tolist()
        ids = [torch.randint(shape["vocab_size"], (n,), generator=generator) for n in lengths]
        prompts = [prompt.tolist() for prompt in ids]
        n_params = sum(p.numel() for p in model.parameters())
        named = f"{name} ({n_params / 1e6:.0f}M)"
        measure(named, model, prompts, args.tokens, args.repeats)


if __name__ == "__main__":
    main()
