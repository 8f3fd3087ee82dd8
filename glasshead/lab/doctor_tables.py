"""The doctor's findings for a terminal, in Chinese or English."""

from collections.abc import Iterator
from typing import Literal

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from glasshead.lab.doctor import CALLS, DTYPES, DeviceReport, Findings, Package, Problem

__all__ = ["tables"]

Language = Literal["zh", "en"]

_ENGLISH = {
    "machine": "Machine",
    "python yes": "{version}",
    "python no": "{version}, but 3.11 to 3.13 are needed",
    "torch": "{version}, built for {build}",
    "torch no": "cannot be imported",
    "cpu": "{name}; cores: {cores}, threads of torch: {threads}",
    "flags": "CPU features",
    "no flags": "none of note",
    "half": "Half precision",
    "absent": "no AMX here; bfloat16 and float16 run without it",
    "works": "AMX works",
    "avoided": "AMX crashes here with this torch, so it is kept out of use "
    "(ONEDNN_MAX_CPU_ISA={limit})",
    "limited": "AMX is there; the environment limits it (ONEDNN_MAX_CPU_ISA={limit})",
    "memory": "{name}, {gib:.1f} GiB",
    "gpu": "GPU",
    "no gpu": "none",
    "triton none": "not there",
    "triton tiles": "not there: attention is looked into in tiles, which needs no Triton",
    "compiler": "C++ compiler",
    "compiler for": "{path} (for torch.compile and for flex on the CPU)",
    "none": "none",
    "font": "Chinese font",
    "kernels": 'What backend="auto" takes on {device}',
    "call": "call",
    "training": "causal, training",
    "padded": "with padding",
    "window": "sliding window",
    "softcap": "soft-capped",
    "dropout": "with dropout",
    "decode": "one query, decoding",
    "legend": "explicit: the formula written out; sdpa: PyTorch's fused kernels; flex: compiled "
    "for the mask and the scoring at hand.",
    "packages": "Packages",
    "package": "package",
    "installed": "installed",
    "needs": "wanted",
    "for": "for",
    "missing": "missing",
    "itself": "glasshead itself",
    "hf": "models of Hugging Face",
    "notebook": "notebooks",
    "test": "the tests",
    "check": "checking the code",
    "dev": "working on glasshead",
    "bench": "the benchmarks",
    "wrong": "Broken",
    "optional": "Missing, but not needed by everyone",
    "problem python": "Python {about} is not supported",
    "problem torch": "torch cannot be imported: {about}",
    "problem package": "needed and not there, or too old: {about}",
    "problem import": "cannot be imported: {about}",
    "problem kernel": "attention fails on {about}",
    "problem extra": "{extra}: {about}",
    "problem triton": "Triton: attention on this GPU is looked into in tiles, which is slower",
    "problem compiler": "a C++ compiler: without it no torch.compile, and no flex on the CPU",
    "problem headers": "Python's header files: without them no torch.compile on the CPU",
    "problem font": "a font with Chinese characters: without it pictures are labelled in English",
    "comma": ", ",
    "fine": "All that is needed is there.",
}
_CHINESE = {
    "machine": "机器",
    "python yes": "{version}",
    "python no": "{version}，但需要 3.11 到 3.13",
    "torch": "{version}，为 {build} 构建",
    "torch no": "无法导入",
    "cpu": "{name}；{cores} 个核，torch 用 {threads} 个线程",
    "flags": "CPU 特性",
    "no flags": "没有值得一提的",
    "half": "半精度",
    "absent": "没有 AMX；bfloat16 和 float16 不靠它运行",
    "works": "AMX 可用",
    "avoided": "AMX 在这里会使 torch 崩溃，已停用 (ONEDNN_MAX_CPU_ISA={limit})",
    "limited": "有 AMX，但环境变量限制了它 (ONEDNN_MAX_CPU_ISA={limit})",
    "memory": "{name}，{gib:.1f} GiB",
    "gpu": "GPU",
    "no gpu": "没有",
    "triton none": "没有",
    "triton tiles": "没有：观察注意力时分块计算，不需要 Triton",
    "compiler": "C++ 编译器",
    "compiler for": "{path}（torch.compile 和 CPU 上的 flex 要用）",
    "none": "没有",
    "font": "中文字体",
    "kernels": 'backend="auto" 在 {device} 上的选择',
    "call": "调用",
    "training": "因果，训练",
    "padded": "带填充",
    "window": "滑动窗口",
    "softcap": "分数软截断",
    "dropout": "带 dropout",
    "decode": "单个查询，解码",
    "legend": "explicit：逐步写出的公式；sdpa：PyTorch 的融合内核；flex：按掩码和打分方式编译。",
    "packages": "软件包",
    "package": "包",
    "installed": "已安装",
    "needs": "需要",
    "for": "用途",
    "missing": "缺",
    "itself": "glasshead 本身",
    "hf": "Hugging Face 的模型",
    "notebook": "笔记本",
    "test": "测试",
    "check": "检查代码",
    "dev": "开发 glasshead",
    "bench": "性能对比",
    "wrong": "有问题",
    "optional": "缺少，但不是人人都需要",
    "problem python": "不支持 Python {about}",
    "problem torch": "torch 无法导入：{about}",
    "problem package": "必需的包没有或太旧：{about}",
    "problem import": "无法导入：{about}",
    "problem kernel": "注意力无法运行：{about}",
    "problem extra": "{extra}：{about}",
    "problem triton": "Triton：没有它，在这块 GPU 上观察注意力要分块计算，比较慢",
    "problem compiler": "C++ 编译器：没有它就没有 torch.compile，CPU 上也没有 flex",
    "problem headers": "Python 的头文件：没有它们，CPU 上就没有 torch.compile",
    "problem font": "含汉字的字体：没有它，图片上的文字用英文",
    "comma": "、",
    "fine": "必需的都有了。",
}
_TEXTS: dict[Language, dict[str, str]] = {"zh": _CHINESE, "en": _ENGLISH}


