"""Claim 3: under a causal mask nothing in the future changes an output of the past."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from glasshead.attention.mask import Mask
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words, exactly
from glasshead.lab.claims.drawing import tidy
from glasshead.lab.claims.masked import features_under
from glasshead.lab.claims.stats import Interval, mean
from glasshead.model.gpt import GPT, GPTConfig

__all__ = ["CLAIM", "judge", "measure"]

T, V = 23, 29
POSITIONS = ("none", "learned", "sinusoidal", "rotary", "alibi")
BACKENDS = ("explicit", "sdpa")
# As parts of the change that a token makes where it may be seen. Rounding is 1e-7.
NOTHING = 1e-5
SOMETHING = 1e-3

Forward = Callable[[GPT, Tensor], Tensor]


def as_it_is(model: GPT, ids: Tensor) -> Tensor:
    return model(ids)


def unmasked(model: GPT, ids: Tensor) -> Tensor:
    return model.logits(features_under(model, ids, Mask()))


def measure(budget: Budget, *, forward: Forward = as_it_is) -> Evidence:
    """Replace one token at a time and see which outputs change; `forward` runs the model."""
    texts = 2 if budget.quick else 8
    ahead: dict[str, list[float]] = {}
    control: list[float] = []
    gradients: list[float] = []
    maps: dict[str, list[list[float]]] = {}
    kinds = [(p, b) for p in POSITIONS for b in BACKENDS]
    for n, (positions, backend) in enumerate(kinds):
        for seed in budget.seeds:
            budget.progress(n / len(kinds), f"{positions}, {backend}, seed {seed}")
            model, ids = _case(positions, backend, seed, texts)
            change = _changes(model, ids, forward, seed)  # (T, T)
            ahead.setdefault(f"{positions}, {backend}", []).append(_ahead(change))
            if positions == "learned":
                gradients.append(_gradient_ahead(model, ids, forward))
                open_ = _changes(model, ids, unmasked, seed)
                control.append(_ahead(open_))
                maps = maps or {"mask": change.tolist(), "no mask": open_.tolist()}
    return {
        "length": T,
        "texts": texts,
        "ahead": ahead,
        "control": control,
        "gradient ahead": gradients,
        "maps": maps,
    }


def _ahead(change: Tensor) -> float:
    """The largest move of an output before the replaced token, of the median at and after it."""
    return (change.triu(1).max() / change[torch.ones(T, T).tril().bool()].median()).item()


def _case(positions: str, backend: str, seed: int, texts: int) -> tuple[GPT, Tensor]:
    config = GPTConfig(V, max_len=T, n_layers=3, n_heads=2, d_model=28, positions=positions,
                       backend=backend)  # fmt: skip
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = GPT(config).eval()
    return model, torch.randint(V, (texts, T), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def _changes(model: GPT, ids: Tensor, forward: Forward, seed: int) -> Tensor:
    """(i, j): how far the logits at i move when the token at j is another, at most."""
    generator = torch.Generator().manual_seed(seed)
    before = forward(model, ids)
    change = torch.zeros(T, T)
    for j in range(T):
        other = ids.clone()
        other[:, j] = (ids[:, j] + torch.randint(1, V, ids.shape[:1], generator=generator)) % V
        change[:, j] = (forward(model, other) - before).abs().amax((0, 2))
    return change


def _gradient_ahead(model: GPT, ids: Tensor, forward: Forward) -> float:
    """The largest gradient of an output in the middle by an embedding that comes after it."""
    embedded: list[Tensor] = []

    def keep(_module: Any, _ids: Any, x: Tensor) -> Tensor:
        embedded.append(x.detach().requires_grad_())
        return embedded[0]

    hook = model.embedding.register_forward_hook(keep)
    try:
        logits = forward(model, ids)
    finally:
        hook.remove()
    (gradient,) = torch.autograd.grad(logits[:, T // 2].sum(), embedded[0])
    return gradient[:, T // 2 + 1 :].abs().max().item()


def judge(evidence: Evidence) -> Finding:
    kinds = evidence["ahead"]
    largest = max(max(values) for values in kinds.values())
    gradient = max(evidence["gradient ahead"])
    if min(evidence["control"]) < SOMETHING:
        verdict = Verdict.UNCLEAR  # a measurement that sees nothing without a mask sees nothing
    elif largest <= NOTHING and gradient == 0:
        verdict = Verdict.HOLDS
    elif largest > SOMETHING or gradient > 0:
        verdict = Verdict.FAILS
    else:
        verdict = Verdict.UNCLEAR
    control = mean(evidence["control"])
    en = (
        f"Each of {evidence['length']} tokens was replaced in turn, in {len(kinds)} kinds of GPT "
        "(five kinds of positions, two backends). The farthest that an output before it moved, as "
        f"a part of what outputs after it move: {exactly(largest).en}. The largest gradient there: "
        f"{exactly(gradient).en}. Without the mask, as a control: {control:.2f}."
    )
    zh = (
        f"在 {len(kinds)} 种 GPT 中（五种位置、两种后端）依次替换 {evidence['length']} 个词元。它"
        f"之前输出的最大变化，与之后输出的变化之比：{exactly(largest).zh}；那里的最大梯度："
        f"{exactly(gradient).zh}。作为对照，没有掩码时：{control:.2f}。"
    )
    numbers: dict[str, Interval | float] = {
        "largest change ahead, of the change behind": largest,
        "the same without a mask": control,
        "largest gradient ahead": gradient,
    }
    return Finding(verdict, Words(en, zh), numbers)


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    import numpy as np

    panels = figure.subplots(1, 2, sharey=True)
    titles = {
        "mask": Words("Causal mask", "因果掩码"),
        "no mask": Words("No mask (control)", "没有掩码（对照）"),
    }
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        change = np.asarray(evidence["maps"][name])
        shown = np.ma.masked_equal(change / np.median(change[change > 0]), 0)
        image = axes.imshow(shown, cmap="Blues", vmin=0, vmax=2.5, aspect="equal")
        axes.set_facecolor("#efe9dc")
        tidy(axes, title[lang], x=Words("replaced token j", "被替换的词元 j")[lang])
        axes.grid(visible=False)
    panels[0].set_ylabel(Words("output i", "输出 i")[lang])
    if not np.triu(evidence["maps"]["mask"], 1).any():
        none = Words("exactly 0", "恰好为 0")[lang]
        panels[0].text(0.95, 0.93, none, transform=panels[0].transAxes, ha="right", va="top")
    label = Words("how far output i moves, of the median", "输出 i 的变化，与中位数之比")[lang]
    figure.colorbar(image, ax=panels, shrink=0.85, label=label)


CLAIM = Claim(
    number=3,
    title=Words("The causal mask hides the future", "因果掩码遮住未来"),
    claim=Words(
        "With a causal mask no later position changes an earlier output.",
        "使用因果掩码时，后面的位置不会改变前面的输出。",
    ),
    source="000",
    how=Words(
        "Untrained GPTs of three layers, with five kinds of positions and on two backends. Each "
        "token is replaced in turn and all outputs are compared; the gradient of an output by "
        "later embeddings is taken as well. Control: the same models without the mask, where "
        "earlier outputs must move.",
        "三层、未训练的 GPT，五种位置、两种后端。依次替换每个词元并比较所有输出；也求输出对之后的"
        "词嵌入的梯度。对照：同样的模型去掉掩码，前面的输出必须变化。",
    ),
    for_=Words(
        f"In no kind of GPT does an earlier output move by more than {NOTHING:.0e} of what later "
        "ones move by (rounding), and the gradient is exactly 0.",
        f"每一种 GPT 中，前面的输出变化都不超过后面变化的 {NOTHING:.0e}（舍入误差），且梯度恰好为 "
        "0。",
    ),
    against=Words(
        f"In any kind one moves by more than {SOMETHING:.0e}, or the gradient is not 0. (Cannot "
        "tell: even without the mask none does.)",
        f"任何一种中有一个超过 {SOMETHING:.0e}，或梯度不为 0。（无法判断：没有掩码也不超过。）",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    correction=Words(
        "002's snippet `triu(ones) * -inf` gives NaN wherever the mask should be 0 (0 · −inf), "
        "and softmax then makes every weight NaN; `masked_fill(mask, -inf)` is what is meant. 001 "
        "speaks of decoders but has no mask in its code.",
        "002 的片段 `triu(ones) * -inf` 在掩码应为 0 处得到 NaN（0 · −inf），softmax 之后全部权重"
        "都是 NaN；应写成 `masked_fill(mask, -inf)`。001 谈到解码器，但代码里没有掩码。",
    ),
)
