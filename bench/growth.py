"""How time and memory of training, generating and observing grow with the size.

    python -m bench.growth [--device cuda] [--quick] [--draw]

Each is measured against the length of the text, the width of the model and the batch size, one at a
time. The exponent of growth comes from the last two points: 1 is linear, 2 quadratic. Writes
bench/results/growth-MACHINE.json, docs/img/growth-MACHINE.png and the table of docs/results.md;
--draw makes the latter two from the first, without measuring. On a CPU every point runs in its own
process. Memory is what is needed beyond the parameters, or beyond q and k; in training it includes
gradients and optimizer state.

    train      one step of `glasshead train` (AdamW, not compiled)
    prompt     reading a prompt before the first token is generated
    token      generating one token after it
    observe    all statistics of all heads of one layer
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from bench.growth_picture import draw, exponent
from bench.machine import this_machine
from bench.table import RESULTS, figure, write_between_markers
from bench.timing import clock, peak_memory, release, run_in_process
from bench.train import Turns, trainer
from glasshead.attention.mask import Mask
from glasshead.errors import ConfigError
from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY
from glasshead.machine import settle_half_precision
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.observe.statistics import observe
from glasshead.training.cuda_graph import WARM

DOCS = Path(__file__).parents[1] / "docs"
D_HEAD = 64
TOKENS = 64  # generated to clock one
FIRST = 60  # tokens that are not timed; on a GPU they come by 4, 8, 16, 32 and then always 32


@dataclass(frozen=True)
class Size:
    """The sizes that are varied, one at a time."""

    length: int
    width: int
    batch: int
    n_layers: int
    vocab_size: int
    device: str

    def model(self, room: int = 0) -> GPT:
        torch.manual_seed(1)
        config = GPTConfig(
            vocab_size=self.vocab_size, max_len=self.length + room, n_layers=self.n_layers,
            n_heads=self.width // D_HEAD, d_model=self.width, feed_forward="gelu-tanh",
            tied=True, head_bias=False, init="gpt2",
        )  # fmt: skip
        with torch.device(self.device):  # on a CPU, billions of random parameters take a minute
            return GPT(config)

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.device != "cpu" else torch.float32


@dataclass(frozen=True)
class Plan:
    """The base size, and the sizes along each axis."""

    base: Size
    axes: dict[str, tuple[int, ...]]

    def points(self) -> Iterator[tuple[str, int, Size]]:
        for axis, sizes in self.axes.items():
            for n in sizes:
                yield axis, n, replace(self.base, **{axis: n})


def plan(device: str, quick: bool) -> Plan:
    if quick:
        return Plan(Size(16, 64, 1, 1, 64, device), {"length": (16, 32), "batch": (1, 2)})
    if device == "cpu":
        return Plan(
            Size(length=256, width=256, batch=1, n_layers=4, vocab_size=512, device=device),
            {
                "length": (128, 256, 512, 1024, 2048, 4096),
                "width": (64, 128, 256, 512, 1024),
                "batch": (1, 2, 4, 8, 16, 32),
            },
        )
    return Plan(
        Size(length=1024, width=768, batch=1, n_layers=12, vocab_size=8192, device=device),
        {
            "length": (1024, 4096, 16384, 65536, 131072),
            "width": (256, 1024, 4096),
            "batch": (1, 4, 16, 64),
        },
    )


@dataclass(frozen=True)
class Found:
    seconds: float
    memory: float | None  # bytes; of a prompt, with the tokens after it


def train(size: Size) -> dict[str, Found]:
    turns = Turns(size.device)
    # On a GPU a step may be captured after WARM steps, and replayed from the next on.
    first = 1 if size.device == "cpu" else WARM + 1
    made = trainer(
        size.model(), size.batch, first + 3, turns, device=size.device, log_every=1,
        optimizer="adamw", precision="auto", compile="off",
    )  # fmt: skip
    memory = peak_memory(made.train, size.device)
    return {"train": Found(statistics.median(turns.ours[first:]), memory)}


def write(size: Size) -> dict[str, Found]:
    model = size.model(room=FIRST + TOKENS + 2).to(size.dtype).eval()
    prompt = [n % size.vocab_size for n in range(size.length)]
    reading: list[float] = []
    writing: list[float] = []

    def run() -> None:
        prompts = [prompt] * size.batch
        one = generate(model, prompts, GREEDY, max_tokens=1)
        reading.append(clock(lambda: next(one), size.device))
        steps = generate(model, prompts, GREEDY, max_tokens=FIRST + TOKENS)
        list(islice(steps, FIRST))
        writing.append(clock(lambda: list(steps), size.device) / TOKENS)

    memory = peak_memory(run, size.device)
    run()
    run()
    return {"prompt": Found(min(reading), memory), "token": Found(min(writing), None)}


def look(size: Size) -> dict[str, Found]:
    torch.manual_seed(1)
    shape = (size.batch, size.width // D_HEAD, size.length, D_HEAD)
    q, k = (torch.randn(shape, device=size.device, dtype=size.dtype) for _ in range(2))
    ids = torch.randint(size.vocab_size, (size.batch, size.length), device=size.device)

    def run() -> None:
        observe(q, k, Mask(causal=True), ids=ids)

    memory = peak_memory(run, size.device)
    return {"observe": Found(min(clock(run, size.device) for _ in range(3)), memory)}


WORKS: tuple[Callable[[Size], dict[str, Found]], ...] = (train, write, look)


def measure(plan: Plan) -> list[dict[str, Any]]:
    found = []
    for axis, n, size in plan.points():
        for work in WORKS:
            try:
                done = (
                    work(size)
                    if size.device != "cpu"
                    else run_in_process(warm_up_and_run, work, size)
                )
            except (torch.OutOfMemoryError, MemoryError, ConfigError) as error:  # too large
                print(f"{work.__name__} at {axis} {n}: {error}")
                done = {}
            release()
            for name, one in done.items():
                mb = None if one.memory is None else one.memory / 1e6
                found.append({"work": name, "axis": axis, "at": n, "ms": one.seconds * 1e3,
                              "mb": mb})  # fmt: skip
                print(f"{axis:8} {n:8,} {name:8} {figure(one.seconds * 1e3):>10} ms "
                      f"{figure(mb):>10} MB", flush=True)  # fmt: skip
    return found


def warm_up_and_run(work: Callable[[Size], dict[str, Found]], size: Size) -> dict[str, Found]:
    """Run in a process of its own, first with a small size to load and warm up libraries."""
    settle_half_precision()
    work(replace(size, length=16, batch=1, width=D_HEAD, n_layers=1))
    release()
    return work(size)


def page(kept: dict[str, Any]) -> str:
    """Return the picture and the table for docs/results.md."""
    machine, base = kept["machine"], kept["base"]
    dtype = "float32" if machine["slug"].endswith("cores") else "bf16"
    lines = [
        f"`python -m bench.growth` on {machine['name']}, torch {machine['torch']}, {dtype}. Where "
        f"it is not what grows: {base['n_layers']} layers, width {base['width']}, "
        f"{base['length']:,} tokens, batch {base['batch']}. Memory beyond the parameters, or "
        "beyond q and k. The last columns say how fast it grows at the end: 1 in proportion, 2 "
        "with the square.",
        "",
        f"![growth](img/growth-{machine['slug']}.png)",
        "",
        "| against | | from | to | ms | MB | time | memory |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for axis in dict.fromkeys(p["axis"] for p in kept["points"]):
        for work in dict.fromkeys(p["work"] for p in kept["points"]):
            some = [p for p in kept["points"] if (p["axis"], p["work"]) == (axis, work)]
            if not some:
                continue
            ends = some[0], some[-1]
            spans = [
                " to ".join(filter(None, (figure(p[name]) for p in ends))) for name in ("ms", "mb")
            ]
            slopes = [exponent(some, name) for name in ("ms", "mb")]
            shown = ["" if s is None else f"{round(s, 1) + 0:.1f}" for s in slopes]
            sizes = [f"{p['at']:,}" for p in ends]
            lines.append("| " + " | ".join([axis, work, *sizes, *spans, *shown]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
    parser.add_argument("--draw", action="store_true", help="only draw what was measured before")
    parser.add_argument("--out", type=Path, help="folder of the measurements: bench/results")
    parser.add_argument("--docs", type=Path, help="folder of results.md and img: docs")
    args = parser.parse_args()
    keeps = not args.quick  # results of tiny sizes are stored only with --out
    out, docs = args.out or (RESULTS if keeps else None), args.docs or (DOCS if keeps else None)
    if not args.draw:
        settle_half_precision()
        machine, planned = this_machine(args.device, args.quick), plan(args.device, args.quick)
        kept = {"machine": asdict(machine), "base": asdict(planned.base),
                "points": measure(planned)}  # fmt: skip
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            file = out / f"growth-{machine.slug}.json"
            file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if out is None or docs is None:
        return
    (docs / "img").mkdir(parents=True, exist_ok=True)
    for file in sorted(out.glob("growth-*.json")):
        kept = json.loads(file.read_text(encoding="utf-8"))
        slug = kept["machine"]["slug"]
        draw(kept, docs / "img" / f"growth-{slug}.png")
        write_between_markers(docs / "results.md", f"growth:{slug}", page(kept))


if __name__ == "__main__":
    main()
