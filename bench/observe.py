"""Observing: all statistics of every head, beside what others do to see any weight at all.

On a CPU each subject runs in a process of its own and tells its median time and its peak memory
beyond the model or q and k. On a GPU `observe` is also clocked beside the cuDNN forward alone.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.machine import matrix_peak
from bench.observed import PEERS, Asked, inputs, measure
from bench.peers import missing
from bench.table import Row, Settings
from bench.timing import CHILD_MEMORY, apart, release, take_turns
from glasshead.attention.mask import Mask
from glasshead.observe.statistics import observe

__all__ = ["rows"]

# Which of our subjects a peer is compared with, at which lengths, and what is shown.
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
            found += compared(peer, subject, T, settings)
            release()
    if settings.on_gpu:
        for heads, width in ((12, 64), (6, 128)):
            found += beside_cudnn(settings, heads, width)
    return found


def compared(peer: str, subject: str, T: int, settings: Settings) -> list[Row]:
    repeats = min(settings.repeats, 3) if T < 2048 or subject == LAYER else 1
    size = {"heads": 2, "layers": 2} if settings.quick else {}
    asked = Asked(T, **size, repeats=repeats, device=settings.device)
    ours = known(subject, asked)
    says, package, _ = PEERS[peer]
    theirs, note = None, missing(package)
    if note is None:
        try:
            theirs = measured(peer, asked)
        except MemoryError:
            note = f"fails: needs more than {CHILD_MEMORY / 2**30:.0f} GiB"
        except torch.OutOfMemoryError:
            note = "fails: more than the GPU's memory"
    what = f"{WORDS[subject].format(heads=asked.heads, layers=asked.layers)}, T = {T:,}"
    theirs = theirs or {}
    # q times k, a causal half of it, once.
    products = asked.heads * asked.T**2 * asked.width * (asked.layers if subject == MODEL else 1)
    least = products / matrix_peak(asked.device, str(asked.dtype)[6:], settings.quick)
    found = [Row(what, says, "seconds", ours["seconds"], theirs.get("seconds"), least, note or "")]
    for name in ("memory MB", "file MB"):
        if name in ours:
            found.append(Row(what, says, name, ours[name], theirs.get(name), None, note or ""))
    return found


_KNOWN: dict[tuple[str, Asked], dict[str, float]] = {}


def known(subject: str, asked: Asked) -> dict[str, float]:
    """What ours takes; measured once for all its peers."""
    if (subject, asked) not in _KNOWN:
        _KNOWN[subject, asked] = measured(subject, asked)
    return _KNOWN[subject, asked]


def measured(subject: str, asked: Asked) -> dict[str, float]:
    return apart(measure, subject, asked) if asked.device == "cpu" else measure(subject, asked)


def beside_cudnn(settings: Settings, heads: int, width: int) -> list[Row]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    T = 1024 if settings.quick else 131072
    q, k, ids = inputs(Asked(T, heads, width, device=settings.device))
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
        for name, taken in take_turns(runs, settings.repeats, settings.device, in_a_row=4).items()
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
