# zh:
# # 位置：注意力不认得先后
#
# “猫追狗”和“狗追猫”，三个词一样，意思相反。可是不加掩码的注意力只做点积和加权求和，求和不管先后：在
# 它眼里，一句话是**一袋词**。
#
# 真的吗？把两句话都放进同一个注意力，看“追”得到的结果：一样。
# en:
# # Positions: attention does not know what comes first
#
# "The cat chases the dog" and "the dog chases the cat": the same words, the opposite meaning. But
# attention without a mask only takes dot products and weighted sums, and a sum does not care about
# order. To attention a sentence is a **bag of words**.
#
# Really? Give both sentences to the same attention and see what "chases" gets: the same.

import torch

from glasshead import MultiHeadAttention
from glasshead.attention.position import RotaryPositions, alibi_slopes
from glasshead.attention.position import sinusoids as waves
from glasshead.lab.lessons import show_map

torch.manual_seed(3)
cat, chases, dog = torch.randn(3, 8)
there = torch.stack([cat, chases, dog])[None]  # 猫追狗
back = torch.stack([dog, chases, cat])[None]  # 狗追猫
attention = MultiHeadAttention(d_model=8, n_heads=1)


def difference(a, b):
    """How much the output at "追 chases" differs."""
    change = attention(a).out[0, 1] - attention(b).out[0, 1]
    return change.abs().max().item()


print(f"{difference(there, back):.6f}")

assert difference(there, back) < 1e-6

# zh:
# ## 办法一：把位置加进向量
#
# 给每个位置一列数，加到词向量上。最早的 Transformer 用一组波：像钟表的指针，前面的转得快，后面的转
# 得慢，合起来每个位置都不相同。位置 0 是 [0, 1, 0, 1]；往右一步，快针走了 1 弧度，慢针只动了 0.01。
#
# 加上之后，“猫追狗”和“狗追猫”就分得清了。
# en:
# ## One way: add the position to the vector
#
# Give each position a list of numbers and add it to the word. The first Transformer took waves:
# like the hands of a clock, the first turn fast and the last turn slowly, and together they are
# different at every position. Position 0 is [0, 1, 0, 1]; one step to the right the fast hand has
# turned by 1 radian and the slow one by 0.01.
#
# With these added, the two sentences can be told apart.

print(waves(torch.arange(4), 4))
place = waves(torch.arange(3), 8)
print(f"{difference(there + place, back + place):.3f}")

assert waves(torch.arange(1), 4).tolist() == [[0, 1, 0, 1]]
fast, slow = waves(torch.arange(2), 4)[1].view(2, 2)  # sine and cosine
assert abs(torch.atan2(*fast) - 1) < 1e-6
assert abs(torch.atan2(*slow) - 0.01) < 1e-6
assert difference(there + place, back + place) > 0.01

# zh:
# ## 办法二：转动查询和键
#
# 今天的模型多用**旋转**：不往词上加东西，而是在做点积之前，把位置 n 的查询和键都转过 n 弧度。两个都
# 转，点积只看夹角，也就是**相隔几步**：q = k = [1, 0] 时，相隔 n 步的点积恰好是 cos n：1、0.54、
# −0.42……
#
# 下面的表里，每条斜线上的数都相同：第 0 个看第 1 个，和第 5 个看第 6 个，没有分别。
# en:
# ## Another way: turn queries and keys
#
# Most models today **rotate**: nothing is added to the words, but before the dot product the query
# and the key at position n are both turned by n radians. Since both turn, the product depends only
# on the angle between them, and that is **how many steps they are apart**: with q = k = [1, 0] the
# product at n steps is cos n: 1, 0.54, −0.42 ...
#
# In the table every diagonal holds one number: word 0 looking at word 1 is no different from word 5
# looking at word 6.


def products(shift):
    """q · k of all pairs of seven positions, the first being `shift`."""
    rotation = RotaryPositions(d_head=2).rotation(torch.arange(7) + shift)
    same = torch.tensor([1.0, 0.0]).expand(1, 1, 7, 2)
    turned = rotation.rotate(same)[0, 0]
    return turned @ turned.T


table = products(0)
print(table.numpy().round(2))
names = [str(n) for n in range(7)]
show_map(table.clamp(min=0), names, names, "cos(i − j)", "06_rotary.svg")

assert [round(n, 2) for n in table[0, :3].tolist()] == [1.0, 0.54, -0.42]
assert torch.allclose(table[0], torch.arange(7).cos(), atol=1e-5)
assert abs(table[0, 1] - table[5, 6]) < 1e-5

# zh:
# ## 办法三：越远扣分越多
#
# 最省事的是 ALiBi：每隔一步，分数扣一点。斜率 0.25，四个词原本同分，最后一个词看它们的权重就成了 17
# %、21 %、27 %、35 %：近的多，远的少。每个头斜率不同，有的看得近，有的看得远。
# en:
# ## A third way: distance costs points
#
# The simplest is ALiBi: each step away takes a little off the score. With a slope of 0.25 and four
# words with equal scores, the last word looks at them with 17 %, 21 %, 27 % and 35 %: near is more,
# far is less. Each head has a slope of its own: some look close by, some far away.

slope = alibi_slopes(4)[0]
distance = torch.tensor([3.0, 2.0, 1.0, 0.0])
near = (-slope * distance).softmax(-1)
print(near)

assert slope == 0.25
assert [round(w, 2) for w in near.tolist()] == [0.17, 0.21, 0.27, 0.35]

# zh:
# ## 换个地方读
#
# 同一句话，从位置 0 开始读，或者从第 1000 个词开始读，旋转之后的点积一样吗？
# en:
# ## Read it somewhere else
#
# The same sentence, read from position 0 or from position 1000: are the rotated products the same?

shift = 0  # try: shift = 1000
here = products(shift)
print("shift", shift, here[0].numpy().round(2))

assert torch.allclose(here, table, atol=1e-3)

# zh:
# ## 试一试
#
# 把 `shift = 0` 改成 `shift = 1000`：打印出来的数一个也没变。两边多转了同样的 1000 弧度，夹角还是原
# 来的夹角。所以旋转位置学到的“隔两步是谁”，挪到文章哪里都管用。
# en:
# ## Try it
#
# Change `shift = 0` to `shift = 1000`: not one of the printed numbers changes. Both sides are
# turned by the same 1000 radians more, so the angle between them stays the same. So whatever a
# rotary model has learned about "two steps back" holds anywhere in a text.
