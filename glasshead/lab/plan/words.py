"""What a plan says, in English and Chinese."""

from typing import Literal

__all__ = ["Language", "texts"]

Language = Literal["zh", "en"]

# Each entry: English, Chinese.
_TEXTS = {
    "model": ("Model", "模型"),
    "parameters": ("parameters", "参数"),
    "of which": (
        "embedding {embedding}, positions {positions}, blocks {blocks}, head {head}",
        "词嵌入 {embedding}，位置 {positions}，层 {blocks}，输出头 {head}",
    ),
    "shape": ("shape", "形状"),
    "shape is": (
        "{n_layers} layers, {n_heads} heads ({n_kv} for keys and values), width {d_model}, "
        "feed-forward {d_ff}, vocabulary {vocab_size:,}",
        "{n_layers} 层，{n_heads} 个头（键和值 {n_kv} 个），宽 {d_model}，前馈 {d_ff}，"
        "词表 {vocab_size:,}",
    ),
    "setting": ("setting", "设置"),
    "setting is": ("{gpus} x {gpu}{ways}, {precision}{compiled}",
                   "{gpus} x {gpu}{ways}，{precision}{compiled}"),
    "compiled": (", compiled", "，已编译"),
    "batch": ("batch", "批"),
    "batch is": (
        "{sequences} sequences of {max_len:,} tokens in a step, {each} at a time on each GPU",
        "每步 {sequences} 条序列，每条 {max_len:,} 个词元，每个 GPU 一次 {each} 条",
    ),
    "train": ("Training, {optimizer}", "训练，{optimizer}"),
    "generate": ("Generating, {texts} at a time", "生成，一次 {texts} 条"),
    "observe": ("Observing one text of {tokens:,} tokens", "观察一段 {tokens:,} 个词元的文本"),
    "memory": ("memory of each GPU", "每个 GPU 的内存"),
    "time": ("time of a step", "一步的时间"),
    "params": ("parameters (float32)", "参数（float32）"),
    "gradients": ("gradients", "梯度"),
    "optimizer": ("optimizer state", "优化器状态"),
    "copies": ("copies in bf16", "bf16 副本"),
    "gathered": ("gathered from other GPUs", "从其他 GPU 收集"),
    "whole": ("full copy on the first GPU", "第一个 GPU 上的完整副本"),
    "activations": ("activations", "激活值"),
    "logits": ("logits and loss", "logits 与损失"),
    "cache": ("keys and values", "键和值的缓存"),
    "statistics": ("statistics", "统计量"),
    "working": ("while measuring a layer", "测量一层时的临时内存"),
    "peak": ("peak", "峰值"),
    "matmul": ("matrix products", "矩阵乘法"),
    "attention": ("attention", "注意力"),
    "pointwise": ("norms, activations, loss", "归一化、激活、损失"),
    "host": ("waiting for Python", "等待 Python"),
    "communication": ("waiting for other GPUs", "等待其他 GPU"),
    "update": ("optimizer", "优化器"),
    "step": ("total", "合计"),
    "flops": ("operations", "运算"),
    "flops are": ("{token} per token, {step} per step", "每个词元 {token}，每步 {step}"),
    "speed": ("speed", "速度"),
    "speed is": ("{speed} tokens/s, {each} per GPU, {share:.0%} of peak",
                 "{speed} 词元/秒，每个 GPU {each}，峰值的 {share:.0%}"),
    "collective": ("collective", "集合通信"),
    "count": ("count", "次数"),
    "group": ("group", "组"),
    "sent": ("each sends", "每个发送"),
    "took": ("takes", "用时"),
    "prefill": ("reading prompts", "读提示"),
    "prefill is": ("{prompt:,} tokens each: {seconds}, {flops}",
                   "每条 {prompt:,} 个词元：{seconds}，{flops}"),
    "decode": ("one token each", "每条一个词元"),
    "decode is": ("{seconds} at full length, reading {bytes} (bandwidth allows {limit})",
                  "在最大长度时 {seconds}，读 {bytes}（内存带宽允许 {limit}）"),
    "decode speed": ("{speed} tokens/s", "{speed} 词元/秒"),
    "look": ("measuring heads", "测量各头"),
    "look is": ("{look} for {pairs} pairs of query and key; the model itself takes {forward}",
                "{pairs} 对查询和键：{look}；模型本身 {forward}"),
    "weights": ("all weights would take", "若保存全部权重，需要"),
    "no fit": ("does not fit: {peak} needed, {usable} usable",
               "放不下：需要 {peak}，可用 {usable}"),
    "hint": ("this would fit: {flags}", "这样放得下：{flags}"),
    "no hint": ("no similar setting fits", "相近的设置都放不下"),
    "here": ("Measured here, on {device}", "在 {device} 上实测"),
    "what": ("", "项目"),
    "measured": ("measured", "实测"),
    "expected": ("expected", "预期"),
    "ratio": ("ratio", "比值"),
    "train s": ("one training step", "训练一步"),
    "train B": ("training memory", "训练的内存"),
    "prefill s": ("reading the prompts", "读提示"),
    "decode s": ("one token of each text", "每条文本一个词元"),
    "decode B": ("generation memory", "生成的内存"),
    "observe s": ("observing one text", "观察一段文本"),
    "observe B": ("observation memory", "观察的内存"),
    "how": (
        "Expected: the plan for a device with the matrix and memory speed that was measured here.",
        "预期：按计划计算，设备的矩阵运算和内存速度在这里测得。",
    ),
    # What messages between GPUs are about.
    "params, forward": ("params, forward", "参数，前向"),
    "params, backward": ("params, backward", "参数，反向"),
    "activations, forward": ("activations, forward", "激活值，前向"),
    "activations, backward": ("activations, backward", "激活值，反向"),
    "Muon's matrices, sent": ("Muon's matrices, sent", "Muon 的矩阵，去"),
    "Muon's matrices, back": ("Muon's matrices, back", "Muon 的矩阵，回"),
    "keys and values, forward": ("keys and values, forward", "键和值，前向"),
    "keys and values, backward": ("keys and values, backward", "键和值，反向"),
    "keys' and values' gradients": ("keys' and values' gradients", "键和值的梯度"),
}  # fmt: skip


def texts(language: Language) -> dict[str, str]:
    return {name: pair[language == "zh"] for name, pair in _TEXTS.items()}
