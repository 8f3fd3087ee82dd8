"""Check a target and report: `check(fn)` returns a CheckReport, `show` prints it on one screen."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from glasshead.errors import GlassheadError
from glasshead.lab.check.caching import examine_cache
from glasshead.lab.check.calling import NotCallable
from glasshead.lab.check.checking import Examination, examine
from glasshead.lab.check.counterexample import Counterexample, find_counterexample
from glasshead.lab.check.properties import remarks
from glasshead.lab.check.roles import role_of
from glasshead.lab.check.source_lines import find_line
from glasshead.lab.check.states import changes_between_calls
from glasshead.lab.check.target import SIZES, CheckTarget, find_target, make_target
from glasshead.lab.check.variants import expects_cache
from glasshead.lab.texts import Language, Words, read_texts, texts_in

__all__ = ["CheckFinding", "CheckReport", "check", "check_named", "show"]

TEXTS = read_texts(__file__)

# Which lesson is about it; the first prefix that fits.
_LESSONS = {
    "scale": 3, "mask": 4, "causal": 4, "padding": 4, "nan": 4, "window": 4, "softmax": 2,
    "heads": 5, "not-contiguous": 5, "gqa": 5, "output": 5, "rotary": 6, "alibi": 6,
    "softcap": 3, "cross": 8, "dropout": 7, "gradient": 7, "half": 3, "slow": 5,
    "cache": 11, "state": 11, "empty": 11, "relative": 6, "norm": 7, "residual": 7,
}  # fmt: skip


@dataclass(frozen=True)
class CheckFinding:
    """A mistake, or a warning: numerically right, but unstable or slow."""

    name: str  # as in report.toml; "unknown" if the result is wrong and no name fits
    mistake: bool
    line: int = 0  # of the file; 0 if it cannot be told
    code: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lesson(self) -> int:
        """Return the number of the lesson about it."""
        return next((n for start, n in _LESSONS.items() if self.name.startswith(start)), 2)

    def words(self, part: str) -> Words:
        """Return its "title", or "why": what is wrong and how to mend it."""
        parts = self.name.split("+")
        if len(parts) > 1:
            both = [CheckFinding(each, self.mistake).words(part) for each in parts]
            return Words(*("; ".join(w[lang].rstrip(".。") for w in both) for lang in ("en", "zh")))
        found = TEXTS.get(f"mistake.{self.name}.{part}") or TEXTS[f"mistake.unknown.{part}"]
        return found.format(**{**_DEFAULTS, **self.values})


_DEFAULTS = {"p": 0.5, "of": "x", "dtype": "float16", "error": 0.0, "calls": 0, "more": 0,
             "case": "", "cause": ""}  # fmt: skip


@dataclass(frozen=True, eq=False)
class CheckReport:
    """What a check found. `ok` if there is no mistake; warnings do not count."""

    target: str
    path: str
    findings: tuple[CheckFinding, ...]
    counterexample: Counterexample | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    compared: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def mistakes(self) -> list[CheckFinding]:
        return [each for each in self.findings if each.mistake]

    @property
    def warnings(self) -> list[CheckFinding]:
        return [each for each in self.findings if not each.mistake]

    @property
    def ok(self) -> bool:
        return not self.mistakes

    def as_json(self) -> dict[str, Any]:
        def listed(some: list[CheckFinding]) -> list[dict[str, Any]]:
            return [
                {
                    "name": each.name,
                    "title": each.words("title").en,
                    "why": each.words("why").en,
                    "line": each.line or None,
                    "code": each.code or None,
                    "lesson": each.lesson,
                }
                for each in some
            ]

        example = None if self.counterexample is None else self.counterexample.as_json()
        return {
            "target": self.target,
            "file": self.path or None,
            "right": self.ok,
            "mistakes": listed(self.mistakes),
            "warnings": listed(self.warnings),
            "counterexample": example,
            "facts": dict(self.facts),
            "compared": list(self.compared),
            "skipped": dict(self.skipped),
        }


def check_named(
    name: str, *, causal: bool | None = None, given: Mapping[str, Any] | None = None
) -> CheckReport:
    """Check `file.py:name`, `package.module:name` or the folder of a transformers model."""
    if ":" not in name and Path(name).is_dir():
        from glasshead.lab.check.models import check_folder

        return check_folder(Path(name))
    return check(find_target(name), causal=causal, given=given, name=name.rpartition(":")[2])


def check(
    target: Any,
    *,
    causal: bool | None = None,
    given: Mapping[str, Any] | None = None,
    name: str = "",
) -> CheckReport:
    """Check attention that someone wrote: is it right, and if not, which mistake is it?

    Args:
        target: a function of q, k and v or of x; a module, a class, or a transformers model. How
            it is called is found out by calling it: layout, mask, what it returns.
        causal: whether it should hide the future; None to find out.
        given: values for parameters, of the call or the constructor, that are not known.
        name: what to call it in the report.

    Raises:
        InputError: it cannot be called, with the reason.

    >>> def attention(q, k, v):
    ...     return (q @ k.mT).softmax(-1) @ v
    >>> check(attention).mistakes[0].name
    'scale-missing'
    """
    from glasshead.lab.check.models import check_model, check_own_model, is_language_model

    values = dict(given or {})
    if is_language_model(target):
        return check_model(target, name)
    made = make_target(target, values, name)
    try:
        found = examine(made, values, causal)
    except NotCallable as error:
        if (own := check_own_model(made)) is not None:
            return own
        if (known := _known_crash(error, made)) is not None:
            return CheckReport(made.name, made.path, (known,))
        if (ungrouped := _ungrouped(made, values)) is None:
            raise
        found = examine(make_target(target, ungrouped, name), ungrouped, causal)
    return _report(found)


def _ungrouped(target: CheckTarget, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return values that give each query head a key head, if the target was made otherwise."""
    names = [n for n in target.made_with if role_of(n, calling=False) == "kv_heads"]
    changed = {name: SIZES["heads"] for name in names if name not in given}
    return {**given, **changed} if changed else None


