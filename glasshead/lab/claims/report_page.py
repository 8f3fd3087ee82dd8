"""report.html: the claims as one page, in both languages, with its pictures in it."""

import base64
import re
from collections.abc import Mapping
from html import escape

from glasshead.lab.claims import claim_modules, load_claim
from glasshead.lab.claims.errata import ERRATA
from glasshead.lab.claims.report_docs import format_number
from glasshead.lab.claims.report_words import (
    LADDER_COLUMNS,
    TEXTS,
    Ladder,
    describe_ladder,
    describe_run,
    ladder_rows,
    lead,
)
from glasshead.lab.claims.store import StoredResult
from glasshead.lab.claims.verdict import VERDICTS, Verdict
from glasshead.lab.report_shell import shell
from glasshead.lab.texts import LANGUAGES, Words

__all__ = ["html"]

Figures = Mapping[tuple[str, str], bytes]

KINDS = {
    Verdict.HOLDS: "holds",
    Verdict.HOLDS_WHEN: "when",
    Verdict.FAILS: "fails",
    Verdict.UNCLEAR: "unclear",
}
MORE_STYLE = """
.page { max-width: 860px; }
.chip {
  display: inline-block; border-radius: 99px; padding: 1px 12px; font-size: 14px; font-weight: 600;
  white-space: nowrap; line-height: 1.6;
}
.chip.holds { background: #d9efdf; color: #14532d; }
.chip.when { background: #fbeccb; color: #713f12; }
.chip.fails { background: #f8d9d9; color: #7f1d1d; }
.chip.unclear { background: #e6e2f3; color: #3b2a75; }
blockquote {
  margin: 8px 0 14px; padding: 2px 0 2px 18px; border-left: 3px solid var(--line);
  color: var(--quiet); max-width: 46em;
}
figure img { display: block; width: 100%; height: auto; }
figure { background: #ffffff; padding: 14px; }
table.all td { vertical-align: top; }
table.all a { color: inherit; text-decoration-color: var(--line); text-underline-offset: 4px; }
.note { border-left: 3px solid var(--accent); padding: 2px 0 2px 18px; margin: 18px 0; }
.note p { margin: 4px 0; }
details { margin: 12px 0; }
summary { cursor: pointer; color: var(--quiet); }
dl { margin: 10px 0; max-width: 46em; }
dt { color: var(--quiet); font-size: 14px; margin-top: 10px; }
dd { margin: 0; }
table.numbers { font-size: 14px; }
@media (prefers-color-scheme: dark) {
  /* White paper becomes dark, and every hue stays what it is. */
  figure { background: #1e1c19; }
  figure img { filter: invert(1) hue-rotate(180deg); mix-blend-mode: screen; }
  .chip.holds { background: #14532d; color: #d9efdf; }
  .chip.when { background: #713f12; color: #fbeccb; }
  .chip.fails { background: #7f1d1d; color: #f8d9d9; }
  .chip.unclear { background: #3b2a75; color: #e6e2f3; }
}
"""


def html(
    claims: Mapping[int, StoredResult], ladder: Ladder | None, figures: Figures, lang: str
) -> str:
    """Return the whole page, which opens in this language."""
    parts = [_head(claims), _summary(claims)]
    parts += [_claim(n, result, figures) for n, result in claims.items()]
    if ladder is not None:
        parts.append(_ladder(ladder, figures))
    parts += [_errata(), f"<h2>{_say('again')}</h2>", _say("run", "p")]
    return shell(TEXTS["title"][lang], parts, lang, MORE_STYLE)


def _say(name: str, tag: str = "span", kind: str = "", **values: object) -> str:
    return _in_both(TEXTS[name].format(**values), tag, kind)


def _in_both(words: Words, tag: str = "span", kind: str = "") -> str:
    """Return a text in both languages, of which the page shows one."""
    return "".join(
        f'<{tag} class="{f"{lang} {kind}".strip()}" lang="{lang}">{_code_tags(words[lang])}</{tag}>'
        for lang in ("zh", "en")
    )


