"""The documents' worked examples, computed by the attention of this package.

The tuples of the documents are copied here once: they are what is compared with. Ours are computed
by `attention/steps.py`, or by the module with the parameters that the documents' seeds give.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from glasshead.attention import steps
from glasshead.lab.examples.example import Example, Number, Shown, Slip, erratum
from glasshead.lab.examples.slips import FIGURES
from glasshead.lab.texts import Words
from glasshead.lab.vectors import TEXTBOOK

if TYPE_CHECKING:
    from torch import nn

    from glasshead.attention.multihead import MultiHeadAttention

__all__ = ["EXAMPLES", "JOURNEY", "documents_layers", "module_with"]

JOURNEY = ("Your", "journey", "starts", "with", "one", "step")
SHINY = ("Hello", "shiny", "sun")


def shiny() -> Example:
    """Document 002: three words, without learned matrices and without the scale."""
    x = np.array([TEXTBOOK[word] for word in SHINY])
    s = steps.attend(x, x, x, scaled=False)
    products = s.weights[1][:, None] * x
    numbers = [
        number("scores", SCORES_OF, (0.7842, 1.3569, 1.2487), s.scores[1], 4, "picture"),
        number("weights", WEIGHTS_OF, (0.229134, 0.406265, 0.364602), s.weights[1], 6, "picture"),
    ]
    printed = ((0.0779, 0.0504, 0.1237), (0.2156, 0.1382, 0.3983), (0.1057, 0.1972, 0.3390))
    for word, theirs, ours in zip(SHINY, printed, products, strict=True):
        label = Words(f"weight × {word}", f"权重 × {word}")
        numbers.append(number("sum", label, theirs, ours, 4))
    numbers.append(number("sum", CONTEXT, (0.3992, 0.3858, 0.8610), s.context[1], 4))
    return Example("shiny", "002", tuple(numbers), slips("rounded-context", "query-matrix"))


def journey() -> Example:
    """Document 002: six words without learned matrices, the second in full."""
    x = np.array([TEXTBOOK[word] for word in JOURNEY])
    s = steps.attend(x, x, x, scaled=False)
    weights = (0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581)
    numbers = (
        number("scores", SCORES_OF_JOURNEY, (), s.scores[1], 4, "ours"),
        number("weights", WEIGHTS_OF_JOURNEY, weights, s.weights[1], 4, "code"),
        number("sum", CONTEXT, (0.4419, 0.6515, 0.5683), s.context[1], 4, "code"),
    )
    return Example("journey", "002", numbers, slips("nan-mask", "no-scale", "dropout-weights"))


def self_attention() -> Example:
    """Document 002: the classes SelfAttention_v2 (seed 789) and CausalAttention (seed 123)."""
    plain = (
        (-0.0739, 0.0713), (-0.0748, 0.0703), (-0.0749, 0.0702),
        (-0.0760, 0.0685), (-0.0763, 0.0679), (-0.0754, 0.0693),
    )  # fmt: skip
    causal = (
        (-0.4519, 0.2216), (-0.5874, 0.0058), (-0.6300, -0.0632),
        (-0.5675, -0.0843), (-0.5526, -0.0981), (-0.5299, -0.1081),
    )  # fmt: skip
    numbers = [
        *_class_numbers("SelfAttention_v2", 789, 1, plain, causal=False),
        *_class_numbers("CausalAttention", 123, 1, causal, causal=True),
    ]
    named = ("query-matrix", "keys-transposed", "indentation", "unused-projections", "minus-1e10")
    return Example("self-attention", "002", tuple(numbers), slips(*named))


def two_heads() -> Example:
    """Document 002: the class MultiHeadAttention (seed 123), two heads of width 1."""
    printed = (
        (0.3190, 0.4858), (0.2943, 0.3897), (0.2856, 0.3593),
        (0.2693, 0.3873), (0.2639, 0.3928), (0.2575, 0.4028),
    )  # fmt: skip
    numbers = _class_numbers("MultiHeadAttention", 123, 2, printed, causal=True)
    return Example("two-heads", "002", tuple(numbers), slips("width-one", "three-heads"))


def numpy_q1() -> Example:
    """Document 001: one query, three keys and three values, in NumPy."""
    q = np.array([[0.2, 0.5, 0.1]])
    k = np.array([[0.4, 0.1, 0.6], [0.8, 0.2, 0.3], [0.1, 0.7, 0.2]])
    v = np.arange(1.0, 10.0).reshape(3, 3)
    s = steps.attend(q, k, v)
    numbers = (
        number("given", Words("q1", "q1"), (0.2, 0.5, 0.1), q[0], 1),
        *(number("given", Words(f"k{i + 1}", f"k{i + 1}"), (), k[i], 1, "ours") for i in range(3)),
        *(number("given", Words(f"v{i + 1}", f"v{i + 1}"), (), v[i], 1, "ours") for i in range(3)),
        number("scores", SCORES, (0.19, 0.29, 0.39), s.scores[0], 2, "code"),
        number("weights", WEIGHTS, (0.31428, 0.33296, 0.35275), s.weights[0], 5, "code"),
        number("sum", Words("Z1", "Z1"), (4.11541, 5.11541, 6.11541), s.context[0], 5, "code"),
    )
    return Example("numpy-q1", "001", numbers, slips("keys-transposed", "no-mask"))


def kitten() -> Example:
    """Document 001: the second 它 and the kitten, with vectors that were chosen by hand.

    The document prints no number. It says which scores are high; the vectors are made so that they
    are: a feature each for animals, places and times. A trained model has to learn such vectors.
    """
    given = {  # q, k: animal, place, time; v: small, hungry, flies
        "小猫": ((1.0, 0.1, 0.0), (3.0, 0.2, 0.1), (1.0, 0.9, 0.0)),
        "它#1": ((2.0, 0.0, 0.0), (1.2, 0.0, 0.0), (0.5, 0.5, 0.0)),
        "昨天": ((0.1, 0.1, 1.0), (0.0, 0.1, 2.0), (0.0, 0.0, 0.0)),
        "公园": ((0.1, 1.0, 0.1), (0.1, 2.5, 0.2), (0.0, 0.0, 0.1)),
        "蝴蝶": ((0.8, 0.2, 0.0), (1.4, 0.6, 0.0), (1.0, 0.1, 1.0)),
        "它#2": ((2.0, -0.3, 0.2), (1.2, 0.0, 0.1), (0.5, 0.5, 0.0)),
        "饿坏了": ((0.9, 0.0, 0.2), (0.6, 0.0, 0.1), (0.0, 1.0, 0.0)),
    }
    q, k, v = (np.array([row[part] for row in given.values()]) for part in range(3))
    words = list(given)
    s, at = steps.attend(q, k, v), words.index("它#2")
    numbers = [
        number("given", Words(f"{name} of {word}", f"{word} 的 {name}"), (), vector, 1, "ours")
        for name, word, vector in (
            ("q", "它#2", q[at]), *(("k", word, k[i]) for i, word in enumerate(words))
        )
    ]  # fmt: skip
    numbers += [
        number(
            "weights", Words(f"它#2 → {word}", f"它#2 → {word}"), (), s.weights[at, [i]], 4, "ours"
        )
        for i, word in enumerate(words)
    ]
    numbers.append(number("sum", CONTEXT, (), s.context[at], 4, "ours"))
    return Example("kitten", "001", tuple(numbers), slips("no-mask"))


def every_slip() -> Example:
    """Every mistake of the documents, with what it does to the numbers."""
    return Example("slips", "001–004", (), slips(*FIGURES))


def ladder() -> Example:
    """Documents 000 and 004: the parameters of each rung, with the vocabulary of their text."""
    import torch

    from glasshead.lab.examples.published import RUNS, VOCABULARY
    from glasshead.lab.rungs import RUNGS
    from glasshead.model.gpt import GPT

    numbers = []
    for rung, run in RUNS.items():
        with torch.device("meta"):
            model = GPT(RUNGS[rung].config(VOCABULARY))
        count = sum(p.numel() for p in model.parameters())
        label = Words(f"rung {rung}", f"第 {rung} 级")
        numbers.append(number("parameters", label, (run.parameters,), (count,), 0, "code"))
    return Example("ladder", "000, 004", tuple(numbers), slips("feed-forward", "norm-place"))


def number(
    part: str,
    label: Words,
    document: Sequence[float],
    ours: Sequence[float] | steps.Array,
    decimals: int,
    shown: Shown = "text",
) -> Number:
    """Make a Number of anything that has numbers."""
    return Number(
        label, tuple(map(float, document)), tuple(map(float, ours)), decimals, shown, part
    )


def slips(*names: str) -> tuple[Slip, ...]:
    """Compute the slips of these names."""
    return tuple(Slip(erratum(name), tuple(FIGURES[name]())) for name in names)


def _class_numbers(
    name: str, seed: int, n_heads: int, printed: Sequence[Sequence[float]], causal: bool
) -> Iterator[Number]:
    """One of 002's three classes: its matrices from the seed, its output from our module."""
    import torch

    from glasshead.attention.mask import Mask

    layers = documents_layers(seed, projected=n_heads > 1)
    for matrix, layer in zip(("W_query", "W_key", "W_value"), layers, strict=False):
        for i, row in enumerate(layer.weight.detach().tolist(), 1):
            which = {"matrix": matrix, "i": i, "seed": seed}
            label = OUTPUT_OF.format(**which)
            yield number(name, label, (), row, 4, "ours")
    x = torch.tensor([TEXTBOOK[word] for word in JOURNEY])
    with torch.no_grad():
        seen = module_with(layers, n_heads)(x[None], mask=Mask(causal=True) if causal else None)
    for word, theirs, ours in zip(JOURNEY, printed, seen.out[0].tolist(), strict=True):
        yield number(name, Words(f"context of {word}", f"{word} 的上下文"), theirs, ours, 4, "code")


