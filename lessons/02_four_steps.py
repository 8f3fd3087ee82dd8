# zh:
# # 四步：它指的是谁？
#
# “猫在公园里看蝴蝶，**它**饿了。”我们一眼就知道“它”是猫。机器怎么知道？让“它”去问别的词，一共四步，
# 每一步都能用笔算。
#
# 每个词四个数：活物、翅膀、地点、代词。“它”自己什么都不知道，只知道自己是个代词。
# en:
# # The four steps: who is "it"?
#
# "The cat watches a butterfly in the park. **It** is hungry." We see at once that "it" is the cat.
# How would a machine? It lets "it" ask the other words, in four steps that a pencil can follow.
#
# Four numbers for each word: alive, wings, place, pronoun. "It" knows nothing about itself except
# that it is a pronoun.

import numpy as np

from glasshead.attention.steps import attend, scale, scores, softmax
from glasshead.attention.steps import weighted_sum as mix
from glasshead.lab.lessons import show_map

words = ["猫 cat", "蝶 butterfly", "园 park", "它 it"]
x = np.array(
    [  # alive, wings, place, pronoun
        [2.0, 0.0, 0.0, 0.0],
        [2.0, 2.0, 0.0, 0.0],
        [0.0, 0.0, 2.0, 0.0],
        [0.0, 0.0, 0.0, 2.0],
    ]
)
IT = 3

# zh:
# ## 三个角色
#
# 每个词同时扮演三个角色：**查询** q 是它提的问题，**键** k 是别人拿来比对的名片，**值** v 是别人比
# 中之后带走的内容。三者都由 x 乘一个矩阵得来，真正的模型靠训练学会这三个矩阵。
#
# 我们手写一个：w_q 让代词去问“谁是活的，又没有翅膀？”，别的词什么都不问。键和值就用 x 本身。于是
# “它”的查询是 [2, −2, 0, 0]。
# en:
# ## Three parts to play
#
# Every word plays three parts at once: its **query** q is the question it asks, its **key** k is
# the card that others compare with their question, its **value** v is what they get if it fits.
# Each is x times a matrix; a real model learns the three matrices by training.
#
# We write one by hand: w_q makes a pronoun ask "who is alive and has no wings?", and other words
# ask nothing. Keys and values are x itself. So the query of "it" is [2, −2, 0, 0].

w_q = np.zeros((4, 4))
w_q[3] = [1.0, -1.0, 0.0, 0.0]
q, k, v = x @ w_q, x, x
print(q[IT])

assert q[IT].tolist() == [2, -2, 0, 0]

# zh:
# **第一步，打分**：“它”的查询和每个键做点积。猫：2×2 = 4；蝴蝶：2×2 − 2×2 = 0，翅膀把它抵消了；公园
# 和“它”自己都是 0。
# en:
# **First, the scores.** The query of "it" times each key. Cat: 2×2 = 4. Butterfly: 2×2 − 2×2 = 0,
# its wings count against it. The park and "it" itself: 0.

s = scores(q, k)
print(s[IT])

assert s[IT].tolist() == [4, 0, 0, 0]

# zh:
# **第二步，缩放**：除以 √d，d 是每个键有几个数。这里有 4 个，√4 = 2，所以 4 变成 2。为什么要除，下
# 一课专门讲。
# en:
# **Second, the scale.** Divide by the square root of how many numbers a key has: there are 4, √4 =
# 2, so 4 becomes 2. The next lesson explains why.

scaled = scale(s, 4)
print(scaled[IT])

assert scaled[IT].tolist() == [2, 0, 0, 0]

# zh:
# **第三步，softmax**：把分数变成权重。先取 e 的幂，都成了正数；再除以总和，加起来就是 1。e² ≈
# 7.39，e⁰ = 1，总和 10.39，所以猫得 7.39 / 10.39 ≈ 71 %，其余三个各得约 10 %。
# en:
# **Third, softmax.** Scores become weights: e to the power of each makes them all positive, and
# dividing by their sum makes them add up to 1. e² ≈ 7.39, e⁰ = 1, the sum is 10.39: so the cat gets
# 7.39 / 10.39 ≈ 71 % and each of the other three about 10 %.

weights = softmax(scaled)
for word, weight in zip(words, weights[IT], strict=True):
    print(f"{weight:6.1%}  {word}")

assert np.exp(2).round(2) == 7.39
assert np.exp(scaled[IT]).sum().round(2) == 10.39
assert weights[IT].round(2).tolist() == [0.71, 0.10, 0.10, 0.10]

