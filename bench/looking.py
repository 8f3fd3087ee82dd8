"""What looking costs: a forward pass alone, and with every way to look at its attention.

    python -m bench.looking [--quick] [--json FILE] [--profile] [--lengths 256,4096]

For a Llama of transformers, our GPT of the same shape, and a padded batch, in milliseconds of the
whole model, medians of turns:

    forward       the model alone
    observing     `observing(model)` as it comes
    + statistics  the same, then the statistics of all layers
    kept only     `observing(model, keep="statistics")`
    eager         eager attention with output_attentions=True: every weight, no statistics

Memory is the peak beyond that of the forward pass. Outputs are compared bit by bit. On a CPU
`--quick` runs small models, to see that everything works.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.machine import this_machine
from bench.timing import peak_memory, release, synchronize, time_in_turns
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.observe.recording import observing

LENGTHS = (256, 1024, 4096, 16_384, 65_536)
PAIRS = 2**31  # a layer's pairs of query and key, over all texts, for which eager is tried
VOCAB = 4999
LIMITS = {"observing": 1.15, "statistics": 2.0}


@dataclass
class Shape:
    layers: int = 12
    heads: int = 12
    kv_heads: int = 4
    width: int = 64

    @property
    def d_model(self) -> int:
        return self.heads * self.width


@dataclass
class Row:
    model: str
    batch: int
    tokens: int
    ms: dict[str, float] = field(default_factory=dict)
    megabytes: dict[str, float] = field(default_factory=dict)
    same_bits: bool = False
    worst_row_sum: float = 0.0


def llama(shape: Shape, longest: int, device: str) -> Any:
    import transformers

    library: Any = transformers

    torch.manual_seed(0)
    config = library.LlamaConfig(
        vocab_size=VOCAB, hidden_size=shape.d_model, intermediate_size=3 * shape.d_model,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, head_dim=shape.width,
        max_position_embeddings=longest, attn_implementation="sdpa",
    )  # fmt: skip
    return library.LlamaForCausalLM(config).to(device, dtype_of(device)).eval()


def gpt(shape: Shape, longest: int, device: str) -> GPT:
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=VOCAB, max_len=longest, n_layers=shape.layers, n_heads=shape.heads,
        n_kv_heads=shape.kv_heads, d_model=shape.d_model, positions="rotary",
    )  # fmt: skip
    return GPT(config).to(device, dtype_of(device)).eval()


def dtype_of(device: str) -> torch.dtype:
    return torch.float32 if device == "cpu" else torch.bfloat16


def measure(
    name: str, model: Any, ids: Tensor, mask: Tensor | None, repeats: int, device: str
) -> Row:
    """Measure one model and one length in all ways."""
    row = Row(name, *ids.shape)
    runs = ways(model, ids, mask)
    if not isinstance(model, GPT) and ids.numel() * ids.shape[1] <= PAIRS // 12:
        runs["eager"] = lambda: with_eager(model, ids, mask)
    plain = runs["forward"]()
    with observing(model, ids=ids) as seen:
        row.same_bits = bool(torch.equal(plain, run(model, ids, mask)))
    sums = [seen.statistics(layer.index) for layer in seen.layers]
    seeing = [x.lse > -torch.inf for x in sums]
    off = [((x.row_sum - 1).abs() * s).max() for x, s in zip(sums, seeing, strict=True)]
    row.worst_row_sum = float(torch.stack(off).max())
    del seen, sums, plain
    peaks = {}
    for way, one in list(runs.items()):
        release()
        try:
            peaks[way] = peak_memory(one, device) or 0.0
        except torch.cuda.OutOfMemoryError:
            del runs[way]
    row.megabytes = {
        way: (peak - peaks["forward"]) / 1e6 for way, peak in peaks.items() if way != "forward"
    }
    release()
    row.ms = {way: 1e3 * s for way, s in time_in_turns(runs, repeats, device).items()}
    return row


def run(model: Any, ids: Tensor, mask: Tensor | None) -> Tensor:
    """Return the output of the model, without logits of all tokens."""
    if isinstance(model, GPT):
        found: Tensor = model.features(ids)
        return found
    out = model(ids, attention_mask=mask, use_cache=False, logits_to_keep=1)
    logits: Tensor = out.logits
    return logits


def ways(model: Any, ids: Tensor, mask: Tensor | None) -> dict[str, Callable[[], Any]]:
    def look() -> None:
        with observing(model):
            run(model, ids, mask)

    def look_and_measure() -> None:
        with observing(model) as seen:
            run(model, ids, mask)
        for layer in seen.layers:
            seen.statistics(layer.index)

    def measure_only() -> None:
        with observing(model, keep="statistics"):
            run(model, ids, mask)

    return {
        "forward": lambda: run(model, ids, mask), "observing": look,
        "statistics": look_and_measure, "kept only": measure_only,
    }  # fmt: skip


def with_eager(model: Any, ids: Tensor, mask: Tensor | None) -> None:
    model.set_attn_implementation("eager")
    try:
        model(ids, attention_mask=mask, use_cache=False, logits_to_keep=1, output_attentions=True)
    finally:
        model.set_attn_implementation("sdpa")


def show(row: Row) -> str:
    """Return a row of the table: milliseconds, ratios to the forward pass, memory."""
    forward, text = row.ms["forward"], f"{row.batch:>2} x {row.tokens:>6,} {row.model:<6}"
    for way in ("forward", "observing", "statistics", "kept only", "eager"):
        if way in row.ms:
            text += f" {row.ms[way]:9.2f} ({row.ms[way] / forward:5.2f})"
        else:
            text += f" {'-':>9} {'':>7}"
    memory = " ".join(f"{mb:,.0f}" for mb in row.megabytes.values())
    return f"{text}  {row.same_bits!s:<5} {row.worst_row_sum:.0e}  {memory}"


def profile(model: Any, ids: Tensor, device: str) -> None:
    """Print where the time of a length goes: functions of Python, operations, waits."""
    import cProfile
    import pstats

    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device != "cpu" else [])
    for name, one in ways(model, ids, None).items():
        one()
        synchronize(device)
        print(f"\n== {name}, {ids.shape[1]} tokens ==", flush=True)
        if device != "cpu":
            print("waits:", count_waits(one))
        with torch_profile(activities=kinds) as found:
            one()
            synchronize(device)
        table = found.key_averages()
        print(table.table(sort_by="self_cpu_time_total", row_limit=22, max_name_column_width=48))
        if device != "cpu":
            by = "self_device_time_total"
            print(table.table(sort_by=by, row_limit=16, max_name_column_width=70))
        if name != "forward":
            python = cProfile.Profile()
            start = time.perf_counter()
            python.runcall(one)
            issued = time.perf_counter() - start
            synchronize(device)
            print(f"the host is done after {1e3 * issued:.1f} ms, under the profiler")
            pstats.Stats(python).sort_stats("tottime").print_stats(25)


def count_waits(one: Callable[[], Any]) -> str:
    """Return where a call waits for the GPU, and how often."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            one()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    places: dict[str, int] = {}
    for warning in caught:
        if "synchroniz" in str(warning.message):
            place = f"{Path(warning.filename).name}:{warning.lineno}"
            places[place] = places.get(place, 0) + 1
    return f"{sum(places.values())} {places}"


