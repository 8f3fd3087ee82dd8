"""What each slip of the documents does to the numbers: their form and ours, both computed."""

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from glasshead.errors import GlassheadError
from glasshead.lab.examples.example import Figure
from glasshead.lab.texts import Words
from glasshead.lab.vectors import TEXTBOOK

if TYPE_CHECKING:
    from torch import Tensor

    from glasshead.attention.mask import Mask

__all__ = ["FIGURES"]

ROW_SUM = Words("sum of a row of weights", "一行权重之和")


def _journey() -> "Tensor":
    import torch

    words = ("Your", "journey", "starts", "with", "one", "step")
    return torch.tensor([TEXTBOOK[word] for word in words])  # (6, 3)


def _weights(x: "Tensor", mask: "Mask | None" = None) -> "Tensor":
    from glasshead.attention.functional import attend

    weights = attend(x, x, x, mask, weights=True).weights
    assert weights is not None  # asked for
    return weights  # (B, H, T, S)


def _show(values: object, digits: int = 4) -> str:
    numbers = values.tolist() if hasattr(values, "tolist") else values
    some = numbers if isinstance(numbers, list) else [numbers]
    return "  ".join(f"{x:.{digits}f}" for x in some)


def rounded_context() -> Iterator[Figure]:
    import numpy as np

    from glasshead.attention import steps

    x = np.array([TEXTBOOK[word] for word in ("Hello", "shiny", "sun")])
    s = steps.attend(x, x, x, scaled=False)
    implied = (0.2156 / 0.53 + 0.1382 / 0.34 + 0.3983 / 0.98) / 3
    yield Figure(Words("weight of shiny", "shiny 的权重"), _show(implied), _show(s.weights[1, 1]))
    yield Figure(Words("context", "上下文"), "0.3992  0.3858  0.8610", _show(s.context[1]))


def nan_mask() -> Iterator[Figure]:
    import torch

    from glasshead.attention import steps
    from glasshead.attention.mask import Mask

    theirs = torch.triu(torch.ones(6, 6), diagonal=1) * float("-inf")
    x = _journey()
    after = torch.softmax(x @ x.mT + theirs, dim=-1)
    ours = _weights(x[None, None], Mask(causal=True))
    filled = torch.zeros(6, 6).masked_fill(~torch.from_numpy(steps.causal(6, 6)), -math.inf)
    cells = Words("cells that are NaN, of 36", "36 格中的 NaN")
    yield Figure(cells, str(int(theirs.isnan().sum())), str(int(filled.isnan().sum())))
    nan_after = Words("after softmax", "softmax 之后")
    yield Figure(nan_after, str(int(after.isnan().sum())), str(int(ours.isnan().sum())))
    masked_late = torch.softmax(x @ x.mT, dim=-1).tril().sum(-1)
    late = Words("sums of rows, masked after softmax", "softmax 之后才遮，各行之和")
    yield Figure(late, _show(masked_late, 2), _show(ours[0, 0].sum(-1), 2))


def no_scale() -> Iterator[Figure]:
    import torch

    x = _journey()
    scores = (x @ x.mT)[1]
    label = Words("weights of journey", "journey 的权重")
    scaled = torch.softmax(scores / math.sqrt(3), -1)
    yield Figure(label, _show(torch.softmax(scores, -1)), _show(scaled))


def indentation() -> Iterator[Figure]:
    found = []
    for code in ("class A:\ndef f(x):\nreturn x", "class A:\n def f(x):\n  return x"):
        try:
            compile(code, "document", "exec")
            found.append("no error")
        except SyntaxError as error:
            found.append(type(error).__name__)
    yield Figure(Words("a class without and with indents", "不缩进与缩进的类"), *found)


def three_heads() -> Iterator[Figure]:
    from glasshead.attention.multihead import MultiHeadAttention

    try:
        MultiHeadAttention(8, 3)
        ours = ""
    except GlassheadError as error:
        ours = f"{error}; {error.hint}"
    yield Figure(Words("8 dimensions, 3 heads", "8 维、3 个头"), "2 × 4", ours)


