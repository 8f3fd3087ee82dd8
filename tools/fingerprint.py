"""Digests of what the package computes, to compare before and after a change of structure.

    python -m tools.fingerprint > before.json      # then change the code
    python -m tools.fingerprint --against before.json

Covers a short training run, generated ids (float32, bf16, int8, sampled, many texts), translations,
recorded attention of our models and of transformers' models, `.glass` files, ablations, alignments,
exports, and the stored claims judged again. Same machine, same library versions: the digests of
tensors are of their bytes.
"""

import argparse
import contextlib
import hashlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

import glasshead
from glasshead.cli import run as run_command
from glasshead.lab.claims import load_claim
from glasshead.lab.claims.report import read_docs
from glasshead.text.tinyworld import corpus

ROOT = Path(__file__).resolve().parents[1]
TEXT = "小猫追蝴蝶，它饿了。"


def digest(value: Any) -> str:
    """Return a short hash of tensors (by their bytes), files, and plain values, nested at will."""
    total = hashlib.sha256()

    def add(x: Any) -> None:
        if isinstance(x, torch.Tensor):
            x = x.detach().cpu().contiguous()
            total.update(f"{x.dtype}{tuple(x.shape)}".encode())
            total.update(x.view(torch.uint8).numpy().tobytes() if x.numel() else b"")
        elif isinstance(x, bytes):
            total.update(x)
        elif isinstance(x, Path):
            add(x.read_bytes())
        elif isinstance(x, dict):
            for key in sorted(x, key=str):
                add([str(key), x[key]])
        elif isinstance(x, (list, tuple)):
            for one in x:
                add(one)
        else:
            total.update(repr(x).encode())

    add(value)
    return total.hexdigest()[:16]


def run_and_show(*words: str | Path) -> None:
    print(run(*words), file=sys.stderr)


def train_runs(folder: Path) -> dict[str, str]:
    text = folder / "stories.txt"
    text.write_text("\n".join(corpus(300, "zh", 1)) + "\n", encoding="utf-8")
    common = ("--device", "cpu", "--threads", "1", "--seed", "3", "--no-tensorboard")
    run_and_show(
        "train", text, "--preset", "nano", "--steps", "12", "--out", folder / "gpt", *common
    )
    run_and_show(
        "train", text, "--preset", "llama", "--steps", "4", "--out", folder / "llama",
        "--n-layers", "2", "--d-model", "32", "--n-heads", "4", *common,
    )  # fmt: skip
    pairs = folder / "pairs.tsv"
    zh, en = (corpus(300, lang, 1) for lang in ("zh", "en"))
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in zip(zh, en, strict=True)), encoding="utf-8")
    run_and_show(
        "train", "--pairs", pairs, "--steps", "6", "--out", folder / "pairs", *common,
        "--n-layers", "2", "--d-model", "32", "--n-heads", "4",
    )  # fmt: skip
    found = {}
    for name in ("gpt", "llama", "pairs"):
        found[f"{name}: parameters"] = digest(folder / name / "model.safetensors")
        lines = (folder / name / "metrics.jsonl").read_text().splitlines()
        names = ("step", "loss", "val_loss", "lr", "grad_norm")
        rows = [{k: v for k, v in json.loads(line).items() if k in names} for line in lines]
        found[f"{name}: metrics"] = digest(rows)
    return found


def generate_texts(folder: Path) -> dict[str, str]:
    found = {}
    for precision in ("float32", "bf16", "int8"):
        for temperature in ("0", "0.9"):
            out = run(
                "generate", folder / "gpt", "小猫", "--max-tokens", "300", "--seed", "5",
                "--temperature", temperature, "--precision", precision, "--n", "3",
                "--device", "cpu",
            )  # fmt: skip
            found[f"generate {precision} at {temperature}"] = digest(out)
    for beam in ("1", "4"):
        out = run("translate", folder / "pairs", "小猫饿了。", "--beam", beam)
        found[f"translate, beam {beam}"] = digest(out)
    found["align"] = digest(run("translate", folder / "pairs", "小猫饿了。", "--align"))
    found["score"] = digest(run("score", folder / "gpt", folder / "stories.txt", "--json"))
    return found