def padded_mask(B: int, T: int, device: str) -> Tensor:
    """Return (B, T) ones, where later texts end earlier."""
    lengths = T - torch.arange(B, device=device) * (T // (2 * B))
    return (torch.arange(T, device=device) < lengths[:, None]).long()


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small model and short texts")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    parser.add_argument("--profile", action="store_true", help="show where the time goes, too")
    parser.add_argument("--lengths", help="such as 256,4096")
    parser.add_argument("--seconds", type=float, default=200, help="start no length after these")
    args = parser.parse_args()
    began = time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = Shape(2, 4, 2, 16) if args.quick else Shape()
    lengths = [int(n) for n in args.lengths.split(",")] if args.lengths else list(LENGTHS)
    lengths = [64, 256] if args.quick and not args.lengths else lengths
    longest, repeats = max(*lengths, 1024), 5 if device == "cpu" else 9
    generator = torch.Generator().manual_seed(0)

    def text(B: int, T: int) -> Tensor:
        return torch.randint(VOCAB, (B, T), generator=generator).to(device)

    builders: dict[str, Any] = {"llama": llama, "gpt": gpt}
    models = {name: build(shape, longest, device) for name, build in builders.items()}
    batch = (3, 64) if args.quick else (8, 1024)
    work: list[tuple[str, tuple[int, int], Tensor | None]]
    work = [("llama", (1, n), None) for n in lengths]
    work += [("llama", batch, padded_mask(*batch, device)), ("llama", batch, None)]
    work += [("gpt", (1, n), None) for n in lengths] + [("gpt", batch, None)]
    print(f"{device}, {torch.__version__}, {shape}; ms (times the forward pass); same bits; "
          "largest |row sum - 1|; MB beyond the forward pass")  # fmt: skip
    names = ("forward", "observing", "+ statistics", "kept only", "eager")
    print(f"{'':>18}" + "".join(f"{name:>18}" for name in names), flush=True)
    rows = []
    for name, size, mask in work:
        if time.perf_counter() - began > args.seconds:
            print(f"{size} {name}: left out, the time is over")
            continue
        few = 3 if size[0] * size[1] > 2**14 else repeats
        row = measure(name, models[name], text(*size), mask, few, device)
        rows.append(row)
        padded = "" if mask is None else " padded"
        print(f"{show(row)}{padded}   [{time.perf_counter() - began:.0f} s]", flush=True)
        release()
    if args.profile:
        profile(models["llama"], text(1, 64 if args.quick else 4096), device)
    if args.json:
        about = {
            "machine": asdict(this_machine(device, quick=True)),
            "rows": [asdict(r) for r in rows],
        }
        args.json.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
