# %% [markdown]
# # Look into a model of the hub · 看模型库里的模型
#
# SmolLM2, or any model of the transformers library whose attention goes through its interface. The
# library's own code runs; nothing is converted. In Colab, first run
# `%pip install "glasshead[hf]"`. Where there is no network, a small Llama is trained instead.
#
# SmolLM2，或 transformers 库里任何走它的注意力接口的模型。运行的是库自己的代码，不作转换。在 Colab
# 里先运行 `%pip install "glasshead[hf]"`。没有网络时，就地训练一个小 Llama 来代替。

# %%
import glasshead
from glasshead.observe.picture import grid_sheet, looks_sheet
from glasshead.observe.view import View
from glasshead.text.tinyworld import corpus

text = "The kitten met a puppy in the park. Now it is hungry."
try:
    model = "HuggingFaceTB/SmolLM2-135M"
    trace = glasshead.look(model, text)
except glasshead.GlassheadError as error:
    print(error)
    stories = "\n".join(corpus(2000, "en", seed=1))
    small = glasshead.train(stories, preset="llama", steps=100, out="runs/small", quiet=True)
    model = glasshead.export_model(small, "models/small").path
    trace = glasshead.look(model, text)
print(trace)

# %% [markdown]
# Sixteen of its heads on the sentence, each weight exact.
#
# 它的十六个头怎样看这句话，每个权重都是精确的。

# %%
view = View(trace)
grid_sheet(view, view.heads()[:16])

# %% [markdown]
# What "it" looks at, in each head of one layer. In Python, `glasshead.observing(model)` records any
# call of a model that you have loaded yourself, and its output stays the same, bit for bit.
#
# “it”在某一层的每个头里看哪里。自己加载的模型，可以用 `glasshead.observing(model)`
# 记录任何一次调用，输出一个比特都不变。

# %%
looks_sheet(view, view.heads(layer=view.layers[-1].index), "it")
