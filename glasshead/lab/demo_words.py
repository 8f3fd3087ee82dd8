"""What the demo says, in Chinese and English; `**` marks what stands out."""

from collections.abc import Mapping
from typing import Literal

__all__ = ["TEXTS", "Language"]

Language = Literal["zh", "en"]

_ENGLISH = {
    "title": "What does 它 look at?",
    "trained": "Two small models of the embedded world, trained just now, side by side, in "
    "{seconds:.0f} s: a **reader** ({reader:,} parameters, {reader_steps:,} steps), which names "
    "what a pronoun stands for, and a **translator** into German ({translator:,} parameters, "
    "{translator_steps:,} steps). What follows was not trained on: in training no kitten ever "
    "meets a butterfly.",
    "1": "What each 它 stands for",
    "2": "Another ending: 饿坏了 becomes 飞走了",
    "3": "The word it looked at is hidden",
    "4": "In German",
    "5": "Over {n} unseen stories",
    "6": "The whole truth",
    "unlearned": "These models have not learned their tasks (too few steps?). What follows is "
    "about models that have.",
    "7": "What to run next",
    "says": "The reader: {answers}.",
    "one": "{word} ({probability:.1%})",
    "wrong": "(wrong: it is {word})",
    "looks": "What the second 它 looks at in layer {layer}, head {head}, the reader's best (both "
    "counted from 0):",
    "cut": "The second 它 may no longer see the word it looked at most. The weight of this one "
    "edge becomes nothing before the softmax; all other words may still see the word.",
    "ending": "ending",
    "hidden": "hidden",
    "before": "before",
    "in best": "in best head",
    "in all": "in all heads",
    "instead": "then sees",
    "wrote": "While it wrote “{word}”, its most telling cross-attention (layer {layer}, head "
    "{head}) looked at:",
    "encoded": "While it read 它, its most telling head of the encoder (layer {layer}, head "
    "{head}) looked at:",
    "no pronoun": "(This translation has no pronoun.)",
    "mistaken": "(wrong: it should be “{text}”)",
    "trained column": "trained",
    "untrained": "untrained",
    "chance": "by chance",
    "reader": "Reader",
    "accuracy": "names the right word, all pronouns",
    "flips": "other ending, other answer, both right",
    "share": "best head: its most-attended noun is right",
    "weight": "best head: mean weight on the right word",
    "cut_best": "answer changes: word hidden in the best head",
    "cut_all": "answer changes: word hidden in all heads",
    "cut_other": "answer changes: another noun hidden instead",
    "translator": "Translator",
    "exact": "word for word right",
    "pronouns": "pronouns right",
    "reading": "reading 它: the best head's top noun is right",
    "writing": "writing er/sie/es: the best head's is right",
    "error": "alignment error rate, best head (least: {least:.2f})",
    "method": "Unseen: their pairs of actor and thing are in no training story. Best heads were "
    "chosen on training stories. The first row and the translator's pronouns count every pronoun, "
    "the error rate every word, all else the last pronoun of each story.",
    "truth 1": "The reader's attention shows the right word because its task is to name **that "
    "word**: somewhere it has to fetch it.",
    "truth 2": "The translator needs to know only whether to write er, sie or es. It is right in "
    "{pronouns:.1%}, and its most telling heads have the right noun on top in {reading:.0%} "
    "(while it reads 它) and {writing:.0%} (while it writes the pronoun); the reader's in "
    "{share:.0%}. How much attention shows depends on what the task needs, not on being right.",
    "truth 3": "A reader that is trained for the German gender alone is as right, and its "
    "attention shows the word less often: `glasshead claims 5` measures it.",
    "truth 4": "Hiding the word in the best head alone changes {cut_best:.1%} of the answers, in "
    "all heads {cut_all:.1%}, hiding another noun {cut_other:.1%}. One head is a window, not the "
    "mechanism: the others carry the word too.",
    "truth 5": "Another seed can make another head the best. And the world is small: none of this "
    "says that attention explains a large model.",
    "next 1": "the pictures of all this",
    "next 2": "the German words, and what each looked at",
    "next 3": "train a reader of your own, of German stories",
    "next 4": "more stories of this world",
    "next 5": "what each part of a GPT is worth",
    "open": "open {path}",
    # For the page alone.
    "heads caption": "What the second 它 looks at in each head (L layer, H head, from 0 on): "
    "the stronger the colour, the larger the weight. Outlined is where {best}, the reader's best "
    "head, looks most. Point at a cell to read its weight.",
    "looked caption": "First row: where the translator looked while it wrote the pronoun, in its "
    "most telling head. Second row: where 它 looked while it was read.",
    "matrix caption": "Cross-attention of {best}, the head that aligns words best: each German "
    "word (down) and the Chinese words that it looked at while it was written (across). Outlined "
    "cells are the true alignment; ▸ is the pronoun.",
    "error caption": "Alignment error rate of each head of the cross-attention: a word is linked "
    "to the one that it looks at most. The lower the better; {least:.2f} is the least that one "
    "link a word can have, an untrained model's best head has {untrained:.2f}.",
    "share caption": "How often the most-attended noun is the right one, for each layer and head.",
    "weight caption": "Mean weight on the right word, for each layer and head.",
    "footer": "Written by `glasshead demo`. One file; nothing is loaded from anywhere.",
}
_CHINESE = {
    "title": "“它”在看什么？",
    "trained": "两个刚刚训练好的小模型，同时训练，用了 {seconds:.0f} 秒：**读者**（{reader:,} 个参"
    "数，{reader_steps:,} 步）说出代词指的是哪个词，**译者**（{translator:,} 个参数，"
    "{translator_steps:,} 步）把故事译成德语。下面的句子都没有训练过：训练用的故事里，小猫从没有遇"
    "到过蝴蝶。",
    "1": "每个“它”指什么",
    "2": "换个结尾：饿坏了 → 飞走了",
    "3": "遮住它看的那个词",
    "4": "译成德语",
    "5": "{n} 个没见过的故事",
    "6": "全部实情",
    "unlearned": "这两个模型还没有学会（步数太少？）。下面说的是学会了的模型。",
    "7": "接下来可以运行",
    "says": "读者的回答：{answers}。",
    "one": "{word}（{probability:.1%}）",
    "wrong": "（错了，应是{word}）",
    "looks": "第二个“它”在第 {layer} 层第 {head} 头（读者最好的头，都从 0 数起）看哪些词：",
    "cut": "不许第二个“它”看它看得最多的那个词：只有这一条边的权重在 softmax 之前变成零，其他的词仍"
    "然看得见那个词。",
    "ending": "结尾",
    "hidden": "遮住",
    "before": "原来",
    "in best": "最好的头里遮住",
    "in all": "所有头里遮住",
    "instead": "这时它改看",
    "wrote": "写“{word}”的时候，交叉注意力里最能看出指代的头（第 {layer} 层第 {head} 头）在看：",
    "encoded": "读“它”的时候，编码器里最能看出指代的头（第 {layer} 层第 {head} 头）在看：",
    "no pronoun": "（这个译文里没有代词。）",
    "mistaken": "（错了，应是“{text}”）",
    "trained column": "训练后",
    "untrained": "未训练",
    "chance": "随机",
    "reader": "读者",
    "accuracy": "说对了词（所有代词）",
    "flips": "换结尾，答案跟着换，两个都对",
    "share": "最好的头：看得最多的名词正是所指",
    "weight": "最好的头：给所指的平均权重",
    "cut_best": "答案变了：在最好的头里遮住所指",
    "cut_all": "答案变了：在所有头里遮住所指",
    "cut_other": "答案变了：改为遮住另一个名词",
    "translator": "译者",
    "exact": "译文一字不差",
    "pronouns": "代词译对了",
    "reading": "读它时最好的头：看得最多的名词正是所指",
    "writing": "写代词时最好的头：看得最多的名词正是所指",
    "error": "最好的头的对齐错误率（最低可达 {least:.2f}）",
    "method": "没见过：这些故事里的一对主角，在训练用的故事里从未同时出现。最好的头是在训练用的故事"
    "上选的。第一行和译者的代词一行算所有的代词，对齐错误率算所有的词，其余只算每个故事的最后一个"
    "代词。",
    "truth 1": "读者的注意力看得出所指，是因为它的任务就是说出**那个词**：总得有个地方把它取来。",
    "truth 2": "译者只需要知道该写 er、sie 还是 es。它对了 {pronouns:.1%}；它最能看出指代的头，看得"
    "最多的名词正是所指的，读“它”时有 {reading:.0%}，写代词时有 {writing:.0%}，而读者有 "
    "{share:.0%}。注意力能看出多少，取决于任务需要什么，不取决于答得对不对。",
    "truth 3": "只训练读者说出德语的性，它一样答得对，注意力却更少显出那个词：`glasshead claims 5` "
    "可以测量。",
    "truth 4": "只在最好的头里遮住那个词，{cut_best:.1%} 的答案变了；在所有头里遮住，{cut_all:.1%}"
    "；改为遮住另一个名词，{cut_other:.1%}。一个头是一扇窗，不是全部机制：别的头也带着那个词。",
    "truth 5": "换个种子，最好的头可能是另一个。这个世界也很小：这里没有一条说明注意力能解释大模型"
    "。",
    "next 1": "以上全部的图",
    "next 2": "德语的每个词，各看了哪些词",
    "next 3": "自己训练一个读德语故事的读者",
    "next 4": "这个世界的更多故事",
    "next 5": "GPT 的每个部件值多少",
    "open": "打开 {path}",
    # For the page alone.
    "heads caption": "第二个“它”在每个头里看什么（L 层，H 头，都从 0 数起）：颜色越浓，权重越大。"
    "框出的是读者最好的头 {best} 看得最多的词。把指针停在格子上，可以看到权重。",
    "looked caption": "第一行：译者写代词时，最能看出指代的头在看什么。第二行：读“它”时，“它”"
    "在看什么。",
    "matrix caption": "词对得最准的头 {best} 的交叉注意力：每个德语词（行）写下时看了哪些汉语词（列"
    "）。框出的格子是真正的对应，▸ 是代词。",
    "error caption": "交叉注意力每个头的对齐错误率：一个词与它看得最多的词连线。越低越好；每词一条"
    "线，最低是 {least:.2f}，未训练的模型最好的头是 {untrained:.2f}。",
    "share caption": "看得最多的名词正是所指的比例，按层和头。",
    "weight caption": "给所指的平均权重，按层和头。",
    "footer": "由 `glasshead demo` 写成。只有一个文件，不从任何地方加载东西。",
}
TEXTS: Mapping[Language, Mapping[str, str]] = {"zh": _CHINESE, "en": _ENGLISH}
