"""Peak memory of train, score and atlas on texts of different length: it must not grow with them.

    python -m bench.large_text [MB MB] [FOLDER]      200 and 2000 by default; BPE and score: a tenth

The text is words of an open vocabulary, half of it Chinese. Each command runs in a process of its
own, and the figure is the memory of the largest process that it starts. What is left of the growth
is a share of the difference of the lengths: 0 is a block, 1 the whole text.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MODEL = "--n-layers 1 --d-model 8 --n-heads 1 --max-len 256 --batch-size 1 --steps 1 --threads 1"
COMMANDS = {  # by name: the command line, and the part of the length that it is given
    "train, bytes": (f"train {{text}} --tokenizer byte {MODEL} --out {{out}}", 4),
    "train, BPE": (f"train {{text}} --tokenizer bpe {MODEL} --out {{out}}", 10),
    "score": ("score {model} {text}", 200),
    "score --tokens --json": ("score {model} {text} --tokens --json", 200),
    "atlas --max-tokens 200": ("atlas {model} {text} --max-tokens 200 -o {out}.glass", 1),
}


def write_text(path: Path, megabytes: int) -> None:
    """Write a text with new words all the way: blocks of a megabyte that are numbered."""
    chance = random.Random(0)
    letters, han = "abcdefghijklmnopqrst", [chr(n) for n in range(0x4E00, 0x5500)]

    def block() -> str:
        words = ("".join(chance.choices(letters, k=chance.randint(1, 9))) for _ in range(90_000))
        clauses = ("".join(chance.choices(han, k=chance.randint(3, 9))) for _ in range(25_000))
        return " ".join(words) + "\n" + "，".join(clauses) + "\n"

    blocks = [block().encode() for _ in range(16)]
    with path.open("wb") as file:
        number = 0
        while file.tell() < megabytes * 1_000_000:
            file.write(b"%d\n" % number + chance.choice(blocks))
            number += 1


def peak(line: str, folder: Path) -> int:
    """Run `glasshead LINE`; return the megabytes of its largest process.

    Pages of files that are mapped do not count: the system takes them back when it needs room.
    """
    own = {"XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "glasshead", *line.split()]
    running = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **own}
    )
    most = 0
    while running.poll() is None:
        most = max(most, *map(anonymous, [running.pid, *children(running.pid)]))
        time.sleep(0.05)
    if running.returncode:
        raise SystemExit(f"{line}: exit code {running.returncode}")
    return most


def anonymous(pid: int) -> int:
    """Return the megabytes of a process that are not pages of files; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) >> 10
    except (OSError, StopIteration, UnicodeDecodeError):
        return 0


def children(pid: int) -> list[int]:
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in listed.split()]


def measure(lengths: list[int], folder: Path) -> dict[str, Any]:
    small = folder / "small.txt"
    write_text(small, 1)
    peak(f"train {small} --tokenizer byte {MODEL} --out {folder / 'model'}", folder)
    found: dict[str, Any] = {}
    for name, (line, share) in COMMANDS.items():
        row: dict[str, Any] = {}
        for length in lengths:
            text = folder / "text.txt"
            write_text(text, max(1, length // share))
            out = folder / f"out-{len(found)}-{length}"
            row[f"{length // share} MB"] = peak(
                line.format(text=text, out=out, model=folder / "model"), folder
            )
            text.unlink()
            for kept in folder.glob("cache/glasshead/tokens/*.tokens"):
                kept.unlink()
        low, high = row.values()
        row["share of the growth"] = (high - low) / ((lengths[1] - lengths[0]) / share)
        found[name] = row
        print(name, row, file=sys.stderr, flush=True)
    return found


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    parent = next((word for word in sys.argv[1:] if not word.isdecimal()), None)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        print(json.dumps(measure(numbers or [200, 2000], Path(folder)), indent=2))


if __name__ == "__main__":
    main()
