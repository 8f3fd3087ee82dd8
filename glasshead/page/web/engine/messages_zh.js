// What the engine says when something cannot be done, in Chinese: {0}, {1} … stand for the values.
// The server's messages of the same words read the same (glasshead/messages_zh.json).

/** @type {Record<string, string>} */
const CHINESE = {
  "'{0}' (index {1}) is not one of the {2} words of this vocabulary":
    "“{0}”（索引 {1}）不在这个有 {2} 个词的词表里",
  "a sentence has {0} tokens, more than {1}": "有一句话有 {0} 个词元，超过了 {1} 个",
  "an edge is outside the text": "有一条边在文本之外",
  "at ({0}) is beyond the text": "at（{0}）超出了文本",
  "character '{0}' (U+{1}) was not in the training text": "训练文本里没有字符“{0}”（U+{1}）",
  "choose a GPT": "选一个 GPT",
  "choose a GPT, a reader or a translator": "选一个 GPT、读者模型或翻译器",
  "choose one": "选一个翻译器",
  "count from 0": "从 0 数起",
  "cut it into shorter sentences": "把它分成短一些的句子",
  "give a text to look at": "给一段文本来看",
  "glasshead serve answers it": "glasshead serve 可以回答",
  "id {0} is not in the vocabulary": "编号 {0} 不在词表里",
  "its heads are 0 to {0}": "它的头是 0 到 {0}",
  "its ids end at {0}": "它的编号到 {0} 为止",
  "layer ({0}) does not exist": "第 {0} 层不存在",
  "layer {0} has no head {1}": "第 {0} 层没有第 {1} 个头",
  "layer {0} was not recorded": "第 {0} 层没有记录",
  "level {0} has no page {1}, {2}": "第 {0} 级没有第 {1}、{2} 页",
  "positions count from 0": "位置从 0 数起",
  "query {0} or key {1} does not exist": "查询 {0} 或键 {1} 不存在",
  "read the text again": "请重新读这段文本",
  "remove it": "把它删去",
  "the Atlas shows texts of any length": "Atlas 可以显示任意长的文本",
  "the decoder has {0} layers, counted from 0": "解码器有 {0} 层，从 0 数起",
  "the text has {0} tokens, but the Steps view shows {1} at most":
    "文本有 {0} 个词元，“步骤”视图最多显示 {1} 个",
  "the text has {0} tokens, but {1} reads {2} at most": "文本有 {0} 个词元，而 {1} 最多读 {2} 个",
  "the text has {0} words, more than {1} at once": "文本有 {0} 个词，一次最多 {1} 个",
  "the text is empty": "文本是空的",
  "there are {0} levels, and the map is {1} x {2}": "共有 {0} 级，图是 {1} x {2}",
  "there are {0} queries and {1} keys, from 0 on": "有 {0} 个查询和 {1} 个键，从 0 数起",
  "there are {0}, counted from 0": "共 {0} 个，从 0 数起",
  "there are {0}, from 0 on": "有 {0} 个，从 0 数起",
  "there is no position {0}": "没有位置 {0}",
  "there is no recorded text '{0}', or no longer": "没有记录“{0}”，或者已经不在了",
  "there is no token {0}": "没有第 {0} 个词元",
  "this browser cannot run the model: {0}": "这个浏览器运行不了这个模型：{0}",
  "this page has no {0}": "本页没有 {0}",
  "try another browser, or glasshead serve": "换一个浏览器，或者用 glasshead serve",
  "use a number from 0 to {0}": "用 0 到 {0} 之间的数",
  "use a number from 1 to {0}": "用 1 到 {0} 之间的数",
  "use a shorter text": "用短一些的文本",
  "use other words": "换别的词",
  "{0} does not generate text": "{0} 不生成文本",
  "{0} is not a translator": "{0} 不是翻译器",
  "{0} makes no predictions": "{0} 不做预测",
  "{0} {1} does not exist": "{0} {1} 不存在",
};

/** A message in Chinese; as it is if it has none.
 * @param {string} text
 */
export function inChinese(text) {
  if (Object.hasOwn(CHINESE, text)) return CHINESE[text];
  for (const [english, chinese] of Object.entries(CHINESE)) {
    if (!english.includes("{")) continue;
    const found = pattern(english).exec(text);
    if (found) return chinese.replace(/\{(\d+)\}/g, (_, n) => found[Number(n) + 1]);
  }
  return text;
}

/** @param {string} english */
function pattern(english) {
  const pieces = english.split(/\{\d+\}/);
  const escaped = pieces.map((one) => one.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${escaped.join("([^]*?)")}$`);
}
