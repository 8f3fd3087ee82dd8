"""What the heads of a model do, as one HTML page in two languages."""

from collections.abc import Sequence
from html import escape

from glasshead.lab.report_html import html_head, html_page
from glasshead.observe.drawing import Drawing
from glasshead.observe.picture_svg import svg_of
from glasshead.roles.naming import HeadRoles
from glasshead.roles.pictures import card, sheet
from glasshead.roles.proof import Head
from glasshead.roles.tables import name_of
from glasshead.roles.wording import TEXTS

__all__ = ["heads_page"]

CARDS = 12  # of the strongest heads, with a role each
STYLE = """
figure { margin: 2rem 0; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; border-radius: 8px; }
"""


def heads_page(
    found: HeadRoles, lang: str, head: Head | None = None, before: HeadRoles | None = None
) -> str:
    """Return the page: the sheet and the cards of the strongest heads, or one card."""
    title = {one: TEXTS[one]["sheet"] for one in ("zh", "en")}
    parts = [html_head(escape(found.name), title)]  # type: ignore[arg-type]
    if head is None:
        parts.append(_figure([(one, sheet(found, one, before)) for one in ("zh", "en")]))
    for one_head in [head] if head else _strongest(found):
        parts.append(_figure([(one, card(found, one_head, one)) for one in ("zh", "en")]))
    return html_page(f"{found.name} {'' if head is None else name_of(head)}", parts, lang, STYLE)


def _strongest(found: HeadRoles) -> list[Head]:
    """Return the strongest head of each role, roles that are needed first."""
    roles = [role for role in found.measured.roles if found.heads(role)]
    roles.sort(key=lambda role: not found.role(role, found.heads(role)[0]).needed)
    return list(dict.fromkeys(found.heads(role)[0] for role in roles))[:CARDS]


def _figure(drawings: Sequence[tuple[str, Drawing]]) -> str:
    pictures = [
        f'<div class="{lang}" lang="{lang}">{svg_of(drawing).decode()}</div>'
        for lang, drawing in drawings
    ]
    return f"<figure>{''.join(pictures)}</figure>"
