# zh:
# # 旋转位置：角度就是距离
#
# 注意力本身不分先后。旋转位置编码（RoPE）不往向量上加东西，而是**转动**查询和键：位置 m 的向量，每
# 一对数转过角度 m·θ。两个向量转过的角度相减，点积里就只剩下**距离** m − n：整句话往后挪一百个位置，
# 分数一点不变。
#
# 每对数有自己的转速：第 i 对的 θ = 10000 的 −2i/D 次方，i = 0 … D/2 − 1。前面的转得快，分得清邻居；
# 后面的转得慢，记得住远处。
#
# 哪两个数算一对？有两种约定：相邻的两个 (0, 1)、(2, 3) …，或者**前一半和后一半** (0, D/2)、(1, D/2
# + 1) …。两种都能训练，可是混着用，权重就全乱了。这里用后一种，Llama 和 transformers 也是。
#
# 用缓存时，新词元的位置不是从 0 开始的：所以位置是一个参数。值不转，只转查询和键。
# en:
# # Rotary positions: the angle is the distance
#
# Attention itself does not know what comes first. Rotary positions (RoPE) add nothing to the
# vectors; they **rotate** queries and keys: each pair of numbers of the vector at position m turns
# by the angle m·θ. In a dot product only the difference of the angles remains, which is the
# **distance** m − n: move the whole sentence by a hundred positions, and no score changes.
#
# Each pair has a speed of its own: θ = 10000 to the power −2i/D for pair i = 0 … D/2 − 1. The first
# ones turn fast and tell neighbours apart; the last turn slowly and remember what is far.
#
# Which two numbers are a pair? There are two conventions: neighbours (0, 1), (2, 3) …, or **first
# and second half** (0, D/2), (1, D/2 + 1) …. Both train, but mixing them ruins a model's weights.
# Here it is the second, as in Llama and transformers.
#
# With a cache the positions of new tokens do not start at 0: so they are an argument. Values are
# not rotated, only queries and keys.

import torch


def rotate(x, positions):
    # en: x: (..., T, D), positions: (T,). Return (..., T, D), with d and d + D/2 turned as a pair.
    # zh: x：(..., T, D)，positions：(T,)。返回 (..., T, D)，d 和 d + D/2 作为一对转动。
    # solution
    half = x.shape[-1] // 2
    speeds = 10000.0 ** (-torch.arange(half) / half)
    angles = positions[:, None] * speeds
    cos, sin = torch.cos(angles), torch.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
    # end


# zh:
# 小模型的每一层都用你的函数转动查询和键。
# en:
# Each layer of the small model rotates its queries and keys with your function.
