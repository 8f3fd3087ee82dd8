# zh:
# # 对权重做 dropout
#
# 训练时随机丢掉一部分权重，模型就不能只靠某一个词。概率 p 的权重变成 0，留下的**除以 1 − p**，平均
# 起来不变：p = 0.2 时，0.8 × 1.25 = 1。
#
# 三件事容易出错。第一，**推理时必须关掉**：否则同一句话每次结果都不同。文档的原代码就是开着 dropout
# 生成文字的。第二，丢的是 softmax **之后**的权重；丢分数没有意义，分数 0 不是“不看”，反而是一个中等
# 的分数。第三，丢过之后一行不再等于 1，所以要**看**模型在看什么，得看丢之前的权重：因此函数把它们也
# 返回。
#
# 常用的比例是 10–20 %。
# en:
# # Dropout on the weights
#
# In training some weights are dropped at random, so that the model cannot rely on a single word.
# With probability p a weight becomes 0, and the others are **divided by 1 − p**, which keeps the
# average: for p = 0.2, 0.8 × 1.25 = 1.
#
# Three things go wrong. First, it **must be off at inference**: otherwise the same sentence gives
# something else each time. The documents' original code generates text with dropout on. Second, the
# weights are dropped **after** softmax; dropping scores makes no sense, because a score of 0 does
# not mean "do not look", it is an average score. Third, afterwards rows no longer sum to 1, so to
# **see** what a model looks at, take the weights from before: that is why the function returns them
# too.
#
# 10 to 20 % are usual.

import torch


def dropout(x, p, training):
    # en: Return x with each number set to 0 with probability p, and the others divided by 1 - p;
    # en: x itself unless `training`. Write it with torch.rand, not with F.dropout.
    # zh: 返回 x：每个数以概率 p 变成 0，其余除以 1 - p；training 为假时返回 x 本身。
    # zh: 用 torch.rand 来写，不要用 F.dropout。
    # solution
    if not training or p == 0:
        return x
    kept = torch.rand(x.shape) >= p
    return x * kept / (1 - p)
    # end


def attention(q, k, v, p, training):
    # en: Return (out, weights): `out` uses the dropped weights, `weights` are those from before.
    # zh: 返回 (out, weights)：out 用丢弃之后的权重，weights 是丢弃之前的。
    # solution
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    weights = torch.softmax(scores, dim=-1)
    return dropout(weights, p, training) @ v, weights
    # end


# zh:
# 小模型训练时用你的 dropout（p = 0.2），看图时已经关掉。只训练 300 步，离过拟合还远，所以损失反而会
# 高一点。
# en:
# The small model trains with your dropout (p = 0.2); for the maps it is off. After only 300 steps
# it is far from over-fitting, so the loss comes out a little higher.
