# zh:
# # 看看里面：它在看什么，要不要紧
#
# “那个小猫，它昨天在公园里追逐一只蝴蝶，玩得不亦乐乎，结果把晚餐都忘了，现在**它**饿坏了。”谁饿坏
# 了？
#
# 训练一个小模型来答：读内嵌世界里的 3,000 个小故事，遇到代词就说出它指谁。300 步，几秒钟。在终端
# 里，`glasshead train --task refer` 做同样的事，练得更久。
# en:
# # Looking inside: what it looks at, and whether that matters
#
# "那个小猫，它昨天在公园里追逐一只蝴蝶，玩得不亦乐乎，结果把晚餐都忘了，现在**它**饿坏了。" That
# kitten chased a butterfly in the park yesterday, enjoyed itself and forgot its dinner, and now
# **it** (它) is starving. Who is?
#
# We train a small model to answer: it reads 3,000 little stories of the embedded world, and at each
# pronoun it says what it stands for. 300 steps, a few seconds. In a terminal
# `glasshead train --task refer` does it, and trains longer.

import torch

import glasshead
from glasshead import Edge, ablating
from glasshead.lab.lessons import run_folder, show_map
from glasshead.text.tinyworld import World
from glasshead.text.tinyworld.recognition import recognize
from glasshead.training.pronouns import predict_referents, story_batch

settings = {"stories": 3000, "steps": 300, "batch_size": 32}
settings |= {"out": run_folder("reader"), "eval_every": 150}
reader = glasshead.train(preset="reader", **settings)
model, words = reader.model, reader.tokenizer

# zh:
# 问它。两个“它”都是小猫。
# en:
# Ask it. Both 它 are the kitten (小猫).

story = World.seed_story()
tokens = list(story.tokens["zh"])
IT = story.pronouns["zh"][-1].index
print(predict_referents(model, [story], words, "zh")[0])

assert tokens[IT] == "它"
assert predict_referents(model, [story], words, "zh")[0] == ["小猫", "小猫"]

# zh:
# ## 观察，而不打扰
#
# 模型跑在最快的内核上，内核并不交出权重。`observing` 记下查询、键和每行的总和，要看哪里就精确地重算
# 哪里。**看与不看，输出一个比特也不差。**
# en:
# ## Observe without disturbing
#
# The model runs on its fastest kernel, which returns no weights. `observing` stores queries, keys
# and the log-sum-exp of each row, and computes exactly what you ask for. **Observing changes no bit
# of the output.**

ids = story_batch([story], words, "zh").ids
with torch.no_grad():
    alone = model(ids)
    with glasshead.observing(model.encoder) as seen:
        watched = model(ids)
print("same bits:", torch.equal(alone, watched))

assert torch.equal(alone, watched)
assert abs(seen.row(layer=1, head=0, query=IT).sum() - 1) < 1e-5

# zh:
# ## 最后那个“它”在看哪里？
#
# 两层，每层四个头，一行一个头。第 0 层有个头盯着**饿坏**：先弄清发生了什么。第 1 层有头盯着**小
# 猫**：再去找会饿的那一个。**没有人这样教过它。**
# en:
# ## Where does the last 它 look?
#
# Two layers of four heads, one row per head. In layer 0 a head attends to **饿坏**, starving: first
# find out what happened. In layer 1 heads attend to **小猫**, the kitten: then find who could be
# starving. **This was not taught.**


def rows(seen):
    """Where the last 它 looks: (layers × heads, words)."""
    heads = [(layer, head) for layer in range(2) for head in range(4)]
    return torch.stack([seen.row(*head, IT) for head in heads])


def stares(seen, layer, word):
    """The most that any head of a layer looks at a word."""
    at = tokens.index(word)
    return max(seen.row(layer, head, IT)[at].item() for head in range(4))


names = [f"{layer}:{head}" for layer in range(2) for head in range(4)]
show_map(rows(seen), names, tokens, "它 (layer:head)", "09_it.svg")
print(f"0 → 饿坏 {stares(seen, 0, '饿坏'):.2f}")
print(f"1 → 小猫 {stares(seen, 1, '小猫'):.2f}")

assert stares(seen, 0, "饿坏") > 0.5
assert stares(seen, 1, "小猫") > 0.5

