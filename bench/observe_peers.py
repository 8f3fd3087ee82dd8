"""The subjects of `bench.observe`: ways to get weights or statistics, ours and of peers."""

import math
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.peers import to_transformers
from bench.timing import clock, peak_memory
from glasshead.attention.mask import Mask
from glasshead.machine import settle_half_precision
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.observe.recording import observing
from glasshead.observe.statistics import cell_side, observe

__all__ = ["PEERS", "Workload", "dense", "inputs", "measure"]

CAUSAL = Mask(causal=True)
VOCAB = 5000
Look = Callable[[], "float | None"]  # returns the bytes of the file it wrote, if any


@dataclass(frozen=True)
class Workload:
    T: int
    heads: int = 12
    width: int = 64
    layers: int = 12
    repeats: int = 3
    device: str = "cpu"

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.device == "cpu" else torch.bfloat16


def inputs(work: Workload) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    shape = (1, work.heads, work.T, work.width)
    q, k = (torch.randn(shape, device=work.device, dtype=work.dtype) for _ in range(2))
    return q, k, torch.randint(0, VOCAB, (1, work.T), device=work.device)


def gpt(work: Workload, layers: int) -> GPT:
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=VOCAB, max_len=work.T, n_layers=layers, n_heads=work.heads,
        d_model=work.heads * work.width, feed_forward="gelu-tanh", qkv_bias=True, tied=True,
        head_bias=False, init="gpt2",
    )  # fmt: skip
    return GPT(config).to(work.device, work.dtype).eval()


def dense(q: Tensor, k: Tensor, ids: Tensor) -> dict[str, Tensor]:
    """Return the statistics of `observe` from eager weights, in as few passes as torch needs."""
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
    cell = cell_side(T)
    cells = w.unflatten(2, (-1, cell)).unflatten(4, (-1, cell))
    found["overview_mean"], found["overview_max"] = cells.mean((3, 5)), cells.amax((3, 5))
    return found


def check_agreement(work: Workload) -> None:
    """Check that `dense` and `observe` give the same statistics."""
    q, k, ids = inputs(replace(work, T=512, heads=2))
    ours, theirs = observe(q, k, CAUSAL, ids=ids), dense(q, k, ids)
    for name, x in theirs.items():
        if name != "top_keys":  # ties
            torch.testing.assert_close(getattr(ours, name), x, atol=1e-5, rtol=1e-4, msg=name)


def by_observe(work: Workload) -> Look:
    q, k, ids = inputs(work)
    return lambda: _discard(observe(q, k, CAUSAL, ids=ids))


def by_dense(work: Workload) -> Look:
    check_agreement(work)
    q, k, ids = inputs(work)
    return lambda: _discard(dense(q, k, ids))


def by_observing(work: Workload) -> Look:
    model, ids = gpt(work, work.layers), inputs(work)[2]

    def look() -> None:
        with observing(model, keep="statistics", ids=ids):
            model.features(ids)

    return look


def by_transformers(work: Workload, layers: int = 1) -> Look:
    model, ids = gpt(work, layers), inputs(work)[2]
    theirs = to_transformers(model, attn_implementation="eager").transformer
    return lambda: _discard(theirs(ids, output_attentions=True).attentions)


def by_transformers_model(work: Workload) -> Look:
    return by_transformers(work, work.layers)


def by_transformer_lens(work: Workload) -> Look:
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    config = HookedTransformerConfig(
        n_layers=work.layers, n_heads=work.heads, d_model=work.heads * work.width,
        d_head=work.width, n_ctx=work.T, d_vocab=VOCAB, act_fn="gelu_new",
        normalization_type="LN", seed=1,
    )  # fmt: skip
    model, ids = HookedTransformer(config).eval(), inputs(work)[2]

    def look() -> None:
        model.run_with_cache(
            ids, return_type=None, names_filter=lambda name: name.endswith("hook_pattern")
        )

    return look


def by_glass(work: Workload) -> Look:
    model, ids = gpt(work, 1), inputs(work)[2]

    def look() -> float:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "seen.glass"
            with observing(model, ids=ids, tokens=[_words(ids)]) as seen:
                model.features(ids)
            seen.save(file)
            return file.stat().st_size

    return look


def by_bertviz(work: Workload) -> Look:
    from bertviz import head_view

    model, ids = gpt(work, 1), inputs(work)[2]
    theirs = to_transformers(model, attn_implementation="eager").transformer

    def look() -> float:
        weights = theirs(ids, output_attentions=True).attentions
        page = head_view(weights, _words(ids), html_action="return").data
        return len(page.encode())

    return look


# What is work for, the package that it needs, and how.
Subject = tuple[str, str, Callable[[Workload], Look]]
OURS: dict[str, Subject] = {
    "observe": ("all statistics, in tiles", "torch", by_observe),
    "observing": ("all statistics of every layer", "torch", by_observing),
    "glass": (".glass file: every weight, and statistics", "torch", by_glass),
}
PEERS: dict[str, Subject] = {
    "dense": ("eager weights, the same statistics", "torch", by_dense),
    "transformers": ("transformers output_attentions, no statistics", "transformers",
                     by_transformers),
    "transformers_model": ("transformers output_attentions, no statistics", "transformers",
                           by_transformers_model),
    "transformer_lens": ("TransformerLens run_with_cache, no statistics", "transformer_lens",
                         by_transformer_lens),
    "bertviz": ("bertviz head_view, an HTML page", "bertviz", by_bertviz),
}  # fmt: skip


@torch.no_grad()
def measure(name: str, work: Workload) -> dict[str, float]:
    """Return median seconds, peak memory, and file size; on a CPU, call it in its own process."""
    settle_half_precision()
    build = (OURS | PEERS)[name][2]
    build(replace(work, T=32, heads=2, layers=1))()  # libraries load and warm up
    look = build(work)
    sizes: list[float | None] = []
    memory = peak_memory(lambda: sizes.append(look()), work.device)
    times = [clock(look, work.device) for _ in range(work.repeats)]
    found = {"seconds": statistics.median(times)}
    if memory is not None:
        found["memory MB"] = memory / 1e6
    if sizes[0] is not None:
        found["file MB"] = sizes[0] / 1e6
    return found


def _discard(_: object) -> None:
    """Drop a result now, so that it is not in memory during the next call."""


def _words(ids: Tensor) -> list[str]:
    return [f"w{int(n)}" for n in ids[0]]
