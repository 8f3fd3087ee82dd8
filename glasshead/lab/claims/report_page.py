"""report.html: the claims as one page, in both languages, with its pictures in it."""

import base64
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

from glasshead.lab.claims import claim_modules, load_claim
from glasshead.lab.claims.claim import Finding
from glasshead.lab.claims.errata import ERRATA
from glasshead.lab.claims.report_docs import format_number
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
from glasshead.lab.claims.store import StoredResult
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.report_html import html_head, html_page, html_table, html_words
from glasshead.lab.texts import LANGUAGES

__all__ = ["html"]

Figures = Mapping[tuple[str, str], bytes]

KINDS = {
    Verdict.HOLDS: "holds",
    Verdict.HOLDS_WHEN: "when",
    Verdict.FAILS: "fails",
    Verdict.UNCLEAR: "unclear",
}


def html(
    claims: Mapping[int, StoredResult], ladder: Ladder | None, figures: Figures, lang: str
) -> str:
    """Return the whole page, which opens in this language."""
    parts = [_head(claims), _summary(claims)]
    parts += [_claim(n, result, figures) for n, result in claims.items()]
    if ladder is not None:
        parts.append(_ladder(ladder, figures))
    parts += [_errata(), f"<h2>{_say('again')}</h2>", _say("run", "p")]
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    return html_page(TEXTS["title"][lang], parts, lang, style)


def _say(name: str, tag: str = "span", kind: str = "", **values: object) -> str:
    return html_words(TEXTS[name].format(**values), tag, kind)


def _head(claims: Mapping[int, StoredResult]) -> str:
    parts = [
        html_head("GLASSHEAD CLAIMS", TEXTS["title"]),
        html_words(lead(claims), "p", "lead"),
        *(html_words(rule, "p", "quiet") for rule in describe_rules(claims)),
    ]
    return "\n".join(parts)


def _chip(finding: Finding) -> str:
    return html_words(finding.label, "span", f"chip {KINDS[finding.verdict]}")


def _summary(claims: Mapping[int, StoredResult]) -> str:
    rows = [
        f'<tr><td class="n">{n}</td><td><a href="#claim-{n}">{html_words(load_claim(n).title)}</a>'
        f"</td><td>{_chip(result.finding)}</td></tr>"
        for n, result in claims.items()
    ]
    head = ["<th></th>", f"<th>{_say('claim')}</th>", f"<th>{_say('verdict')}</th>"]
    missing = ", ".join(str(n) for n in claim_modules() if n not in claims)
    after = _say("missing", "p", "quiet", which=missing) if missing else ""
    return html_table(head, rows, "all") + after


def _claim(n: int, result: StoredResult, figures: Figures) -> str:
    claim, finding = load_claim(n), result.finding
    source = TEXTS["source"].format(source=claim.source)
    quoted = TEXTS["quoted"].format(claim=claim.claim, source=source)
    parts = [
        f'<h2 id="claim-{n}"><i>{n}</i>{html_words(claim.title)}</h2>',
        _figure(f"{n:02}", figures, _say("figure", number=n)),
        f"<blockquote>{html_words(quoted)}</blockquote>",
        f"<p>{_chip(finding)}</p>{html_words(finding.words, 'p')}",
    ]
    if claim.correction is not None:
        text = html_words(claim.correction, "p")
        parts.append(
            f'<div class="note"><span class="quiet">{_say("correction")}</span>{text}</div>'
        )
    if not result.is_current:
        parts.append(_say("stale", "p", "quiet"))
    terms = {
        name: getattr(claim, name)
        for name in ("how", "counts_for", "counts_against", "tried", "attack")
    }
    listed = "".join(
        f"<dt>{_say(name)}</dt><dd>{html_words(words)}</dd>"
        for name, words in terms.items()
        if words
    )
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{format_number(value)}</td></tr>'
        for name, value in finding.numbers.items()
    )
    parts.append(
        f"<details><summary>{_say('method')}</summary><dl>{listed}</dl>"
        f'<table class="numbers"><tbody>{rows}</tbody></table>'
        f"{html_words(describe_run(result), 'p', 'quiet')}</details>"
    )
    return "\n".join(parts)


def _figure(name: str, figures: Figures, label: str) -> str:
    alt = escape(re.sub("<.+?>", " ", label).strip(), quote=True)
    pictures = "".join(
        f'<img class="{lang}" alt="{alt}" '
        f'src="data:image/png;base64,{base64.b64encode(figures[name, lang]).decode()}">'
        for lang in LANGUAGES
    )
    return f"<figure>{pictures}</figure>"


def _ladder(ladder: Ladder, figures: Figures) -> str:
    kinds = ["" if name == "adds" else "n" for name in LADDER_COLUMNS]
    head = [
        f'<th class="{kind}">{_say(name)}</th>'
        for name, kind in zip(LADDER_COLUMNS, kinds, strict=True)
    ]
    rows = [
        "".join(
            f'<td class="{kind}">{html_words(cell)}</td>'
            for cell, kind in zip(row, kinds, strict=True)
        )
        for row in ladder_rows(ladder)
    ]
    return "\n".join(
        [
            f'<h2 id="ladder">{_say("ladder")}</h2>',
            html_words(describe_ladder(ladder), "p"),
            _figure("ladder", figures, _say("ladder")),
            html_table(head, (f"<tr>{cells}</tr>" for cells in rows)),
        ]
    )


def _errata() -> str:
    items = "".join(
        f'<li><b>{one.source}</b> {html_words(one.says)}<br><span class="quiet">→</span> '
        f"{html_words(one.correct)}</li>"
        for one in ERRATA
    )
    lead = _say("errata_lead", "p")
    return f'<h2 id="errata">{_say("errata")}</h2>{lead}<ol>{items}</ol>'