def run(*words: str | Path) -> str:
    """Run a command; return what it prints to standard output."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run_command([str(word) for word in words])
    if code:
        raise SystemExit(f"glasshead {' '.join(map(str, words))} ended with exit code {code}")
    return out.getvalue()


def record_attention(folder: Path) -> dict[str, str]:
    found = {}
    for name in ("gpt", "pairs"):
        seen = glasshead.look(folder / name, TEXT)
        for layer in seen.layers:
            found[f"{name}: weights of {layer.name}"] = digest(seen.weights(layer.index))
            found[f"{name}: statistics of {layer.name}"] = digest(
                vars(seen.statistics(layer.index))
            )
        seen.save(folder / f"{name}.glass")
        # By contents: safetensors writes the two keys of its metadata in either order.
        with safe_open(folder / f"{name}.glass", "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            found[f"{name}.glass"] = digest([file.metadata(), tensors])
        for ending in ("svg", "png"):
            picture = folder / f"{name}.{ending}"
            run_and_show("look", folder / name, TEXT, "-o", picture)
            found[picture.name] = digest(picture)
        found[f"look {name}"] = digest(run("look", folder / name, TEXT))
    return found


def ablate(folder: Path) -> dict[str, str]:
    from glasshead.observe.ablation import Edge, ablating

    model = glasshead.load(folder / "gpt").model.eval()
    ids = torch.arange(40).view(2, 20) % 31
    found = {}
    cases: dict[str, dict[str, Any]] = {
        "head": {"heads": [(0, 1), (1, 0)]},
        "head, mean": {"heads": [(0, 1)], "mode": "mean"},
        "edge": {"edges": [Edge(query=7, key=3)]},
        "edge, after softmax": {"edges": [Edge(key=slice(2, 5), head=1)], "renormalise": False},
    }
    with torch.no_grad():
        for name, options in cases.items():
            with ablating(model, **options):
                found[f"ablated {name}"] = digest(model(ids))
    return found


def use_transformers(folder: Path) -> dict[str, str]:
    import transformers

    from glasshead.observe.ablation import Edge, ablating

    run_and_show("export", folder / "llama", "-o", folder / "exported")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "exported").eval()
    ids = torch.arange(38).view(2, 19) % 29
    found = {"export": digest(sorted((folder / "exported").glob("*.safetensors")))}
    with torch.no_grad():
        with glasshead.observing(model) as seen:
            found["transformers: logits"] = digest(model(ids).logits)
        for layer in seen.layers:
            found[f"transformers: weights of {layer.name}"] = digest(seen.weights(layer.index))
        with ablating(model, heads=[(1, 2)], edges=[Edge(query=5, key=2, layer=0)]):
            found["transformers: ablated"] = digest(model(ids).logits)
    return found


def judge_claims(_: Path) -> dict[str, str]:
    """Judge each stored claim from its stored evidence."""
    found = {}
    for number, stored in read_docs(ROOT / "docs").claims.items():
        finding = load_claim(number).judge(stored.evidence)
        found[f"claim {number}"] = digest([finding.verdict.name, repr(finding.numbers)])
    return found


PARTS: tuple[Callable[[Path], dict[str, str]], ...] = (
    train_runs, generate_texts, record_attention, ablate, use_transformers, judge_claims,
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, help="an earlier output: name what differs")
    args = parser.parse_args()
    before = args.against and json.loads(args.against.read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    found: dict[str, str] = {}
    # Relative paths, because some commands print them.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for part in PARTS:
            found |= part(Path())
    if before is None:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    names = {*before, *found}
    different = sorted(name for name in names if before.get(name) != found.get(name))
    print(f"{len(names)} digests, {len(different)} differ", *different, sep="\n  ")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
