"""Check a device against the CPU: attention, gradients, generation and recording.

    find_fault(torch.device("mps"))        None, or what is wrong: "gradients: ..."
    python -m glasshead.lab.device_check mps

`machine.pick_device` runs the second before "auto" picks mps, whose kernels have been silently
wrong (TransformerLens#1178). It is a process of its own, which a fault of the device may end.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshead.attention import Mask, attend
from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY, SamplingConfig
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.observe.recording import observing

__all__ = ["find_fault"]

CLOSE = 1e-3  # of the largest number; float32 on another device differs by some 1e-6
V, T = 31, 37
Device = Callable[[], AbstractContextManager[object]]


def find_fault(device: torch.device, running: Device = nullcontext) -> str | None:
    """Return the first part that the device gets wrong, with the reason; None if all is right.

    What the device computes is computed inside of `running()`, which tests use for a broken device.
    """
    parts = {"attention": _attention, "gradients": _gradients, "generation": _generation,
             "recording": _recording}  # fmt: skip
    for name, check in parts.items():
        try:
            reason = check(device, running)
        except Exception as error:  # whatever the device cannot do
            reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        if reason:
            return f"{name}: {reason}"
    return None


def _attention(device: torch.device, running: Device) -> str | None:
    generator = torch.Generator().manual_seed(1)
    for rows in (1, 5, T):  # one new token, some, and a whole text
        q = torch.randn(2, 3, rows, 16, generator=generator)
        # Not contiguous, as heads are that a projection has made.
        k, v = torch.randn(2, T, 2, 3, 16, generator=generator).permute(2, 0, 3, 1, 4)
        keys = torch.arange(T).expand(2, T) < torch.tensor([[T], [T - 7]])
        for mask in (Mask(), Mask(causal=True), Mask(causal=True, window=11), Mask(keys=keys)):
            right = attend(q.double(), k.double(), v.double(), mask, backend="explicit").context
            moved = mask if mask.keys is None else Mask(keys=keys.to(device))
            for backend in ("auto", "explicit"):
                with running():
                    there = q.to(device), k.to(device), v.to(device)
                    found = attend(*there, moved, backend=backend).context.cpu()
                if far := _difference(found, right):
                    return f"{backend} attention of {rows} rows of {T} is off by {far:.2g}"
    return None


def _gradients(device: torch.device, running: Device) -> str | None:
    model, ids = _model()
    theirs = deepcopy(model).to(device)
    _loss(model, ids).backward()
    with running():
        _loss(theirs, ids.to(device)).backward()
    for (name, mine), other in zip(model.named_parameters(), theirs.parameters(), strict=True):
        assert mine.grad is not None
        if other.grad is None or (far := _difference(other.grad.cpu(), mine.grad)):
            return f"that of {name} is " + (
                "missing" if other.grad is None else f"off by {far:.2g}"
            )
    return None


def _generation(device: torch.device, running: Device) -> str | None:
    model, _ = _model()
    theirs = deepcopy(model).to(device)
    prompts = [[3, 1, 4, 1, 5], [9, 2]]
    for config, what in ((GREEDY, "greedy"), (SamplingConfig(0.8, 7, 0.9), "drawn")):
        right = [*generate(model, prompts, config, max_tokens=16, seed=5)]
        with running():
            found = [*generate(theirs, prompts, config, max_tokens=16, seed=5)]
        if found != right:
            at = next(n for n, (a, b) in enumerate(zip(found, right, strict=False)) if a != b)
            return f"the {what} ids differ from token {at} on"
    return None


def _recording(device: torch.device, running: Device) -> str | None:
    model, ids = _model()
    theirs = deepcopy(model).to(device)
    with torch.no_grad(), observing(model) as right:
        model(ids[:1])
    with running(), torch.no_grad(), observing(theirs) as found:
        theirs(ids[:1].to(device))
    with running():
        weights = found.weights(layer=1).cpu()
        entropy = found.statistics(1).entropy.cpu()
    if far := _difference(weights, right.weights(layer=1)):
        return f"weights are off by {far:.2g}"
    far = _difference(entropy, right.statistics(1).entropy)
    return f"entropies are off by {far:.2g}" if far else None


def _model() -> tuple[GPT, Tensor]:
    """Return a small model whose predictions are far apart, and a batch of ids."""
    with torch.random.fork_rng([]):
        torch.manual_seed(2)
        config = GPTConfig(V, max_len=64, n_layers=2, n_heads=2, d_model=32, positions="rotary",
                           norm="rms", feed_forward="swiglu")  # fmt: skip
        model, ids = GPT(config).eval(), torch.randint(V, (2, T))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model, ids


def _loss(model: GPT, ids: Tensor) -> Tensor:
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def _difference(found: Tensor, right: Tensor) -> float:
    """Return the largest difference as a share of the largest number; 0 if that is close enough."""
    right = right.double()
    far = float((found.double() - right).abs().max() / right.abs().max())
    return 0.0 if far <= CLOSE else far  # NaN is far


if __name__ == "__main__":
    print(find_fault(torch.device(sys.argv[1])) or "")
