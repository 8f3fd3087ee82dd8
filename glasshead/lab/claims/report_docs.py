"""docs/claims.md: the claims in Markdown, first in English, then in Chinese."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from glasshead.lab.claims import claim_modules, load_claim
from glasshead.lab.claims.claim import VERDICTS
from glasshead.lab.claims.documents import ERRATA
from glasshead.lab.claims.report_words import ABOUT, counted, ladder_rows, ladder_text, measured
from glasshead.lab.claims.stats import Interval
from glasshead.lab.claims.store import Stored

if TYPE_CHECKING:
    from glasshead.lab.claims.report import Ladder

__all__ = ["markdown", "number"]


def markdown(claims: Mapping[int, Stored], ladder: "Ladder | None") -> str:
    lines = ["<!-- Written by `glasshead claims report --docs docs`; do not edit. -->", ""]
    for lang in ("en", "zh"):
        lines += _language(claims, ladder, lang)
    return "\n".join(lines).rstrip() + "\n"


def number(value: Interval | float) -> str:
    """Four digits that matter, whatever its size.

    >>> number(0.123456), number(1234567.0), number(Interval(1.0, 0.5, 3e-07))
    ('0.1235', '1.235e+06', '1 [0.5, 3e-07]')
    """
    return format(value, ".4g")


def _language(claims: Mapping[int, Stored], ladder: "Ladder | None", lang: str) -> Iterator[str]:
    other = {"en": "[中文](#zh)", "zh": "[English](#en)"}[lang]
    yield from (f'<a id="{lang}"></a>', "", f"# {ABOUT['title'][lang]}", "", other, "")
    lead = ABOUT["lead"][lang].format(total=len(claims), counts=counted(claims)[lang])
    yield from (lead, "", ABOUT["intervals"][lang], "")
    yield from _summary(claims, lang)
    for n, stored in claims.items():
        yield from _claim(n, stored, lang)
    if ladder is not None:
        yield from _ladder(ladder, lang)
    yield from (f"## {ABOUT['errata'][lang]}", "", ABOUT["errata lead"][lang], "")
    for at, erratum in enumerate(ERRATA, 1):
        yield f"{at}. **{erratum.source}** {erratum.says[lang]} → {erratum.correct[lang]}"
    yield from ("", f"## {ABOUT['again'][lang]}", "", ABOUT["run"][lang], "")


def _summary(claims: Mapping[int, Stored], lang: str) -> Iterator[str]:
    yield f"| | {ABOUT['claim'][lang]} | {ABOUT['verdict'][lang]} |"
    yield "|---|---|---|"
    for n, stored in claims.items():
        title = load_claim(n).title[lang]
        yield f"| {n} | [{title}](#{lang}-{n}) | {VERDICTS[stored.finding.verdict][lang]} |"
    missing = [n for n in claim_modules() if n not in claims]
    if missing:
        yield from ("", ABOUT["missing"][lang].format(which=", ".join(map(str, missing))))
    yield ""


def _claim(n: int, stored: Stored, lang: str) -> Iterator[str]:
    claim, finding = load_claim(n), stored.finding
    source = ABOUT["source"][lang].format(source=claim.source)
    yield from (f'<a id="{lang}-{n}"></a>', "", f"## {n}. {claim.title[lang]}", "")
    yield from (f"> {claim.claim[lang]} ({source})", "")
    yield from (f"**{VERDICTS[finding.verdict][lang]}** · {finding.words[lang]}", "")
    alt = ABOUT["figure"][lang].format(number=n)
    yield from (f"![{alt}](img/claims/{n:02}.{lang}.png)", "")
    yield f"- **{ABOUT['how'][lang]}**: {claim.how[lang]}"
    yield f"- **{ABOUT['for'][lang]}**: {claim.for_[lang]}"
    yield f"- **{ABOUT['against'][lang]}**: {claim.against[lang]}"
    if claim.tried is not None:
        yield f"- **{ABOUT['tried'][lang]}**: {claim.tried[lang]}"
    if claim.correction is not None:
        yield f"- **{ABOUT['correction'][lang]}**: {claim.correction[lang]}"
    shown = "; ".join(f"{name}: {number(value)}" for name, value in finding.numbers.items())
    yield f"- **{ABOUT['numbers'][lang]}**: {shown}"
    yield from (f"- {measured(stored)[lang]}", "")


def _ladder(ladder: "Ladder", lang: str) -> Iterator[str]:
    yield from (f"## {ABOUT['ladder'][lang]}", "", ladder_text(ladder)[lang], "")
    heads = ("rung", "adds", "parameters", "training", "validation", "change")
    yield f"| {' | '.join(ABOUT[name][lang] for name in heads)} |"
    yield "|---|---|--:|--:|--:|--:|"
    for row in ladder_rows(ladder):
        yield f"| {' | '.join(cell[lang] for cell in row)} |"
    alt = ABOUT["ladder"][lang]
    yield from ("", f"![{alt}](img/claims/ladder.{lang}.png)", "")
