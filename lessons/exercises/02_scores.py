# zh:
# # 分数：点积，再缩放
#
# 每个词带着三个向量：**查询** q（我在找什么）、**键** k（我能被怎样找到）、**值** v（找到了给你什
# 么）。q 和 k 的点积大，就是“你正是我要找的”。T 个查询、S 个键，一次矩阵乘法就得到全部 (T, S) 个分
# 数：q 乘以 k 的转置。
#
# 点积是 D 个乘积之和，D 越大，它的摆动就越大：标准差是 √D。D = 64 时分数常常差到十几，softmax 几乎
# 只看一个词，梯度也就没了。所以分数要**除以 √D**，让它的大小与 D 无关。
#
# 最后，权重乘以值，加起来：每个词得到一个混合了别人信息的新向量。
#
# 转置时只换最后两维。文档里有一处写 `keys.T`：一句话时没问题，换成一批 (B, T, D) 就错了。那里的例子
# 是：q = [0.2, 0.5, 0.1] 对三个键的点积为 0.19、0.29、0.39，权重 0.3143、0.3330、0.3527，结果
# 4.1154、5.1154、6.1154。
# en:
# # Scores: the dot product, scaled
#
# Each word has three vectors: a **query** q (what am I looking for), a **key** k (how can I be
# found) and a **value** v (what do I give). A large dot product of q and k says "you are what I was
# looking for". For T queries and S keys one matrix product gives all (T, S) scores: q times the
# transpose of k.
#
# A dot product is a sum of D products, and varies more the larger D is: its standard deviation is
# √D. At D = 64 scores often differ by more than ten, softmax looks at one word only, and hardly any
# gradient is left. So scores are **divided by √D**, which makes their size independent of D.
#
# Finally the values are added up, each times its weight: every word gets a new vector, mixed from
# the others.
#
# Transpose only the last two dimensions. One of the documents writes `keys.T`, which is right for
# one sentence and wrong for a batch (B, T, D). Its example: q = [0.2, 0.5, 0.1] has the dot
# products 0.19, 0.29 and 0.39 with three keys, the weights 0.3143, 0.3330, 0.3527, and the result
# 4.1154, 5.1154, 6.1154.

import torch


def scores(q, k):
    # en: q: (..., T, D), k: (..., S, D). Return the scaled scores, (..., T, S).
    # zh: q：(..., T, D)，k：(..., S, D)。返回缩放后的分数 (..., T, S)。
    # solution
    return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    # end


def attention(q, k, v):
    # en: v: (..., S, D). Return the mixed values, (..., T, D). You may use torch.softmax.
    # zh: v：(..., S, D)。返回混合后的值 (..., T, D)。可以用 torch.softmax。
    # solution
    weights = torch.softmax(scores(q, k), dim=-1)
    return weights @ v
    # end


# zh:
# 小模型里的每个分数现在都由你的 `scores` 计算。
# en:
# Every score of the small model is now computed by your `scores`.
