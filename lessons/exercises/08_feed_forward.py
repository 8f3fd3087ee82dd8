# zh:
# # 前馈层：每个词自己想一想
#
# 注意力让词互相看，可它只会做加权平均：值的线性组合。真正的“想”在前馈层：把每个词的向量变宽四倍，过
# 一个 ReLU，再变回来。每个位置各算各的，互不相看。
#
# ReLU 一定要在**中间**。没有它，两个线性层合起来还是一个线性层，四倍的宽度全白费。放在最后也不行：
# 结果只有正数，加到残差上，向量只会越加越大。
#
# 文档里的第 5 级只有一个线性层加 ReLU，在我们的测量里它反而变差了；四倍宽的两层是第 8 级才加上的。
# 宽 32 时，这一层有 32·128 + 128 + 128·32 + 32 = 8,352 个参数：文档里第 8 级每层多出来的正是这个
# 数。
# en:
# # Feed-forward: each word by itself
#
# Attention lets words look at each other, but all it does is average: linear combinations of
# values. The computing is done by the feed-forward layer: it makes each word's vector four times as
# wide, applies a ReLU, and makes it narrow again. Each position is computed by itself; none looks
# at another.
#
# The ReLU must be in the **middle**. Without it two linear layers are one linear layer, and four
# times the width is for nothing. At the end it is wrong too: only positive numbers would be added
# to the residual stream, and it would grow and grow.
#
# Rung 5 of the documents has one linear layer and a ReLU, and came out worse than rung 4 when we
# measured it; two layers, four times as wide, arrive at rung 8. At width 32 the layer has 32·128 +
# 128 + 128·32 + 32 = 8,352 parameters: just what rung 8 of the documents adds to a block.

import torch
from torch import nn


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        # en: Make two linear layers: self.up, four times as wide, and self.down, back again.
        # zh: 做两个线性层：self.up 变宽四倍，self.down 再变回来。
        # solution
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        # end

    def forward(self, x):
        # en: x: (B, T, C). Return (B, T, C).
        # zh: x：(B, T, C)。返回 (B, T, C)。
        # solution
        return self.down(torch.relu(self.up(x)))
        # end


# zh:
# 小模型每一层的前馈都是你的。
# en:
# The feed-forward of each layer of the small model is yours.