# zh:
# ## 看，不等于用
#
# 权重大，只说明它**看了**，不说明答案**靠它**。要知道靠不靠，就把这条线剪断，再问一遍。剪断第 1 层
# 的“它 → 小猫”，“小猫”的把握掉下去；剪断“它 → 晚餐”，几乎不变。
# en:
# ## Looking is not using
#
# A large weight shows that it **looked**, not that the answer **depends on it**. To find out,
# remove the edge and ask again. Without 它 → 小猫 in layer 1 it is less sure of the kitten; without
# 它 → 晚餐 (dinner) hardly anything changes.

kitten = words.ids_of(["小猫"])[0]


def sure(*hidden):
    """How sure it is of the kitten if the last 它 cannot see these words."""
    places = [tokens.index(word) for word in hidden]
    cuts = [Edge(query=IT, key=place, layer=1) for place in places]
    with torch.no_grad(), ablating(model.encoder, edges=cuts):
        return model(ids)[0, IT].softmax(-1)[kitten].item()


print(f"{sure():.2f}")
print(f"{sure('晚餐'):.2f}  - 晚餐 dinner")
print(f"{sure('小猫'):.2f}  - 小猫 kitten")

assert sure() > 0.8
assert sure("晚餐") > sure() - 0.1
assert sure("小猫") < sure() - 0.2

# zh:
# ## 它不知道什么
#
# 只说“它饿坏了。”，谁也不知道“它”是谁。模型却照样选出一个名词：softmax 必须把 1 分给各个词，没
# 有“都不是”这一项，训练时也从没见过没有答案的句子。所以把握大不等于知道。`glasshead ask` 在回答之
# 前先问三件事：**句式**（这个小世界里能不能讲出这样的故事）、**词**（有没有不认识的词，代词是否只
# 有一种解释），以及**校准过的把握**（在没有训练过的故事上，答对时有多大把握）。
# en:
# ## What it does not know
#
# Of "它饿坏了。" alone, "it is starving", nobody can tell who 它 is. The model picks a noun all the
# same: softmax must share 1 among the words, none of which is "none of them", and in training every
# sentence had an answer. So being sure is not knowing. `glasshead ask` asks three things before it
# answers: the **shape** (can such a story be told in this world?), the **words** (is one unknown,
# can the pronoun stand for one noun only?), and a **calibrated confidence** (how sure is the model
# where it is right, on stories that it was not trained on?).

alone = torch.tensor([words.ids_of(["它", "饿坏", "了", "。"])])
with torch.no_grad():
    chances = model(alone)[0, 0].softmax(-1)
noun = words.decode([int(chances.argmax())])
print("它饿坏了。 →", noun, f"{chances.max():.2f}")
for text in ("它饿坏了。", "那只恐龙饿坏了。", story.text("zh")):
    found = recognize(text, "zh")
    print(found.why or "inside", found.detail, text)

assert recognize("它饿坏了。", "zh").why == "shape"
assert recognize("那只恐龙饿坏了。", "zh").why == "unknown"
assert recognize(story.text("zh"), "zh").why == ""

# zh:
# ## 换个结尾
# en:
# ## Another ending

ending = story  # try: ending = story.flip()
ids = story_batch([ending], words, "zh").ids
tokens = list(ending.tokens["zh"])
with torch.no_grad(), glasshead.observing(model.encoder) as seen:
    model(ids)
answer = predict_referents(model, [ending], words, "zh")[0][-1]
print(ending.text("zh")[-7:], "→", answer)
for word in ("小猫 kitten", "蝴蝶 butterfly", "公园 park"):
    print(f"{stares(seen, 1, word.split()[0]):.2f}  {word}")

if ending is story:
    assert answer == "小猫"
else:
    assert answer == "蝴蝶"
    assert stares(seen, 1, "蝴蝶") > 0.5

# zh:
# ## 试一试
#
# 把 `ending = story` 改成 `ending = story.flip()`：结尾成了“现在它飞走了”。只换了一个词，“它”转
# 而去看**蝴蝶**，答案也变成蝴蝶。
#
# 训练久一点、图更清楚的版本是 `glasshead demo`；想看自己的模型，用 `glasshead look`。
# en:
# ## Try it
#
# Change `ending = story` to `ending = story.flip()`: now it ends "现在它飞走了", now it has
# flown away. One word has changed; 它 now looks at **蝴蝶**, the butterfly, and that is the answer.
#
# A version that trains longer and shows it more clearly is `glasshead demo`; for models of your own
# there is `glasshead look`.
