"""Observing: all statistics of every head, compared with how other libraries return weights.

On a CPU each subject runs in its own process; time is the median, memory the peak beyond the model
or q and k. On a GPU `observe` is also compared with the cuDNN forward alone.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.machine import matrix_peak
from bench.observe_peers import PEERS, Workload, inputs, measure
from bench.peers import missing_package
from bench.table import Row, Settings
from bench.timing import CHILD_MEMORY, release, run_in_process, time_in_turns
from glasshead.attention.mask import Mask
from glasshead.observe.statistics import observe

__all__ = ["rows"]

# Which of our subjects a peer is compared with, and at which lengths.
LAYER, MODEL, FILE = "observe", "observing", "glass"
CPU: dict[str, tuple[str, tuple[int, ...]]] = {
    "dense": (LAYER, (4096,)),
    "transformers": (LAYER, (4096,)),
    "transformers_model": (MODEL, (512, 1024, 2048)),
    "transformer_lens": (MODEL, (512, 1024, 2048, 4096)),
    "bertviz": (FILE, (512, 1024, 2048, 4096)),
}
GPU: dict[str, tuple[str, tuple[int, ...]]] = {
    "transformers": (LAYER, (8192, 32768)),
    "transformers_model": (MODEL, (2048, 8192)),
}
WORDS = {
    LAYER: "one layer of {heads} heads, all statistics",
    MODEL: "{layers} layers of {heads} heads, all statistics",
    FILE: "one layer of {heads} heads, as a file",
}


def rows(settings: Settings) -> list[Row]:
    found = []
    for peer, (subject, lengths) in (GPU if settings.on_gpu else CPU).items():
        for T in (64,) if settings.quick else lengths:
            found += compare(peer, subject, T, settings)
            release()
    if settings.on_gpu:
        for heads, width in ((12, 64), (6, 128)):
            found += compare_with_cudnn(settings, heads, width)
    return found


def compare(peer: str, subject: str, T: int, settings: Settings) -> list[Row]:
    repeats = min(settings.repeats, 3) if T < 2048 or subject == LAYER else 1
    size = {"heads": 2, "layers": 2} if settings.quick else {}
    work = Workload(T, **size, repeats=repeats, device=settings.device)
    ours = measure_once(subject, work)
    says, package, _ = PEERS[peer]
    theirs, note = None, missing_package(package)
    if note is None:
        try:
            theirs = measure_in_process(peer, work)
        except MemoryError:
            note = f"fails: needs more than {CHILD_MEMORY / 2**30:.0f} GiB"
        except torch.OutOfMemoryError:
            note = "fails: more than the GPU's memory"
    what = f"{WORDS[subject].format(heads=work.heads, layers=work.layers)}, T = {T:,}"
    theirs = theirs or {}
    # The products q @ k^T, of which a causal mask needs half.
    products = work.heads * work.T**2 * work.width * (work.layers if subject == MODEL else 1)
    least = products / matrix_peak(work.device, str(work.dtype)[6:], settings.quick)
    found = [Row(what, says, "seconds", ours["seconds"], theirs.get("seconds"), least, note or "")]
    for name in ("memory MB", "file MB"):
        if name in ours:
            found.append(Row(what, says, name, ours[name], theirs.get(name), None, note or ""))
    return found


_MEASURED: dict[tuple[str, Workload], dict[str, float]] = {}


def measure_once(subject: str, work: Workload) -> dict[str, float]:
    """Measure one of our subjects, once for all its peers."""
    if (subject, work) not in _MEASURED:
        _MEASURED[subject, work] = measure_in_process(subject, work)
    return _MEASURED[subject, work]


def measure_in_process(subject: str, work: Workload) -> dict[str, float]:
    return (
        run_in_process(measure, subject, work) if work.device == "cpu" else measure(subject, work)
    )


def compare_with_cudnn(settings: Settings, heads: int, width: int) -> list[Row]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    T = 1024 if settings.quick else 131072
    q, k, ids = inputs(Workload(T, heads, width, device=settings.device))
    causal = Mask(causal=True)
    v, lse = torch.randn_like(k), observe(q, k, causal).lse

    def forward() -> Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    look = partial(observe, q, k, causal, ids=ids)
    runs: dict[str, Any] = {
        "forward": forward,
        "lse given": partial(look, lse=lse),
        "lse given, deterministic": partial(look, lse=lse, deterministic=True),
        "its own lse": look,
    }
    ms = {
        name: 1e3 * taken
        for name, taken in time_in_turns(
            runs, settings.repeats, settings.device, in_a_row=4
        ).items()
    }
    what = f"{heads} heads of {width}, T = {T:,}, bf16: all statistics"
    return [
        Row(f"{what}, {name}", "the cuDNN forward alone", "ms", ms[name], ms["forward"])
        for name in runs
        if name != "forward"
    ]


if __name__ == "__main__":
    from bench.__main__ import main

    main("observe")
