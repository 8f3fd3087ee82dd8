# zh:
# # 一层的骨架：残差、归一化、dropout
#
# 注意力让词互相看，前馈网络让每个词自己想一想。先看、再想，就是一**层**；几十层摞起来，就是一个
# GPT。可是光这么摞，它**学不动**。让它学得动的，是包在外面的三样东西。
#
# 完整的一层其实只有两行：每行都是 x **加上**一点改动，改动之前先归一化。
# en:
# # The frame of a block: residual, norm, dropout
#
# Attention lets words look at each other, a feed-forward layer processes each word by itself.
# Together they are a **block**; a few dozen of them make a GPT. But simply stacked they **do not
# learn**. Three things around them make them learn.
#
# A whole block is two lines: each is x **plus** a change, and before each change stands a norm.

import torch
from torch import nn

from glasshead import GPT, GPTConfig, Mask
from glasshead.lab.ladder import climb, read_text
from glasshead.lab.lessons import out_folder
from glasshead.lab.rungs import RUNGS
from glasshead.model.layers import Block
from glasshead.text.tinyworld import corpus

torch.manual_seed(0)
block = Block(GPTConfig(vocab_size=50, d_model=32, n_heads=4))
norm_1 = block.around_attention.before
norm_2 = block.around_feed_forward.before
past = Mask(causal=True)

x = torch.randn(1, 7, 32)
y = x + block.attention(norm_1(x), mask=past).out
y = y + block.feed_forward(norm_2(y))

print("same:", torch.allclose(y, block(x, past), atol=1e-5))
assert torch.allclose(y, block(x, past), atol=1e-5)

# zh:
# ## 残差：给信号留一条直路
#
# 训练靠梯度：它从输出一层一层往回走，告诉每个参数该往哪边动。要是每过一层就减半，24 层之后只剩
# 0.5²⁴ ≈ 0.00000006。有了残差，每层是“1 份原来的 x，再加一点改动”，那 1 份走多少层都还是 1 份。
#
# 量一量真的 24 层，看走到最底下的梯度有多大：没有残差，不到 10⁻¹²，等于没有；有残差，完好无损。
# en:
# ## Residual: a straight path for the signal
#
# Training depends on gradients: they travel back from the output, layer by layer, and tell every
# parameter which way to move. If each layer halved them, 24 layers would leave 0.5²⁴ ≈ 0.00000006.
# With a residual each layer is "1 share of the old x, plus a change", and that 1 share stays 1
# share through any number of layers.
#
# Measure 24 real layers: how large is the gradient that arrives at the bottom? Without residuals
# less than 10⁻¹², almost nothing; with them it arrives intact.


def gradient(**parts):
    """How much of the loss is felt by the embeddings, below 24 layers."""
    torch.manual_seed(0)
    shape = {"vocab_size": 50, "max_len": 8, "d_model": 32, "n_layers": 24}
    model = GPT(GPTConfig(**shape, **parts))
    ids = torch.randint(50, (4, 9))
    logits = model(ids[:, :-1]).flatten(0, 1)
    nn.functional.cross_entropy(logits, ids[:, 1:].flatten()).backward()
    return model.embedding.weight.grad.norm().item()


without = gradient(residual=False, norm_place="none")
with_it = gradient(residual=True, norm_place="none")
print(f"without {without:.0e}   with {with_it:.2f}")

assert f"{0.5**24:.8f}" == "0.00000006"
assert without < 1e-12
assert with_it > 0.1