def keys_transposed() -> Iterator[Figure]:
    import torch

    from glasshead.attention import steps

    x = torch.stack((_journey(), _journey()))  # (2, 6, 3)
    try:
        found = str(tuple((x @ x.permute(2, 1, 0)).shape))
    except RuntimeError:
        found = "RuntimeError"
    ours = str(tuple((x @ x.mT).shape))
    yield Figure(Words("scores of a batch (2, 6, 3)", "批次 (2, 6, 3) 的分数"), found, ours)
    cube = torch.arange(27.0).reshape(3, 3, 3) / 27
    error = (cube @ cube.permute(2, 1, 0) - cube @ cube.mT).abs().max()
    label = Words("largest error where B = T = d = 3", "B = T = d = 3 时的最大误差")
    ours_error = torch.from_numpy(steps.scores(cube.double(), cube.double())) - cube @ cube.mT
    yield Figure(label, _show(error), _show(ours_error.abs().max()))


def query_matrix() -> Iterator[Figure]:
    from glasshead.attention.multihead import MultiHeadAttention

    ours = MultiHeadAttention(3, 1, d_head=2, out_bias=False).qkv.weight
    label = Words("learned numbers, 3 → 2", "可学习的参数，3 → 2")
    yield Figure(label, str(2 * 3 * 2), str(ours.numel()))


def dropout_weights() -> Iterator[Figure]:
    import torch

    from glasshead.attention.multihead import MultiHeadAttention

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(123)
        x = _journey()
        theirs = torch.dropout(torch.softmax(x @ x.mT, -1), 0.5, True).sum(-1)
        ours = MultiHeadAttention(3, 1, dropout=0.5).train()(x[None], weights=True)
    label = Words("sums of rows of weights, dropout 0.5", "各行权重之和，dropout 0.5")
    yield Figure(label, _show(theirs, 2), _show(ours.weights[0, 0].sum(-1), 2))


def width_one() -> Iterator[Figure]:
    label = Words("divisor of the scores: √ of the width of a head", "分数的除数：头宽的平方根")
    yield Figure(label, _show(math.sqrt(1), 2), _show(math.sqrt(2), 2))


def unused_projections() -> Iterator[Figure]:
    import torch
    from torch import nn

    from glasshead.attention.multihead import MultiHeadAttention

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x = torch.randn(1, 5, 8)
        unused, last = nn.Linear(8, 8), nn.Linear(8, 8)
        q = x.reshape(1, 5, 2, 4).transpose(1, 2)  # the input itself, as 003's forward has it
        last((torch.softmax(q @ q.mT / 2, -1) @ q).transpose(1, 2).flatten(2)).sum().backward()
        ours = MultiHeadAttention(8, 2)
        ours(x).out.square().sum().backward()
    theirs = "None" if unused.weight.grad is None else _show(unused.weight.grad.norm())
    label = Words("gradient (norm) of the query matrix", "查询矩阵的梯度（范数）")
    grad = ours.qkv.weight.grad
    yield Figure(label, theirs, "None" if grad is None else _show(grad[:8].norm()))


def minus_1e10() -> Iterator[Figure]:
    import torch

    from glasshead.attention.mask import Mask

    scores = torch.zeros(4)
    hidden = torch.ones(4, dtype=torch.bool)
    with_number = torch.softmax(scores.masked_fill(hidden, -1e10), -1)
    with_inf = torch.softmax(scores.masked_fill(hidden, -math.inf), -1)
    x = torch.ones(1, 1, 4, 2)
    nothing = Mask(keys=torch.zeros(1, 4, dtype=torch.bool))
    ours = _show(_weights(x, nothing)[0, 0, 0], 2)
    row = Words("a row that may attend to nothing, {how}", "什么都看不见的一行，{how}")
    yield Figure(row.format(how="−1e10"), _show(with_number, 2), ours)
    yield Figure(row.format(how="−inf"), _show(with_inf, 2), ours)
    try:
        half = str(scores.half().masked_fill(hidden, -1e10)[0].item())
    except RuntimeError:
        half = "overflow"
    half_ours = _weights(x.half(), nothing)[0, 0, 0]
    yield Figure(Words("in float16", "float16 中"), half, _show(half_ours, 2))


