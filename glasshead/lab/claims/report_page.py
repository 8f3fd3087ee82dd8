"""report.html: the claims as one page, in both languages, with its pictures in it."""

import base64
import re
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from glasshead.lab.claims import claim_modules, load_claim
from glasshead.lab.claims.claim import VERDICTS, Verdict, Words
from glasshead.lab.claims.documents import ERRATA
from glasshead.lab.claims.report_docs import number
from glasshead.lab.claims.report_words import ABOUT, counted, ladder_rows, ladder_text, measured
from glasshead.lab.claims.store import Stored
from glasshead.lab.report_shell import shell

if TYPE_CHECKING:
    from glasshead.lab.claims.report import Ladder

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
.note { border-left: 3px solid var(--heat); padding: 2px 0 2px 18px; margin: 18px 0; }
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


def html(claims: Mapping[int, Stored], ladder: "Ladder | None", figures: Figures, lang: str) -> str:
    """The whole page; `lang` is the language that it opens in."""
    parts = [_head(claims), _summary(claims)]
    parts += [_claim(n, stored, figures) for n, stored in claims.items()]
    if ladder is not None:
        parts.append(_ladder(ladder, figures))
    parts += [_errata(), f"<h2>{_both('again')}</h2>", _both("run", "p")]
    return shell(ABOUT["title"][lang], parts, lang, MORE_STYLE)


def _both(name: str, tag: str = "span", kind: str = "", **values: object) -> str:
    words = ABOUT[name]
    return _shown(Words(words.en.format(**values), words.zh.format(**values)), tag, kind)


def _shown(words: Words, tag: str = "span", kind: str = "") -> str:
    """A text in both languages, of which the page shows one."""
    return "".join(
        f'<{tag} class="{f"{lang} {kind}".strip()}" lang="{lang}">{_marked(words[lang])}</{tag}>'
        for lang in ("zh", "en")
    )


def _marked(text: str) -> str:
    return re.sub(r"`(.+?)`", r"<code>\1</code>", escape(text, quote=False))


def _head(claims: Mapping[int, Stored]) -> str:
    counts, words = counted(claims), ABOUT["lead"]
    lead = Words(*(words[lang].format(total=len(claims), counts=counts[lang]) for lang in _LANGS))
    return f"""<div class="top">
<span class="eyebrow">GLASSHEAD CLAIMS</span>
<span class="switch"><label for="show-zh">中文</label><label for="show-en">English</label></span>
</div>
<h1>{_both("title")}</h1>
{_shown(lead, "p", "lead")}
{_both("intervals", "p", "quiet")}"""


_LANGS = ("en", "zh")


def _chip(verdict: Verdict) -> str:
    return _shown(VERDICTS[verdict], "span", f"chip {KINDS[verdict]}")


def _summary(claims: Mapping[int, Stored]) -> str:
    rows = "".join(
        f'<tr><td class="n">{n}</td><td><a href="#claim-{n}">{_shown(load_claim(n).title)}</a></td>'
        f"<td>{_chip(stored.finding.verdict)}</td></tr>"
        for n, stored in claims.items()
    )
    head = f"<th></th><th>{_both('claim')}</th><th>{_both('verdict')}</th>"
    missing = ", ".join(str(n) for n in claim_modules() if n not in claims)
    after = _both("missing", "p", "quiet", which=missing) if missing else ""
    return f'<table class="all"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{after}'


def _claim(n: int, stored: Stored, figures: Figures) -> str:
    claim, finding = load_claim(n), stored.finding
    source = Words(*(ABOUT["source"][lang].format(source=claim.source) for lang in _LANGS))
    quoted = Words(f"{claim.claim.en} ({source.en})", f"{claim.claim.zh}（{source.zh}）")
    parts = [
        f'<h2 id="claim-{n}"><i>{n}</i>{_shown(claim.title)}</h2>',
        f"<blockquote>{_shown(quoted)}</blockquote>",
        f"<p>{_chip(finding.verdict)}</p>{_shown(finding.words, 'p')}",
        _figure(f"{n:02}", figures, _both("figure", number=n)),
    ]
    if claim.correction is not None:
        said = _shown(claim.correction, "p")
        parts.append(
            f'<div class="note"><span class="quiet">{_both("correction")}</span>{said}</div>'
        )
    if not stored.is_current:
        parts.append(_both("stale", "p", "quiet"))
    terms = {"how": claim.how, "for": claim.for_, "against": claim.against, "tried": claim.tried}
    listed = "".join(
        f"<dt>{_both(name)}</dt><dd>{_shown(words)}</dd>" for name, words in terms.items() if words
    )
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{number(value)}</td></tr>'
        for name, value in finding.numbers.items()
    )
    parts.append(
        f"<details><summary>{_both('method')}</summary><dl>{listed}</dl>"
        f'<table class="numbers"><tbody>{rows}</tbody></table>'
        f"{_shown(measured(stored), 'p', 'quiet')}</details>"
    )
    return "\n".join(parts)


def _figure(name: str, figures: Figures, label: str) -> str:
    alt = escape(re.sub("<.+?>", " ", label).strip(), quote=True)
    pictures = "".join(
        f'<img class="{lang}" alt="{alt}" '
        f'src="data:image/png;base64,{base64.b64encode(figures[name, lang]).decode()}">'
        for lang in _LANGS
    )
    return f"<figure>{pictures}</figure>"


def _ladder(ladder: "Ladder", figures: Figures) -> str:
    names = ("rung", "adds", "parameters", "training", "validation", "change")
    head = "".join(
        f'<th class="{"" if name == "adds" else "n"}">{_both(name)}</th>' for name in names
    )
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td class="{"" if at == 1 else "n"}">{_shown(cell)}</td>'
            for at, cell in enumerate(row)
        )
        + "</tr>"
        for row in ladder_rows(ladder)
    )
    return "\n".join(
        [
            f'<h2 id="ladder">{_both("ladder")}</h2>',
            _shown(ladder_text(ladder), "p"),
            _figure("ladder", figures, _both("ladder")),
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>",
        ]
    )


def _errata() -> str:
    items = "".join(
        f'<li><b>{one.source}</b> {_shown(one.says)}<br><span class="quiet">→</span> '
        f"{_shown(one.correct)}</li>"
        for one in ERRATA
    )
    lead = _both("errata lead", "p")
    return f'<h2 id="errata">{_both("errata")}</h2>{lead}<ol>{items}</ol>'
