"""Claim 19: dropout is off at inference."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY
from glasshead.lab.claims.claim import Budget, Claim, Evidence, Finding, Verdict, Words
from glasshead.lab.claims.drawing import AGAINST, FOR, OTHER, tidy
from glasshead.lab.claims.stats import Interval, cohens_d, difference, mean
from glasshead.lab.claims.training import fit
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.loss import next_token_loss
from glasshead.text.batches import Batch, TextBatches
from glasshead.text.corpus import split_by_position
from glasshead.text.tinyworld import corpus
from glasshead.text.tokenizer import CharTokenizer

__all__ = ["CLAIM", "judge", "measure"]

BLOCK, BATCH, DROPOUT, LR = 32, 32, 0.2, 3e-3
PROMPTS, PROMPT, WRITTEN = 16, 8, 24
SWAYED = 0.05  # of the texts: so many differ where dropout is on

Switch = Callable[[GPT], object]
Decode = Callable[[GPT, list[list[int]]], list[list[int]]]


def as_training_left_it(model: GPT) -> None:
    pass


def ours(model: GPT, prompts: list[list[int]]) -> list[list[int]]:
    steps = list(generate(model, prompts, GREEDY, max_tokens=WRITTEN))
    return [[-1 if token is None else token for token in row] for row in zip(*steps, strict=True)]


@torch.no_grad()
def plain(model: GPT, prompts: list[list[int]]) -> list[list[int]]:
    """The likeliest token again and again, as the original loop does: no word about dropout."""
    ids = torch.tensor(prompts)
    for _ in range(WRITTEN):
        new = model(ids[:, -BLOCK:])[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, new], 1)
    return ids[:, PROMPT:].tolist()


def measure(
    budget: Budget,
    *,
    off: Switch = GPT.eval,
    left: Switch = as_training_left_it,
    decode: Decode = ours,
    dropout: float = DROPOUT,
    steps: int | None = None,
) -> Evidence:
    """`off` is how dropout is put off, `left` what training does last, `decode` writes texts."""
    steps = steps or (200 if budget.quick else 1000)
    text = "\n".join(corpus(1000 if budget.quick else 4000, "zh"))
    tokenizer = CharTokenizer.train(text)
    parts = split_by_position(tokenizer.encode_ids(text))
    differ: dict[str, list[float]] = {"on": [], "left": [], "off": [], "ours": []}
    losses: dict[str, list[float]] = {"on": [], "off": []}
    for n, seed in enumerate(budget.seeds):
        budget.progress(n / len(budget.seeds), f"seed {seed}")
        train, val = (TextBatches(p, batch_size=BATCH, block=BLOCK, seed=seed) for p in parts)
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            config = GPTConfig(tokenizer.vocab_size, max_len=BLOCK, n_layers=2, n_heads=4,
                               d_model=48, dropout=dropout)  # fmt: skip
            model = GPT(config)
            fit(model, _loss_on(model, train), lr=LR, steps=steps)
        held = val.evenly_spaced(20)
        prompts = held[0].ids[:PROMPTS, :PROMPT].tolist()
        left(model)
        differ["left"].append(_differ(model, plain, prompts))
        model.train()
        differ["ours"].append(_differ(model, decode, prompts))
        model.train()
        differ["on"].append(_differ(model, plain, prompts))
        losses["on"].append(_loss(model, held, seed))
        off(model)
        differ["off"].append(_differ(model, plain, prompts))
        losses["off"].append(_loss(model, held, seed))
    fixed = {"dropout": dropout, "steps": steps, "prompts": PROMPTS, "written": WRITTEN}
    return fixed | {"differ": differ, "losses": losses}


def _loss_on(model: GPT, batches: TextBatches) -> Callable[[int], Tensor]:
    def loss(step: int) -> Tensor:
        batch = batches.at(step)
        return next_token_loss(model, batch.ids, batch.targets)

    return loss


def _differ(model: GPT, decode: Decode, prompts: list[list[int]]) -> float:
    """Of texts continued twice, always by the likeliest token: how many come out otherwise."""
    written = []
    for chance in (1, 2):
        with torch.random.fork_rng([]):
            torch.manual_seed(chance)
            written.append(decode(model, prompts))
    pairs = list(zip(*written, strict=True))
    return sum(a != b for a, b in pairs) / len(pairs)


@torch.no_grad()
def _loss(model: GPT, batches: Sequence[Batch], seed: int) -> float:
    """Nats a character, in whatever mode the model is."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        losses = [next_token_loss(model, batch.ids, batch.targets) for batch in batches]
    return torch.stack(losses).mean().item()