def _known_crash(error: NotCallable, target: CheckTarget) -> CheckFinding | None:
    """Return a mistake that shows as an error of torch's own."""
    for problem in error.problems:
        if "view size is not compatible" in str(problem):
            line = find_line(target, "not-contiguous") or (0, "")
            return CheckFinding("not-contiguous", True, *line)
        if re.search(r"not aligned|mismatch|must match|incompatible", str(problem)) and (
            re.search(r"\b\w*k(ey)?s?\.T\b", target.source)
        ):
            return _finding(target, "keys-reversed", True, {})
    return None


def _report(found: Examination) -> CheckReport:
    findings: list[CheckFinding] = []
    example = None
    if reason := changes_between_calls(found):  # what was compared means nothing
        random = _finding(found.target, reason, True, {})
        return CheckReport(found.target.name, found.target.path, (random,), None, _facts(found))
    found = examine_cache(found)
    findings += [_finding(found.target, note, False, {}) for note in found.notes]
    if found.mistake is not None and (found.mistake.name or found.compared):
        name = found.mistake.name or "unknown"
        cached = found.seen[-1][0].past > 0
        if name == "causal-start-aligned" and not cached and _allows_alignment(found.target):
            findings.append(_finding(found.target, name, False, {}))
        else:
            findings.append(_finding(found.target, name, True, {}))
            example = find_counterexample(found)
    if not found.compared and found.mistake is not None:
        from glasshead.lab.check.black_box import observed_mistakes

        findings += [_finding(found.target, n, True, {}) for n in observed_mistakes(found)]
    known = {each.name for each in findings}
    for remark in remarks(found):
        if remark.name not in known:
            findings.append(_finding(found.target, remark.name, remark.mistake, remark.values))
    facts = _facts(found)
    skipped = {name: why for name, why in found.skipped.items() if name != "grouped"}
    compared = tuple(case.name for case, _ in found.seen)
    path = found.target.path
    return CheckReport(found.target.name, path, tuple(findings), example, facts, compared, skipped)


def _finding(
    target: CheckTarget, name: str, mistake: bool, values: Mapping[str, Any]
) -> CheckFinding:
    line, code = find_line(target, name) or (0, "")
    return CheckFinding(name, mistake, line, code, values)


def _allows_alignment(target: CheckTarget) -> bool:
    """Say whether causal may start at the first key: so stated, or made for equal lengths."""
    text = inspect.getdoc(target.function) or ""
    stated = re.search(r"tril\(diagonal=0\)|(top|upper).?left|aligned to the start", text, re.I)
    return bool(stated) or (bool(target.source) and not expects_cache(target.text))


