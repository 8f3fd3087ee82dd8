# zh:
# # 翻译：边写边看原文
#
# “2024 年 3 月 5 日，星期二”，英文倒着说：Tuesday 5 March 2024。词序反了，怎么对得上？
#
# 翻译器分两半：**编码器**读原文，**解码器**写译文。中间的桥叫**交叉注意力**：还是那四步，只是查询
# 来自正在写的译文，键和值来自原文。**一边问，另一边答。**
# en:
# # Translation: write, and look at the source
#
# "2024 年 3 月 5 日，星期二" is year, month, day, weekday. English says it backwards: Tuesday 5
# March 2024. How do the words find each other?
#
# A translator has two halves: an **encoder** reads the source, a **decoder** writes. The bridge
# between them is **cross-attention**: the same four steps, but the queries come from the text being
# written, and the keys and values from the source. **One side asks, the other answers.**

import calendar
import random

import numpy as np
import torch
import torch.nn.functional as F

from glasshead import Transformer, TransformerConfig, observing
from glasshead.attention.steps import attend
from glasshead.lab.lessons import show_map
from glasshead.model import Memory
from glasshead.text.word_tokenizer import WordTokenizer

# zh:
# 先用笔算。原文四个词，键是年、月、日、星期各占一位；译文三个词，依次问星期、日、月。三个问题，四个
# 答案：权重是 3 行 4 列，**不必是方的**。每行最大的一格都超过 0.99，连起来是一条反着的斜线：这就是
# 词序。
# en:
# First by hand. Four source words, whose keys have one place each for year, month, day and weekday;
# three words of the translation, which ask for weekday, day and month. Three questions, four
# answers: the weights have 3 rows and 4 columns, and **need not be square**. In each row one cell
# has more than 0.99, and together they make a line from the top right to the bottom left: that is
# the word order.

k = 4 * np.eye(4)
q = 4 * np.eye(4)[[3, 2, 1]]
by_hand = attend(q, k, k).weights
print(by_hand.round(2))

assert by_hand.shape == (3, 4)
assert by_hand.argmax(-1).tolist() == [3, 2, 1]
assert by_hand.max(-1).min() > 0.99

# zh:
# ## 让模型自己学
#
# 现在不手写查询了，让模型从例子里学。题目是随机造的日期，词表一共 90 个词，没有人告诉它哪个词对哪个
# 词。
# en:
# ## Let a model learn it
#
# No more queries by hand: a model learns them from examples. The examples are random dates, from a
# vocabulary of 90 words, and nothing tells the model which word belongs to which.

YEARS = [str(year) for year in range(2000, 2030)]
DAYS = [str(day) for day in range(1, 32)]
MONTHS = list(calendar.month_name)[1:]
NAMES = [f"星期{day}" for day in "一二三四五六日"]
WEEK = dict(zip(NAMES, calendar.day_name, strict=True))
words = WordTokenizer(
    [*YEARS, *DAYS, *MONTHS, *WEEK, *WEEK.values(), "年", "月", "日"],
    ["<pad>", "<bos>", "<eos>"],
)
BOS, EOS = words.specials["<bos>"], words.specials["<eos>"]


def made_up(dice):
    """A date in Chinese and in English."""
    year, day = dice.choice(YEARS), dice.choice(DAYS)
    month, name = dice.randrange(12), dice.choice(NAMES)
    chinese = [year, "年", str(month + 1), "月", day, "日", name]
    return chinese, [WEEK[name], day, MONTHS[month], year]


def batch(dice, n):
    pairs = [made_up(dice) for _ in range(n)]
    source = torch.tensor([words.ids_of(chinese) for chinese, _ in pairs])
    target = [[BOS, *words.ids_of(english), EOS] for _, english in pairs]
    return source, torch.tensor(target)


print(*made_up(random.Random(0)), sep="\n")

assert len(words.words) == 90

