# zh:
# # KV 缓存：过去不必再算
#
# GPT 一次只写一个词元。写第 100 个的时候，前面 99 个都还在；要是每次从头算，写 100 个词元就要读 1 +
# 2 + … + 100 = 5,050 遍。可是有因果掩码，**过去看不到未来**，所以旧词元的键和值永远不变：算一次，存
# 起来就好。
#
# 存下来的就叫 KV 缓存。查询不用存：旧的问题已经答完了。
# en:
# # The KV cache: do not compute the past again
#
# A GPT writes one token at a time. At the 100th, the 99 before it are still there; if it started
# from the first one each time, it would read 1 + 2 + … + 100 = 5,050 tokens to write 100. But with
# a causal mask **the past does not see the future**, so the keys and values of old tokens never
# change: compute them once and keep them.
#
# What is kept is the KV cache. Queries are not kept: the old questions have been answered.

import torch

from glasshead import Mask, MultiHeadAttention
from glasshead.attention.cache import GrowingCache

torch.manual_seed(0)
attention = MultiHeadAttention(32, 4).eval()
past = Mask(causal=True)
x = torch.randn(1, 7, 32)  # a text of 7 tokens

read = sum(range(1, 101))
print(f"{read:,} tokens without a cache, 100 with one")
assert read == 5050

# zh:
# ## 一个一个地读
#
# 同一段 7 个词元的文字，读两遍：一遍整段读，一遍一个一个地读，每次只把新的键和值放进缓存。结果一
# 样。
# en:
# ## Read one by one
#
# The same text of 7 tokens, read twice: once as a whole, and once token by token, where each call
# puts only the new key and value into the cache. The result is the same.

with torch.no_grad():
    whole = attention(x, mask=past).out
    cache = GrowingCache()
    words = x.split(1, dim=1)
    steps = [attention(word, mask=past, cache=cache).out for word in words]
pieces = torch.cat(steps, dim=1)
print("same:", torch.allclose(whole, pieces, atol=1e-6))
print("cached:", cache.length)

assert torch.allclose(whole, pieces, atol=1e-6)
assert cache.length == 7

# zh:
# ## 掩码要对齐到末尾
#
# 缓存里已有 4 个，又来 3 个新的：3 个查询，7 个键。第一个新词元是全文的第 5 个，能看 5 个键；第三个
# 能看全部 7 个。也就是说，那个三角形要**靠右下角**放：T 个查询中的第 i 个，能看到第 S − T + i 个键
# 为止。
#
# 靠左上角放，是最常见的错误：新词元只看得见开头几个，后面的都看不见。没有缓存时 T = S，两种放法一模
# 一样，所以测试往往查不出来。
# en:
# ## The mask is aligned to the end
#
# 4 are in the cache and 3 new ones come: 3 queries, 7 keys. The first new token is the 5th of the
# text and sees 5 keys; the third sees all 7. So the triangle stands in the **lower right corner**:
# query i of T sees the keys up to S − T + i.
#
# To put it in the upper left corner is the most common mistake: the new tokens see the first few
# keys only. Without a cache T = S and both are the same, so that tests often do not find it.

right = torch.ones(3, 7, dtype=torch.bool).tril(7 - 3)
wrong = torch.ones(3, 7, dtype=torch.bool).tril()
print("end:  ", right.sum(-1).tolist())
print("start:", wrong.sum(-1).tolist())

with torch.no_grad():
    cache = GrowingCache()
    attention(x[:, :4], mask=past, cache=cache)
    new = attention(x[:, 4:], mask=past, cache=cache).out
print("three at once:", torch.allclose(new, whole[:, 4:], atol=1e-6))

assert right.sum(-1).tolist() == [5, 6, 7]
assert wrong.sum(-1).tolist() == [1, 2, 3]
assert torch.allclose(new, whole[:, 4:], atol=1e-6)

# zh:
# ## 用内存换时间
#
# 每一层、每个词元都要存一个键、一个值。GPT-2 最小的一种有 12 层，宽 768，读 1,024 个词元，每个数 2
# 字节：一段文字就要 37,748,736 字节。7 个人同时用，缓存就比模型本身还大。
#
# 所以新的模型让几个查询头**合用**一个键头和值头（GQA）：查询还是 4 个头，键和值只有 2 个，缓存就省
# 下一半。
# en:
# ## Memory for time
#
# Each layer keeps a key and a value of each token. The smallest GPT-2 has 12 layers of width 768;
# with 1,024 tokens and 2 bytes per number, one text takes 37,748,736 bytes. With 7 users at once
# the cache is larger than the model.
#
# So newer models let several query heads **share** one head of keys and values (GQA): there are
# still 4 heads of queries, but with 2 of keys and values the cache is half as large.

total = 2 * 12 * 768 * 1024 * 2
print(f"{total:,} bytes")
assert total == 37_748_736
assert 7 * total > 2 * 124_000_000 > 6 * total

# zh:
# ## 试一试
#
# 把 `n_kv_heads = 2` 改成 `n_kv_heads = 1`：4 个查询头合用一个键头，缓存只剩原来的四分之一。这叫
# MQA。
# en:
# ## Try it
#
# Change `n_kv_heads = 2` to `n_kv_heads = 1`: all 4 query heads share one head of keys, and the
# cache is a quarter of what it was. This is called MQA.

n_kv_heads = 2  # try: n_kv_heads = 1
shared = MultiHeadAttention(32, 4, n_kv_heads=n_kv_heads)
small = GrowingCache()
with torch.no_grad():
    shared(x, mask=past, cache=small)
part = small.k.numel() / cache.k[:, :, :7].numel()
print(f"{part:.2f} of the cache")

assert part == n_kv_heads / 4