# zh:
# ## 归一化：音量调到一样大
#
# 一层层加下去，x 会越来越“响”：24 层之后，至少响了一半。第 3 课说过，分数一大，softmax 就铁了心。归
# 一化把每个词的数减去平均、除以标准差：[1, 2, 3, 6] 平均是 3，标准差是 1.87，于是变成 [−1.07,
# −0.53, 0, 1.60]。原来响 100 倍也好，结果一样。
#
# 把 x 放大 30 倍试试：不归一化，最大的权重平均超过 0.9；归一化，和没放大时一样，不到 0.5。
# en:
# ## Norm: all words at the same scale
#
# As layer after layer adds to it, x grows: after 24 layers by at least half. Lesson 3 showed what
# happens when scores are large: softmax becomes sure. A norm takes the mean off each word's numbers
# and divides by their standard deviation: [1, 2, 3, 6] have the mean 3 and the deviation 1.87, so
# they become [−1.07, −0.53, 0, 1.60]. If they were 100 times as large, the result would be the
# same.
#
# Make x 30 times as large: without a norm the largest weight is more than 0.9 on average; with one
# it stays the same, less than 0.5.

deep = x
for _ in range(24):
    deep = Block(GPTConfig(vocab_size=50, d_model=32, n_heads=4))(deep, past)
print(f"louder: {(deep.std() / x.std()).item():.1f} ×")

norm = nn.LayerNorm(4)
numbers = torch.tensor([1.0, 2.0, 3.0, 6.0])
after = [round(n, 2) for n in norm(numbers).tolist()]
print(after)


def largest(x):
    weights = block.attention(x, weights=True).weights  # (B, H, T, S)
    return weights.amax(-1).mean().item()


print(f"raw {largest(30 * x):.2f}   normed {largest(norm_1(30 * x)):.2f}")

assert deep.std() > 1.5 * x.std()
assert after == [-1.07, -0.53, 0.0, 1.60]
assert round(numbers.std(correction=0).item(), 2) == 1.87
assert torch.allclose(norm(100 * numbers), norm(numbers), atol=1e-4)
assert largest(30 * x) > 0.9
assert largest(norm_1(30 * x)) < 0.5
assert abs(largest(norm_1(30 * x)) - largest(norm_1(x))) < 1e-4

# zh:
# ## 先归一化，还是后归一化
#
# 2017 年的论文把归一化放在后面：norm(x + f(x))，叫 post-norm；GPT-2 以后放在前面：x + f(norm(x))，
# 叫 pre-norm。差别在那条直路上：post-norm 每层都把路上的 x 也归一化一次，pre-norm 不碰它。所以
# pre-norm 深了也好练，只是最后要再归一化一次。
# en:
# ## The norm before or after
#
# The paper of 2017 puts the norm behind: norm(x + f(x)), post-norm; since GPT-2 it stands in front:
# x + f(norm(x)), pre-norm. The difference is on the straight path: post-norm normalizes the x on it
# in each layer, pre-norm leaves it alone. So pre-norm is easy to train when it is deep, and only
# needs one more norm at the very end.

f = block.feed_forward
post, pre = norm_2(x + f(x)), x + f(norm_2(x))
with torch.no_grad():
    print(f"post {post.std().item():.2f}   pre {pre.std().item():.2f}")

assert abs(post.std().item() - 1) < 0.05
assert not torch.allclose(post, pre, atol=0.1)

# zh:
# ## 前馈：每个词自己想
#
# 前馈是两个线性层，中间放宽到 4 倍，夹一个非线性。它不看别的词：改掉第 1 个词，别的词的结果一个不
# 变。注意力正好相反，它只会加权平均，非线性的事都由前馈来做。
# en:
# ## Feed-forward: each word by itself
#
# The feed-forward layer is two linear layers, 4 times as wide in between, with a nonlinearity. It
# does not look at other words: change word 1, and no result of another word changes. Attention is
# the opposite: it only takes weighted means, and what is not linear is left to the feed-forward.

changed = x.clone()
changed[:, 0] += 1.0
with torch.no_grad():
    moved = (f(changed) - f(x)).abs().amax(-1)[0]
print([round(n, 2) for n in moved.tolist()])

assert moved[0] > 0
assert (moved[1:] < 1e-6).all()
assert max(p.shape[0] for p in f.parameters()) == 4 * 32