# zh:
# ## 教
#
# 每一步给模型 32 个日期，看它每个位置上猜的下一个词离正确答案多远，再挪一挪参数。为了看得清楚，这里
# 的“编码器”只给每个词加上位置，词与词先不互相看。
# en:
# ## Teach
#
# Each step shows the model 32 dates, measures at every position how far its guess of the next word
# is from the truth, and moves the parameters a little. To keep the map clear, the "encoder" here
# only adds positions to the words; they do not attend to each other yet.


def read(model, source, mixed):
    if mixed:
        return model.encode(source)
    places = torch.arange(source.shape[1])
    return Memory(model.encoder.embedding(source, places), source > 0)


def predict(model, source, target, mixed):
    """Logits for the word after each of the target's."""
    memory = read(model, source, mixed)
    return model.logits(model.features(target[:, :-1], memory))


def taught(steps, mixed):
    torch.manual_seed(0)
    dice = random.Random(0)
    size = {"n_layers": 1, "n_heads": 1, "d_model": 64, "d_ff": 64}
    config = TransformerConfig(words.vocab_size, dropout=0.0, **size)
    model = Transformer(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        source, target = batch(dice, 32)
        logits = predict(model, source, target, mixed)
        truth = target[:, 1:].flatten()
        F.cross_entropy(logits.flatten(0, 1), truth).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


# zh:
# ## 考
#
# 先考另外抽的 200 个日期，再让它译一个，一个词一个词地写，每写一个就看一遍原文。然后画出它写每个词
# 时看的是哪里。
# en:
# ## Examine
#
# First 200 new random dates. Then it translates one, word by word, looking at the source for each.
# Finally we draw where it looked as it wrote each word.

mixed = False  # try: mixed = True
model = taught(400, mixed)
chinese = ["2024", "年", "3", "月", "5", "日", "星期二"]
with torch.no_grad():
    source, target = batch(random.Random(1), 200)
    guesses = predict(model, source, target, mixed).argmax(-1)
    right = (guesses == target[:, 1:]).all(-1).float().mean().item()

    source, said = torch.tensor([words.ids_of(chinese)]), [BOS]
    while said[-1] != EOS and len(said) < 9:
        soon = torch.tensor([[*said, EOS]])
        logits = predict(model, source, soon, mixed)
        said.append(int(logits[0, -1].argmax()))
    with observing(model.decoder) as seen:
        predict(model, source, torch.tensor([said]), mixed)
english = [words.decode([word]) for word in said[1:-1]]
weights = seen.tile("blocks.0.cross", head=0)[: len(english)]
print(f"{right:.0%}", english)
show_map(weights, english, chinese, "cross-attention", "08_cross.svg")

looked = [chinese[place] for place in weights.argmax(-1)]
assert right > 0.9
assert english == ["Tuesday", "5", "March", "2024"]
if not mixed:
    fitting = [["星期二"], ["5", "日"], ["3", "月"], ["2024", "年"]]
    assert all(a in b for a, b in zip(looked, fitting, strict=True))

# zh:
# 没有人教过它哪个词对哪个词，它自己对上了：写 March 时看的是 3 月，写 2024 时跳回最前面。斜线和我们
# 手算的一样，是反的。
#
# ## 试一试
#
# 把 `mixed = False` 改成 `mixed = True`，编码器里的词先互相看一遍。译文照样对，图上的格子却可能跑到
# **别的词**上去：信息已经搬了家，写 March 时它看的是“3”搬去的地方。所以注意力图说的是**到哪个位置去
# 取**，不一定是**那个位置原来的词**。
# en:
# Nothing told it which word belongs to which, and it found out: as it wrote March it looked at 3
# 月, and for 2024 it jumped back to the very beginning. The line runs from the top right to the
# bottom left, as it did by hand.
#
# ## Try it
#
# Change `mixed = False` to `mixed = True`: the words in the encoder look at each other first. The
# translation is as right as before, but on the map the cells may lie on **other words**: the
# information has moved, and March is written by looking at the place where the "3" has moved to. So
# a map of attention shows **from which position something was fetched**, and not always **the word
# at that position**.
