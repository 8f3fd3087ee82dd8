"""A report as one HTML page in two languages, light or dark as the system is. It loads nothing."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from glasshead.lab.texts import Words
from glasshead.page.colour_files import css_variables

__all__ = ["html_head", "html_page", "html_table", "html_words"]


def html_page(title: str, parts: Sequence[str], lang: str, style: str = "") -> str:
    """Return the page with these parts of HTML, which opens in this language."""
    checked = {one: " checked" if one == lang else "" for one in ("zh", "en")}
    common = Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · Glasshead</title>
<style>{css_variables()}
{common}{style}</style>
</head>
<body>
<input class="choice" type="radio" name="lang" id="show-zh"{checked["zh"]}>
<input class="choice" type="radio" name="lang" id="show-en"{checked["en"]}>
<main class="page">
{chr(10).join(parts)}
</main>
</body>
</html>
"""


def html_head(name: str, title: Words) -> str:
    """Return the name of the report, the switch of languages and the title."""
    return f"""<div class="top">
<span class="eyebrow">{name}</span>
<span class="switch"><label for="show-zh">中文</label><label for="show-en">English</label></span>
</div>
<h1>{html_words(title)}</h1>"""


def html_words(words: Words, tag: str = "span", kind: str = "") -> str:
    """Return a text in both languages, of which the page shows one.

    `**bold**` and `` `code` `` become HTML; everything else is text.
    """
    return "".join(
        f'<{tag} class="{f"{lang} {kind}".strip()}" lang="{lang}">{_markup(words[lang])}</{tag}>'
        for lang in ("zh", "en")
    )


def _markup(text: str) -> str:
    html = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text, quote=False))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", html)


def html_table(head: Iterable[str], rows: Iterable[str], kind: str = "") -> str:
    """Return a table; `head` are its `<th>` cells, `rows` its `<tr>` rows."""
    return (
        f'<table class="{kind}"><thead><tr>{"".join(head)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
