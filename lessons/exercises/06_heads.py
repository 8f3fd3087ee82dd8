# zh:
# # 多头：一批算完
#
# 把前面的合起来：投影、拆头、打分、掩码、softmax、混合、合头，再过一个**输出投影**，让各个头的结果
# 重新混在一起。没有它，每个头永远只能写自己那一段。
#
# 缩放用的是**每个头**的宽度 D = d_out / n_heads，不是 d_out：softmax 看到的是 D 个乘积之和。头数不
# 影响参数个数，宽 d_out 的投影只是换了读法。
#
# 可以逐个头循环，再拼起来，结果一样，只是慢；这里一次算完 (B, H, T, T)。
#
# 文档用种子 123、两个头打印了六个词的结果。注意那里每个头只有 1 个数宽，缩放除以 √1，等于没做：所以
# 这里还会用别的大小检查。
# en:
# # Many heads in one batch
#
# Put the pieces together: project, split into heads, score, mask, softmax, mix, merge; then an
# **output projection** that mixes the heads' results. Without it a head could only ever write into
# its own part.
#
# The scale is that of **one head's** width, D = d_out / n_heads, not d_out: what softmax sees are
# sums of D products. The number of heads does not change the number of parameters; the projections
# of width d_out are only read differently.
#
# A loop over heads with a concatenation gives the same, but is slower; here (B, H, T, T) is
# computed at once.
#
# A document prints the result for six words with seed 123 and two heads. Its heads are one number
# wide, so that scaling by √1 does nothing: other sizes are checked too.

import torch
from torch import nn


class MultiHead(nn.Module):
    def __init__(self, d_in, d_out, n_heads):
        super().__init__()
        self.query = nn.Linear(d_in, d_out, bias=False)
        self.key = nn.Linear(d_in, d_out, bias=False)
        self.value = nn.Linear(d_in, d_out, bias=False)
        self.out = nn.Linear(d_out, d_out)
        self.n_heads = n_heads

    def forward(self, x):
        # en: x: (B, T, d_in). Return (B, T, d_out), causal.
        # zh: x：(B, T, d_in)。返回 (B, T, d_out)，带因果掩码。
        # solution
        B, T, _ = x.shape
        q, k, v = (
            layer(x).view(B, T, self.n_heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        seen = torch.ones(T, T).tril().bool()
        scores = scores.masked_fill(~seen, float("-inf"))
        context = torch.softmax(scores, dim=-1) @ v
        context = context.transpose(1, 2).reshape(B, T, -1)
        return self.out(context)
        # end


# zh:
# 小模型的三层注意力现在全是你写的。
# en:
# All three attention layers of the small model are yours now.
