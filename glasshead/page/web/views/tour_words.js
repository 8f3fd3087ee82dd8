// What the guided tours say.

import { add } from "../words.js";

add({
  en: {
    "tour.open": "Tours",
    "tour.menu": "Guided tours",
    "tour.next": "Next",
    "tour.do": "Do it for me",
    "tour.back": "Back",
    "tour.done": "Done",
    "tour.skip": "Skip",
    "tour.none": "No model here can show this",

    "tour.one": "One head",
    "tour.one.why": "What attention is, in one minute",
    "tour.one.1":
      "A small Transformer reads this sentence. It was trained for one thing: to say which " +
      "word a " +
      "pronoun stands for. The marked word is the one it is asked about.",
    "tour.one.2": "This is its answer: {answer}. The model has just computed it, on the server.",
    "tour.one.3":
      "How does it know? The arc shows where one attention head looks from the marked word. " +
      "Attention is a set of shares: they add up to 100%.",
    "tour.one.4":
      "Now change the ending. Nothing in front of the pronoun changes. Click the other ending.",
    "tour.one.5": "With this ending the model says {answer}. Watch where the arc leads now.",
    "tour.one.6":
      "Does the answer need that look? Cut it: click the scissors, and this head can no " +
      "longer see " +
      "that word.",
    "tour.one.7":
      "Before: {before}. After the cut: {answer}. The picture shows the model as it is without " +
      "that look. If the answer stays, other heads carry the word too: that is the next tour.",

    "tour.many": "Many heads",
    "tour.many.why": "Cut one look, then all: what does the answer need?",
    "tour.many.1":
      "Each of these {heads} strips is one attention head, aligned under the words: the stronger " +
      "the colour, the more the marked word looks there.",
    "tour.many.2": "Heads look at different words. Click a strip to see the arcs of that head.",
    "tour.many.3": "Back to the first head. Cut its arc with the scissors.",
    "tour.many.4":
      "Each strip has two lanes now: above as it was, below as it is after the cut. Heads that " +
      "still look hard at that word are framed.",
    "tour.many.5": "Now cut the looks at that word in every head at once.",
    "tour.many.6":
      "Before: {before}. Now: {answer}. What a picture of attention suggests, a cut can test.",
    "tour.many.7":
      "Further down you can silence whole heads or layers, or cut any other look, and compare.",

    "tour.mask": "The mask",
    "tour.mask.why": "Attention in numbers, and what hides the future",
    "tour.mask.1": "These are the words of a text. The marked one asks: whom shall I attend to?",
    "tour.mask.2":
      "Here is the whole computation for one head: a score for each word, e to the power of it, " +
      "and its share of the sum. That share is the weight.",
    "tour.mask.3":
      "A causal mask hides what comes after the word that asks. Choose the causal mask.",
    "tour.mask.4":
      "Hidden words get weight 0, and the others share all of it. A model that writes needs " +
      "this: " +
      "otherwise it would see the words that it is to guess.",
    "tour.mask.5": "The first word can see only itself under this mask: its weight is 1.",
    "tour.mask.6":
      "This is the mask that the model itself was trained with. Try the other switches: each " +
      "shows what one step of attention is for.",

    "tour.translation": "A translation",
    "tour.translation.why": "Where each word comes from, and what is not to be seen",
    "tour.translation.1":
      "This model translates Chinese into German. 它 is one word; German has er, sie and es, " +
      "and must decide.",
    "tour.translation.2": "Its translations, the best one first, with what it thinks of each.",
    "tour.translation.3":
      "Where each German word looked in the Chinese sentence while it was written, in one head.",
    "tour.translation.4":
      "In words: what the chosen word looked at, with its shares. Other heads look elsewhere.",
    "tour.translation.5":
      "The two stories differ in their ending alone. Choose the other one: what becomes of the " +
      "pronoun?",
    "tour.translation.6":
      "The translation of the pronoun follows what it stands for, if the model has learned it.",
    "tour.translation.7":
      "A right answer need not show in the attention: the caption names a head only if its " +
      "figure " +
      "is large, and says so when none is.",

    "tour.long": "A long text",
    "tour.long.why": "The whole map of every head, to pan and zoom",
    "tour.long.1":
      "A longer text. Each token may look at others: a thousand tokens make a map of a million " +
      "weights for each head. The Atlas shows all of them, exactly.",
    "tour.long.2":
      "Rows look, columns are looked at. Drag the map, or turn the wheel to go nearer: from " +
      "afar a " +
      "cell shows the largest of its weights.",
    "tour.long.3": "Nearer, farther, to the diagonal, or the whole map.",
    "tour.long.4": "The text beside it follows the map: above who looks, below what is looked at.",
    "tour.long.5": "Every head of every layer is here. Choose another: few are alike.",
    "tour.long.6":
      "Point at the map, or tap it, to read a weight and what that word looks at most.",
  },
  zh: {
    "tour.open": "导览",
    "tour.menu": "导览",
    "tour.next": "下一步",
    "tour.do": "替我做",
    "tour.back": "上一步",
    "tour.done": "完成",
    "tour.skip": "跳过",
    "tour.none": "这里没有适合的模型",

    "tour.one": "一个头",
    "tour.one.why": "一分钟看懂什么是注意力",
    "tour.one.1":
      "一个小小的 Transformer 在读这句话。它只受过一种训练：说出代词指的是哪个词。框出来的就是要问的词。",
    "tour.one.2": "这是它的回答：{answer}。是服务器上的模型刚刚算出来的。",
    "tour.one.3":
      "它怎么知道的？弧线表示一个注意力头从框出的词看向哪里。注意力就是各占多少：合起来是 100%。",
    "tour.one.4": "现在换个结尾，代词前面一个字都不变。点另一个结尾。",
    "tour.one.5": "换了结尾，模型说的是{answer}。看看弧线现在通向哪里。",
    "tour.one.6": "答案离得开这处注视吗？点剪刀切断它，这个头就再也看不到那个词。",
    "tour.one.7":
      "原来：{before}。切断之后：{answer}。图上画的就是切断后的模型。如果答案没变，说明别的头也带着这个词：" +
      "下一个导览就讲这个。",

    "tour.many": "许多头",
    "tour.many.why": "先切一处，再全部切断：答案离不开什么？",
    "tour.many.1": "这 {heads} 条，每条是一个注意力头，和上面的词对齐：颜色越突出，框出的词看那里越多。",
    "tour.many.2": "不同的头看不同的词。点一条，看那个头的弧线。",
    "tour.many.3": "回到第一个头，用剪刀切断它的弧线。",
    "tour.many.4": "现在每条分上下两半：上面是原来，下面是切断之后。仍然紧盯那个词的头都框了出来。",
    "tour.many.5": "再把所有的头对那个词的注视一次切断。",
    "tour.many.6": "原来：{before}。现在：{answer}。注意力的图暗示了什么，切一刀就能检验。",
    "tour.many.7": "下面还可以让整个头、整层沉默，或切断别处的注视，再作比较。",

    "tour.mask": "掩码",
    "tour.mask.why": "注意力的数字，以及怎样遮住后文",
    "tour.mask.1": "这是一段文字里的词。选中的词在问：我该关注谁？",
    "tour.mask.2": "这是一个头的全部计算：每个词一个分数，取 e 的多少次方，再看占总和的几成。这个比例就是权重。",
    "tour.mask.3": "因果掩码会遮住提问的词后面的一切。选上因果掩码。",
    "tour.mask.4":
      "被遮住的词权重是 0，其余的词分掉全部。会写作的模型少不了它：否则就会看到自己该猜的词。",
    "tour.mask.5": "有了这个掩码，第一个词只看得见自己：权重是 1。",
    "tour.mask.6": "现在是模型训练时用的掩码。别的开关也试试：每个都说明注意力的一步有什么用。",

    "tour.translation": "一次翻译",
    "tour.translation.why": "每个词从哪里来，又有什么是看不出来的",
    "tour.translation.1": "这个模型把中文译成德语。“它”只有一个字，德语却有 er、sie、es，必须选一个。",
    "tour.translation.2": "这是它的译文，最好的在前，后面是它自己的评分。",
    "tour.translation.3": "在一个头里，写下每个德语词的时候看了中文的哪里。",
    "tour.translation.4": "用文字说：选中的词看了哪些词，各占多少。别的头看的是别处。",
    "tour.translation.5": "两个故事只有结尾不同。换成另一个：代词会怎么译？",
    "tour.translation.6": "如果模型学会了，代词的译法会跟着它所指的东西改变。",
    "tour.translation.7":
      "答对了，注意力里也不一定看得出来：只有数字够大，图下面才会点出是哪个头；没有这样的头，也会照实说。",

    "tour.long": "一篇长文",
    "tour.long.why": "每个头的整张图，可以拖动和缩放",
    "tour.long.1":
      "文字长了。每个词元都可以看别的词元：一千个词元，每个头就有一百万个权重。" +
      "图集把它们全部画出来，一个不差。",
    "tour.long.2": "行在看，列被看。拖动地图，滚动滚轮靠近；离远了，一格表示其中最大的权重。",
    "tour.long.3": "靠近、离远、回到对角线，或看整张图。",
    "tour.long.4": "旁边的文字跟着地图走：上面是谁在看，下面是在看什么。",
    "tour.long.5": "所有层、所有的头都在这里。换一个看看：很少有两个相像。",
    "tour.long.6": "指着或点一下地图，就能读出一个权重，以及那个词最关注什么。",
  },
});