def judge(evidence: Evidence) -> Finding:
    differ = {state: mean(values) for state, values in evidence["differ"].items()}
    cost = difference(evidence["losses"]["on"], evidence["losses"]["off"])
    if max(differ["off"].high, differ["ours"].high) > 0:
        verdict = Verdict.FAILS
    elif differ["on"].low < SWAYED:
        verdict = Verdict.UNCLEAR  # nothing to be put off
    elif differ["left"].high == 0:
        verdict = Verdict.HOLDS
    else:
        verdict = Verdict.HOLDS_WHEN
    en = (
        f"A GPT trained with dropout {evidence['dropout']} continues each prompt twice, always by "
        f"the likeliest character. As training leaves it, {differ['left']:.0%} of the texts come "
        f"out differently; after model.eval() {differ['off']:.0%}; by this package's generate, "
        f"which puts dropout off itself, {differ['ours']:.0%}. Left on, dropout costs {cost:.3f} "
        "nats a character."
    )
    zh = (
        f"用 dropout {evidence['dropout']} 训练的 GPT 把每个开头续写两次，每次都取最可能的字。训练"
        f"结束后不做任何事，{differ['left']:.0%} 的文本两次不同；model.eval() 之后 "
        f"{differ['off']:.0%}；用本包的 generate（它自己会关闭 dropout）{differ['ours']:.0%}。不关"
        f"闭 dropout，每个字的损失增加 {cost:.3f} nat。"
    )
    if verdict is Verdict.HOLDS_WHEN:
        en = f"Holds only when someone puts it off: training leaves it on. {en}"
        zh = f"只有显式关闭它时才成立：训练结束时它仍开着。{zh}"
    numbers: dict[str, Interval | float] = {
        "texts that differ, as training left it": differ["left"],
        "texts that differ, dropout on": differ["on"],
        "texts that differ, after eval()": differ["off"],
        "texts that differ, by generate": differ["ours"],
        "loss, on minus off": cost,
        "Cohen's d of the loss": cohens_d(evidence["losses"]["on"], evidence["losses"]["off"]),
    }
    return Finding(verdict, Words(en, zh), numbers)


def draw(evidence: Evidence, figure: Any, lang: str) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    states = (
        ("left", AGAINST, Words("as training\nleaves it", "训练结束\n时的状态")),
        ("off", FOR, Words("after eval()", "eval() 之后")),
        ("ours", FOR, Words("by generate", "用 generate")),
    )
    for at, (state, color, _) in enumerate(states):
        _bar(left, at, evidence["differ"][state], color, "{:.0%}")
    left.set_xticks(range(3), [name[lang] for _, _, name in states])
    left.set_ylim(0, 1.15)
    title = Words("Texts that differ when written twice", "写两次而不同的文本")
    tidy(left, title[lang])
    for at, (state, color) in enumerate((("on", AGAINST), ("off", FOR))):
        _bar(right, at, evidence["losses"][state], color, "{:.3f}")
    right.set_xticks(range(2), Words("on,off", "开,关")[lang].split(","))
    top = max(evidence["losses"]["on"])
    right.set_ylim(0, 1.15 * top)
    title = Words("Validation loss, nats a character", "验证损失，nat/字")
    tidy(right, title[lang], x="dropout")
    for axes in (left, right):
        axes.grid(axis="x", visible=False)


def _bar(axes: Any, at: int, values: Sequence[float], color: str, form: str) -> None:
    found = mean(values)
    axes.bar(at, found.value, 0.5, color=color, alpha=0.9)
    axes.plot([at] * len(values), values, "o", color=OTHER, markersize=3.5, alpha=0.9)
    axes.annotate(form.format(found.value), (at, max(values)), xytext=(0, 5), ha="center",
                  textcoords="offset points", fontsize=9)  # fmt: skip


CLAIM = Claim(
    number=19,
    title=Words("Dropout is off at inference", "推理时 dropout 是关闭的"),
    claim=Words(
        "At inference dropout is disabled and every unit takes part.",
        "推理时 dropout 被禁用，所有神经元都参与计算。",
    ),
    source="004",
    how=Words(
        f"A small GPT is trained with dropout {DROPOUT}, then writes {PROMPTS} texts twice, always "
        "the likeliest character, so that nothing but dropout can make a difference: as training "
        "leaves it, after eval(), and by this package's generate. The loss is measured both ways.",
        f"用 dropout {DROPOUT} 训练一个小 GPT，再把 {PROMPTS} 段文本各写两次，每次取最可能的字，因"
        "此只有 dropout 能造成差别：训练结束时的状态、eval() 之后、用本包的 generate。两种状态都"
        "测损失。",
    ),
    for_=Words(
        "No text differs in any of the three. If some do as training leaves it, but none once it "
        "is put off: holds only when.",
        "三种情形下都没有不同的文本。若只有训练结束时的状态不同、关闭后没有，则为“仅在……时成立”。",
    ),
    against=Words(
        f"A text differs after eval() or by generate. (Cannot tell: fewer than {SWAYED:.0%} differ "
        "even with dropout on.)",
        f"eval() 之后或用 generate 仍有文本不同。（无法判断：开着 dropout 也只有不到 {SWAYED:.0%} "
        "不同。）",
    ),
    measure=measure,
    judge=judge,
    draw=draw,
    correction=Words(
        "What 004 says is how it should be; the code that it describes generates with dropout on, "
        "and with gradients. Say `model.eval()` and `torch.no_grad()` before generating.",
        "004 说的是应有的做法；但它所讲解的代码在生成时 dropout 和梯度都开着。生成之前应调用 "
        "`model.eval()` 和 `torch.no_grad()`。",
    ),
)
