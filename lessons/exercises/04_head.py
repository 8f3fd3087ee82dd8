# zh:
# # 一个头：查询、键、值从哪里来
#
# 前面的 q、k、v 是现成的。真正的注意力从**同一个** x 里造出它们：三个可学习的矩阵，各做一次线性变
# 换。模型学到的，就是这三个矩阵：该问什么、该怎样被找到、该给出什么。
#
# 查询也有自己的矩阵。文档里有一处说查询“就是原来的数据”，那是不对的。三个矩阵缺一个，或者拿 x 直接
# 当值，程序照样能跑，也能训练，只是学得差：这种错误最难发现。
#
# `nn.Linear(d_in, d_out)` 就是一个这样的矩阵。缩放用的是**头的宽度** d_out，不是 d_in。`causal` 为
# 真时用上一题的掩码。文档用 “Your journey starts with one step” 这六个向量（宽 3）打印了结果：不带
# 掩码（种子 789）和带掩码（种子 123）。
# en:
# # One head: where queries, keys and values come from
#
# So far q, k and v were given. Real attention makes them out of the **same** x, with three learned
# matrices, one linear layer each. These matrices are what the model learns: what to ask, how to be
# found, what to give.
#
# The query has a matrix of its own. One of the documents says that the query "is simply the data",
# which is wrong. If one of the three is missing, or x itself is taken for the values, everything
# still runs and even trains, only worse: such mistakes are the hardest to notice.
#
# `nn.Linear(d_in, d_out)` is such a matrix. The scale is that of the **head's width**, d_out, not
# d_in. If `causal` is true, the mask of the last exercise applies. A document prints the results
# for the six vectors of "Your journey starts with one step" (of width 3): without a mask (seed 789)
# and with it (seed 123).

import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, d_in, d_out, causal=True):
        super().__init__()
        self.query = nn.Linear(d_in, d_out, bias=False)
        self.key = nn.Linear(d_in, d_out, bias=False)
        self.value = nn.Linear(d_in, d_out, bias=False)
        self.causal = causal

    def forward(self, x):
        # en: x: (B, T, d_in). Return (B, T, d_out). Hide the future if self.causal.
        # zh: x：(B, T, d_in)。返回 (B, T, d_out)。self.causal 为真时遮住后面的位置。
        # solution
        q, k, v = self.query(x), self.key(x), self.value(x)
        scores = q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5
        if self.causal:
            T = x.shape[1]
            seen = torch.ones(T, T).tril().bool()
            scores = scores.masked_fill(~seen, float("-inf"))
        return torch.softmax(scores, dim=-1) @ v
        # end


# zh:
# 四个你写的头并排坐进小模型的每一层。
# en:
# Four of your heads sit side by side in each layer of the small model.
