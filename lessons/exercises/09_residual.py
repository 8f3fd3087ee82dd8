# zh:
# # 残差和归一化：先还是后
#
# 层叠起来，梯度就传不回去了。**残差**留一条直路：结果是 x **加上**这一层的改动，不是改动本身。**层
# 归一化**把每个词的 C 个数减去平均、除以标准差，再乘一个可学的 gain、加一个 shift：不论之前多大，出
# 来都一样大。
#
# 标准差用**总体**的那种（除以 C，不是 C − 1），根号里加一点 eps：一个词的数全都一样时，方差是 0。
#
# 归一化放哪里，有两派。**后归一化**（2017 年的原文，文档 003）：norm(x + layer(x))，直路上也被归一
# 化。**前归一化**（GPT，文档 004）：x + layer(norm(x))，直路从头到尾没人碰，深的时候好训练得多，但
# 最后要多加一个归一化。文档里第 9 级多出的 448 个参数，就是 7 个宽 32 的归一化。
# en:
# # Residual and norm: before or after
#
# Stack layers, and gradients no longer come back through them. The **residual** leaves a straight
# path: the result is x **plus** the layer's change, not the change alone. **LayerNorm** takes the C
# numbers of each word, subtracts their mean, divides by their standard deviation, then multiplies
# with a learned gain and adds a shift: whatever the size before, it is the same after.
#
# The standard deviation is that of the **population** (divided by C, not by C − 1), with a little
# eps under the root: if all numbers of a word are equal, the variance is 0.
#
# There are two places for the norm. **Post-norm** (the original of 2017, document 003): norm(x +
# layer(x)), so the straight path is normalized too. **Pre-norm** (GPT, document 004): x +
# layer(norm(x)), the path is left alone from bottom to top, which trains far better when it is
# deep, but needs one more norm at the end. The 448 parameters that rung 9 of the documents adds are
# 7 norms of width 32.

import torch


def layer_norm(x, gain, shift, eps=1e-5):
    # en: x: (..., C), gain and shift: (C,). Return (..., C). Without F.layer_norm.
    # zh: x：(..., C)，gain 和 shift：(C,)。返回 (..., C)。不要用 F.layer_norm。
    # solution
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * gain + shift
    # end


def pre_norm(x, norm, layer):
    # en: norm and layer are functions of (B, T, C). Return what a pre-norm layer gives.
    # zh: norm 和 layer 都是 (B, T, C) 的函数。返回前归一化的结果。
    # solution
    return x + layer(norm(x))
    # end


def post_norm(x, norm, layer):
    # en: The same, as post-norm.
    # zh: 同上，后归一化。
    # solution
    return norm(x + layer(x))
    # end


# zh:
# 小模型的每一层都用你的 `pre_norm` 连起来。
# en:
# The layers of the small model are connected by your `pre_norm`.
