"""Exercise 9: layer norm, and the residual before and after it."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from glasshead.lab.exercises.judging import Inputs, PrintedNumbers, Wrong, compare
from glasshead.lab.exercises.learner import LearnerFile

EPS = 1e-5


def check(mine: LearnerFile) -> Iterator[PrintedNumbers]:
    yield from ()
    what = "layer_norm(x, gain, shift)"
    compare(mine, what, mine.layer_norm, right, cases(), WRONG)
    layer = torch.nn.Linear(7, 7)
    torch.nn.init.normal_(layer.weight)
    norm = partial(F.layer_norm, normalized_shape=(7,), weight=torch.randn(7), bias=torch.randn(7))

    def change(x: Tensor) -> Tensor:
        return torch.tanh(layer(x)).detach()

    streams = [{"x": torch.randn(1, 2, 7)}, {"x": torch.randn(3, 5, 7)}]
    for name, way in (("pre_norm", pre), ("post_norm", post)):
        function = getattr(mine, name)
        bound = partial(_call, function, norm, change)
        wrongs = [(n, partial(_call, w, norm, change)) for n, w in wrong_orders(name)]
        right_way = partial(_call, way, norm, change)
        compare(mine, f"{name}(x, norm, layer)", bound, right_way, streams, wrongs, place=function)


def _call(function: Callable[..., Any], norm: Any, layer: Any, x: Tensor) -> Any:
    return function(x, norm, layer)


def right(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], gain, shift, EPS)


def cases() -> Iterator[Inputs]:
    yield {"x": torch.tensor([1.0, 2.0, 3.0, 6.0]), "gain": torch.ones(4), "shift": torch.zeros(4)}
    yield {"x": torch.randn(3, 5, 7), "gain": torch.randn(7), "shift": torch.randn(7)}
    yield {"x": torch.full((2, 3), 4.0), "gain": torch.randn(3), "shift": torch.randn(3)}
    yield {"x": 1e-3 * torch.randn(3, 5), "gain": torch.ones(5), "shift": torch.zeros(5)}


def pre(x: Tensor, norm: Any, layer: Any) -> Tensor:
    return x + layer(norm(x))


def post(x: Tensor, norm: Any, layer: Any) -> Tensor:
    return norm(x + layer(x))


def wrong_orders(name: str) -> Iterator[Wrong]:
    yield "pre-post", post if name == "pre_norm" else pre
    yield "no-residual", lambda x, norm, layer: layer(norm(x))
    yield "no-residual", lambda x, norm, layer: norm(layer(x))
    yield "no-norm", lambda x, norm, layer: x + layer(x)
    yield "residual-of-norm", lambda x, norm, layer: norm(x) + layer(norm(x))
    yield "norm-of-change", lambda x, norm, layer: x + norm(layer(x))
    yield "both-norms", lambda x, norm, layer: norm(x + layer(norm(x)))


def _norm(
    x: Tensor, gain: Tensor, shift: Tensor, *, correction: int = 0, eps: float = EPS,
    outside: float = 0.0, dims: tuple[int, ...] = (-1,), root: bool = True, center: bool = True,
) -> Tensor:  # fmt: skip
    mean = x.mean(dims, keepdim=True)
    variance = x.var(dims, correction=correction, keepdim=True) + eps
    size = variance.sqrt() + outside if root else variance
    return (x - mean if center else x) / size * gain + shift


WRONG: list[Wrong] = [
    ("unbiased", partial(_norm, correction=1)),
    ("unbiased", partial(_norm, correction=1, eps=0.0, outside=EPS)),
    ("no-eps", partial(_norm, eps=0.0)),
    ("no-eps", partial(_norm, eps=0.0, correction=1)),
    ("eps-outside", partial(_norm, eps=0.0, outside=EPS)),
    ("no-root", partial(_norm, root=False)),
    ("not-centered", partial(_norm, center=False)),
    ("over-everything", lambda x, g, s: _norm(x, g, s, dims=tuple(range(x.ndim)))),
    ("over-positions", lambda x, g, s: _norm(x, g, s, dims=(-2 if x.ndim > 1 else 0,))),
    ("over-first", partial(_norm, dims=(0,))),
    ("gain-missing", lambda x, g, s: right(x, torch.ones_like(g), s)),
    ("gain-missing", lambda x, g, s: right(x, g, torch.zeros_like(s))),
    ("gain-missing", lambda x, g, s: right(x, torch.ones_like(g), torch.zeros_like(s))),
]


def parts(mine: LearnerFile) -> dict[str, Any]:
    """Return the parts of the small model that are the learner's."""
    return {"add": mine.pre_norm}
