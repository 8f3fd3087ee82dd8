# %% [markdown]
# # Attention in four steps · 四步看懂注意力
#
# Scores, scale, softmax, weighted sum: in numbers that a pencil can follow. In Colab, first run
# `%pip install glasshead`.
#
# 打分、缩放、softmax、加权求和：数字小到可以用笔跟着算。
# 在 Colab 里先运行 `%pip install glasshead`。

# %%
import matplotlib.pyplot as plt
import numpy as np

from glasshead.attention import steps

words = ["Hello", "shiny", "sun"]
x = np.array([[0.34, 0.22, 0.54], [0.53, 0.34, 0.98], [0.29, 0.54, 0.93]])
dict(zip(words, x.tolist(), strict=True))

# %% [markdown]
# **1. Scores.** Each word's vector times each word's vector: how much two words have in common.
#
# **第一步，打分。** 每两个词的向量相乘再相加：两个词有多少共同之处。

# %%
scores = steps.scores(x, x)
scores.round(4)

# %% [markdown]
# **2. Scale**, so that longer vectors do not have larger scores. **3. Softmax** makes weights of
# them: positive, and a row adds up to 1.
#
# **第二步，缩放**，使更长的向量不会得到更大的分数。
# **第三步，softmax** 把分数变成权重：都是正数，每一行加起来是 1。

# %%
weights = steps.softmax(steps.scale(scores, d_k=3))
weights.round(4), weights.sum(-1)

# %% [markdown]
# **4. Weighted sum.** Each word takes home a mixture of all words, by these weights. A language
# model may not look ahead: the mask hides what comes later, and the weights are shared anew.
#
# **第四步，加权求和。** 每个词按这些权重，把所有的词混合起来带回家。
# 语言模型不许往后看：掩码遮住后面的词，权重在剩下的词里重新分配。

# %%
causal = steps.softmax(steps.mask(steps.scale(scores, d_k=3), steps.causal(3, 3)))
figure, axes = plt.subplots(1, 2, figsize=(7, 2.8))
for axis, shown, title in zip(axes, (weights, causal), ("no mask", "causal"), strict=True):
    axis.imshow(shown, cmap="Blues", vmin=0, vmax=1)
    axis.set(xticks=range(3), yticks=range(3), xticklabels=words, yticklabels=words, title=title)
    for (row, column), weight in np.ndenumerate(shown):
        colour = "white" if weight > 0.7 else "black"
        axis.text(column, row, f"{weight:.2f}", ha="center", va="center", color=colour)
plt.show()

# %%
steps.weighted_sum(causal, x).round(4)