def norm_place() -> Iterator[Figure]:
    import torch

    from glasshead.model.gpt import GPT, GPTConfig

    stds = []
    with torch.random.fork_rng(devices=[]):
        for place in ("post", "pre"):
            torch.manual_seed(0)
            model = GPT(GPTConfig(11, n_layers=1, n_heads=2, d_model=16, norm_place=place)).eval()
            outputs: list[torch.Tensor] = []
            model.blocks[0].register_forward_hook(
                lambda module, args, out, into=outputs: into.append(
                    out[0] if isinstance(out, tuple) else out
                )
            )
            with torch.no_grad():
                model(torch.arange(7)[None])
            stds.append(outputs[0].std(-1, unbiased=False).mean())
    label = Words(
        "deviation of a block's output: post-norm, pre-norm",
        "一块输出的标准差：post-norm、pre-norm",
    )
    post, pre = (_show(std, 3) for std in stds)
    yield Figure(label, "?", f"post-norm {post}, pre-norm {pre}")


def no_mask() -> Iterator[Figure]:

    from glasshead.attention.mask import Mask

    x = _journey()[None, None]
    theirs = _weights(x)[0, 0].triu(1)
    ours = _weights(x, Mask(causal=True))[0, 0].triu(1)
    label = Words("weight of the first word on later words", "第一个词放在后面各词上的权重")
    yield Figure(label, _show(theirs[0].sum()), _show(ours[0].sum()))


def feed_forward() -> Iterator[Figure]:
    import torch

    from glasshead.lab.examples.published import VOCABULARY
    from glasshead.lab.rungs import RUNGS
    from glasshead.model.gpt import GPT, GPTConfig

    with torch.device("meta"):
        model = GPT(RUNGS[5].config(VOCABULARY))
        wide = GPT(GPTConfig(VOCABULARY, **(RUNGS[5].model | {"feed_forward": "relu"})))
    said, real = (f"{sum(p.numel() for p in one.parameters()):,}" for one in (wide, model))
    yield Figure(Words("parameters of rung 5", "第 5 级的参数"), said, real)


def dropout_diagram() -> Iterator[Figure]:
    order = Words("dropout stands", "dropout 的位置")
    yield Figure(order, "before attention", "after softmax, projection, feed-forward")


def dropout_inference() -> Iterator[Figure]:
    import torch

    from glasshead.model.gpt import GPT, GPTConfig

    different = []
    ids = torch.arange(11)[None]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GPT(GPTConfig(11, n_layers=2, n_heads=2, d_model=16, dropout=0.2))
        for trains in (True, False):
            model.train(trains)
            with torch.no_grad():
                different.append((model(ids) - model(ids)).abs().max())
    label = Words("two calls with the same text differ by", "同一文本两次计算相差")
    yield Figure(label, *(_show(one) for one in different))


FIGURES: dict[str, Callable[[], Iterator[Figure]]] = {
    "nan-mask": nan_mask,
    "no-scale": no_scale,
    "indentation": indentation,
    "three-heads": three_heads,
    "keys-transposed": keys_transposed,
    "query-matrix": query_matrix,
    "dropout-weights": dropout_weights,
    "width-one": width_one,
    "unused-projections": unused_projections,
    "minus-1e10": minus_1e10,
    "no-scale-formula": no_scale,
    "norm-place": norm_place,
    "no-mask": no_mask,
    "feed-forward": feed_forward,
    "dropout-diagram": dropout_diagram,
    "dropout-inference": dropout_inference,
    "rounded-context": rounded_context,
}
