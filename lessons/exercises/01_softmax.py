# zh:
# # softmax：把分数变成权重
#
# 注意力的第一问是“像不像”：查询和每个键做点积，得到一个**分数**。分数可正可负，可大可小，没法直接当
# 比例用。softmax 把一行分数变成一行**权重**：都是正数，加起来是 1，分数越高权重越大，谁也不会变成负
# 的。先取指数，再除以总和，就这两步。
#
# 指数不只保证为正，还把差距放大：分数多 1，权重就是 e ≈ 2.72 倍。所以只有**差**算数：所有分数一起加
# 100，权重一点不变。这也是实际写法里的窍门：先减去这一行的最大值。不减的话，分数到了一千，exp 就溢
# 出成 inf，inf / inf 是 NaN。
#
# 文档里的第一个例子是 “Hello shiny sun!”：shiny 对三个词的分数是 0.7842、1.3569、1.2487，权重是
# 0.2291、0.4063、0.3646。你的函数要算出同样的数。分数可能是一行，也可能是一整块 (B, T, S)：永远沿最
# 后一维，那一维排的是**键**。
# en:
# # softmax: from scores to weights
#
# The first question of attention is "how alike": the dot product of a query with each key is a
# **score**. Scores can be negative and of any size, so they are no shares yet. softmax turns a row
# of scores into a row of **weights**: all positive, 1 in total, and larger where the score is
# higher. Two steps: take the exponential, divide by the sum.
#
# The exponential makes everything positive, and it widens gaps: a score that is larger by 1 has e ≈
# 2.72 times the weight. So only **differences** count: add 100 to all scores, and no weight
# changes. That is also the trick of every real implementation: subtract the row's maximum first.
# Without it exp overflows to inf when scores reach a thousand, and inf / inf is NaN.
#
# The documents' first example is "Hello shiny sun!": the scores of "shiny" are 0.7842, 1.3569 and
# 1.2487, its weights 0.2291, 0.4063 and 0.3646. Your function must print the same. Scores may be
# one row or a whole block (B, T, S): always normalize over the last dimension, where the **keys**
# are.

import torch


def softmax(scores):
    # en: scores: (..., S). Return the weights, (..., S): positive, and each row sums to 1.
    # en: Write it with torch.exp, not with torch.softmax.
    # zh: scores：(..., S)。返回权重 (..., S)：都是正数，每一行加起来是 1。
    # zh: 用 torch.exp 来写，不要用 torch.softmax。
    # solution
    top = scores.amax(-1, keepdim=True)
    powers = torch.exp(scores - top)
    return powers / powers.sum(-1, keepdim=True)
    # end


# zh:
# 你的 softmax 现在就在一个小模型里，把每个分数变成权重。看看训练之后每个头看哪里。
# en:
# Your softmax now turns every score of a small model into a weight. See where each head looks after
# some training.
