# zh:
# # 多头：一次问几个问题
#
# “猫在公园里看蝴蝶，它饿了。”这回“它”想知道两件事：**谁**（活的，没有翅膀），还有**在哪里**。一个头
# 一次只有一个查询，两个问题只好连在一起问：[4, −4] 问谁，[4, 0] 问哪里，拼成 [4, −4, 4, 0]。（比第
# 2 课问得用力一倍，好看得清楚些。）
# en:
# # From one head to many: several questions at once
#
# "The cat watches a butterfly in the park. It is hungry." Now "it" wants to know two things:
# **who** (alive, no wings) and **where**. One head has one query, so both questions must be asked
# at once: [4, −4] for who and [4, 0] for where make [4, −4, 4, 0]. (It asks twice as hard as in
# lesson 2, so that we see it better.)

import torch

from glasshead import MultiHeadAttention
from glasshead.errors import ConfigError
from glasshead.lab.lessons import show_map

words = ["猫 cat", "蝶 butterfly", "园 park", "它 it"]
x = torch.tensor(
    [
        [  # alive, wings | place, pronoun
            [2.0, 0.0, 0.0, 0.0],
            [2.0, 2.0, 0.0, 0.0],
            [0.0, 0.0, 2.0, 0.0],
            [0.0, 0.0, 0.0, 2.0],
        ]
    ]
)
w_q = torch.zeros(4, 4)
w_q[3] = torch.tensor([2.0, -2.0, 2.0, 0.0])
assert (x @ w_q)[0, 3].tolist() == [4, -4, 4, 0]


def looks(n_heads):
    """Where "it" looks, (heads, words). Keys and values are x itself."""
    attention = MultiHeadAttention(4, n_heads, project=False)
    same = torch.eye(4)
    with torch.no_grad():
        attention.qkv.weight.copy_(torch.cat([w_q.T, same, same]))
        return attention(x, weights=True).weights[0, :, 3]


def rounded(row):
    return [round(weight, 2) for weight in row.tolist()]


# zh:
# 一个头只有一份 100 % 可分。猫和公园都答得上，于是各得 49 %：**两个答案搅在一起**，混出来的是半只猫
# 加半个公园。再怎么用力问，也过不了一半。
# en:
# One head has 100 % to give. The cat fits and the park fits, so each gets 49 %: **the two answers
# are mixed**, and the result is half a cat and half a park. However hard it asks, neither gets
# beyond a half.

one = looks(1)
print(one)

assert rounded(one[0]) == [0.49, 0.01, 0.49, 0.01]

# zh:
# ## 切开
#
# 办法简单得出奇：把每个向量**切成两段**，每段自己做一遍四步。0 号头只见前两个数（活物、翅膀），1 号
# 头只见后两个（地点、代词）。各有各的 softmax，各有各的 100 %。
#
# 0 号头 99 % 在猫，1 号头 99 % 在公园。两段结果再拼回去，“谁”和“哪里”各占一段，互不打扰。
# en:
# ## Cut it
#
# The remedy is surprisingly simple: **cut every vector in two**, and let each part do the four
# steps by itself. Head 0 sees only the first two numbers (alive, wings), head 1 only the last two
# (place, pronoun). Each has its own softmax and its own 100 %.
#
# Head 0 is 99 % on the cat, head 1 is 99 % on the park. The two results are put side by side again:
# "who" in one part, "where" in the other, and neither disturbs the other.

two = looks(2)
short = [word[0] for word in words]
show_map(two, ["head 0", "head 1"], short, "它 it", "05_heads.svg")
print(two)

assert round(two[0, 0].item(), 2) == 0.99
assert round(two[1, 2].item(), 2) == 0.99

