"""Whatever is in a file, no command takes more than 1 GB for it, runs on for ever or crashes.

GLASSHEAD_MUTATIONS says how many are tried, or which: 310-500; `make torture` tries 500.
"""

import gzip
import json
import lzma
import os
import random
import shutil
import sys

import pytest

from tests.damage import KINDS, damage

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork"),
    pytest.mark.deep,
]
FIRST, _, LAST = os.environ.get("GLASSHEAD_MUTATIONS", "48").rpartition("-")
MUTATIONS = range(int(FIRST or 0), int(LAST))
MOST_MEMORY = 1000  # MB
MOST_SECONDS = 20  # of the processor, which does not depend on what else runs
TEXT = "".join(f"{n} and {n * n} and {n % 7} are numbers.\n" for n in range(300))
SHAPE = "--d-model 16 --n-layers 2 --n-heads 2 --max-len 16 --batch-size 3 --threads 1 --device cpu"
VALUES = (
    0, -1, 10**30, -(10**30), 2**31, 2**63, 1e308, 0.5, True, None, "", "a\0b", "\ud800", [], {},
    [[]] * 99, "x" * 99_999, {"a": {"b": {}}},
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run, its exports, a recording and compressed texts."""
    from tests.forked import run_forked

    folder = tmp_path_factory.mktemp("whole")
    (folder / "text.txt").write_text(TEXT)
    (folder / "text.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    (folder / "text.txt.xz").write_bytes(lzma.compress(TEXT.encode()))
    (folder / "text.jsonl").write_text(
        "".join(json.dumps({"text": line}) + "\n" for line in TEXT.splitlines())
    )
    for line in (
        f"train text.txt --preset llama {SHAPE} --steps 5 --out run --tokenizer bpe "
        "--vocab-size 290",
        "export run -o exported",
        "export run -o exported.gguf",
        "atlas run text.txt --max-tokens 16 -o seen.glass",
    ):
        ended = run_forked(line.split(), folder, 300)
        assert ended.code == 0, ended.err
    return folder


# Each file, and the command lines that read it.
GENERATE = "generate {} 12 --max-tokens 3 --temperature 0"
FILES = {
    "run/config.json": (GENERATE.format("run"), "train --resume run --steps 7"),
    "run/tokenizer.json": (GENERATE.format("run"), "score run text.txt"),
    "run/model.safetensors": (GENERATE.format("run"),),
    "run/metrics.jsonl": ("train --resume run --steps 7",),
    "exported/config.json": (GENERATE.format("exported"), "look exported 12 --json"),
    "exported/tokenizer.json": (GENERATE.format("exported"), "import exported --out imported"),
    "exported/model.safetensors": (GENERATE.format("exported"), "look exported 12 --json"),
    "exported.gguf": (GENERATE.format("exported.gguf"),),
    "seen.glass": ("look seen.glass --json",),
    "text.jsonl": ("score run text.jsonl", f"train text.jsonl {SHAPE} --steps 1"),
    "text.txt.gz": (
        "score run text.txt.gz",
        f"train text.txt.gz {SHAPE} --steps 1",
        "atlas run text.txt.gz --max-tokens 9 --json",
    ),
    "text.txt.xz": ("score run text.txt.xz", f"train text.txt.xz {SHAPE} --steps 1"),
}


def mutate(name, data, chance):
    """Change bytes, or a value of the JSON in a file."""
    if name.endswith(".json") and chance.random() < 0.7:
        return json.dumps(mutate_value(json.loads(data), chance)).encode()
    if name.endswith((".safetensors", ".glass")) and chance.random() < 0.5:
        size = int.from_bytes(data[:8], "little")
        header = json.dumps(mutate_value(json.loads(data[8 : 8 + size]), chance)).encode()
        return len(header).to_bytes(8, "little") + header + data[8 + size :]
    if name.endswith(".gz") and chance.random() < 0.1:
        return gzip.compress(chance.choice([b"a", b"\n", b"\xe5\xb0\x8f"]) * 300_000_000, 1)
    for _ in range(chance.choice((1, 1, 5))):
        data = damage(data, chance.choice(KINDS), chance)
    return data


def mutate_value(value, chance):
    """Replace, remove or repeat something inside of a JSON value."""
    if chance.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return chance.choice(VALUES)
    if isinstance(value, dict):
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {name: part for name, part in value.items() if name != key}
        return {**value, key: mutate_value(value[key], chance)}
    place = chance.randrange(len(value))
    if chance.random() < 0.1:
        return value[:place] + value[place:] * 3
    return [*value[:place], mutate_value(value[place], chance), *value[place + 1 :]]


def test_no_mutation_takes_the_machine(whole, tmp_path):
    from tests.forked import run_forked

    wrong, names = [], list(FILES)
    largest, longest = 0, 0.0
    for number in MUTATIONS:
        chance, name = random.Random(number), names[number % len(names)]
        folder = tmp_path / "mutated"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        if chance.random() < 0.5:  # what is written by others has no digests
            for file in folder.rglob("checksums.json"):
                file.unlink()
        (folder / name).write_bytes(mutate(name, (whole / name).read_bytes(), chance))
        for line in FILES[name]:
            ended = run_forked(line.split(), folder, 120)
            largest = max(largest, ended.megabytes)
            longest = max(longest, ended.processor)
            ok = ended.code in (0, 2) and "Traceback" not in ended.err + ended.out
            if not ok or ended.megabytes > MOST_MEMORY or ended.processor > MOST_SECONDS:
                said = (
                    f"{ended.code}, {ended.megabytes:.0f} MB, {ended.processor:.1f} s: {ended.err}"
                )
                wrong.append(f"{number}: {name}: {line}: {said[-600:]}")
                print(wrong[-1], flush=True)
    print(f"{len(MUTATIONS)} mutations: at most {largest:.0f} MB, {longest:.1f} s")
    assert not wrong, "\n".join(wrong)
