"""Find the kernel that attention uses for a call, device and dtype, by running it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glasshead.attention.backends import Backend, BackendCall

__all__ = ["CALLS", "DTYPES", "Choice", "choices"]

DTYPES = ("float32", "bfloat16", "float16", "float64")
FUSED = ("flash", "cudnn", "efficient", "overrideable")
CALLS = ("training", "padded", "window", "softcap", "dropout", "decode")

B, H, T, D = 2, 2, 512, 64  # from 512 queries on, training uses cuDNN


@dataclass(frozen=True)
class Choice:
    """What `backend="auto"` picks for a call."""

    device: str
    dtype: str
    call: str
    backend: str | None = None  # explicit, sdpa, flex; None if the device lacks the dtype
    kernel: str | None = None  # of sdpa: flash, cudnn, efficient, math, ...
    error: str | None = None  # the message, if it failed


def choices(devices: Sequence[str]) -> Iterator[Choice]:
    """Yield the choice for each device, dtype and kind of call."""
    for device in devices:
        for dtype in DTYPES:
            for call in CALLS:
                yield _find_choice(device, dtype, call)


def _find_choice(device: str, dtype: str, name: str) -> Choice:
    from glasshead.attention.backends import BACKENDS, pick_backend

    word = None
    try:
        call = _new_call(device, dtype, name)
        backend = pick_backend("auto", call)
        word = next(word for word, other in BACKENDS.items() if other is backend)
        # Running flex would compile it, which takes many seconds.
        kernel = None if word == "flex" else _run(backend, call)
    except TypeError:  # MPS has no float64
        return Choice(device, dtype, name)
    except RuntimeError as error:
        first = str(error).strip().partition("\n")[0]
        return Choice(device, dtype, name, word, error=first or type(error).__name__)
    return Choice(device, dtype, name, word, kernel if word == "sdpa" else None)


def _new_call(device: str, dtype: str, name: str) -> "BackendCall":
    import torch

    from glasshead.attention.backends import BackendCall
    from glasshead.attention.mask import Mask, padding
    from glasshead.attention.scores import Scoring

    queries, learns = (1, False) if name == "decode" else (T, True)
    q, k, v = (
        torch.ones(B, H, n, D, device=device, dtype=getattr(torch, dtype), requires_grad=learns)
        for n in (queries, T, T)
    )
    mask = Mask(causal=True, window=T // 4 if name == "window" else None)
    if name == "padded":
        mask = mask & padding(torch.tensor([T // 2, T], device=device), T)
    scoring = Scoring(softcap=30.0 if name == "softcap" else None)
    dropout = 0.1 if name == "dropout" else 0.0
    return BackendCall(q, k, v, mask.simplify(queries, T), scoring, dropout)


def _run(backend: "Backend", call: "BackendCall") -> str:
    """Run the call, forward and backward; return the name of its fused operator, or "math"."""
    from torch.utils._python_dispatch import TorchDispatchMode

    operators: list[str] = []

    class KernelLog(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            operators.append(func.name())
            return func(*args, **(kwargs or {}))

    with KernelLog():
        context = backend.run(call).context
    if call.needs_grad:
        context.sum().backward()
    fused = [name for name in operators if "_scaled_dot_product_" in name]
    # The unfused path has no operator of its own, only products and a softmax.
    return next((kernel for kernel in FUSED if any(kernel in name for name in fused)), "math")