# zh:
# **第四步，加权求和**：按权重把各个词的值混在一起，71 % 的猫，其余各 10 %。“它”从 [0, 0, 0, 2]（只
# 知道自己是代词）变成了 [1.61, 0.19, 0.19, 0.19]：活的，几乎没有翅膀，不是地点。**它认出了自己是
# 谁。**
# en:
# **Fourth, the weighted sum.** Mix the values by their weights: 71 % of the cat, 10 % of each of
# the others. "It" was [0, 0, 0, 2], a pronoun and nothing else; now it is [1.61, 0.19, 0.19, 0.19]:
# alive, with hardly any wings, not a place. **It has found out who it is.**

context = mix(weights, v)
print(x[IT], "→", context[IT].round(2))

assert context[IT].round(2).tolist() == [1.61, 0.19, 0.19, 0.19]

# zh:
# 四步合起来就是那个有名的公式 softmax(q kᵀ / √d) v。`attend` 一次做完，对每个词都做。
#
# 下面每一行是一个在看的词，每一列是一个被看的词，颜色越深看得越多。别的词没有提问，查询全是 0，分数
# 也全是 0，于是权重一律 25 %：**不提问，就是平均地看。**
# en:
# The four together are the famous formula softmax(q kᵀ / √d) v. `attend` does them in one go, for
# every word.
#
# Below, each row is a word that looks, each column a word that is looked at; darker means more
# weight. The other words asked nothing: their queries are 0, so their scores are 0, so every weight
# is 25 %. **A word that asks nothing looks at everything equally.**

steps = attend(q, k, v)
short = [word[0] for word in words]
show_map(steps.weights, words, short, "softmax(q kᵀ / √d)", "02_map.svg")

assert np.array_equal(steps.context, context)
assert steps.weights[:3].tolist() == [[0.25] * 4] * 3

# zh:
# ## 一层够不够？
#
# “它”的问题只由“它”自己的数算出来：把猫换成又一座公园，问题还是原来那个。可是该问什么，常常要看别
# 的词：“它饿了”要找活的，“它下雨了”要找地方。
#
# 所以要**两层**。第一层先去听：走完四步，“它”的数里有了别的词。第二层再用这些数来提问，问题就会随句
# 子而变。第 9 课会在一个训练好的模型里看到这件事。
# en:
# ## Is one layer enough?
#
# The question of "it" is made of the numbers of "it" alone: put a second park in the place of the
# cat, and the question stays the same. But what to ask often depends on the other words: "it is
# hungry" looks for something alive, "it rains there" for a place.
#
# So there are **two layers**. In the first "it" listens: after the four steps its numbers hold
# something of the other words. The second makes its question of these, and it changes with the
# sentence. Lesson 9 shows this in a trained model.

other = x.copy()
other[0] = x[2]  # another park instead of the cat
listened = attend(other @ w_q, other, other).context
print("layer 1 asks", (x @ w_q)[IT], "or", (other @ w_q)[IT])
asked = [(each @ w_q)[IT].round(2) for each in (context, listened)]
print("layer 2 asks", asked[0], "or", asked[1])

assert np.array_equal((x @ w_q)[IT], (other @ w_q)[IT])
assert not np.array_equal(*asked)

# zh:
# ## 换一个问题
#
# 同样的词、同样的键和值，只换“它”的问题。
# en:
# ## Another question
#
# The same words, keys and values; only the question of "it" is different.

asks = [1.0, -1.0, 0.0, 0.0]  # try: asks = [0.0, 0.0, 1.0, 0.0]
w_q[3] = asks
row = attend(x @ w_q, k, v).weights[IT]
for word, weight in zip(words, row, strict=True):
    print(f"{weight:6.1%}  {word}")

if asks == [1.0, -1.0, 0.0, 0.0]:
    assert words[row.argmax()] == "猫 cat"
if asks == [0.0, 0.0, 1.0, 0.0]:
    assert words[row.argmax()] == "园 park"
    assert row.max().round(2) == 0.71

# zh:
# ## 试一试
#
# 让“它”去问“哪里？”：把 `asks` 改成 `[0.0, 0.0, 1.0, 0.0]`。这回 71 % 落在公园上。训练一个模型，就
# 是让它自己找到该问的问题。
# en:
# ## Try it
#
# Let "it" ask "where?": change `asks` to `[0.0, 0.0, 1.0, 0.0]`. Now the 71 % fall on the park.
# Training a model means letting it find the right questions by itself.
