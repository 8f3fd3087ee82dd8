"""Show the findings of the doctor in a terminal, in Chinese or English."""

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from glasshead.lab.doctor import CALLS, DTYPES, DeviceReport, Findings, Package, Problem
from glasshead.lab.texts import Language, read_texts, texts_in

__all__ = ["tables"]

TEXTS = read_texts(__file__)


def tables(findings: Findings, lang: Language = "en") -> Iterator[RenderableType]:
    text = texts_in(lang, TEXTS)
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
    row("Python", text["python_yes" if found.python_fits else "python_no"].format(
        version=found.python
    ))  # fmt: skip
    torch, cpu = found.torch, found.cpu
    key = "torch_no" if torch.error else "torch"
    row("torch", text[key].format(version=torch.version, build=torch.build))
    row("CPU", text["cpu"].format(name=cpu.name, cores=cpu.cores, threads=cpu.threads or "?"))
    row(text["flags"], " ".join(cpu.flags) or text["no_flags"])
    row(text["half"], text[cpu.amx].format(limit=cpu.isa_limit))
    gpus = [device for device in found.devices if device.device != "cpu"]
    for device in gpus:
        row(device.device, _memory(device, text))
    if not gpus:
        row(text["gpu"], text["comma"].join([text["no_gpu"], *found.warnings]))
    row("Triton", found.triton or text["triton_none" if found.cuda else "triton_tiles"])
    compiler = text["compiler_for"].format(path=found.compiler)
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
    words = text[f"problem.{problem.kind}"].format(about=problem.about, extra=extra)
    yield Text(f"  {words}", style="red" if problem.needed else "")
    if problem.command:
        # Not wrapped, so that it can be copied.
        yield Text(f"    {problem.command}", style="bold", no_wrap=True, overflow="ignore")


def _title(words: str, style: str = "bold cyan") -> Text:
    return Text(f"\n{words}", style=style)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(Text(name), overflow="fold")
    return table
