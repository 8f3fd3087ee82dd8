# zh:
# # 交叉注意力：看另一句话
#
# 翻译时，解码器一边写译文，一边看原文。查询来自正在写的 x，键和值来自**另一句话**：编码器的输出
# memory。长度不同，T 个查询，S 个键，分数是 (T, S)。没有因果掩码：原文整句都在那里，可以随便看。
#
# 一批里的句子长短不一，短的用填充补齐。填充不是词，**谁也不许看**：`keep` 的形状是 (B, S)，True 表
# 示真的词。它遮的是**键**（一列），对每个头、每个查询都一样，所以要变成 (B, 1, 1, S)。
#
# 原文若全是填充，一行就全是 −inf，softmax 给出 NaN，一个 NaN 会毁掉整批的梯度。约定：这样的行，权重
# 全是 0。文档 003 用 −1e10 代替 −inf，那样整行变成平均，在 fp16 里还会溢出。
# en:
# # Cross-attention: look at another sentence
#
# A translator's decoder writes its sentence while it looks at the source. Queries come from x,
# which is being written; keys and values from **another sentence**: memory, the encoder's output.
# The lengths differ: T queries and S keys, so scores are (T, S). No causal mask: the source is all
# there, and may be seen.
#
# Sentences of a batch have different lengths; short ones are filled up with padding. Padding is no
# word, and **nobody may attend to it**: `keep` is (B, S), True for real tokens. It hides **keys**
# (a column), for each head and each query alike, so it becomes (B, 1, 1, S).
#
# If a source is all padding, a row is −inf throughout and softmax makes NaN; one NaN ruins the
# gradients of the whole batch. The agreement: such a row has weights 0. Document 003 writes −1e10
# for −inf, which makes the row an average, and overflows in fp16.

import torch
from torch import nn


class CrossAttention(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width)
        self.n_heads = n_heads

    def forward(self, x, memory, keep):
        # en: x: (B, T, C), memory: (B, S, C), keep: boolean, (B, S). Return (B, T, C).
        # zh: x：(B, T, C)，memory：(B, S, C)，keep：布尔值 (B, S)。返回 (B, T, C)。
        # solution
        B, T, C = x.shape
        q = self.query(x).view(B, T, self.n_heads, -1).transpose(1, 2)
        k = self.key(memory).view(B, -1, self.n_heads, C // self.n_heads).transpose(1, 2)
        v = self.value(memory).view(B, -1, self.n_heads, C // self.n_heads).transpose(1, 2)
        allowed = keep[:, None, None, :]
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(~allowed, float("-inf"))
        weights = torch.softmax(scores, dim=-1).masked_fill(~allowed, 0.0)
        context = (weights @ v).transpose(1, 2).reshape(B, T, C)
        return self.out(context)
        # end


# zh:
# 一个很小的翻译器用你的交叉注意力学一门“语言”：把句子倒过来写。图里应该出现一条反对角线。
# en:
# A very small translator learns a "language" with your cross-attention: the sentence backwards. The
# map must show a diagonal from the upper right to the lower left.
