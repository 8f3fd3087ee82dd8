# %% [markdown]
# # A translation · 一次翻译
#
# A small Transformer learns to say Chinese stories in German, and shows where it looked for each
# word. In Colab, first run `%pip install glasshead`.
#
# 一个小 Transformer 学着把中文故事说成德语，并显示写每个词时看了原文的哪里。在 Colab 里先运行
# `%pip install glasshead`。

# %%
import glasshead
from glasshead.observe.picture import head_sheet, looks_sheet
from glasshead.observe.view import View

run = glasshead.train(task="world", langs="zh,de", steps=300, out="runs/de", seed=1, quiet=True)
story = "那个小猫昨天在公园里追逐一只蝴蝶，现在它饿坏了。"
print(glasshead.translate(run, story))

# %% [markdown]
# Where the last layer of the decoder looks in the source: a row for each German word.
#
# 解码器最后一层在原文里看哪里：每个德语词一行。

# %%
view = View(glasshead.look(run, story))
last = view.layer(list(view.names.values())[-1])
head_sheet(view, view.heads(last)[0])

# %% [markdown]
# Pairs of your own: `glasshead.train([("Ein Hund rennt.", "A dog runs."), ...])`.
#
# 自己的句对：`glasshead.train([("Ein Hund rennt.", "A dog runs."), ...])`。

# %%
looks_sheet(view, view.heads(last), view.sides(last)[0][1])
