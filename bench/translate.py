"""Train a translator on public pairs and score it on sentences it never saw, by one command.

    python bench/translate.py multi30k-en-de [--data ../shared/data] [--steps N] [--device cuda]

    multi30k-en-de, multi30k-de-en   29,000 captions, nothing else; test2016 is scored
    zh-en                            Tatoeba and 3AM; of a held-out pair neither sentence trains
    de-en                            Multi30k and Tatoeba; then a sentence of the seed documents

The best model and the length penalty are chosen on validation pairs; the test is scored once, at
the end. Everything is done by the `glasshead` command, which is printed before it is run.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

from glasshead.text.pairs import Pair, read_pairs
from glasshead.training.parallel_corpus import split_pairs

SENTENCE = "Kannst du mir helfen, diesen Satz zu übersetzen?"
ALPHAS = ("0.6", "1.0", "1.4")
SAMPLES = 20


def glasshead(*words: str) -> str:
    print("$ glasshead", shlex.join(words), flush=True)
    done = subprocess.run([sys.executable, "-m", "glasshead", *words], stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout.decode()


def multi30k(data: Path, source: str, target: str) -> dict[str, list[str]]:
    folder = data / "pairs" / "multi30k-de-en"
    parts = {"train": "train", "val": "val", "test": "test_2016_flickr"}
    return {
        part: [str(folder / f"{name}.{side}.gz") for side in (source, target)]
        for part, name in parts.items()
    }


def chinese(data: Path, out: Path) -> dict[str, list[str]]:
    """Join Tatoeba and 3AM; 3AM's own test set is separate and not trained on."""
    tatoeba = read_pairs(data / "pairs/tatoeba/cmn-eng-attributed.tsv.xz", columns=(1, 0))
    folder = data / "pairs" / "3am-zh-en"
    captions = read_pairs(folder / "train.zh.xz", folder / "train.en.xz")
    aside = {
        pair.target.casefold() for pair in read_pairs(folder / "test.zh.xz", folder / "test.en.xz")
    }
    usable = [pair for pair in [*tatoeba, *captions] if pair.target.casefold() not in aside]
    rest, test = split_pairs(usable, 0.02)
    train, val = split_pairs(rest, 0.02)
    print(f"{len(train)} pairs train, {len(val)} validate, {len(test)} test", flush=True)
    return {
        "train": [write(train, out / "train.tsv")],
        "val": [write(val, out / "val.tsv")],
        "test": [write(test, out / "test.tsv")],
        "test 3AM": [str(folder / "test.zh.xz"), str(folder / "test.en.xz")],
    }


def german(data: Path, out: Path) -> dict[str, list[str]]:
    parts = multi30k(data, "de", "en")
    tatoeba = read_pairs(data / "pairs/tatoeba/deu-eng-2018.tsv.xz", columns=(1, 0))
    rest, test = split_pairs(tatoeba, 0.01)
    parts["train"].append(write(rest, out / "tatoeba-train.tsv"))
    parts["test Tatoeba"] = [write(test, out / "tatoeba-test.tsv")]
    return parts


def write(pairs: list[Pair], path: Path) -> str:
    path.write_text("".join(f"{p.source}\t{p.target}\n" for p in pairs), encoding="utf-8")
    return str(path)


def options(name: str, files: list[str]) -> list[str]:
    """Return the options: one --pairs for two files, and one for each .tsv."""
    two = [name, *files[:2]] if not files[0].endswith(".tsv") else [name, files[0]]
    rest = files[len(two) - 1 :]
    return two + [word for file in rest for word in (name, file)]


def score(run: str, files: list[str], alpha: str, device: str, *more: str) -> dict[str, float]:
    words = ["score", run, *options("--pairs", files), "--beam", "5", "--alpha", alpha]
    found = json.loads(glasshead(*words, "--device", device, "--json", *more))
    for one in found["measures"]:
        print(f"  {one['name']:<16} {one['score']:6.2f}  {one['signature']}", flush=True)
    return {one["name"]: one["score"] for one in found["measures"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=["multi30k-en-de", "multi30k-de-en", "zh-en", "de-en"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    parser.add_argument("--device", default="auto")
    args, flags = parser.parse_known_args()  # further flags are those of `glasshead train`
    out = args.out / args.task
    out.mkdir(parents=True, exist_ok=True)
    parts = (
        chinese(args.data, out)
        if args.task == "zh-en"
        else german(args.data, out)
        if args.task == "de-en"
        else multi30k(args.data, *args.task.split("-")[1:])
    )
    run, start = str(out / "run"), time.perf_counter()
    train = ["train", *options("--pairs", parts["train"]), *options("--val", parts["val"])]
    glasshead(*train, "--preset", "pairs", "--out", run, "--device", args.device, *flags)
    print(f"trained in {time.perf_counter() - start:.0f} s, start and evaluations included")
    tried = {a: score(run, parts["val"], a, args.device)["BLEU lowercased"] for a in ALPHAS}
    alpha = max(tried, key=tried.__getitem__)
    print(f"--alpha {alpha} is best on validation pairs")
    for name, files in parts.items():
        if name.startswith("test"):
            said = out / f"{name.replace(' ', '-')}.txt"
            print(f"{name}:")
            score(run, files, alpha, args.device, "--out", str(said))
            columns = read_pairs(files[0], files[1] if len(files) > 1 else None)
            lines = said.read_text(encoding="utf-8").split("\n")
            for pair in columns[:: max(1, len(columns) // SAMPLES)][:SAMPLES]:
                print(f"  {pair.source}\n    = {pair.target}\n    > {lines[pair.line - 1]}")
    if args.task == "de-en":
        print(glasshead("translate", run, SENTENCE, "--align", "--alpha", alpha))


if __name__ == "__main__":
    main()
