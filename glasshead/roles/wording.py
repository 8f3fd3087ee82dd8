"""What tables and pictures of roles say, in English and in Chinese."""

from glasshead.observe.wording import Language

__all__ = ["ABOUT", "NAMES", "SENTENCES", "TEXTS", "describe_lag"]

# What a head with the role is called.
NAMES: dict[Language, dict[str, str]] = {
    "en": {
        "sink": "sink",
        "previous": "previous token",
        "self": "itself",
        "lag": "fixed distance",
        "local": "local",
        "separator": "separators",
        "broad": "broad",
        "duplicate": "same token before",
        "induction": "induction",
        "copying": "copying",
        "retrieval": "retrieval",
        "query": "query retrieval",
        "referent": "referent",
    },
    "zh": {
        "sink": "汇点",
        "previous": "前一个词元",
        "self": "自己",
        "lag": "固定距离",
        "local": "邻近",
        "separator": "分隔符",
        "broad": "广看",
        "duplicate": "之前的相同词元",
        "induction": "归纳",
        "copying": "复制",
        "retrieval": "检索",
        "query": "按问检索",
        "referent": "指代",
    },
}

# What its score is.
ABOUT: dict[Language, dict[str, str]] = {
    "en": {
        "sink": "weight on the first token",
        "previous": "weight on the token before",
        "self": "weight on the token itself",
        "lag": "weight at one distance",
        "local": "weight at most 8 tokens away",
        "separator": "weight on punctuation and line ends",
        "broad": "entropy / log(keys)",
        "duplicate": "weight on earlier copies of the token, in lists",
        "induction": "weight on what followed the token before, in repeated random tokens",
        "copying": "how often it raises the token it looks at above 99 % of others",
        "retrieval": "how often its strongest key is the hidden token to be given",
        "query": "weight of a question on the phrase hidden in the text",
        "referent": "weight of a pronoun on the word it stands for",
    },
    "zh": {
        "sink": "看第一个词元的权重",
        "previous": "看前一个词元的权重",
        "self": "看自己的权重",
        "lag": "看某一固定距离处的权重",
        "local": "8 个词元以内的权重",
        "separator": "看标点和换行的权重",
        "broad": "熵 / log(键数)",
        "duplicate": "在列表里看之前相同词元的权重",
        "induction": "在重复的随机词元里，看该词元上次之后那个词元的权重",
        "copying": "它的输出把所看词元抬到 99% 的词元之上的比例",
        "retrieval": "最强的键正是要给出的那个被藏词元的比例",
        "query": "提问的词元看文中所藏短语的权重",
        "referent": "代词看它所指之词的权重",
    },
}

# What a head does, in one sentence with its figure.
SENTENCES: dict[Language, dict[str, str]] = {
    "en": {
        "sink": "Rests on the first token: {x} of its weight is there.",
        "previous": "Looks at the token before: {x} of its weight is there.",
        "self": "Looks at the token itself: {x} of its weight is there.",
        "lag": "Looks {lag}: {x} of its weight is there.",
        "local": "Looks at its neighbours: {x} of its weight is at most 8 tokens away.",
        "separator": "Looks at punctuation and line ends: {x} of its weight is there.",
        "broad": "Spreads its weight: its entropy is {x} of the largest there can be.",
        "duplicate": "Looks at earlier copies of the token: {x} of its weight in lists is there.",
        "induction": "Looks at what followed the token last time: {x} of its weight where random "
        "tokens repeat.",
        "copying": "Writes the token it looks at: in {x} of cases its output raises that token "
        "above 99 % of others.",
        "retrieval": "Finds the token to give: in {x} of cases its strongest key is that token, "
        "hidden in a text.",
        "query": "Finds what is asked for: {x} of the question's weight is on the hidden phrase.",
        "referent": "Finds what a pronoun stands for: {x} of the pronoun's weight is on it.",
    },
    "zh": {
        "sink": "停在第一个词元上：{x} 的权重在那里。",
        "previous": "看前一个词元：{x} 的权重在那里。",
        "self": "看词元自己：{x} 的权重在那里。",
        "lag": "看{lag}：{x} 的权重在那里。",
        "local": "看附近：{x} 的权重在 8 个词元以内。",
        "separator": "看标点和换行：{x} 的权重在那里。",
        "broad": "看得很散：熵达到最大值的 {x}。",
        "duplicate": "看之前相同的词元：在列表里有 {x} 的权重在那里。",
        "induction": "看这个词元上次之后的那个词元：随机词元重复时有 {x} 的权重在那里。",
        "copying": "写出所看的词元：在 {x} 的情形里，它的输出把那个词元抬到 99% 的词元之上。",
        "retrieval": "找到要给出的词元：在 {x} 的情形里，它最强的键正是藏在文中的那个词元。",
        "query": "找到所问之处：提问的词元有 {x} 的权重在所藏的短语上。",
        "referent": "找到代词所指：代词有 {x} 的权重在那个词上。",
    },
}

