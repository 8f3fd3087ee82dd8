# zh:
# # 因果掩码：不许看后面
#
# 语言模型要猜下一个字。训练时整句话都在眼前，若让第 3 个字看到第 4 个，它就不用猜了：损失漂亮，生成
# 时一塌糊涂。**因果掩码**规定：每个位置只能看自己和前面的。
#
# 本项目里掩码一律是布尔值，**True 表示可以看**。（别处常常相反，这是最常见的错误之一。）不能看的分
# 数在 softmax **之前**换成 −inf：exp(−inf) = 0，剩下的权重加起来还是 1。在 softmax 之后再清零，每行
# 就不再等于 1 了。
#
# 文档里用 `triu(ones) * -inf` 造掩码：那里 0 × −inf 是 NaN，6 × 6 的格子里有 21 个。要用
# masked_fill。
#
# 查询可以比键少：有缓存时，T 个新词面对 S 个键。最后一个查询站在最后一个键上，所以查询 i 看得到的键
# 一直到 S − T + i。还有，一行若什么都不许看，全是 −inf，softmax 给出 NaN；约定的答案是 0。
# en:
# # The causal mask: do not look ahead
#
# A language model guesses the next token. In training the whole sentence is there; if position 3
# may see position 4, there is nothing to guess: a fine loss, and nonsense when it generates. The
# **causal mask** says: each position sees itself and what is before it.
#
# In this project a mask is boolean, and **True means "may attend"**. (Elsewhere it is often the
# opposite, which is one of the most frequent mistakes.) Scores that must not be seen become −inf
# **before** softmax: exp(−inf) = 0, and the other weights still sum to 1. Set to zero after
# softmax, they do not.
#
# One document makes its mask as `triu(ones) * -inf`: there 0 × −inf is NaN, in 21 of 6 × 6 cells.
# Use masked_fill.
#
# There can be fewer queries than keys: with a cache, T new tokens meet S keys. The last query
# stands at the last key, so query i sees the keys up to S − T + i. And a row that may see nothing
# is −inf throughout, of which softmax makes NaN; the agreed answer is 0.

import torch


def causal_mask(T, S):
    # en: Return a boolean mask, (T, S), True = may attend; the last query stands at the last key.
    # zh: 返回布尔掩码 (T, S)，True = 可以看；最后一个查询站在最后一个键上。
    # solution
    queries = torch.arange(T)[:, None] + (S - T)
    return queries >= torch.arange(S)
    # end


def masked_attention(q, k, v, allowed):
    # en: q: (..., T, D), k and v: (..., S, D), allowed: boolean, (T, S).
    # en: Return (..., T, D). A row of `allowed` without any True gives zeros.
    # zh: q：(..., T, D)，k 和 v：(..., S, D)，allowed：布尔值 (T, S)。
    # zh: 返回 (..., T, D)。allowed 里全是 False 的行，结果为 0。
    # solution
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(~allowed, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return weights.masked_fill(~allowed, 0.0) @ v
    # end


# zh:
# 小模型用你的掩码训练。图的右上角应该全空：谁也没有偷看后面。
# en:
# The small model trains with your mask. The upper right of each map must be empty: nobody looks
# ahead.
