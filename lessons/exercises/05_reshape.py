# zh:
# # 变形：(B, T, C) → (B, H, T, D)
#
# 多头注意力把宽 C 的向量切成 H 段，每段宽 D = C / H，各做各的注意力。不必真的切开：改一下形状，H 个
# 头就排成了一维，一次矩阵乘法全部算完。
#
# 难在顺序。内存里，一个词的 C 个数挨在一起，前 D 个归 0 号头，接着 D 个归 1 号头。所以要**先**把最
# 后一维拆成 (H, D)，得到 (B, T, H, D)，**再**交换 T 和 H。直接 `view(B, H, T, D)` 形状一模一样，也
# 不报错，可是每个头里混进了别的词的数：模型照样训练，只是因果掩码失效了。
#
# 合起来是反着做：先换回来，再把 (H, D) 合成 C。换过之后内存不再连续，`view` 会报错，要用
# `reshape`。
#
# C 必须能被 H 整除。文档里说“8 维、3 个头，就是 2 个 4 维的数组”，那是不对的：应该报错。
# en:
# # The reshape: (B, T, C) → (B, H, T, D)
#
# Multi-head attention cuts vectors of width C into H pieces of width D = C / H, and each piece
# attends by itself. Nothing has to be cut: with another shape the H heads become a dimension, and
# one matrix product computes them all.
#
# The order is what goes wrong. In memory the C numbers of a word lie side by side, the first D for
# head 0, the next D for head 1. So **first** split the last dimension into (H, D), which gives (B,
# T, H, D), and **then** swap T and H. A plain `view(B, H, T, D)` has the same shape and raises
# nothing, but mixes numbers of other words into each head: the model still trains, and its causal
# mask no longer holds.
#
# To merge, go back the same way: swap, then join (H, D) to C. After the swap the memory is not
# contiguous: `view` fails, `reshape` works.
#
# C must be divisible by H. A document says "8 dimensions and 3 heads are 2 arrays of 4", which is
# wrong: it has to be an error.


def split_heads(x, n_heads):
    # en: x: (B, T, C). Return (B, H, T, D) with D = C / H; an error if it is not divisible.
    # zh: x：(B, T, C)。返回 (B, H, T, D)，D = C / H；不能整除时要报错。
    # solution
    B, T, C = x.shape
    if C % n_heads:
        raise ValueError(f"{C} is not divisible by {n_heads}")
    return x.view(B, T, n_heads, C // n_heads).transpose(1, 2)
    # end


def merge_heads(x):
    # en: x: (B, H, T, D). Return (B, T, C).
    # zh: x：(B, H, T, D)。返回 (B, T, C)。
    # solution
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)
    # end


# zh:
# 小模型的每一层都用你的函数拆开和合上它的头。
# en:
# Each layer of the small model splits and merges its heads with your functions.
