# zh:
# # KV 缓存：别把过去重算一遍
#
# 生成文字是一个词元接一个词元。第 1000 个词元要看前面 999 个，它们的键和值早就算过了，而且**不会再
# 变**：因果掩码保证前面的看不到后面的。存下来，每步就只要算一个新词元：这就是 KV 缓存。查询不用存，
# 旧的查询不会再问。
#
# 新的键和值接在**后面**，沿着位置那一维：形状 (B, H, T, D) 里的倒数第二维。
#
# 掩码是最容易错的地方。每次只来一个词元，不需要掩码：它可以看全部过去。可是提示词是一次来好几个：T
# 个查询，S 个键，最后一个查询站在最后一个键上，查询 i 看到 S − T + i。把 T × S 的下三角从左上角画
# 起，第一个新词元就只看得到最老的那个键了。
#
# 检查的办法很简单：一次一个、一次三个、一次全部，结果必须一样。
# en:
# # The KV cache: do not compute the past again
#
# Text is generated token by token. Token 1000 attends to 999 others, whose keys and values were
# computed long ago and **never change**: the causal mask keeps the past from seeing what follows.
# Keep them, and each step computes one new token only: that is the KV cache. Queries need not be
# kept; an old query never asks again.
#
# New keys and values go **behind** the old ones, along the dimension of positions: the last but one
# of (B, H, T, D).
#
# The mask is what goes wrong most. If tokens come one by one there is no need of it: the new one
# may see all the past. But a prompt brings several at once: T queries, S keys, the last query
# stands at the last key, and query i sees up to S − T + i. Draw the triangle of T × S from the
# upper left corner, and the first new token sees only the oldest key.
#
# The test is simple: one by one, three at a time, or all at once must give the same.

import torch


class Cache:
    def __init__(self):
        self.keys = None
        self.values = None

    def append(self, k, v):
        # en: k and v: (B, H, T, D) of the new tokens. Return all keys and values so far.
        # zh: k 和 v：新词元的 (B, H, T, D)。返回到目前为止全部的键和值。
        # solution
        if self.keys is not None:
            k = torch.cat([self.keys, k], dim=-2)
            v = torch.cat([self.values, v], dim=-2)
        self.keys, self.values = k, v
        return k, v
        # end


def attention(q, k, v, cache):
    # en: q, k, v: (B, H, T, D) of T new tokens. Return their context, causal, with all the past.
    # zh: q、k、v：T 个新词元的 (B, H, T, D)。返回它们的结果：因果，并看到全部过去。
    # solution
    k, v = cache.append(k, v)
    T, S = q.shape[-2], k.shape[-2]
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    seen = torch.ones(T, S).tril(S - T).bool()
    return torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1) @ v
    # end


# zh:
# 小模型训练好之后，用你的缓存逐字生成，再不用缓存生成一遍：文字应该一模一样，算过的位置却少得多。
# en:
# Once the small model is trained it writes with your cache, then without: the same text must come
# out, with far fewer positions computed.
