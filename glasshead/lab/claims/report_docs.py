"""docs/claims.md: the claims in Markdown, first in English, then in Chinese."""

from collections.abc import Iterator, Mapping

from glasshead.lab.claims import claim_modules, load_claim
from glasshead.lab.claims.errata import ERRATA
from glasshead.lab.claims.report_words import (
    LADDER_COLUMNS,
    TEXTS,
    Ladder,
    describe_ladder,
    describe_run,
    ladder_rows,
    lead,
)
from glasshead.lab.claims.stats import Interval
from glasshead.lab.claims.store import StoredResult
from glasshead.lab.texts import LANGUAGES

__all__ = ["format_number", "markdown"]


def markdown(claims: Mapping[int, StoredResult], ladder: Ladder | None) -> str:
    lines = ["<!-- Written by `glasshead claims report --docs docs`; do not edit. -->", ""]
    for lang in LANGUAGES:
        lines += _language(claims, ladder, lang)
    return "\n".join(lines).rstrip() + "\n"


def format_number(value: Interval | float) -> str:
    """Format with four significant digits.

    >>> format_number(0.123456), format_number(1234567.0), format_number(Interval(1.0, 0.5, 3e-07))
    ('0.1235', '1.235e+06', '1 [0.5, 3e-07]')
    """
    return format(value, ".4g")


def _language(
    claims: Mapping[int, StoredResult], ladder: Ladder | None, lang: str
) -> Iterator[str]:
    say = {name: words[lang] for name, words in TEXTS.items()}
    other = {"en": "[中文](#zh)", "zh": "[English](#en)"}[lang]
    yield from (f'<a id="{lang}"></a>', "", f"# {say['title']}", "", other, "")
    yield from (lead(claims)[lang], "", say["intervals"], "")
    yield from _summary(claims, lang, say)
    for n, result in claims.items():
        yield from _claim(n, result, lang, say)
    if ladder is not None:
        yield from _ladder(ladder, lang, say)
    yield from (f"## {say['errata']}", "", say["errata_lead"], "")
    for at, erratum in enumerate(ERRATA, 1):
        yield f"{at}. **{erratum.source}** {erratum.says[lang]} → {erratum.correct[lang]}"
    yield from ("", f"## {say['again']}", "", say["run"], "")


def _summary(
    claims: Mapping[int, StoredResult], lang: str, say: Mapping[str, str]
) -> Iterator[str]:
    yield f"| | {say['claim']} | {say['verdict']} |"
    yield "|---|---|---|"
    for n, result in claims.items():
        title = load_claim(n).title[lang]
        yield f"| {n} | [{title}](#{lang}-{n}) | {result.finding.label[lang]} |"
    missing = [n for n in claim_modules() if n not in claims]
    if missing:
        yield from ("", say["missing"].format(which=", ".join(map(str, missing))))
    yield ""


def _claim(n: int, result: StoredResult, lang: str, say: Mapping[str, str]) -> Iterator[str]:
    claim, finding = load_claim(n), result.finding
    source = say["source"].format(source=claim.source[lang])
    yield from (f'<a id="{lang}-{n}"></a>', "", f"## {n}. {claim.title[lang]}", "")
    yield from (f"> {say['quoted'].format(claim=claim.claim[lang], source=source)}", "")
    yield from (f"**{finding.label[lang]}** · {finding.words[lang]}", "")
    alt = say["figure"].format(number=n)
    yield from (f"![{alt}](img/claims/{n:02}.{lang}.png)", "")
    for name in ("how", "counts_for", "counts_against", "tried", "correction"):
        words = getattr(claim, name)
        if words is not None:
            yield f"- **{say[name]}**: {words[lang]}"
    shown = "; ".join(f"{name}: {format_number(value)}" for name, value in finding.numbers.items())
    yield f"- **{say['numbers']}**: {shown}"
    yield from (f"- {describe_run(result)[lang]}", "")


def _ladder(ladder: Ladder, lang: str, say: Mapping[str, str]) -> Iterator[str]:
    yield from (f"## {say['ladder']}", "", describe_ladder(ladder)[lang], "")
    yield f"| {' | '.join(say[name] for name in LADDER_COLUMNS)} |"
    yield "|---|---|--:|--:|--:|--:|"
    for row in ladder_rows(ladder):
        yield f"| {' | '.join(cell[lang] for cell in row)} |"
    yield from ("", f"![{say['ladder']}](img/claims/ladder.{lang}.png)", "")
