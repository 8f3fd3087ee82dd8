"""What `glasshead plan` expects beside what this device does: time and memory, by setting.

    python -m bench.plan [--device cuda] [--only 6x384] [--compile] [--rounds 7]

Each setting is trained for a few steps as `glasshead train` does it, writes some tokens, and is
observed. `probed` is the plan for a device with the matrix and memory speed that are measured here;
`sheet` the plan from the data sheet, where there is one for the device. Ratios are expected /
measured. Other programs may slow down this machine, so everything is measured and probed in turn
for several rounds, and the round with the median ratio is shown.
"""

import argparse
import sys
import time

from glasshead.machine import settle_half_precision

settle_half_precision()  # before torch computes anything

import torch  # noqa: E402

from glasshead.lab.plan.measuring import Comparison, compare  # noqa: E402
from glasshead.lab.plan.scenario import Scenario  # noqa: E402
from glasshead.lab.plan.shapes import find_shape  # noqa: E402
from glasshead.lab.plan.tables import amount, duration  # noqa: E402

MODERN = {"positions": "rotary", "norm": "rms", "bias": False, "head_bias": False}


def settings(cuda: bool) -> dict[str, tuple[str, Scenario]]:
    """Return what each setting measures ("tgo": train, generate, observe), and the setting."""
    gpu = "h200" if cuda else "cpu"

    def scenario(base: str | None, batch_size: int, texts: int = 1, **shape: object) -> Scenario:
        optimizer = str(shape.pop("optimizer", "adamw"))
        config = find_shape(base, shape)
        return Scenario(
            config, gpu=gpu, batch_size=batch_size, texts=texts, optimizer=optimizer, compiled=False
        )

    swiglu = {**MODERN, "feed_forward": "swiglu"}
    if not cuda:
        return {
            "nano": ("tgo", scenario("nano", 16, vocab_size=65, optimizer="muon")),
            "4x192": ("tgo", scenario("gpt2", 8, 4, n_layers=4, n_heads=6, d_model=192, max_len=256,
                                    vocab_size=2048)),
            "3x256 swiglu": ("tgo", scenario(None, 4, n_layers=3, n_heads=8, n_kv_heads=2,
                                           d_model=256, max_len=256, vocab_size=512, **swiglu)),
        }  # fmt: skip
    return {
        "6x384": ("tg", scenario(None, 64, 64, n_layers=6, n_heads=6, d_model=384, max_len=256,
                               vocab_size=65)),
        "small muon": ("t", scenario("small", 32, vocab_size=8192, dropout=0.0, optimizer="muon")),
        "gpt2": ("tgo", scenario("gpt2", 16)),
        "gpt2 x 64": ("g", scenario("gpt2", 16, 64)),
        "8x1024 swiglu": ("tgo", scenario(None, 8, n_layers=8, n_heads=16, n_kv_heads=4,
                                        d_model=1024, max_len=2048, vocab_size=32768, **swiglu)),
        "gpt2 long": ("o", scenario("gpt2", 1, max_len=16384)),
    }  # fmt: skip


def line(name: str, found: Comparison) -> str:
    show = duration if found.unit == "s" else (lambda n: amount(n, "B"))
    cells = [name, found.what, show(found.measured), show(found.probed), f"{found.ratio:.2f}"]
    if found.sheet is not None:
        cells += [show(found.sheet), f"{found.sheet / found.measured:.2f}"]
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=False))


WIDTHS = (16, 9, 12, 12, 7, 12, 7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", help="the setting of this name alone")
    parser.add_argument("--compile", action="store_true", help="train with torch.compile")
    parser.add_argument("--rounds", type=int, default=7, help="of measuring and probing")
    args = parser.parse_args()
    device, started = torch.device(args.device), time.perf_counter()
    print(f"{args.device}, {torch.get_num_threads()} threads, torch {torch.__version__}\n")
    heads = ("", "", "measured", "probed", "ratio", "sheet", "ratio")
    print("".join(f"{head:>{width}}" for head, width in zip(heads, WIDTHS, strict=True)))
    off, failed = [], False
    for name, (parts, scenario) in settings(device.type == "cuda").items():
        if args.only not in (None, name):
            continue
        if args.compile:
            scenario, parts = Scenario(**{**vars(scenario), "compiled": True}), parts.strip("go")
        for part in parts:
            torch.manual_seed(0)
            try:
                rounds = [compare(scenario, device, part) for _ in range(args.rounds)]
                for same in zip(*rounds, strict=True):
                    found = sorted(same, key=lambda one: one.ratio)[args.rounds // 2]
                    print(line(name, found), flush=True)
                    off.append(abs(found.ratio - 1))
            except Exception as error:  # a long table is worth having without one of its lines
                print(f"{name:>16}  {part}: {type(error).__name__}: {error}")
                failed = True
    within = sum(error <= 0.15 for error in off)
    print(f"\n{within} of {len(off)} within 15 %, {time.perf_counter() - started:.0f} s")
    sys.exit(failed)


if __name__ == "__main__":
    main()
