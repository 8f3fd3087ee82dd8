"""What pictures and tables of attention say, in English and in Chinese."""

from typing import Literal

__all__ = ["ROLES", "STATISTICS", "TEXTS", "Language"]

Language = Literal["zh", "en"]

# Name, what it is, in either language.
STATISTICS: dict[Language, dict[str, str]] = {
    "en": {
        "entropy": "entropy in nats: 0 on one key, more the wider it looks",
        "relative_entropy": "entropy / log(keys): 0 on one key, 1 for equal weight on all",
        "effective_keys": "over how many keys a row is spread",
        "mean_distance": "mean distance in tokens",
        "self_weight": "weight on the token itself",
        "previous_weight": "weight on the token before",
        "first_weight": "weight on the first token (sink)",
        "diagonality": "weight at most 8 tokens away",
        "vertical": "weight on the strongest 1/64 of the keys",
        "slash": "weight on the strongest 1/64 of the distances",
        "duplicate": "weight on earlier copies of the token",
        "induction": "weight on what followed earlier copies of the token",
    },
    "zh": {
        "entropy": "熵（nat）：只看一处为 0，看得越散越大",
        "relative_entropy": "熵 / log(键数)：只看一处为 0，平均看为 1",
        "effective_keys": "一行分散在多少个键上",
        "mean_distance": "平均距离（词元）",
        "self_weight": "看自己的权重",
        "previous_weight": "看前一个词元的权重",
        "first_weight": "看第一个词元（汇点）的权重",
        "diagonality": "8 个词元以内的权重",
        "vertical": "最强的 1/64 个键上的权重",
        "slash": "最强的 1/64 种距离上的权重",
        "duplicate": "看之前相同词元的权重",
        "induction": "看之前相同词元之后那个词元的权重（归纳）",
    },
}

# Of which statistics the heads with most of it are named, and what such a head is called.
ROLES: dict[Language, dict[str, str]] = {
    "en": {
        "previous_weight": "previous token",
        "self_weight": "itself",
        "first_weight": "first token (sink)",
        "duplicate": "same token before",
        "induction": "induction",
        "sharpest": "sharpest",
        "broadest": "broadest",
    },
    "zh": {
        "previous_weight": "前一个词元",
        "self_weight": "自己",
        "first_weight": "第一个词元（汇点）",
        "duplicate": "之前的相同词元",
        "induction": "归纳",
        "sharpest": "最集中",
        "broadest": "最分散",
    },
}

TEXTS: dict[Language, dict[str, str]] = {
    "en": {
        "head": "layer {layer}, head {head}",
        "grid": "all heads",
        "layer": "layer {layer}, all heads",
        "looks": "what ‘{word}’ looks at",
        "query": "what token {n} looks at: {context}",
        "map": "Each row is a word that looks, each column a word that is looked at.",
        "cross": "Down the side the words as they are written, along the top those of the source.",
        "tokens": "Tokens as they are; fragments of characters by their bytes.",
        "own scale": "The colours of each head go up to its own largest weight.",
        "ratio": "Colours: by how much more than equal attention would give; no colour is 1 ×.",
        "hide_sink": "The first word (sink) is hidden, and what remains of each row sums to 1.",
        "log": "Colours are logarithmic.",
        "afar": "From afar: each cell is the largest of {n} × {n} weights.",
        "ranked": "The {n} heads that look most at one word, of {all}.",
        "weight": "weight",
        "times": "× uniform",
        "layer × head": "layers down, heads across",
        "size": "{layers} layers of attention, {heads} heads in all; {tokens} tokens",
        "translation": "translation: {text}",
        "telling": "heads that have most of it (layer:head)",
        "uniform": "equal attention: {x}",
        "next": "Go on with:",
        "full bar": "A full bar is {x}.",
        "besides": "Heads are ranked by their weight on words other than the first (sink).",
        "looking": "what ‘{word}’ looks at most, head by head (layer:head)",
    },
    "zh": {
        "head": "第 {layer} 层，第 {head} 头",
        "grid": "所有的头",
        "layer": "第 {layer} 层，所有的头",
        "looks": "“{word}”在看什么",
        "query": "第 {n} 个词元在看什么：{context}",
        "map": "每行是一个在看的词，每列是一个被看的词。",
        "cross": "左边是写出的词，上边是原文的词。",
        "tokens": "按词元显示；不成字的片段写成字节。",
        "own scale": "每个头的颜色各以自己的最大权重为满。",
        "ratio": "颜色：权重是平均注意力的多少倍；无色为 1 倍。",
        "hide_sink": "第一个词（汇点）已略去，每行其余的权重重新归一。",
        "log": "颜色按对数。",
        "afar": "远看：每格是 {n} × {n} 个权重中最大的。",
        "ranked": "最盯着某一个词的 {n} 个头，共 {all} 个。",
        "weight": "权重",
        "times": "× 平均",
        "layer × head": "行是层，列是头",
        "size": "注意力 {layers} 层，共 {heads} 个头；{tokens} 个词元",
        "translation": "译文：{text}",
        "telling": "各项最突出的头（层:头）",
        "uniform": "平均注意力：{x}",
        "next": "接着可以：",
        "full bar": "满格为 {x}。",
        "besides": "按第一个词（汇点）以外的权重给各头排名。",
        "looking": "“{word}”最看哪里（层:头）",
    },
}