def _code_tags(text: str) -> str:
    return re.sub(r"`(.+?)`", r"<code>\1</code>", escape(text, quote=False))


def _head(claims: Mapping[int, StoredResult]) -> str:
    return f"""<div class="top">
<span class="eyebrow">GLASSHEAD CLAIMS</span>
<span class="switch"><label for="show-zh">中文</label><label for="show-en">English</label></span>
</div>
<h1>{_say("title")}</h1>
{_in_both(lead(claims), "p", "lead")}
{_say("intervals", "p", "quiet")}"""


def _chip(verdict: Verdict) -> str:
    return _in_both(VERDICTS[verdict], "span", f"chip {KINDS[verdict]}")


def _summary(claims: Mapping[int, StoredResult]) -> str:
    rows = "".join(
        f'<tr><td class="n">{n}</td><td><a href="#claim-{n}">{_in_both(load_claim(n).title)}</a>'
        f"</td><td>{_chip(result.finding.verdict)}</td></tr>"
        for n, result in claims.items()
    )
    head = f"<th></th><th>{_say('claim')}</th><th>{_say('verdict')}</th>"
    missing = ", ".join(str(n) for n in claim_modules() if n not in claims)
    after = _say("missing", "p", "quiet", which=missing) if missing else ""
    return f'<table class="all"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{after}'


def _claim(n: int, result: StoredResult, figures: Figures) -> str:
    claim, finding = load_claim(n), result.finding
    source = TEXTS["source"].format(source=claim.source)
    quoted = TEXTS["quoted"].format(claim=claim.claim, source=source)
    parts = [
        f'<h2 id="claim-{n}"><i>{n}</i>{_in_both(claim.title)}</h2>',
        f"<blockquote>{_in_both(quoted)}</blockquote>",
        f"<p>{_chip(finding.verdict)}</p>{_in_both(finding.words, 'p')}",
        _figure(f"{n:02}", figures, _say("figure", number=n)),
    ]
    if claim.correction is not None:
        text = _in_both(claim.correction, "p")
        parts.append(
            f'<div class="note"><span class="quiet">{_say("correction")}</span>{text}</div>'
        )
    if not result.is_current:
        parts.append(_say("stale", "p", "quiet"))
    terms = {
        name: getattr(claim, name) for name in ("how", "counts_for", "counts_against", "tried")
    }
    listed = "".join(
        f"<dt>{_say(name)}</dt><dd>{_in_both(words)}</dd>" for name, words in terms.items() if words
    )
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{format_number(value)}</td></tr>'
        for name, value in finding.numbers.items()
    )
    parts.append(
        f"<details><summary>{_say('method')}</summary><dl>{listed}</dl>"
        f'<table class="numbers"><tbody>{rows}</tbody></table>'
        f"{_in_both(describe_run(result), 'p', 'quiet')}</details>"
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
    head = "".join(
        f'<th class="{kind}">{_say(name)}</th>'
        for name, kind in zip(LADDER_COLUMNS, kinds, strict=True)
    )
    rows = [
        "".join(
            f'<td class="{kind}">{_in_both(cell)}</td>'
            for cell, kind in zip(row, kinds, strict=True)
        )
        for row in ladder_rows(ladder)
    ]
    body = "".join(f"<tr>{cells}</tr>" for cells in rows)
    return "\n".join(
        [
            f'<h2 id="ladder">{_say("ladder")}</h2>',
            _in_both(describe_ladder(ladder), "p"),
            _figure("ladder", figures, _say("ladder")),
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>",
        ]
    )


def _errata() -> str:
    items = "".join(
        f'<li><b>{one.source}</b> {_in_both(one.says)}<br><span class="quiet">→</span> '
        f"{_in_both(one.correct)}</li>"
        for one in ERRATA
    )
    lead = _say("errata_lead", "p")
    return f'<h2 id="errata">{_say("errata")}</h2>{lead}<ol>{items}</ol>'
