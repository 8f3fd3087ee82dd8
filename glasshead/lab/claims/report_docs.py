"""docs/claims.md, the table of all claims, and docs/claims/: a page for each of them.

Each page is written twice: NAME.md in English, NAME.zh.md in Chinese.
"""

from collections.abc import Iterator, Mapping

from glasshead.lab.claims import claim_modules, load_claim
from glasshead.lab.claims.errata import ERRATA
from glasshead.lab.claims.margins import find_margins
from glasshead.lab.claims.report_words import (
    LADDER_COLUMNS,
    TEXTS,
    Ladder,
    describe_ladder,
    describe_rules,
    describe_run,
    ladder_rows,
    lead,
)
from glasshead.lab.claims.stats import Interval
from glasshead.lab.claims.store import StoredResult
from glasshead.lab.claims.verdict import VERDICTS
from glasshead.lab.texts import LANGUAGES, Language, texts_in

__all__ = ["format_number", "pages"]

MADE = "<!-- Written by `glasshead claims report --docs docs`; do not edit. -->"


def pages(claims: Mapping[int, StoredResult], ladder: Ladder | None) -> dict[str, str]:
    """Return the text of each page by its path in docs/."""
    found: dict[str, str] = {}
    for lang in LANGUAGES:
        say, end = texts_in(lang, TEXTS), "md" if lang == "en" else f"{lang}.md"
        parts = {
            "claims": _table(claims, ladder, lang, end, say),
            "claims/errata": _errata(lang, say),
            "claims/margins": _margins(claims, lang, end, say),
            **{f"claims/{n:02}": _claim(n, one, lang, say) for n, one in claims.items()},
        }
        if ladder is not None:
            parts["claims/ladder"] = _ladder(ladder, lang, say)
        for name, lines in parts.items():
            found[f"{name}.{end}"] = "\n".join([MADE, "", *lines]).rstrip() + "\n"
    return found


def format_number(value: Interval | float) -> str:
    """Format with four significant digits.

    >>> format_number(0.123456), format_number(1234567.0), format_number(Interval(1.0, 0.5, 3e-07))
    ('0.1235', '1.235e+06', '1 [0.5, 3e-07]')
    """
    return format(value, ".4g")


Say = Mapping[str, str]


def _table(
    claims: Mapping[int, StoredResult], ladder: Ladder | None, lang: Language, end: str, say: Say
) -> Iterator[str]:
    yield from (f"# {say['title']}", "", lead(claims)[lang], "")
    yield f"| | {say['claim']} | {say['verdict']} |"
    yield "|---|---|---|"
    for n, result in claims.items():
        title = load_claim(n).title[lang]
        yield f"| {n} | [{title}](claims/{n:02}.{end}) | {result.finding.label[lang]} |"
    missing = [n for n in claim_modules() if n not in claims]
    if missing:
        yield from ("", say["missing"].format(which=", ".join(map(str, missing))))
    more = [f"[{say[name]}](claims/{name}.{end})" for name in ("margins", "errata")]
    if ladder is not None:
        more.append(f"[{say['ladder']}](claims/ladder.{end})")
    yield from ("", f"{say['more']}{' · '.join(more)}", "")
    yield from (f"## {say['rules']}", "")
    for rule in describe_rules(claims):
        yield f"- {rule[lang]}"
    yield from ("", f"## {say['again']}", "", say["run"])


def _claim(n: int, result: StoredResult, lang: Language, say: Say) -> Iterator[str]:
    claim, finding = load_claim(n), result.finding
    source = say["source"].format(source=claim.source[lang])
    yield from (f"# {n}. {claim.title[lang]}", "")
    alt = say["figure"].format(number=n)
    yield from (f"![{alt}](../img/claims/{n:02}.{lang}.png)", "")
    yield from (f"> {say['quoted'].format(claim=claim.claim[lang], source=source)}", "")
    yield from (f"**{finding.label[lang]}** · {finding.words[lang]}", "")
    if claim.attack is not None:
        yield from (f"## {say['attack']}", "", claim.attack[lang], "")
    yield from (f"## {say['method']}", "")
    for name in ("how", "counts_for", "counts_against", "tried", "correction"):
        words = getattr(claim, name)
        if words is not None:
            yield f"- **{say[name]}**: {words[lang]}"
    yield from (f"- {describe_run(result)[lang]}", "")
    yield from (f"## {say['numbers']}", "", "| | |", "|---|--:|")
    for name, value in finding.numbers.items():
        yield f"| {name} | {format_number(value)} |"


def _ladder(ladder: Ladder, lang: Language, say: Say) -> Iterator[str]:
    yield from (f"# {say['ladder']}", "", f"![{say['ladder']}](../img/claims/ladder.{lang}.png)")
    yield from ("", describe_ladder(ladder)[lang], "")
    yield f"| {' | '.join(say[name] for name in LADDER_COLUMNS)} |"
    yield "|---|---|--:|--:|--:|--:|"
    for row in ladder_rows(ladder):
        yield f"| {' | '.join(cell[lang] for cell in row)} |"


def _margins(
    claims: Mapping[int, StoredResult], lang: Language, end: str, say: Say
) -> Iterator[str]:
    yield from (f"# {say['margins']}", "", say["margins_lead"], "")
    columns = ("claim", "verdict", "threshold", "value", "stays", "else")
    yield f"| {' | '.join(say[name] for name in columns)} |"
    yield "|---|---|---|--:|--:|---|"
    for n, result in claims.items():
        verdict = VERDICTS[result.finding.verdict][lang]
        for at, margin in enumerate(find_margins(n, result.evidence)):
            low, high = margin.span
            others = "; ".join(
                f"×{factor:g}: {VERDICTS[other][lang]}" for factor, other in margin.others.items()
            )
            first = (f"[{n}]({n:02}.{end})", verdict) if at == 0 else ("", "")
            stays = f"×{low:g} – ×{high:g}"
            cells = (*first, f"`{margin.name}`", f"{margin.value:g}", stays, others)
            yield f"| {' | '.join(cells)} |"


def _errata(lang: Language, say: Say) -> Iterator[str]:
    yield from (f"# {say['errata']}", "", say["errata_lead"], "")
    for at, erratum in enumerate(ERRATA, 1):
        yield f"{at}. **{erratum.source}** {erratum.says[lang]} → {erratum.correct[lang]}"
