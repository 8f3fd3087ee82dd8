"""The demo with several seeds, as the table of docs/results.md.

    python bench/demo.py [--seeds 1,2,3] [--stories 500] [--steps N]

Every seed has its own stories and its own two models; each is measured on unseen combinations.
"""

import argparse
import tempfile
from pathlib import Path

from glasshead.machine import settle_half_precision

settle_half_precision()  # before torch computes anything

from glasshead.lab.demo import demo_json, measure_models, train_models  # noqa: E402

READER = ("accuracy", "share", "weight", "flips", "cut_best", "cut_all", "cut_other")
COLUMNS = [
    *("seed", "reader right", "head", "top noun right", "weight", "flips"),
    *("hidden, best head", "hidden, all heads", "other noun hidden"),
    *("exact", "pronouns", "AER (least)", "reading 它", "writing", "seconds"),
]


def row(seed: int, stories: int, steps: int | None) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        seconds = train_models(Path(folder), seed, steps, lambda *told: None)
        found = demo_json(measure_models(Path(folder), seed, stories, seconds))
    reader, translator = found["reader"], found["translator"]
    shown = [f"{reader[name]:{'.3f' if name == 'weight' else '.1%'}}" for name in READER]
    layer, head = reader["head"]
    return [
        *(str(seed), shown[0], f"{layer}:{head}", *shown[1:]),
        *(f"{translator[name]:.1%}" for name in ("exact", "pronouns")),
        f"{translator['error']:.3f} ({found['least_error']:.3f})",
        *(f"{translator[name]['share']:.1%}" for name in ("reading", "writing")),
        f"{seconds:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--stories", type=int, default=500)
    parser.add_argument("--steps", type=int)
    args = parser.parse_args()
    print("|", " | ".join(COLUMNS), "|")
    print("|", " | ".join("---" for _ in COLUMNS), "|")
    for seed in map(int, args.seeds.split(",")):
        print("|", " | ".join(row(seed, args.stories, args.steps)), "|", flush=True)


if __name__ == "__main__":
    main()
