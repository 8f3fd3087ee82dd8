"""Tokens a second against transformers' `generate`, in one run: same shape, same parameters.

    python bench/generate.py [--small] [--repeats 7] [--threads 2]

A GPT-2 of 124M parameters drawn at random continues a prompt of 32 tokens by 64, greedily, one
text at a time: theirs in float32, which is their default, and bf16; ours in these and in int8.
All take turns, so that a slow minute hits all alike; medians are printed, and the ratio to
transformers' float32. The limit is what the memory allows: a token reads every parameter once.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable

from glasshead.machine import settle_half_precision

settle_half_precision()  # before torch computes anything

import torch  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

from glasshead.generate.decode import generate  # noqa: E402
from glasshead.generate.int8 import to_int8  # noqa: E402
from glasshead.generate.sampling import GREEDY  # noqa: E402
from glasshead.model.gpt import GPT, GPTConfig  # noqa: E402

PROMPT = 32
BYTES = {"float32": 4, "bf16": 2, "int8": 1}
Run = Callable[[], list[int]]


def ours(theirs: GPT2LMHeadModel) -> GPT:
    """Our model with their parameters."""
    c = theirs.config
    model = GPT(
        GPTConfig(
            vocab_size=c.vocab_size,
            max_len=c.n_positions,
            n_layers=c.n_layer,
            n_heads=c.n_head,
            d_model=c.n_embd,
            feed_forward="gelu-tanh",
            qkv_bias=True,
            tied=True,
            head_bias=False,
        )
    )
    names = {
        "wte": "embedding",
        "wpe": "positions.table",
        "ln_f": "norm",
        "h": "blocks",
        "ln_1": "around_attention.before",
        "attn.c_attn": "attention.qkv",
        "attn.c_proj": "attention.out",
        "ln_2": "around_feed_forward.before",
        "mlp.c_fc": "feed_forward.up",
        "mlp.c_proj": "feed_forward.down",
    }
    state = {}
    for name, value in theirs.transformer.state_dict().items():
        flipped = value.T if ".c_" in name and value.dim() == 2 else value  # Conv1D is (in, out)
        for old, new in names.items():
            name = f".{name}".replace(f".{old}.", f".{new}.")[1:]
        state[name] = flipped
    state["head.weight"] = state["embedding.weight"]
    model.load_state_dict(state)
    return model.eval()


def read_speed() -> float:
    """Bytes a second that this machine reads from memory, by a sum that is no work."""
    numbers = torch.ones(1 << 27)
    return max(numbers.nbytes / timed(lambda: numbers.sum()) for _ in range(5))


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def their_run(model: GPT2LMHeadModel, tokens: int) -> Run:
    prompt = torch.arange(PROMPT)[None]
    settings = {"max_new_tokens": tokens, "do_sample": False, "pad_token_id": 0}

    def run() -> list[int]:
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), **settings)
        return out[0, PROMPT:].tolist()

    return run


def our_run(model: GPT, tokens: int) -> Run:
    def run() -> list[int]:
        steps = generate(model, [range(PROMPT)], GREEDY, max_tokens=tokens)
        return [token for [token] in steps if token is not None]

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a tiny model: does it run?")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    small = {"n_layer": 3, "n_head": 4, "n_embd": 64, "vocab_size": 512} if args.small else {}
    theirs = GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None, **small)).eval()
    model = ours(theirs)
    runs = {
        ("transformers", "float32"): their_run(theirs, args.tokens),
        ("glasshead", "float32"): our_run(model, args.tokens),
        ("transformers", "bf16"): their_run(copy.deepcopy(theirs).bfloat16(), args.tokens),
        ("glasshead", "bf16"): our_run(copy.deepcopy(model).bfloat16(), args.tokens),
        ("glasshead", "int8"): our_run(to_int8(model), args.tokens),
    }
    outputs = {peer: run() for peer, run in runs.items()}  # also warms up
    times: dict[tuple[str, str], list[float]] = {peer: [] for peer in runs}
    for _ in range(args.repeats):
        for peer, run in runs.items():
            times[peer].append(timed(run))
    read = sum(p.numel() for p in model.parameters()) - model.config.max_len * model.config.d_model
    speed = read_speed()
    base = statistics.median(times["transformers", "float32"])
    expected = outputs["transformers", "float32"]
    print(
        f"{read / 1e6:.0f}M parameters read for each token, {args.threads} threads, "
        f"memory {speed / 1e9:.1f} GB/s, torch {torch.__version__}"
    )
    print(f"{'':22}{'tokens/s':>9}{'limit':>8}{'ratio':>7}  same tokens")
    for peer, measured in times.items():
        median = statistics.median(measured)
        same = sum(map(int.__eq__, outputs[peer], expected))
        print(
            f"{' '.join(peer):22}{args.tokens / median:9.1f}{speed / (read * BYTES[peer[1]]):8.1f}"
            f"{base / median:7.2f}  {same} of {args.tokens}"
        )


if __name__ == "__main__":
    main()
