"""Where the documents err, and how it should be. They taught us all the rest."""

from dataclasses import dataclass

from glasshead.lab.claims.claim import Words

__all__ = ["ERRATA", "Erratum"]


@dataclass(frozen=True)
class Erratum:
    source: str  # which document: "002"
    says: Words
    correct: Words


ERRATA = (
    Erratum(
        "002",
        Words(
            "The causal mask is made as `triu(ones) * -inf`.",
            "因果掩码写作 `triu(ones) * -inf`。",
        ),
        Words(
            "0 · (−inf) is NaN: 21 of the 36 cells of its six-word example, and after softmax all "
            "of them. Fill instead of multiplying: `scores.masked_fill(mask, -inf)`, as its class "
            "does.",
            "0 · (−inf) 是 NaN：六个词的例子中 36 格有 21 格如此，softmax 之后全部都是。应该填充"
            "而不是相乘：`scores.masked_fill(mask, -inf)`，它后面的类正是这样写的。",
        ),
    ),
    Erratum(
        "002",
        Words(
            "The same snippet goes from scores to softmax directly.",
            "同一片段从分数直接到 softmax。",
        ),
        Words(
            "Scores are divided by √d_k first; the class below it does so.",
            "应先除以 √d_k；其后的类是这样做的。",
        ),
    ),
    Erratum(
        "002",
        Words(
            "Several blocks of code have lost their indentation.",
            "若干代码块丢失了缩进。",
        ),
        Words(
            "They do not run as printed; indent the bodies of classes and functions.",
            "照原样不能运行；类和函数体需要缩进。",
        ),
    ),
    Erratum(
        "002",
        Words(
            "8 dimensions and 3 heads are split into 2 arrays of 4.",
            "8 维、3 个头会分成 2 个 4 维数组。",
        ),
        Words(
            "8 is not divisible by 3, and its code rightly refuses. 2 arrays of 4 are 2 heads. "
            "Here the message names the numbers of heads that fit.",
            "8 不能被 3 整除，它的代码会（正确地）拒绝；2 个 4 维数组是 2 个头。这里的报错会列出"
            "可用的头数。",
        ),
    ),
    Erratum(
        "002, 001",
        Words(
            "Keys are transposed by `keys.T` (001: `key.T`).",
            "用 `keys.T`（001 为 `key.T`）转置键。",
        ),
        Words(
            "For one sequence that is right. But it turns all dims around, so it fails on batches, "
            "or goes wrong unnoticed where batch, length and width are equal. "
            "`keys.transpose(-2, -1)`, as 002's later classes have it, or `keys.mT`, turns the "
            "last two.",
            "对单个序列是对的。但它会把所有维度倒过来，遇到批次就出错；若批大小、长度、宽度相等，"
            "则会悄悄算错。应像 002 后面的类那样用 `keys.transpose(-2, -1)`，或用 `keys.mT`，只交"
            "换最后两维。",
        ),
    ),
    Erratum(
        "002",
        Words(
            "The query is the data as before; only keys and values have matrices.",
            "查询就是原来的数据，只有键和值有矩阵。",
        ),
        Words(
            "The query has a learned matrix of its own too, W_query, as the code shows.",
            "查询也有自己可学习的矩阵 W_query，代码里就有。",
        ),
    ),
    Erratum(
        "002",
        Words(
            "Dropout is applied to the weights, which are then called attention weights.",
            "对权重做 dropout，之后仍称为注意力权重。",
        ),
        Words(
            "After dropout the rows no longer sum to 1. What is to be looked at are the weights "
            "before it; here those are the only ones given out.",
            "dropout 之后各行之和不再是 1。应当观察 dropout 之前的权重；这里给出的只有这一种。",
        ),
    ),
    Erratum(
        "002",
        Words(
            "The two-head example has an output width of 2.",
            "双头示例的输出宽度为 2。",
        ),
        Words(
            "Then each head is 1 wide and √1 = 1: the example cannot show what the scale does. "
            "Claims 1 and 2 do.",
            "每个头宽为 1，√1 = 1，这个例子看不出缩放的作用。论断 1 和 2 可以看出。",
        ),
    ),
    Erratum(
        "003",
        Words(
            "The layer defines projections for queries, keys and values.",
            "该层定义了查询、键、值的投影。",
        ),
        Words(
            "Its forward pass never applies them, so they get no gradient; and the code breaks "
            "off in the middle. q, k and v are x times their matrices.",
            "但前向计算从未使用它们，因而得不到梯度；代码也中途断了。q、k、v 应为 x 乘以各自的矩"
            "阵。",
        ),
    ),
    Erratum(
        "003",
        Words(
            "Masked scores become −1e10.",
            "被遮的分数设为 −1e10。",
        ),
        Words(
            "A row that may see nothing then becomes uniform (with −inf: NaN), and fp16 cannot "
            "hold the number. Here such a row has weights 0 on every backend.",
            "全部被遮的行会变成均匀分布（用 −inf 则是 NaN），fp16 也存不下这个数。这里，这样的行"
            "在所有后端上权重都是 0。",
        ),
    ),
    Erratum(
        "003",
        Words(
            "The formula in section 2.1 has no √d_k.",
            "第 2.1 节的公式没有 √d_k。",
        ),
        Words(
            "Sections 3 and 4 have it, and so has the code: softmax(q·k / √d_k).",
            "第 3、4 节和代码里都有：softmax(q·k / √d_k)。",
        ),
    ),
    Erratum(
        "003, 004",
        Words(
            "003 puts the norm after the residual, 004 before the layer; neither says that there "
            "is a choice.",
            "003 把归一化放在残差之后，004 放在层之前，都没有说明这是一种选择。",
        ),
        Words(
            "Post-norm is the original paper's, pre-norm today's. Here both exist (`norm_place`), "
            "and a model says which it has.",
            "post-norm 出自原论文，pre-norm 是如今的做法。这里两者都有（`norm_place`），模型会写"
            "明用的是哪种。",
        ),
    ),
    Erratum(
        "001",
        Words(
            "Decoders are spoken of, but the code has no mask.",
            "谈到了解码器，但代码没有掩码。",
        ),
        Words(
            "A decoder's self-attention needs the causal mask, or it reads the answer (claim 3).",
            "解码器的自注意力需要因果掩码，否则会看到答案（论断 3）。",
        ),
    ),
    Erratum(
        "004",
        Words(
            "The fifth version's feed-forward widens four times and has two layers.",
            "第 5 版的前馈层扩宽 4 倍、有两层。",
        ),
        Words(
            "In its code that arrives with the eighth; the fifth has one linear layer and a ReLU.",
            "代码中到第 8 版才如此；第 5 版只有一个线性层和 ReLU。",
        ),
    ),
    Erratum(
        "004",
        Words(
            "The diagram has dropout before attention.",
            "示意图中 dropout 在注意力之前。",
        ),
        Words(
            "Its text is right, and so is the code: dropout is on the weights after softmax, after "
            "the projection and in the feed-forward.",
            "它的正文和代码是对的：dropout 在 softmax 之后的权重上、投影之后以及前馈层中。",
        ),
    ),
    Erratum(
        "004",
        Words(
            "Dropout is off at inference.",
            "推理时 dropout 是关闭的。",
        ),
        Words(
            "Only if someone says so: the code that it describes generates with dropout on and "
            "with gradients (claim 19). The version of that code with a cache does not parse, and "
            "a character that it has not seen raises KeyError; here that is a clear message, and "
            "bytes cannot fail.",
            "只有显式关闭才是：它所讲解的代码在生成文本时 dropout 和梯度都开着（论断 19）。那份代码"
            "的缓存版本有语法错误，遇到没见过的字符会抛出 KeyError；这里会给出清楚的提示，而字节分"
            "词不会失败。",
        ),
    ),
)
