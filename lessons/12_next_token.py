# zh:
# # 选下一个词元
#
# 模型并不“写字”。它给每一个词元打一个分，写哪一个，是我们选的。选法不同，同一个模型写出来的东西完
# 全不同。
#
# 假设它读完“春江”，给五个字打了分：潮 2.0，水 1.6，花 1.0，月 0.4，铁 −2.5。softmax 把分数变成概
# 率：潮 41 %，水 28 %，花 15 %，月 8 %。最后的“铁”不到 1 %。剩下的给了别的字。
# en:
# # Choose the next token
#
# A model does not write. It gives each token a score, and which one is written is our choice. The
# same model writes quite differently with another way to choose.
#
# Say it has read 春江 (the river in spring) and scored some characters: 潮 tide 2.0, 水 water 1.6,
# 花 flower 1.0, 月 moon 0.4, 铁 iron −2.5. Softmax makes probabilities of them: tide 41 %, water
# 28 %, flower 15 %, moon 8 %. Iron at the end has less than 1 %. The rest goes to others.

import torch

from glasshead.generation import sampling
from glasshead.generation.sampling import SamplingConfig, probabilities

names = ["潮", "水", "花", "月", "风", "夜", "铁"]
logits = torch.tensor([[2.0, 1.6, 1.0, 0.4, -0.3, -0.6, -2.5]])


def percent(**how):
    """The probabilities that are left, in percent."""
    probs = probabilities(logits, SamplingConfig(**how))[0]
    pairs = zip(names, (100 * probs).round().int().tolist(), strict=True)
    return {name: p for name, p in pairs if p > 0}


plain = percent()
print(plain)
assert [plain[name] for name in "潮水花月"] == [41, 28, 15, 8]
assert torch.softmax(logits, -1)[0, -1] < 0.01

# zh:
# ## 总选最大的
#
# 最省事的是贪心：总写分数最高的那个。同一个开头，永远是同一个结果；而且写着写着就会兜圈子，因为常
# 见的词后面总是常见的词。翻译和算术适合它，写诗不适合。
# en:
# ## Always the largest
#
# The simplest is greedy: always write the one with the highest score. The same beginning always
# gives the same text; and it soon goes round in circles, because common words are followed by
# common words. It is right for translation and sums, not for poems.

print(percent(temperature=0))
assert percent(temperature=0) == {"潮": 100}

# zh:
# ## 温度：更稳，还是更野
#
# 掷骰子来选，每个字按概率中签。掷之前先把分数除以**温度**：0.5 让高的更高，潮升到 61 %；2 把差距抹
# 平，潮只有 28 %。温度 1 就是模型自己的概率，0 就是贪心。
# en:
# ## Temperature: safer or wilder
#
# Throw a die instead, in which each character has its probability. Before that, divide the scores
# by a **temperature**: 0.5 makes what is high higher, and tide rises to 61 %; 2 evens things out,
# and tide has only 28 %. At 1 they are the model's own probabilities, 0 is greedy.

cold, hot = percent(temperature=0.5), percent(temperature=2.0)
print("0.5", cold)
print("2.0", hot)
assert (cold["潮"], hot["潮"]) == (61, 28)

# zh:
# ## 砍掉尾巴
#
# 词表里有几千个“铁”，每个都不到 1 %，合起来却常常中签，一中就把句子毁了。所以掷之前先砍掉尾巴：
#
# - top-k：只留分数最高的 k 个。k = 2，只剩潮和水。
# - top-p：从高到低数，概率加起来够 p 就停。p = 0.8，留下潮、水、花。
# - min-p：留下至少有第一名几成可能的。0.3，也是潮、水、花。
#
# k 不管模型有没有把握，总留这么多；p 会看：有把握时留得少，没把握时留得多。
# en:
# ## Cut off the tail
#
# A vocabulary has thousands of tokens like iron, each below 1 %, but together they win often, and
# one is enough to spoil a sentence. So the tail is cut off first:
#
# - top-k: keep the k highest scores. With k = 2, tide and water.
# - top-p: count from the highest until the probabilities sum to p. With p = 0.8, tide, water and
#   flower.
# - min-p: keep what is at least so many times as probable as the first. With 0.3, the same three.
#
# k keeps as many whether the model is sure or not; p keeps few when it is sure and many when it is
# not.

print("top-k", percent(top_k=2))
print("top-p", percent(top_p=0.8))
print("min-p", percent(min_p=0.3))
assert set(percent(top_k=2)) == set("潮水")
assert set(percent(top_p=0.8)) == set("潮水花") == set(percent(min_p=0.3))

# zh:
# ## 试一试
#
# 掷 1,000 次，数一数。把 `top_p=0.8` 改成 `top_p=1.0`，“铁”就有机会了；温度再调高，机会更多。在终端
# 里，`glasshead generate` 有同样的选项：`--temperature`、`--top-k`、`--top-p`、`--min-p`。
# en:
# ## Try it
#
# Throw 1,000 times and count. Change `top_p=0.8` to `top_p=1.0`, and iron gets its chance; with a
# higher temperature it gets more. In a terminal, `glasshead generate` has the same options:
# `--temperature`, `--top-k`, `--top-p`, `--min-p`.

how = SamplingConfig(top_p=0.8)  # try: how = SamplingConfig(top_p=1.0)
probs = probabilities(logits, how)
generator = torch.Generator().manual_seed(0)
dice = torch.rand(1000, generator=generator, dtype=torch.float64)
drawn = sampling.sample(probs.expand(1000, -1), dice).flatten().tolist()
counts = {name: drawn.count(n) for n, name in enumerate(names)}
print(counts)

assert sum(counts.values()) == 1000
if how.top_p == 0.8:
    assert counts["铁"] == 0
else:
    assert counts["铁"] > 0
