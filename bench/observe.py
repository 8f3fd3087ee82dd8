"""Looking into one attention layer: time and memory of `observe`, beside what else there is.

    python bench/observe.py [--tokens 4096] [--heads 12] [--width 64] [--repeats 3]
    python bench/observe.py --device cuda [--tokens 131072] [--dtype bfloat16]

On CPU each subject runs in a process of its own and reports its best time and its peak memory
beyond the same q and k (causal). `dense` takes the same statistics from eager weights; that both
agree is checked first. transformers and TransformerLens make the weights of one such layer and no
statistics; bertviz writes a page of a shorter text. What is not installed is left out, with the
reason. On CUDA `observe` is timed beside the cuDNN forward of the same shape.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.observe.statistics import observe

CAUSAL = Mask(causal=True)
Args = argparse.Namespace
Look = Callable[[], Any]


def inputs(args: Args) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    shape = (1, args.heads, args.tokens, args.width)
    q, k = (torch.randn(shape, device=args.device, dtype=args.dtype) for _ in range(2))
    return q, k, torch.randint(0, 5000, (1, args.tokens), device=args.device)


def dense(q: Tensor, k: Tensor, ids: Tensor) -> dict[str, Tensor]:
    """The statistics of `observe`, from weights made eagerly; each as few passes as torch needs."""
    T, D = q.shape[2:]
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    scores = (q @ k.mT).mul_(1 / math.sqrt(D)).masked_fill_(hidden, -math.inf)
    lse = scores.logsumexp(-1)
    w = scores.softmax(-1)
    del scores
    lag = torch.arange(T)[:, None] - torch.arange(T)  # (T, T)
    found = {"lse": lse, "row_sum": w.sum(-1), "entropy": torch.special.entr(w).sum(-1)}
    found["concentration"] = w.square().sum(-1)
    found["top_weights"], found["top_keys"] = w.topk(8)
    found["distance"] = (w * lag.abs()).sum(-1) / T
    found["self_weight"] = w.diagonal(0, 2, 3)
    found["previous_weight"] = F.pad(w.diagonal(-1, 2, 3), (1, 0))
    found["first_weight"] = w[..., 0]
    found["received"] = w.sum(-2) / torch.arange(T, 0, -1)
    near = [w.diagonal(-n, 2, 3).sum(-1) for n in range(min(T, 128))]
    edges = [n for n in (128 << e for e in range(32)) if n < T]
    beyond = [w.tril(-n).sum((-1, -2)) for n in edges]
    far = [x - y for x, y in zip(beyond, [*beyond[1:], 0], strict=False)]
    found["lags"] = torch.stack([*near, *far], -1) / T
    found["diagonality"] = found["lags"][..., :9].sum(-1)
    by_lag = torch.zeros_like(found["received"])
    probes = range(T - 1, -1, -max(1, -(-T // 256)))
    for t in probes:
        by_lag[..., : t + 1] += w[..., t, : t + 1].flip(-1)
    strongest = max(1, T // 64)
    found["slash"] = by_lag.topk(strongest)[0].sum(-1) / len(probes)
    found["vertical"] = w.sum(-2).topk(strongest)[0].sum(-1) / T
    same = (ids[0][:, None] == ids[0]) & (lag > 0)
    copies = same.any(-1).sum().clamp(min=1)
    found["duplicate"] = (w * same).sum((-1, -2)) / copies
    found["induction"] = (w * F.pad(same, (1, 0))[:, :-1]).sum((-1, -2)) / copies
    cell = max(1, T // 1024)
    cells = w.unflatten(2, (-1, cell)).unflatten(4, (-1, cell))
    found["overview_mean"], found["overview_max"] = cells.mean((3, 5)), cells.amax((3, 5))
    return found


def check_agreement(args: Args) -> None:
    """A fast wrong answer is no peer."""
    q, k, ids = inputs(argparse.Namespace(**vars(args) | {"tokens": 512, "heads": 2}))
    ours, theirs = observe(q, k, CAUSAL, ids=ids), dense(q, k, ids)
    for name, x in theirs.items():
        if name != "top_keys":  # ties
            torch.testing.assert_close(getattr(ours, name), x, atol=1e-5, rtol=1e-4, msg=name)


def by_observe(args: Args) -> Look:
    q, k, ids = inputs(args)
    return partial(observe, q, k, CAUSAL, ids=ids)


def by_dense(args: Args) -> Look:
    return partial(dense, *inputs(args))


def by_transformers(args: Args) -> Look:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(
        n_layer=1, n_head=args.heads, n_embd=args.heads * args.width, n_positions=args.tokens,
        vocab_size=5000, bos_token_id=0, eos_token_id=0, attn_implementation="eager",
    )  # fmt: skip
    model, ids = GPT2Model(config).eval(), inputs(args)[2]
    return lambda: model(ids, output_attentions=True).attentions


def by_transformer_lens(args: Args) -> Look:
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    config = HookedTransformerConfig(
        n_layers=1, n_heads=args.heads, d_model=args.heads * args.width, d_head=args.width,
        n_ctx=args.tokens, d_vocab=5000, attn_only=True,
    )  # fmt: skip
    model, ids = HookedTransformer(config).eval(), inputs(args)[2]
    return lambda: model.run_with_cache(ids, names_filter=lambda name: "pattern" in name)


def by_bertviz(args: Args) -> Look:
    from bertviz import head_view

    args = argparse.Namespace(**vars(args) | {"tokens": args.page})
    q, k, ids = inputs(args)
    w = ((q @ k.mT) / math.sqrt(args.width)).softmax(-1)
    words = [f"w{int(n)}" for n in ids[0]]

    def page() -> None:
        size = len(head_view([w], words, html_action="return").data) / 1e6
        print(f"  bertviz: {size:.1f} MB of HTML for {args.page} tokens", file=sys.stderr)

    return page


SUBJECTS: dict[str, tuple[str, Callable[[Args], Look]]] = {
    "glasshead": ("observe: all statistics, in tiles", by_observe),
    "dense": ("eager weights, the same statistics", by_dense),
    "transformers": ("transformers GPT-2, output_attentions, no statistics", by_transformers),
    "transformer_lens": ("TransformerLens run_with_cache, no statistics", by_transformer_lens),
    "bertviz": ("bertviz head_view page of a shorter text", by_bertviz),
}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MB


@torch.no_grad()
def measure(name: str, args: Args) -> dict[str, float]:
    small = argparse.Namespace(**vars(args) | {"tokens": 64, "page": 16})
    SUBJECTS[name][1](small)()  # libraries load and warm up
    look = SUBJECTS[name][1](args)
    before, times = peak(), []
    for _ in range(args.repeats):
        start = time.perf_counter()
        look()
        times.append(time.perf_counter() - start)
    return {"seconds": min(times), "memory": peak() - before}


def on_cpu(args: Args, argv: list[str]) -> None:
    check_agreement(args)
    print(
        f"q, k (1, {args.heads}, {args.tokens}, {args.width}), causal, {args.dtype}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}; best of {args.repeats}"
    )
    ours: dict[str, float] = {}
    for name, (what, _) in SUBJECTS.items():
        run = [sys.executable, __file__, *argv, "--only", name]
        done = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"  {what:54} failed, see above")
            continue
        found = json.loads(done.stdout)
        if "reason" in found:
            print(f"  {what:54} left out: {found['reason']}")
            continue
        ours = ours or found
        seconds, memory = found["seconds"], found["memory"]
        print(f"  {what:54} {seconds:8.2f} s {memory:9.0f} MB", end="   ")
        less = memory / max(ours["memory"], 1)
        print("" if ours is found else f"ours: {ours['seconds'] / seconds:.2f} x, 1/{less:.1f}")


def on_cuda(args: Args) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, ids = inputs(args)
    lse = observe(q, k, CAUSAL).lse

    def forward() -> Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(q, k, k, is_causal=True)

    look = partial(observe, q, k, CAUSAL, ids=ids)
    runs: dict[str, Look] = {
        "cuDNN forward": forward,
        "observe, lse given": partial(look, lse=lse),
        "observe, lse given, deterministic": partial(look, lse=lse, deterministic=True),
        "observe, its own lse": look,
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(args.repeats + 1):
        for name, run in runs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            torch.cuda.synchronize()
            if turn:  # the first turn compiles
                times[name].append(start.elapsed_time(end))
    print(
        f"q, k (1, {args.heads}, {args.tokens}, {args.width}), causal, {args.dtype}, "
        f"{torch.cuda.get_device_name()}, engine {look().engine}; best of {args.repeats}"
    )
    for name, found in times.items():
        ratio = min(found) / min(times["cuDNN forward"])
        print(f"  {name:36} {min(found):9.2f} ms   {ratio:5.2f} x the forward")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--tokens", type=int, default=None, help="4096 on CPU, 131072 on CUDA")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--dtype", default=None, help="float32 on CPU, bfloat16 on CUDA")
    parser.add_argument("--page", type=int, default=256, help="tokens of bertviz' page")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=SUBJECTS, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    cuda = args.device == "cuda"
    args.tokens = args.tokens or (131072 if cuda else 4096)
    args.dtype = getattr(torch, args.dtype or ("bfloat16" if cuda else "float32"))
    if args.only:
        try:
            print(json.dumps(measure(args.only, args)))
        except ImportError as missing:
            print(json.dumps({"reason": str(missing)}))
    elif cuda:
        on_cuda(args)
    else:
        on_cpu(args, argv)


if __name__ == "__main__":
    main(sys.argv[1:])