def _facts(found: Examination) -> dict[str, str]:
    caller, reading = found.caller, found.reading
    out = {"arrays": caller.framework, "layout": ", ".join(caller.layout.axes)}
    out["causal"] = "flag" if reading.flag else "yes" if reading.causal else "no"
    if caller.layout.axes[-1] == "C":
        out["heads"] = str(reading.params.n_heads)
        if reading.params.n_kv_heads != reading.params.n_heads:
            out["kv heads"] = str(reading.params.n_kv_heads)
    for name, polarity in found.masks.items():
        out[name] = {"keep": "True = may attend", "hide": "True = hidden", "add": "added"}[polarity]
    if not found.compared:
        out["reference"] = "none"
    return out


def show(report: CheckReport, lang: Language = "en") -> Iterator[Text]:
    """Yield the lines of a report."""
    text = texts_in(lang, TEXTS)
    if report.ok:
        by = "right_by_properties" if report.facts.get("reference") == "none" else "right"
        yield Text(
            text[by].format(target=report.target, n=len(report.compared)), style="bold green"
        )
    for each in report.findings:
        style = "bold red" if each.mistake else "yellow"
        label = text["mistake_label" if each.mistake else "warning_label"]
        title = each.words("title")[lang]
        yield Text(f"{label}{title}  [{each.name}]", style=style)
        yield Text("  " + each.words("why")[lang])
        if each.line:
            place = f"{Path(report.path).name}:{each.line}"
            yield Text(f"  {place}: {each.code}", style="cyan")
        yield Text("  " + text["lesson"].format(n=each.lesson), style="dim")
    if report.counterexample is not None:
        yield Text("")
        yield from _show_example(report.counterexample, text)
    yield Text("")
    facts = text["comma"].join(
        f"{_fact(n, text)} {_fact(v, text)}" for n, v in report.facts.items()
    )
    yield Text(text["found"].format(facts=facts), style="dim")
    for name, why in list(report.skipped.items())[:3]:
        line = why.splitlines()[0] if why else ""
        yield Text(text["skipped"].format(case=name, why=line[:90]), style="dim")


def _fact(word: str, text: Mapping[str, str]) -> str:
    return text.get(f"fact.{word}", word)


def _show_example(example: Counterexample, text: Mapping[str, str]) -> Iterator[Text]:
    case, place = example.case, example.place
    yield Text(text["example"] + (text["example_causal"] if case.causal else ""), style="bold")
    b, row = place[0], place[-2]
    some = {"x": case.q} if case.k is case.q else {"q": case.q, "k": case.k, "v": case.v}
    for name, value in some.items():
        shape = ", ".join(map(str, value.shape))
        yield Text(f"  {name} ({shape}) = {_numbers(value)}")
    if case.allowed is not None:
        yield Text(f"  {text['allowed']} = {_numbers(case.allowed[b].astype(int))}")
    if case.keys is not None:
        yield Text(f"  {text['keys']} = {_numbers(case.keys.astype(int))}")
    where = ", ".join(map(str, place[:-1]))
    got, want = example.got[place[:-1]], example.expected[place[:-1]]
    yield Text(f"  {text['row'].format(place=where, n=row)}")
    yield Text(f"  {text['got']:<10}{_numbers(got)}", style="red")
    yield Text(f"  {text['expected']:<10}{_numbers(want)}", style="green")
    yield Text(f"  {text['difference']:<10}{_numbers(got - want)}")


def _numbers(values: np.ndarray) -> str:
    """Write an array shortly: at most 24 numbers."""
    if values.size > 24:
        flat = values.reshape(-1)[:12]
        return np.array2string(flat, precision=3, max_line_width=200)[:-1] + " …"
    squeezed = values.reshape([n for n in values.shape if n != 1] or [1])
    line = np.array2string(squeezed, precision=4, suppress_small=True, max_line_width=500)
    return re.sub(r"\s*\n\s*", " ", line)


def cannot_check(error: GlassheadError) -> dict[str, Any]:
    """Return what `--json` prints for a target that cannot be checked."""
    return {"right": None, "reason": str(error), "hint": error.hint}
