# zh:
# # 你自己的文本
#
# 前九课的东西合在一起，就是一个会写字的模型。给它一份文本，它学会“看着前面，猜下一个字”，然后接着
# 写。
#
# 这里先让内嵌世界讲 2,000 个小故事当教材，中文英文各半。要用你自己的文本，把 `book = Path(stories)`
# 改成 `book = Path("my.txt")` 就行。
# en:
# # Your own text
#
# Put together, the nine lessons make a model that writes. Give it a text, and it learns to look at
# what came before and guess the next character; then it goes on writing.
#
# Here the embedded world tells 2,000 little stories to learn from, half in Chinese and half in
# English. For a text of your own, change `book = Path(stories)` to `book = Path("my.txt")`.

from math import exp, log
from pathlib import Path

import torch

import glasshead
from glasshead.lab.lessons import out_folder, run_folder, show_map
from glasshead.text.tinyworld import corpus

stories = out_folder() / "stories.txt"
told = zip(corpus(1000, "zh"), corpus(1000, "en"), strict=True)
lines = [line for chinese, english in told for line in (chinese, english)]
stories.write_text("\n".join(lines), encoding="utf-8")

book = Path(stories)
text = book.read_text(encoding="utf-8")
lines = text.splitlines()[:2]
print(*lines, sep="\n")

# zh:
# ## 什么都不会的时候
#
# 教材里一共有 V 种不同的字符。什么都不会的模型，猜下一个就像掷 V 面的骰子。损失就是“惊讶的程度”：掷
# 骰子是 ln V。训练前量到的，应当就是这个数。
# en:
# ## When it knows nothing
#
# The text has V different characters. Guessing the next one without knowing anything is like
# throwing a die with V sides. The loss says how surprised the model is; for a die it is ln V.
# Before training we should measure just that.

V = len(set(text))
print(f"V = {V}   ln V = {log(V):.2f}")

# zh:
# ## 训练
#
# 160 步，几秒钟。真的要用，就是一行命令 `glasshead train my.txt`，尺寸和步数由预设定，
# 两个核上约一分半钟。
# en:
# ## Train
#
# 160 steps, a few seconds. For real use it is one command, `glasshead train my.txt`: the preset
# decides on sizes and steps, and it takes a minute and a half on two cores.

settings = {"n_layers": 2, "d_model": 96, "steps": 160, "eval_every": 80}
mine = glasshead.train(book, out=run_folder("mine"), **settings)

losses = [line["val_loss"] for line in mine.metrics if "val_loss" in line]
print(*[f"{loss:.2f}" for loss in losses], sep=" → ")
print(f"{V} → {exp(losses[-1]):.1f}")

if book == stories:
    assert abs(losses[0] - log(V)) < 0.2
    assert exp(losses[-1]) < 5

# zh:
# 第一个数正是 ln V。最后一行把损失换回“骰子的面数”：从几百面，降到不足 5 面。它已经知道接下来大概是
# 哪几个字了。
#
# ## 看它怎么读
#
# 挑出最爱看“前一个字”的头，画它读一句话时的权重。下三角是因果掩码；紧挨着对角线的那一条，就是“前一
# 个字”。
# en:
# The first number is indeed ln V. The last line turns the loss back into sides of a die: from a few
# hundred to fewer than 5. Now it roughly knows which few characters can follow.
#
# ## See how it reads
#
# We pick the head that attends most to the previous character, and draw its weights as it reads a
# line. The lower triangle is the causal mask; the line just below the diagonal is "the previous
# character".

seen = glasshead.look(mine, lines[0][:20])
tokens = ["·" if type(t) is bytes else t for t in seen.tokens[0]]
means = [seen.statistics(layer).means() for layer in range(2)]
habit = torch.stack([each["previous_weight"][0] for each in means])
layer, head = divmod(int(habit.argmax()), habit.shape[1])
weights = seen.tile(layer, head)
show_map(weights, tokens, tokens, f"{layer}:{head}", "10_head.svg")
print(f"i → i − 1: {habit.max():.2f}")

assert weights.triu(1).sum() == 0

# zh:
# ## 让它写
#
# 每次按概率抽一个字，接上去，再猜下一个。**温度**管胆量：0 永远挑最可能的，1 照概率抽，更高就越来越
# 野。
# en:
# ## Let it write
#
# Each time a character is drawn according to its probability and appended, and then the next one is
# predicted. **Temperature** controls the randomness: 0 always takes the most probable character, 1
# draws according to the probabilities, and more is wilder.

temperature = 0.0  # try: temperature = 2.0
for start in (line[:9] for line in lines):
    how = {"max_tokens": 40, "temperature": temperature}
    ways = [glasshead.generate(mine, start, seed=s, **how) for s in (1, 2)]
    print(*(start + way.replace("\n", " ") for way in ways), sep="\n")
    assert (ways[0] == ways[1]) == (temperature == 0)

# zh:
# ## 试一试
#
# 温度是 0，两次写得一模一样。把 `temperature = 0.0` 改成 `temperature = 2.0`：两次不同了，而且满纸
# 胡话。平常用 0.8 左右。
#
# 接下来就是你的文本了：`glasshead train my.txt`，`glasshead generate runs/my-nano "从前"`，
# `glasshead serve runs`。
# en:
# ## Try it
#
# At temperature 0 it writes the same twice. Change `temperature = 0.0` to `temperature = 2.0`: the
# two differ, and both are nonsense. A usual value is about 0.8.
#
# And now your own: `glasshead train my.txt`, `glasshead generate runs/my-nano "从前"`,
# `glasshead serve runs`.
