# %% [markdown]
# # Train on your text · 用自己的文本训练
#
# A GPT of your own in a minute, and every head of it. In Colab, first run `%pip install glasshead`.
#
# 一分钟训练一个自己的 GPT，再看它的每一个头。在 Colab 里先运行 `%pip install glasshead`。

# %%
import glasshead
from glasshead.observe.picture import grid_sheet, looks_sheet
from glasshead.observe.view import View
from glasshead.text.tinyworld import corpus

text = "\n".join(corpus(2000, "en", seed=1))  # or open("my.txt").read() · 或者读自己的文件
print(text[:200])

# %%
run = glasshead.train(text, steps=200, n_layers=2, d_model=64, out="runs/mine", seed=1, quiet=True)
print(glasshead.generate(run, "The kitten", max_tokens=60, temperature=0.7, seed=1))

# %% [markdown]
# Every head on a sentence. The weights are exact, and looking changes nothing in the model.
#
# 一句话里的每一个头。权重是精确的；看，不会改变模型的任何东西。

# %%
view = View(glasshead.look(run, "The kitten met a puppy in the park. Now it is hungry."))
grid_sheet(view, view.heads())

# %% [markdown]
# What the word "it" looks at, head by head. `glasshead.look(run, text).show()` is the whole page,
# with `pip install "glasshead[notebook]"`.
#
# “it”在每个头里看哪里。装上 `pip install "glasshead[notebook]"` 之后，
# `glasshead.look(run, text).show()` 就是整个页面。

# %%
looks_sheet(view, view.heads(), "it")
