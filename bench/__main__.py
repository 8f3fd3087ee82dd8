"""Compare every area with its peers in one run: `make bench`, or

    python -m bench [--area train,generate] [--device cuda] [--quick] [--repeats 8]
                    [--peer-nanogpt PATH]
    python bench/train.py                 # one area

Prints a table per area: our figure, the peer's, how many times better ours is, and the limit of the
hardware if it is known. Peers that are not installed are named and left out. Writes
bench/results/MACHINE.json and the tables in docs/results.md; areas that are not measured keep their
last figures. `--render` writes the page from the files without measuring.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path

import torch

from bench.machine import this_machine
from bench.table import RESULTS, Settings, save_rows, tables, wide, write_between_markers
from bench.timing import release
from glasshead.machine import settle_half_precision

AREAS = {  # each with the module whose `rows(settings)` measures it
    "attention": "attention",
    "observe": "observe",
    "train": "train",
    "generate": "generate",
    "translate": "translator",
    "start-up": "start_up",
}
PAGE = Path(__file__).parents[1] / "docs" / "results.md"


def render(out: Path, page: Path) -> None:
    """Write the stored results of every machine into the page."""
    for file in sorted(out.glob("*.json")):
        kept = json.loads(file.read_text(encoding="utf-8"))
        if "areas" in kept:  # not a file of bench.growth
            write_between_markers(page, f"bench:{kept['machine']['slug']}", tables(kept))


def main(areas: str = ",".join(AREAS)) -> None:
    """`areas` is the default of --area: one area if its module is the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--area", default=areas, help=f"of {', '.join(AREAS)}")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run?")
    parser.add_argument("--repeats", type=int, help="timed turns: 8, or 2 if quick")
    parser.add_argument("--peer-nanogpt", type=Path, metavar="PATH", help="a checkout of nanoGPT")
    parser.add_argument("--out", type=Path, help="folder of the measurements: bench/results")
    parser.add_argument("--page", type=Path, help="the page of the tables: docs/results.md")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    args = parser.parse_args()
    chosen = args.area.split(",")
    if unknown := set(chosen) - set(AREAS):
        parser.error(f"unknown area '{min(unknown)}'\n\nhint: one of {', '.join(AREAS)}")
    if args.peer_nanogpt and not (args.peer_nanogpt / "model.py").is_file():
        parser.error(f"{args.peer_nanogpt} has no model.py\n\nhint: name a checkout of nanoGPT")
    # Results of tiny sizes are stored only with --out.
    out = args.out or (None if args.quick else RESULTS)
    page = args.page or (None if args.quick else PAGE)
    if not args.render:
        settle_half_precision()  # before torch computes anything
        settings = Settings(
            device=args.device,
            quick=args.quick,
            repeats=args.repeats or (2 if args.quick else 8),
            nanogpt=args.peer_nanogpt,
        )
        machine = this_machine(settings.device, settings.quick)
        for area in chosen:
            print(f"{area}:", file=sys.stderr, flush=True)
            rows = importlib.import_module(f"bench.{AREAS[area]}").rows(settings)
            print(f"{area}, {machine.name}, torch {machine.torch}\n{wide(rows)}\n", flush=True)
            if out:  # after each area: a later one may fail
                save_rows(out / f"{machine.slug}.json", machine, {area: rows})
            release()
    if out and page:
        render(out, page)


if __name__ == "__main__":
    main()
