# zh:
# # 翻译器：编码器和解码器
#
# 最后把一切装起来。**编码器**读原文：词元加位置，穿过各层（没有因果掩码，但要遮住填充），最后归一
# 化，得到 memory。**解码器**写译文：每层三步，先看自己写过的（因果），再看 memory（交叉），再想一想
# （前馈），每步都是前归一化加残差。最后归一化，得到 logits。
#
# 训练时译文一次全给，右移一位：第 i 个位置猜第 i + 1 个词元。推理时 memory 只算一次，然后逐个词元地
# 写。所以 `encode` 和 `decode` 是分开的，forward 把它们接起来。
#
# 容易错的地方：交叉注意力拿到的是编码器的**输出**，不是原文的词向量；`keep` 两边都要传，编码器里一
# 次，交叉注意力里一次；原文和译文各有各的词表。这些错误都不报错，只是译得差。
# en:
# # The translator: encoder and decoder
#
# Now put everything together. The **encoder** reads the source: tokens plus positions, through its
# blocks (no causal mask, but padding is hidden), a norm at the end: that is memory. The **decoder**
# writes the target; a block has three steps: look at what was written (causal), look at memory
# (cross), compute (feed-forward), each with pre-norm and residual. A norm at the end, then logits.
#
# In training the whole target is given, shifted by one: position i guesses token i + 1. At
# inference memory is computed once, and tokens are written one by one. So `encode` and `decode` are
# separate, and forward joins them.
#
# What goes wrong: cross-attention gets the encoder's **output**, not the vectors of the source
# tokens; `keep` is needed on both sides, in the encoder and in cross-attention; source and target
# have a vocabulary each. None of these raises an error; the translations are just worse.

import torch
from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, attention, cross, feed_forward, width):
        super().__init__()
        self.attention = attention  # attention(x)
        self.cross = cross  # cross(x, memory, keep)
        self.feed_forward = feed_forward
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.norm3 = nn.LayerNorm(width)

    def forward(self, x, memory, keep):
        # en: Three steps in this order, each pre-norm with its norm. memory is normalized already.
        # zh: 依次三步，每步用自己的归一化（前归一化）。memory 已经归一化过。
        # solution
        x = x + self.attention(self.norm1(x))
        x = x + self.cross(self.norm2(x), memory, keep)
        return x + self.feed_forward(self.norm3(x))
        # end


class Translator(nn.Module):
    def __init__(self, n_source, n_target, width, max_len, encoder, decoder):
        super().__init__()
        self.source = nn.Embedding(n_source, width)
        self.target = nn.Embedding(n_target, width)
        self.positions = nn.Embedding(max_len, width)
        self.encoder = nn.ModuleList(encoder)  # block(x, keep)
        self.decoder = nn.ModuleList(decoder)  # block(x, memory, keep)
        self.encoder_norm = nn.LayerNorm(width)
        self.decoder_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, n_target)

    def encode(self, source, keep):
        # en: source: ids, (B, S), keep: (B, S). Return memory, (B, S, C).
        # zh: source：编号 (B, S)，keep：(B, S)。返回 memory，(B, S, C)。
        # solution
        x = self.source(source) + self.positions(torch.arange(source.shape[1]))
        for block in self.encoder:
            x = block(x, keep)
        return self.encoder_norm(x)
        # end

    def decode(self, memory, keep, target):
        # en: target: ids, (B, T). Return logits, (B, T, n_target).
        # zh: target：编号 (B, T)。返回 logits，(B, T, n_target)。
        # solution
        x = self.target(target) + self.positions(torch.arange(target.shape[1]))
        for block in self.decoder:
            x = block(x, memory, keep)
        return self.head(self.decoder_norm(x))
        # end

    def forward(self, source, keep, target):
        # en: Return logits, (B, T, n_target).
        # zh: 返回 logits，(B, T, n_target)。
        # solution
        return self.decode(self.encode(source, keep), keep, target)
        # end


# zh:
# 你的翻译器学一门“语言”：把句子倒过来写。看它写第几个字时看原文的哪里。
# en:
# Your translator learns a "language": the sentence backwards. See where in the source it looks for
# each token that it writes.