def documents_layers(seed: int, projected: bool) -> list["nn.Linear"]:
    """Make query, key and value layers (3 -> 2, no bias) in the order in which 002 makes them."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Linear(3, 2, bias=False) for _ in range(3)]
        return [*layers, nn.Linear(2, 2)] if projected else layers


def module_with(layers: Sequence["nn.Linear"], n_heads: int) -> "MultiHeadAttention":
    """Put the layers into our module, which is 3 wide outside and 2 inside."""
    import torch
    from torch import nn

    from glasshead.attention.multihead import MultiHeadAttention

    ours: Any = MultiHeadAttention(3, n_heads, d_head=2 // n_heads)
    ours.out = layers[3] if len(layers) == 4 else nn.Identity()
    with torch.no_grad():
        ours.qkv.weight.copy_(torch.cat([layer.weight for layer in layers[:3]]))
    return ours


SCORES, WEIGHTS = Words("scores", "分数"), Words("weights", "权重")
SCORES_OF, WEIGHTS_OF = (
    Words("scores of shiny", "shiny 的分数"),
    Words("weights of shiny", "shiny 的权重"),
)
SCORES_OF_JOURNEY = Words("scores of journey", "journey 的分数")
WEIGHTS_OF_JOURNEY = Words("weights of journey", "journey 的权重")
OUTPUT_OF = Words("{matrix}, output {i} (seed {seed})", "{matrix}，输出 {i}（种子 {seed}）")
CONTEXT = Words("context", "上下文")

EXAMPLES: dict[str, Callable[[], Example]] = {
    "shiny": shiny,
    "journey": journey,
    "self-attention": self_attention,
    "two-heads": two_heads,
    "numpy-q1": numpy_q1,
    "kitten": kitten,
    "ladder": ladder,
    "slips": every_slip,
}
