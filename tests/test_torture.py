"""Any damage to any file is repaired or named: no difference is silent, and nothing is lost.

GLASSHEAD_DAMAGES says how many; `make torture` tries 360.
"""

import json
import os
import random
import shutil
import sys

import pytest

from glasshead.checkpoint.run import read_metrics
from glasshead.files.tensors import read_tensors
from tests.damage import KINDS, damage

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot fork"),
    pytest.mark.deep,
]
DAMAGES = int(os.environ.get("GLASSHEAD_DAMAGES", "36"))
TEXT = "".join(f"{n} and {n * n} and {n % 7} are numbers.\n" for n in range(300))
SHAPE = "--d-model 16 --n-layers 2 --n-heads 2 --max-len 16 --batch-size 3 --threads 1 --device cpu"
TRAIN = f"train text.txt --preset llama {SHAPE} --eval-every 7 --save-every 4"
CLOCK = {"seconds", "tokens_per_s"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was stopped in its middle, its exports and a recording, all undamaged."""
    from tests.forked import run_forked

    folder = tmp_path_factory.mktemp("whole")
    (folder / "text.txt").write_text(TEXT)
    start = f"{TRAIN} --steps 27 --out run --portable --tokenizer bpe --vocab-size 290"
    assert run_forked(start.split(), folder, 300, saves=6).code == 128 + 15
    for line in (
        "export run -o exported",
        "export run -o exported.gguf",
        "atlas run text.txt --max-tokens 16 -o seen.glass",
    ):
        ended = run_forked(line.split(), folder, 300)
        assert ended.code == 0, ended.err
    return folder


def values(file):
    tensors, about = read_tensors(file)
    named = sorted((name, tensor.tolist()) for name, tensor in tensors.items())
    return json.dumps([named, about.get("step")])


def trained(run):
    """What a run has at its end, without the clock."""
    kept = [{k: v for k, v in line.items() if k not in CLOCK} for line in read_metrics(run)]
    files = run / "model.safetensors", run / "state" / "last.safetensors"
    return [kept, (run / "samples.txt").read_bytes(), *map(values, files)]


def uses(folder, file):
    """Return the command lines that read a file, and what each leaves behind."""
    top = file.relative_to(folder).parts[0]
    nothing = lambda: None  # noqa: E731
    wrote = ["generate", top, "12", "--max-tokens", "9", "--temperature", "0"]
    match top:
        case "run":
            resumed = ["train", "--resume", top]
            return [(wrote, nothing), (resumed, lambda: trained(folder / top))]
        case "seen.glass":
            lines = ["look", top, "--json"], ["look", top, "--layer", "1", "--head", "0"]
            return [(line, nothing) for line in lines]
        case "exported":
            return [(wrote, nothing), (["look", top, "12 and 144", "--json"], nothing)]
    return [(wrote, nothing)]


def contents(folder):
    return {
        file.relative_to(folder): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and ".cache" not in file.parts and file.name != "lock"
    }


def attempt(folder, number, original, reference):
    """Damage one file; return what went wrong, or None."""
    from tests.forked import run_forked

    chance = random.Random(number)
    names = [name for name in original if name.parts[0] != "text.txt"]
    file, kind = folder / chance.choice(names), KINDS[number % len(KINDS)]
    name = file.relative_to(folder)
    for place, content in original.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content)
    file.write_bytes(damage(original[name], kind, chance))
    for args, result in uses(folder, file):
        before = contents(folder)
        ended = run_forked(args, folder, 120)
        said = f"{number}: {kind} in {name}: {' '.join(args)}: {ended.code} {ended.err[-400:]}"
        if ended.code not in (0, 2) or "Traceback" in ended.err + ended.out:
            return f"CRASH {said}"
        named = file.name in ended.err or file.parent.name in ended.err
        after = contents(folder)
        if ended.code == 2 and not named:
            return f"NAMES NOTHING {said}"
        if ended.code == 2 and after != before:
            return f"CHANGED {said}"
        if lost := before.keys() - after.keys():
            bytes_kept = set(after.values())
            if any(before[one] not in bytes_kept for one in lost):
                return f"LOST {lost} {said}"
        if ended.code == 0:
            try:
                same = [ended.out, result()] == reference[tuple(args)]
            except Exception as error:
                return f"UNREADABLE AT THE END ({error!r}) {said}"
            if not same and not (named and "damaged" in ended.err):
                return f"SILENT {said}"
            if not same and name.parts[:2] == ("run", "state"):
                return f"NOT REPAIRED {said}"
    return None


def test_no_damage_is_silent(whole, tmp_path):
    from tests.forked import run_forked

    original = contents(whole)
    original = {name: data for name, data in original.items() if "tensorboard" not in name.parts}
    reference = {}
    for top in ("run/config.json", "seen.glass", "exported/config.json", "exported.gguf"):
        folder = tmp_path / "reference"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        for args, result in uses(folder, folder / top):
            ended = run_forked(args, folder, 120)
            assert ended.code == 0, ended.err
            reference[tuple(args)] = [ended.out, result()]
    wrong = []
    for number in range(DAMAGES):
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        found = attempt(folder, number, original, reference)
        if found:
            wrong.append(found)
            print(found, flush=True)
    assert not wrong, "\n".join(wrong)
