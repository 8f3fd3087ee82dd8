# zh:
# # 掩码：不许偷看
#
# 语言模型练的是一件事：看着前面的词，猜下一个。可是训练时整句话都摆在面前。读到“我 爱 吃”，该猜
# “鱼”，而“鱼”就在右边。能看，它就会抄，什么也学不到。**掩码**规定谁可以看谁。
# en:
# # Masks: no peeking
#
# A language model practises one thing: look at the words so far, guess the next. But in training it
# has the whole sentence. After "I love eating" it should guess "fish", and "fish" is right there.
# If it may look, it copies, and learns nothing. A **mask** says who may look at whom.

import numpy as np
import torch

from glasshead import Mask, MultiHeadAttention
from glasshead.attention import steps
from glasshead.lab.lessons import show_map

words = ["我 I", "爱 love", "吃 eating", "鱼 fish"]

# zh:
# 假设每个词都最想看“鱼”，给它 3 分，给其余的 0 分。没有掩码，前三个词都把 87 % 的注意力放在答案上。
# en:
# Say that every word wants to see "fish" most: 3 points for it, 0 for the rest. Without a mask each
# of the first three puts 87 % of its attention on the answer.

scores = np.array([[0.0, 0.0, 0.0, 3.0]] * 4)
peeking = steps.softmax(scores)
print(peeking.round(2))

assert peeking[:3, 3].round(2).tolist() == [0.87] * 3

# zh:
# 因果掩码：第 i 行只许看第 0 到 i 列。`True` 表示“可以看”。不许看的分数改成 −∞，e 的 −∞ 次方是 0，
# softmax 自然就把 100 % 分给了看得见的那些：第一个词只能看自己，第二个各一半，第三个各三分之一。
# en:
# The causal mask: row i may look at columns 0 to i. `True` means "may look". Scores that must not
# be seen become −∞, e to the power of −∞ is 0, and softmax then divides the 100 % among the words
# that can be seen: the first word sees only itself, the second has two halves, the third three
# thirds.

allowed = steps.causal(4, 4)
honest = steps.softmax(steps.mask(scores, allowed))
print(allowed.astype(int))
short = [word[0] for word in words]
show_map(honest, words, short, "causal", "04_causal.svg")

assert honest[0].tolist() == [1, 0, 0, 0]
assert honest[1].tolist() == [0.5, 0.5, 0, 0]
assert honest[2].round(2).tolist() == [0.33, 0.33, 0.33, 0]
assert np.allclose(honest.sum(-1), 1)

# zh:
# ## 三个坑
#
# 1. **先 softmax 再抹掉**：87 % 已经分给了“鱼”，抹掉就没了，第一行只剩 0.04。先掩码、后 softmax，每
#    行才加得到 1。
# 2. **用乘法造 −∞**：0 × ∞ 不是 0，而是 NaN。4×4 的表里会冒出 10 个。
# 3. **一个都不许看的行**：全是 −∞，0 除以 0，又是 NaN。这里规定它的权重全是 0。
# en:
# ## Three traps
#
# 1. **Softmax first, mask later**: 87 % already went to "fish", and removing them leaves only 0.04
#    in the first row. Mask first, then softmax, and every row adds up to 1.
# 2. **Making −∞ by multiplying**: 0 × ∞ is not 0 but NaN. A 4×4 table gets 10 of them.
# 3. **A row that may see nothing**: all −∞, 0 divided by 0, NaN again. Here such a row has weights
#    0.

late = peeking * allowed
print("row sums", late.sum(-1).round(2))
with np.errstate(invalid="ignore"):
    product = np.triu(np.ones((4, 4)), 1) * -np.inf
print("NaN", np.isnan(product).sum())
nothing = steps.softmax(np.full((1, 4), -np.inf))
print("nothing to see", nothing[0])

assert late.sum(-1).round(2).tolist() == [0.04, 0.09, 0.13, 1.0]
assert np.isnan(product).sum() == 10
assert nothing.tolist() == [[0, 0, 0, 0]]

# zh:
# ## 怎么证明没有偷看？
#
# 不用看权重，直接做实验：把“鱼”换成别的，看前三个词的输出变不变。有掩码，**一个比特都不变**；没有掩
# 码，三个全变。
# en:
# ## How to prove that no word peeks?
#
# Don't look at the weights; make an experiment: replace "fish" by another word and see whether the
# outputs of the first three change. With the mask **not one bit changes**; without it all three do.

torch.manual_seed(0)
attention = MultiHeadAttention(d_model=8, n_heads=2)
fish = torch.randn(1, 4, 8)
other = fish.clone()
other[0, 3] = torch.randn(8)
for name, mask in (("causal", Mask(causal=True)), ("none  ", Mask())):
    with torch.no_grad():
        before = attention(fish, mask=mask).out[0]
        after = attention(other, mask=mask).out[0]
    change = (before - after).abs().amax(-1)
    print(name, change)
    if mask.causal:
        assert (change[:3] == 0).all()
    else:
        assert (change[:3] > 0.01).all()

# zh:
# ## 掩码是规则，不是矩阵
#
# `Mask` 只记规则，谁要矩阵谁再展开。规则可以叠加：因果，并且只看最近的几个词（窗口）；不看填充的空
# 位；不看别的文档。
# en:
# ## A mask is a rule, not a matrix
#
# `Mask` only stores the rule; the matrix is built where it is needed. Rules can be combined:
# causal, and only the last few words (a window); no padding; no other documents.

window = 2  # try: window = 1
shown = Mask(causal=True, window=window).to_tensor(4, 4).int()
print(shown)

if window == 2:
    assert shown.sum(-1).tolist() == [1, 2, 2, 2]
if window == 1:
    assert torch.equal(shown, torch.eye(4, dtype=torch.int32))

# zh:
# ## 试一试
#
# 把 `window = 2` 改成 `window = 1`：矩阵只剩对角线，每个词只看得见自己。这样的注意力什么也不做：权
# 重是 1，输出就是自己的值。
# en:
# ## Try it
#
# Change `window = 2` to `window = 1`: only the diagonal is left, and every word sees nothing but
# itself. Such attention does nothing: its only weight is 1, and the output is the word's own value.
