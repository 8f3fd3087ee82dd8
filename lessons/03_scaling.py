# zh:
# # 缩放：为什么除以 √d
#
# 上一课第二步把分数除以了 √d。为什么要除，又为什么偏偏是平方根？抛硬币就能明白。
#
# 没训练过的模型，查询和键里都是碰运气的数。就当每个数都是抛硬币抛来的：+1 或 −1。
# en:
# # Scaling: why divide by √d
#
# The second step of the last lesson divided the scores by √d. Why divide at all, and why by a
# square root? Tossing coins explains it.
#
# In a model that has learned nothing yet, queries and keys are random numbers. Let each be a tossed
# coin: +1 or −1.

import numpy as np

from glasshead.attention.steps import softmax

rng = np.random.default_rng(1)


def coins(*shape):
    return rng.choice([-1.0, 1.0], size=shape)


q, k = coins(8), coins(8)
print("q    ", q)
print("k    ", k)
print("q · k", q @ k)

assert abs(q @ k) <= 8

# zh:
# 每一项乘积也是 ±1，点积就是 d 个 ±1 的和。正负大半抵消，抵消不尽的部分平均有多大？像醉汉走路：走 d
# 步，离起点大约 √d 步。
#
# d = 4 时大约 2，d = 64 时大约 8，d = 1024 时大约 32。**数越多，碰巧得来的分数越大，大到 √d。**
# en:
# Each product is ±1 again, so the dot product is a sum of d times ±1. Most of it cancels. How much
# is left? It is a random walk: after d steps you are about √d steps from where you began.
#
# About 2 for d = 4, about 8 for d = 64, about 32 for d = 1024. **The more numbers a vector has, the
# larger the scores that chance alone produces: about √d.**

for d in (4, 64, 1024):
    chance = (coins(3000, d) * coins(3000, d)).sum(-1).std()
    print(f"d = {d:4}   √d = {d**0.5:4.0f}   measured {chance:5.1f}")
    assert abs(chance / d**0.5 - 1) < 0.06

# zh:
# 大又怎样？看 softmax 怎么处理。三个键，d = 64，碰巧得了 8、−8、0 分。不缩放，第一个键拿走 99.97
# %：模型什么都没学，就已经**铁了心**。除以 √64 = 8，分数成了 1、−1、0，权重是 67 %、9 %、24 %：有倾
# 向，没偏执。
# en:
# And if they are large? See what softmax makes of them. Take three keys with d = 64 that score 8,
# −8 and 0 by chance. Unscaled, the first takes 99.97 %: the model has learned nothing and is
# **sure** already. Divided by √64 = 8 the scores are 1, −1 and 0, and the weights 67 %, 9 % and 24
# %: a preference, not certainty.

luck = np.array([[8.0, -8.0, 0.0]])
raw, fair = softmax(luck)[0], softmax(luck / np.sqrt(64))[0]
print("raw   ", raw.round(4))
print("scaled", fair.round(4))

assert raw[0].round(4) == 0.9997
assert fair.round(2).tolist() == [0.67, 0.09, 0.24]

# zh:
# 铁了心就学不动了。权重为 p 时，softmax 的斜率是 p (1 − p)：分数动一点，权重动多少。p = 0.67 时是
# 0.22，p = 0.9997 时只有 0.0003，小了六百多倍。训练的信号到这里差不多就断了。
# en:
# A model that is sure cannot learn. At a weight of p the slope of softmax is p (1 − p): how much
# the weight moves when its score moves. At p = 0.67 it is 0.22, at p = 0.9997 it is 0.0003, more
# than six hundred times less. The gradient hardly gets through.


def slope(p):
    return p * (1 - p)


print(f"raw {slope(raw[0]):.5f}   scaled {slope(fair[0]):.5f}")

assert slope(fair[0]).round(2) == 0.22
assert slope(raw[0]).round(4) == 0.0003
assert 600 < slope(fair[0]) / slope(raw[0]) < 700

# zh:
# 那么真正合拍的呢，会不会一起被压没了？不会。q 和 k 完全相同时，点积是 d，除以 √d 还剩 √d：d = 64
# 时是 8，而碰运气的只有 1 上下。**缩放压下的是运气，不是默契。**
#
# 最后，64 个键，d 从 4 到 1024，看最大的那个权重平均有多大。不缩放，它一路逼近 1；除以 √d，它几乎不
# 动，停在 0.1 左右。
# en:
# Does scaling also hide real agreement? No. If q and k are the same, their product is d, and
# divided by √d it is still √d: 8 for d = 64, where chance makes about 1. **Scaling suppresses
# chance, not agreement.**
#
# Last, 64 keys and d from 4 to 1024: how large is the largest weight, on average? Unscaled it
# climbs towards 1. Divided by √d it hardly moves and stays near 0.1.

power = 0.5  # try: power = 1.0
for d in (4, 64, 1024):
    queries, keys = coins(200, d), coins(64, d)
    found = queries @ keys.T  # (200, 64)
    raw = softmax(found).max(-1).mean()
    scaled = softmax(found / d**power).max(-1).mean()
    same = d / d**power  # what q · q makes
    shown = f"raw {raw:.2f}   scaled {scaled:.3f}   same {same:.0f}"
    print(f"d = {d:4}   {shown}")
    if power == 0.5:
        assert 0.06 < scaled < 0.15
    if power == 1.0 and d == 1024:
        assert scaled < 0.02
        assert same == 1

assert raw > 0.9  # d = 1024

# zh:
# ## 试一试
#
# 把 `power = 0.5` 改成 `power = 1.0`，也就是除以 d 而不是 √d。d = 1024 时最大权重不到 0.02，而 64
# 个键平分是 1/64 ≈ 0.016：模型成了睁眼瞎。连完全相同的 q 和 k 也只剩 1 分，默契真的被压没了。
# en:
# ## Try it
#
# Change `power = 0.5` to `power = 1.0`: divide by d, not by √d. At d = 1024 the largest weight
# falls below 0.02, where 64 equal shares would be 1/64 ≈ 0.016: the model looks everywhere and sees
# nothing. Even a q and k that are the same score no more than 1. This time agreement is lost too.
