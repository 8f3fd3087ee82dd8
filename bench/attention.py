"""Multi-head attention: causal self-attention of one x with one set of parameters.

Forward alone (no gradients) and forward + backward, without weights and with them. A peer without
biases is compared with ours without.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from bench.machine import bandwidth, matrix_peak
from bench.peers import missing_package
from bench.table import Row, Settings
from bench.timing import time_in_turns
from glasshead.attention.mask import Mask
from glasshead.attention.multihead import MultiHeadAttention

__all__ = ["rows"]

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


OURS, UNBIASED = "glasshead", "glasshead, no biases"
PEERS: dict[str, tuple[str, Callable[[nn.MultiheadAttention], Run]]] = {
    "torch.nn.MultiheadAttention": ("torch", torchs),
    "transformers GPT-2": ("transformers", gpt2s),
    "x-transformers, no biases": ("x_transformers", x_transformers),
}


def check_agreement(runs: dict[str, Run], x: Tensor, weights: bool) -> None:
    """Check that all peers compute the same before they are timed."""
    expected, seen = runs[OURS](x, weights)
    tolerance = 1e-3 if x.dtype == torch.float32 else 3e-2
    for name, run in runs.items():
        out, theirs = run(x, weights)
        torch.testing.assert_close(out, expected, atol=tolerance, rtol=tolerance, msg=name)
        if seen is not None and theirs is not None:
            torch.testing.assert_close(
                theirs.float(), seen.float(), atol=tolerance, rtol=tolerance, msg=name
            )


def call(run: Run, x: Tensor, weights: bool, backward: bool) -> None:
    x = x.detach().requires_grad_(backward)
    with torch.set_grad_enabled(backward):
        out, _ = run(x, weights)
        if backward:
            out.sum().backward()


def least(settings: Settings, x: Tensor, heads: int, weights: bool, backward: bool) -> float:
    """Return the seconds of the matrix products at peak speed, or of writing the weights."""
    B, T, C = x.shape
    products = 2 * B * T * C * (4 * C + T) * (3 if backward else 1)  # a causal half of T x T
    peak = matrix_peak(settings.device, str(x.dtype).removeprefix("torch."), settings.quick)
    written = B * heads * T * T * x.dtype.itemsize if weights else 0
    return products / peak + written / bandwidth(settings.device, settings.quick)


def rows(settings: Settings) -> list[Row]:
    B, T, C, heads = (2, 64, 32, 2) if settings.quick else (8, 1024, 768, 12)
    dtypes = (torch.bfloat16, torch.float32) if settings.on_gpu else (torch.float32,)
    found = []
    for dtype in dtypes:
        torch.manual_seed(0)
        module = nn.MultiheadAttention(C, heads, batch_first=True).to(settings.device, dtype)
        x = torch.randn(B, T, C, device=settings.device, dtype=dtype)
        runs, left_out = {OURS: ours(module), UNBIASED: ours(module, bias=False)}, {}
        for name, (package, build) in PEERS.items():
            if reason := missing_package(package):
                left_out[name] = reason
            else:
                runs[name] = build(module)  # its biases are zero: x-transformers' lack fits
        for weights in (False, True):
            check_agreement(runs, x, weights)
            for backward in (False, True):
                seconds = time_in_turns(
                    {name: partial(call, run, x, weights, backward) for name, run in runs.items()},
                    settings.repeats if not settings.on_gpu else 5 * settings.repeats,
                    settings.device,
                )
                ms = {name: 1e3 * taken for name, taken in seconds.items()}
                what = "forward + backward" if backward else "forward"
                what += f"{', with weights' if weights else ''}, {str(dtype)[6:]}"
                limit = 1e3 * least(settings, x, heads, weights, backward)
                for name in PEERS:
                    mine = ms[UNBIASED if name.endswith("no biases") else OURS]
                    note = left_out.get(name, "")
                    found.append(Row(what, name, "ms", mine, ms.get(name), limit, note))
    return found


if __name__ == "__main__":
    from bench.__main__ import main

    main("attention")