def tables(findings: Findings, lang: Language = "en") -> Iterator[RenderableType]:
    text = _TEXTS[lang]
    yield _title(text["machine"])
    yield _machine(findings, text)
    for device in dict.fromkeys(choice.device for choice in findings.kernels):
        yield _title(text["kernels"].format(device=device))
        yield _kernels(findings, device, text)
    if findings.kernels:
        yield Text(text["legend"], style="dim")
    if findings.packages:
        yield _title(text["packages"])
        yield _packages(findings, text)
    for heading, needed in (("wrong", True), ("optional", False)):
        problems = [problem for problem in findings.problems if problem.needed == needed]
        if problems:
            yield _title(text[heading], "bold red" if needed else "bold yellow")
        for problem in problems:
            yield from _problem(problem, text)
    if not findings.broken:
        yield Text("\n" + text["fine"], style="bold green")


def _machine(found: Findings, text: dict[str, str]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")

    def row(name: str, value: str) -> None:
        table.add_row(Text(name), Text(value))

    row("Glasshead", found.glasshead)
    row("Python", text["python yes" if found.python_fits else "python no"].format(
        version=found.python
    ))  # fmt: skip
    torch, cpu = found.torch, found.cpu
    said = "torch no" if torch.error else "torch"
    row("torch", text[said].format(version=torch.version, build=torch.build))
    row("CPU", text["cpu"].format(name=cpu.name, cores=cpu.cores, threads=cpu.threads or "?"))
    row(text["flags"], " ".join(cpu.flags) or text["no flags"])
    row(text["half"], text[cpu.amx].format(limit=cpu.isa_limit))
    gpus = [device for device in found.devices if device.device != "cpu"]
    for device in gpus:
        row(device.device, _memory(device, text))
    if not gpus:
        row(text["gpu"], text["comma"].join([text["no gpu"], *found.warnings]))
    row("Triton", found.triton or text["triton none" if found.cuda else "triton tiles"])
    compiler = text["compiler for"].format(path=found.compiler)
    row(text["compiler"], compiler if found.compiler else text["none"])
    row(text["font"], found.chinese_font or text["none"])
    return table


def _memory(device: DeviceReport, text: dict[str, str]) -> str:
    if device.memory is None:
        return device.name
    return text["memory"].format(name=device.name, gib=device.memory / 2**30)


def _kernels(found: Findings, device: str, text: dict[str, str]) -> Table:
    table = _table(text["call"], *DTYPES)
    taken = {(c.call, c.dtype): c for c in found.kernels if c.device == device}
    for call in CALLS:
        cells = []
        for dtype in DTYPES:
            choice = taken[call, dtype]
            word = ":".join(filter(None, (choice.backend, choice.kernel))) or "-"
            cells.append(Text(word, style="red" if choice.error else ""))
        table.add_row(Text(text[call]), *cells)
    return table


def _packages(found: Findings, text: dict[str, str]) -> Table:
    table = _table(text["package"], text["installed"], text["needs"], text["for"])
    users: dict[str, list[Package]] = {}
    for package in found.packages:
        users.setdefault(package.needs, []).append(package)
    for same in users.values():
        package = same[0]
        version = Text(package.version or text["missing"], style="" if package.fits else "yellow")
        uses = (text.get(p.extra, p.extra) if p.extra else text["itself"] for p in same)
        wanted = package.needs.removeprefix(package.name)
        table.add_row(package.name, version, wanted, Text(text["comma"].join(uses)))
    return table


def _problem(problem: Problem, text: dict[str, str]) -> Iterator[Text]:
    extra = text.get(problem.extra or "", problem.extra)
    words = text[f"problem {problem.kind}"].format(about=problem.about, extra=extra)
    yield Text(f"  {words}", style="red" if problem.needed else "")
    if problem.command:
        # Never wrapped: it is there to be copied.
        yield Text(f"    {problem.command}", style="bold", no_wrap=True, overflow="ignore")


def _title(words: str, style: str = "bold cyan") -> Text:
    return Text(f"\n{words}", style=style)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(Text(name), overflow="fold")
    return table