# zh:
# ## 怎么切：(B, T, C) → (B, H, T, D)
#
# 张量里，同一个词的 C 个数排在一起。先把它们看成 H 段，每段 D 个：`view(B, T, H, D)`；再把头换到词
# 的前面：`transpose(1, 2)`。
#
# 直接 `view(B, H, T, D)` 形状一样，也不报错，却切错了：它把前一半的**词**整个给了 0 号头。看 3 个
# 词、每个 4 个数：0 号头应当拿到每个词的前 2 个数，错的那种却拿到了第一个词的全部 4 个。
# en:
# ## How to cut: (B, T, C) → (B, H, T, D)
#
# In the tensor the C numbers of a word stand together. First read them as H parts of D numbers,
# `view(B, T, H, D)`; then put the heads before the words, `transpose(1, 2)`.
#
# `view(B, H, T, D)` alone has the same shape and raises no error, but it cuts wrongly: head 0 gets
# the first half of the **words**. Take 3 words of 4 numbers each: head 0 should have the first 2
# numbers of every word, but the wrong way gives it all 4 of the first word.

numbers = torch.arange(12).view(1, 3, 4)
right = numbers.view(1, 3, 2, 2).transpose(1, 2)
wrong = numbers.view(1, 2, 3, 2)
print("right", right[0, 0].tolist())
print("wrong", wrong[0, 0].tolist())

assert right.shape == wrong.shape
assert right[0, 0].tolist() == [[0, 1], [4, 5], [8, 9]]
assert wrong[0, 0].tolist() == [[0, 1], [2, 3], [4, 5]]

# zh:
# ## 参数不多一个
#
# 宽 64 的注意力，切成 1、2、4、8 个头，参数一个不多、一个不少：都是 16,448 个。头多了，每个头就窄
# 了，乘法的总数也不变。可也不是白来的：每个头有自己的一张图，8 个头就要算 8 倍的权重，每个都要过
# softmax。词一多，花时间和内存的正是这些图。
#
# 切不尽就不行：8 个数分给 3 个头，每个头该有几个？没有办法，只能报错。
# en:
# ## It costs no parameters
#
# Attention of width 64, cut into 1, 2, 4 or 8 heads, has the same number of parameters: 16,448.
# With more heads each is narrower, so there are no more multiplications either. But it is not free:
# each head has a map of its own, so 8 heads compute 8 times as many weights, each of which goes
# through softmax. With many words, these maps are what takes time and memory.
#
# The width must be divisible by the number of heads: 8 numbers for 3 heads is an error.

for n in (1, 2, 4, 8):
    parameters = MultiHeadAttention(64, n).parameters()
    total = sum(p.numel() for p in parameters)
    ten = torch.zeros(1, 10, 64)  # ten words
    maps = MultiHeadAttention(64, n)(ten, weights=True).weights
    print(n, "heads:", f"{total:,} parameters, {maps.numel()} weights")
    assert total == 16_448
    assert maps.numel() == n * 10 * 10
try:
    MultiHeadAttention(d_model=8, n_heads=3)
except ConfigError as error:
    refused = str(error)
print(refused)
assert "divisible" in refused

# zh:
# ## 是不是越多越好？
# en:
# ## Are more heads better?

n_heads = 2  # try: n_heads = 4
seen = looks(n_heads)
for head, row in enumerate(seen):
    print("head", head, rounded(row))

if n_heads == 4:
    assert rounded(seen[0]) == [0.50, 0.50, 0.00, 0.00]
    assert rounded(seen[1]) == [0.33, 0.00, 0.33, 0.33]
    assert round(seen[2, 2].item(), 2) == 1.00
    assert seen[3].tolist() == [0.25] * 4

# zh:
# ## 试一试
#
# 把 `n_heads = 2` 改成 `n_heads = 4`，每个头只剩一个数。0 号头只认“活物”，在猫和蝴蝶之间对半分；1
# 号头只知道“别要翅膀”，其余三个平分；3 号头没有问题可问，四个词各看 25 %。“活的**而且**没有翅膀”要
# 两个数才问得出来：**头太窄，就问不了复杂的问题。**
# en:
# ## Try it
#
# Change `n_heads = 2` to `n_heads = 4`, and a head has one number. Head 0 knows only "alive" and
# divides its weight between cat and butterfly; head 1 knows only "no wings" and divides it among
# the other three; head 3 has nothing to ask and gives each word 25 %. "Alive **and** no wings"
# takes two numbers to ask: **a head that is too narrow cannot ask a difficult question.**