# zh:
# ## Dropout：练习时蒙住几只眼
#
# 训练时随机把 20 % 的数变成 0，谁也不能只靠某一个数；剩下的乘 1.25，总量不变，因为 0.8 × 1.25 = 1。
# **用的时候要关掉**：`eval()` 之后，它什么也不做。
# en:
# ## Dropout: practise with some numbers missing
#
# In training 20 % of the numbers become 0 at random, so that nothing relies on any single one; the
# others are multiplied with 1.25, which keeps the total, because 0.8 × 1.25 = 1. **At inference it
# is off**: after `eval()` it does nothing.

dropout = nn.Dropout(0.2)
ones = torch.ones(10_000)
dropped = dropout(ones)
print("values", sorted(set(dropped.tolist())))
zeros = (dropped == 0).float().mean()
print(f"zeros {zeros:.2f}   mean {dropped.mean():.2f}")
print("off:", torch.equal(dropout.eval()(ones), ones))

assert sorted(set(dropped.tolist())) == [0, 1.25]
assert abs(zeros - 0.2) < 0.02
assert torch.equal(dropout.eval()(ones), ones)

# zh:
# ## 阶梯
#
# `glasshead ladder` 从二元模型爬到 GPT，一级加一样，读的是内嵌世界讲的故事。
# en:
# ## The ladder
#
# `glasshead ladder` goes from a table of character pairs to a GPT, adding one component per rung,
# on stories of the embedded world.

book = out_folder() / "ladder.txt"
book.write_text("\n".join(corpus(1500, "zh")), encoding="utf-8")
text = read_text(str(book))
print(f"{text.about['characters']:,} characters")

# zh:
# 这里只爬三级，各练 100 步，数越小越好：第 1 级没有注意力，只看前一个字猜下一个；第 6 级有三层注意
# 力和前馈，没有残差；第 7 级加上残差。
# en:
# Here are three rungs, 100 steps each, and a lower loss is better: rung 1 has no attention and
# guesses the next character from the last one; rung 6 has three layers of attention and
# feed-forward, without residuals; rung 7 adds them.

chosen = [1, 6, 7]  # try: chosen = [7, 9]
loss = {}
for result in climb(chosen, text, steps=100):
    loss[result.rung] = result.val
    adds = RUNGS[result.rung].adds
    print(f"rung {result.rung}   loss {result.val:.2f}   + {adds}")

if chosen == [1, 6, 7]:
    assert loss[7] < loss[1] < loss[6]
if chosen == [7, 9]:
    assert loss[9] < loss[7]

# zh:
# 没有残差的三层，比没有注意力的那张表还差；加上残差，马上反超。这不是说没有残差就学不会：阶梯各级
# 用同一个学习率 0.01，对没有残差的三层太大了。换成 0.003，练 2,000 步，它是 1.13，第 1 级是 1.36，
# 反倒赢了。残差让训练不那么**挑学习率**，也快得多；层数再多，才是信号真的到不了（上面量过 24 层）。
#
# ## 试一试
#
# 把 `chosen = [1, 6, 7]` 改成 `chosen = [7, 9]`，再往上爬两级：输出投影和四倍宽的前馈，然后是归一
# 化。第 9 级的数比第 7 级更小。
# en:
# Three layers without residuals are worse than the table that has no attention; with residuals they
# overtake it at once. That does not mean that they cannot learn without: all rungs have the same
# learning rate, 0.01, which is too high for three layers without residuals. With 0.003 and 2,000
# steps they reach 1.13, better than rung 1 with its 1.36. Residuals make training less **sensitive
# to the rate**, and much faster. With many more layers the signal really is lost, as measured above
# with 24.
#
# ## Try it
#
# Change `chosen = [1, 6, 7]` to `chosen = [7, 9]` and climb two rungs higher: an output projection
# and a feed-forward four times as wide, then the norms. Rung 9 has a lower loss than rung 7.