TEXTS: dict[Language, dict[str, str]] = {
    "en": {
        "size": "{layers} layers of {heads} heads",
        "roles": "Roles (layer:head, strongest first)",
        "role": "role",
        "heads": "heads",
        "strongest": "strongest",
        "score": "score",
        "controls": "without the role",
        "proofs": "Proofs: what the model loses without the named heads, and without others",
        "removed": "removed",
        "probe": "on",
        "before": "before",
        "rise": "rise",
        "others": "without others",
        "needed": "needed",
        "looks": "looks like, not needed",
        "not proved": "not proved",
        "none": "No head stands out.",
        "loss": "loss in nats per token",
        "drift": "change of the output: 1 - cosine",
        "text": "text",
        "repeat": "repeats",
        "list": "lists",
        "needle": "needles",
        "story": "pronouns",
        "uniform": "even",
        "place": "by distance",
        "shuffled": "shuffled",
        "behind": "{n} tokens back",
        "ahead": "{n} tokens ahead",
        "next": "at the next token",
        "no role": "No role stands out.",
        "card": "Layer {layer}, head {head}",
        "examples": "Where it looks in the text",
        "map": "Its map: rows look at columns",
        "proof": "Without {heads}, the {measure} on {probe} rises by {rise}, "
        "without as many others by {others}: {verdict}.",
        "unproved": "That the model needs it was not tested.",
        "sheet": "What the heads do",
        "legend": "Full colour: the model needs them. Pale: looks like, not needed.",
        "changed": "Heads that changed",
        "appeared": "new",
        "vanished": "gone",
        "kept": "kept",
        "same": "No head changed its role.",
        "layer × head": "head",
    },
    "zh": {
        "size": "{layers} 层，每层 {heads} 个头",
        "roles": "角色（层:头，由强到弱）",
        "role": "角色",
        "heads": "头数",
        "strongest": "最强",
        "score": "得分",
        "controls": "对照",
        "proofs": "证明：去掉这些头，模型损失多少；去掉同样多的别的头呢",
        "removed": "去掉",
        "probe": "用于",
        "before": "之前",
        "rise": "上升",
        "others": "去掉别的头",
        "needed": "需要",
        "looks": "看着像，但不需要",
        "not proved": "未证明",
        "none": "没有突出的头。",
        "loss": "每词元的损失（nat）",
        "drift": "输出的变化：1 - 余弦",
        "text": "文本",
        "repeat": "重复",
        "list": "列表",
        "needle": "藏针",
        "story": "代词",
        "uniform": "平均",
        "place": "按距离",
        "shuffled": "打乱",
        "behind": "往前 {n} 个词元",
        "ahead": "往后 {n} 个词元",
        "next": "下一个词元",
        "no role": "没有突出的角色。",
        "card": "第 {layer} 层，第 {head} 个头",
        "examples": "它在文本里看哪里",
        "map": "它的注意力图：行看列",
        "proof": "去掉 {heads}，{probe}上的{measure}上升 {rise}，去掉同样多的别的头上升 {others}："
        "{verdict}。",
        "unproved": "没有检验模型是否需要它。",
        "sheet": "各个头做什么",
        "legend": "深色：模型需要它们。浅色：看着像，但不需要。",
        "changed": "变了的头",
        "appeared": "新出现",
        "vanished": "消失",
        "kept": "未变",
        "same": "没有头改变角色。",
        "layer × head": "头",
    },
}


def describe_lag(lag: int, lang: Language) -> str:
    """
    >>> describe_lag(3, "en"), describe_lag(-1, "en"), describe_lag(-2, "zh")
    ('3 tokens back', 'at the next token', '往后 2 个词元')
    """
    if lag == -1:
        return TEXTS[lang]["next"]
    return TEXTS[lang]["behind" if lag > 0 else "ahead"].format(n=abs(lag))
