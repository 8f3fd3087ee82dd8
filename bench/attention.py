"""Multi-head attention against its peers, in one run: same shape, same parameters, same input.

    python bench/attention.py [--device cuda] [--dtype bfloat16] [--repeats 15]

Each peer computes causal self-attention of x (8, 1024, 768) with 12 heads, forward alone (no
gradients) and forward + backward, without weights and with them. Peers take turns, so that a
slow minute hits all alike; the median is printed, and its ratio to ours with the same
parameters (x-transformers has no biases).
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention
from glasshead.machine import settle_half_precision

Run = Callable[[Tensor, bool], tuple[Tensor, Tensor | None]]


def ours(module: nn.MultiheadAttention, bias: bool = True) -> Run:
    attention = MultiHeadAttention(
        module.embed_dim, module.num_heads, qkv_bias=bias, out_bias=bias
    ).to(module.in_proj_weight)
    params = MultiHeadAttention.from_torch(module).state_dict()
    attention.load_state_dict({name: p for name, p in params.items() if bias or "bias" not in name})
    causal = Mask(causal=True)

    def run(x: Tensor, weights: bool) -> tuple[Tensor, Tensor | None]:
        seen = attention(x, mask=causal, weights=weights)
        return seen.out, seen.weights

    return run


def torchs(module: nn.MultiheadAttention) -> Run:
    T = 4096
    hidden = torch.ones(T, T, dtype=torch.bool, device=module.in_proj_weight.device).triu(1)

    def run(x: Tensor, weights: bool) -> tuple[Tensor, Tensor | None]:
        n = x.shape[1]
        return module(
            x, x, x, attn_mask=hidden[:n, :n], is_causal=not weights,
            need_weights=weights, average_attn_weights=False,
        )  # fmt: skip

    return run


def gpt2s(module: nn.MultiheadAttention) -> Run:
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    def build(implementation: str) -> nn.Module:
        config = GPT2Config(n_embd=module.embed_dim, n_head=module.num_heads, attn_pdrop=0.0,
                            resid_pdrop=0.0, attn_implementation=implementation)  # fmt: skip
        theirs = GPT2Attention(config, layer_idx=0).to(module.in_proj_weight)
        with torch.no_grad():
            theirs.c_attn.weight.copy_(module.in_proj_weight.T)
            theirs.c_attn.bias.copy_(module.in_proj_bias)
            theirs.c_proj.weight.copy_(module.out_proj.weight.T)
            theirs.c_proj.bias.copy_(module.out_proj.bias)
        return theirs

    fused, eager = build("sdpa"), build("eager")
    lowest = torch.finfo(module.in_proj_weight.dtype).min

    def run(x: Tensor, weights: bool) -> tuple[Tensor, Tensor | None]:
        if not weights:
            return fused(x)[0], None
        n = x.shape[1]
        mask = torch.full((1, 1, n, n), lowest, dtype=x.dtype, device=x.device).triu(1)
        out, seen = eager(x, attention_mask=mask, output_attentions=True)[:2]
        return out, seen

    return run


def x_transformers(module: nn.MultiheadAttention) -> Run:
    from x_transformers.x_transformers import Attention

    C, H = module.embed_dim, module.num_heads

    def build(flash: bool) -> nn.Module:
        theirs = Attention(dim=C, dim_head=C // H, heads=H, causal=True, flash=flash)
        theirs = theirs.to(module.in_proj_weight)
        q, k, v = module.in_proj_weight.split(C)
        with torch.no_grad():
            theirs.to_q.weight.copy_(q)
            theirs.to_k.weight.copy_(k)
            theirs.to_v.weight.copy_(v)
            theirs.to_out.weight.copy_(module.out_proj.weight)
        return theirs

    flash, plain = build(True), build(False)

    def run(x: Tensor, weights: bool) -> tuple[Tensor, Tensor | None]:
        if not weights:
            return flash(x), None
        out, seen = plain(x, return_intermediates=True)
        return out, seen.post_softmax_attn

    return run


PEERS: dict[str, Callable[[nn.MultiheadAttention], Run]] = {
    "glasshead": ours,
    "glasshead, no biases": lambda module: ours(module, bias=False),
    "torch.nn.MultiheadAttention": torchs,
    "transformers GPT-2": gpt2s,
    "x-transformers, no biases": x_transformers,
}


def build_peers(module: nn.MultiheadAttention) -> dict[str, Run]:
    runs = {}
    for name, build in PEERS.items():
        try:
            runs[name] = build(module)
        except ImportError as missing:
            print(f"{name}: left out, {missing}")
    return runs


def check_agreement(runs: dict[str, Run], x: Tensor, weights: bool) -> None:
    """A fast wrong answer is no peer: all must agree before they are timed."""
    expected, seen = runs["glasshead"](x, weights)
    tolerance = 1e-3 if x.dtype == torch.float32 else 3e-2
    for name, run in runs.items():
        out, theirs = run(x, weights)
        torch.testing.assert_close(out, expected, atol=tolerance, rtol=tolerance, msg=name)
        if seen is not None and theirs is not None:
            torch.testing.assert_close(
                theirs.float(), seen.float(), atol=tolerance, rtol=tolerance, msg=name
            )


def timed(run: Run, x: Tensor, weights: bool, backward: bool) -> float:
    synchronize = torch.cuda.synchronize if x.is_cuda else lambda: None
    x = x.detach().requires_grad_(backward)
    synchronize()
    start = time.perf_counter()
    with torch.set_grad_enabled(backward):
        out, _ = run(x, weights)
        if backward:
            out.sum().backward()
    synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default=None, help="float32 on CPU, bfloat16 on CUDA")
    parser.add_argument("--shape", default="8,1024,768", help="B,T,C")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=11)
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype or ("float32" if args.device == "cpu" else "bfloat16"))
    B, T, C = map(int, args.shape.split(","))
    torch.manual_seed(0)
    module = nn.MultiheadAttention(C, args.heads, batch_first=True)
    module = module.to(args.device, dtype)  # its biases are zero, so x-transformers' lack fits
    x = torch.randn(B, T, C, device=args.device, dtype=dtype)
    runs = build_peers(module)
    print(
        f"causal self-attention, x {(B, T, C)}, {args.heads} heads, {dtype}, {args.device}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}; median of {args.repeats}"
    )
    for weights in (False, True):
        check_agreement(runs, x, weights)
        for backward in (False, True):
            times: dict[str, list[float]] = {name: [] for name in runs}
            for turn in range(args.repeats + 1):
                for name, run in runs.items():
                    seconds = timed(run, x, weights, backward)
                    if turn:  # the first turn warms up
                        times[name].append(seconds)
            what = "forward + backward" if backward else "forward"
            print(f"\n{what}, {'with' if weights else 'without'} weights")
            for name, seconds in times.items():
                like = "glasshead, no biases" if name.endswith("no biases") else "glasshead"
                theirs, mine = statistics.median(seconds), statistics.median(times[like])
                print(f"  {name:28} {theirs * 1e3:9.2f} ms   {theirs / mine:5.2f} x ours")


if __name__ == "__main__":
    settle_half_precision()
    main()
