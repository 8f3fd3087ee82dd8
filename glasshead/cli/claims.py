"""`glasshead claims`: measure what the documents claim about attention."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from glasshead.cli.terminal import (
    Lang,
    ProgressDisplay,
    argument,
    console,
    language,
    option,
    say,
    write_errors,
)

if TYPE_CHECKING:
    from glasshead.lab.claims.running import ClaimsPlan
    from glasshead.lab.claims.store import StoredResult

__all__ = ["claims"]

_SAYS = {
    "en": {
        "head": ("", "claim", "verdict", "measured"),
        "never": "not yet",
        "stale": "{when}, {kind}, code has changed since",
        "at": "{when}, {kind}",
        True: "quick",
        False: "full",
        "kept": "measured {when}, {kind}",
        "new": "{kind}, seeds {seeds}, {seconds:.0f} s",
        "hint": "measure all, coarsely: glasshead claims --quick; only one: glasshead claims 3",
    },
    "zh": {
        "head": ("", "论断", "结论", "测量于"),
        "never": "尚未测量",
        "stale": "{when}，{kind}，此后代码有改动",
        "at": "{when}，{kind}",
        True: "快速",
        False: "完整",
        "kept": "测量于 {when}，{kind}",
        "new": "{kind}，种子 {seeds}，{seconds:.0f} 秒",
        "hint": "粗略测量全部：glasshead claims --quick；只测一条：glasshead claims 3",
    },
}


def claims(
    which: Annotated[
        list[str] | None,
        argument("N...|all|report", "Which to measure; without it, they are listed."),
    ] = None,
    quick: Annotated[
        bool, option("--quick", None, "Coarser and faster; alone it measures all.")
    ] = False,
    seeds: Annotated[
        int | None, option("--seeds", "N", "Seeds of each [default: 3 when quick, else 5]", min=2)
    ] = None,
    seed_list: Annotated[
        str | None, option("--seed-list", "N,N,...", "The seeds themselves, instead of --seeds.")
    ] = None,
    search_seed_list: Annotated[
        str | None,
        option("--search-seed-list", "N,...", "Seeds with which learning rates are chosen."),
    ] = None,
    jobs: Annotated[
        int | None, option("--jobs", "N", "How many in parallel [default: as many as cores]", min=1)
    ] = None,
    again: Annotated[bool, option("--again", None, "Measure again what is stored.")] = False,
    out: Annotated[Path, option("--out", "DIR", "The folder of the results.")] = Path(
        "runs/claims"
    ),
    page: Annotated[
        Path | None, option("-o", "REPORT.html", "report: the page [default: in --out]")
    ] = None,
    docs: Annotated[
        Path | None,
        option("--docs", "DIR", "report: write claims.md, a page for each, and figures there."),
    ] = None,
    ladder: Annotated[
        Path, option("--ladder", "DIR", "report: the ladder's results, if there are any.")
    ] = Path("runs/ladder"),
    lang: Lang = None,
) -> None:
    """Measure what textbooks claim about attention, and say what holds.

    Alone it lists the claims with the stored verdicts. Each claim has an experiment that can come
    out either way; its verdict and figures are printed and stored in --out.

    \b
    Examples:
      glasshead claims
      glasshead claims --quick
      glasshead claims 5 16
      glasshead claims all --jobs 2
      glasshead claims 2 --seed-list 21,22,23
      glasshead claims report -o report.html

    A claim is measured again when its code has changed, or with --again. --quick takes some four
    minutes for all of them on two cores; `report` writes one page of the stored results.
    """
    from glasshead.machine import count_cores, settle_half_precision

    settle_half_precision()  # before torch computes anything
    words, spoken = which or [], language(lang)
    with write_errors(out):
        if words == ["report"]:
            _report(out, page, docs, ladder, spoken)
        elif not words and not quick:
            _list(out, spoken)
        else:
            from glasshead.lab.claims.running import ClaimsPlan

            plan = ClaimsPlan(
                out, quick, seeds, jobs or count_cores(), again,
                _parse_seeds("--seed-list", seed_list, 2),
                _parse_seeds("--search-seed-list", search_seed_list, 1),
            )  # fmt: skip
            _measure(_parse_numbers(words), plan, spoken)


def _parse_numbers(words: list[str]) -> list[int]:
    from glasshead.errors import InputError, nearest
    from glasshead.lab.claims import claim_modules

    known = list(claim_modules())
    if words in ([], ["all"]):
        return known
    for word in words:
        if not (word.isascii() and word.isdigit() and int(word[:9]) in known):
            near = nearest(word, ["all", "report"])
            if word == near:
                raise InputError(
                    f"'{word}' cannot be combined with numbers", hint=f"glasshead claims {word}"
                )
            usual = (
                f"choose numbers from {known[0]} to {known[-1]}, such as 5 16; or all, or report"
            )
            raise InputError(
                f"there is no claim '{word}'", hint=f"did you mean '{near}'?" if near else usual
            )
    return sorted({int(word) for word in words})


def _parse_seeds(flag: str, text: str | None, least: int) -> tuple[int, ...]:
    from glasshead.errors import InputError

    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise InputError(f"{flag} '{text}' is not a list of seeds", hint="as in 11,12,13")
    seeds = tuple(dict.fromkeys(map(int, parts)))
    if len(seeds) < least:
        raise InputError(
            f"{flag} '{text}' has {len(seeds)} different seeds, but {least} are needed",
            hint="as in 11,12,13",
        )
    return seeds


def _list(out: Path, lang: str) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from glasshead.lab.claims import claim_modules, load_claim
    from glasshead.lab.claims.store import read_result

    says: dict[Any, Any] = _SAYS[lang]
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for at, name in enumerate(says["head"]):
        table.add_column(Text(name), justify="right" if at == 0 else "left", overflow="fold")
    for number in claim_modules():
        stored, verdict, when = read_result(out, number), "", says["never"]
        if stored is not None:
            verdict = stored.finding.label[lang]
            form = says["at" if stored.is_current else "stale"]
            when = form.format(when=stored.when, kind=says[stored.quick])
        table.add_row(str(number), Text(load_claim(number).title[lang]), Text(verdict), Text(when))
    console().print(table)
    say(says["hint"])


def _measure(numbers: list[int], plan: "ClaimsPlan", lang: str) -> None:
    from glasshead.lab.claims.running import measure_claims

    terminal = console()
    with _ClaimsProgress(numbers, plan) as progress:
        for stored, is_new in measure_claims(numbers, plan, progress.update):
            progress.finish(stored.number)
            with progress.hide():
                _print(stored, is_new, lang, terminal)


def _print(stored: "StoredResult", is_new: bool, lang: str, terminal: Any) -> None:
    from rich.text import Text

    from glasshead.lab.claims import load_claim
    from glasshead.lab.claims.verdict import Verdict

    colors = {
        Verdict.HOLDS: "green",
        Verdict.HOLDS_WHEN: "yellow",
        Verdict.FAILS: "red",
        Verdict.UNCLEAR: "magenta",
    }
    says: dict[Any, Any] = _SAYS[lang]
    finding, seeds = stored.finding, len(stored.seeds)
    about = {"when": stored.when, "kind": says[stored.quick], "seeds": seeds}
    note = says["new" if is_new else "kept"].format(**about, seconds=stored.seconds)
    head = Text.assemble(
        (f"{stored.number:>2}  {load_claim(stored.number).title[lang]}: ", "bold"),
        (finding.label[lang], f"bold {colors[finding.verdict]}"),
        (f"  ({note})", "dim"),
    )
    terminal.print(head)
    terminal.print(Text(finding.words[lang]))
    terminal.print()


def _report(out: Path, page: Path | None, docs: Path | None, ladder: Path, lang: str) -> None:
    from glasshead.lab.claims.report import read_results, write_docs, write_page

    found = read_results(out, ladder)
    if docs is not None:
        written = write_docs(found, docs)
    else:
        path = page or out / "report.html"
        write_page(found, path, lang)
        written = [path]
    print("\n".join(map(str, written)))


class _ClaimsProgress(ProgressDisplay):
    """One bar for all claims on a terminal; otherwise a line when a claim begins."""

    def __init__(self, numbers: list[int], plan: "ClaimsPlan") -> None:
        from glasshead.lab.claims.running import expected_seconds

        super().__init__()
        self._expected = {number: expected_seconds(number, plan) for number in numbers}
        self._done = dict.fromkeys(numbers, 0.0)
        self._doing: dict[int, str] = {}
        self._task = self._bar.add_task("", total=sum(self._expected.values()))

    def update(self, number: int, done: float, what: str) -> None:
        if not self._on_terminal and number not in self._doing:
            say(f"claim {number} ...")
        self._doing[number], self._done[number] = what, done
        self._show()

    def finish(self, number: int) -> None:
        self._done[number] = 1.0
        self._doing.pop(number, None)
        self._show()

    @contextmanager
    def hide(self) -> Iterator[None]:
        """Take the bar off the screen while results are printed."""
        self._bar.stop()
        yield
        sys.stdout.flush()
        self._bar.start()

    def _show(self) -> None:
        doing = "; ".join(f"{number}: {what}" for number, what in self._doing.items())
        done = sum(self._expected[number] * part for number, part in self._done.items())
        self._bar.update(self._task, completed=done, description=doing)
