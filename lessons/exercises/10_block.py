# zh:
# # 一层，和整个 GPT
#
# 一**层**就两行：先让词互相看（注意力），再各自想一想（前馈），每行都是前归一化加残差。两处各有**自
# 己的**归一化，不能共用一个。
#
# 几层叠起来，GPT 就齐了：词元查表得到向量，**加上**位置的向量（不加的话，模型分不清先后），穿过各
# 层，最后再归一化一次，用一个线性层得到词表里每个词元的分数，叫 logits。这里不做 softmax：损失函数
# 自己会做。
#
# 按第 9 级的大小（词表 6148、宽 32、块长 8、三层）搭起来，参数应该是 437,764 个，和文档一个不差。哪
# 里多一个偏置、少一个归一化，这个数立刻就不对：数参数是最便宜的检查。
# en:
# # A block, and the whole GPT
#
# A **block** is two lines: let the words look at each other (attention), then let each compute by
# itself (feed-forward), both with pre-norm and residual. Each of the two has a norm of **its own**.
#
# Stack some blocks and the GPT is complete: look up each token's vector, **add** the vector of its
# position (without it the model cannot tell what comes first), pass the blocks, normalize once
# more, and let a linear layer give a score for each token of the vocabulary: the logits. No softmax
# here: the loss function applies it.
#
# At the sizes of rung 9 (vocabulary 6148, width 32, block length 8, three blocks) there must be
# 437,764 parameters, exactly as in the documents. One bias too many or one norm too few changes
# that number at once: counting parameters is the cheapest of all checks.

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, attention, feed_forward, width):
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x):
        # en: x: (B, T, C). Return (B, T, C), pre-norm: norm1 is for attention, norm2 for the other.
        # zh: x：(B, T, C)。返回 (B, T, C)，前归一化：norm1 给注意力，norm2 给前馈。
        # solution
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))
        # end


class GPT(nn.Module):
    def __init__(self, vocab_size, width, max_len, blocks):
        super().__init__()
        # en: Make self.embedding and self.positions (both nn.Embedding), self.blocks
        # en: (nn.ModuleList), self.norm and self.head (with a bias).
        # zh: 做出 self.embedding 和 self.positions（都是 nn.Embedding）、
        # zh: self.blocks（nn.ModuleList）、self.norm 和 self.head（带偏置）。
        # solution
        self.embedding = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(max_len, width)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size)
        # end

    def forward(self, ids):
        # en: ids: (B, T). Return logits, (B, T, vocab_size).
        # zh: ids：(B, T)。返回 logits，(B, T, vocab_size)。
        # solution
        x = self.embedding(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
        # end


# zh:
# 这回整个小模型都是你的，注意力和前馈是现成的。它和阶梯的第 9 级一样大，训练用同一批数据。
# en:
# This time the whole small model is yours, with ready-made attention and feed-forward. It is as
# large as rung 9 of the ladder and trains on the same batches.
