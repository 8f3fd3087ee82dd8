"""A report as one page in two languages, light or dark as the system is. It loads nothing."""

from collections.abc import Sequence
from html import escape

from glasshead.page.colour_files import css_variables

__all__ = ["shell"]

STYLE = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16.5px/1.7 "Source Sans 3", "Segoe UI", system-ui, -apple-system, "PingFang SC",
    "Hiragino Sans GB", "Noto Sans CJK SC", "Microsoft YaHei", sans-serif;
}
.page { max-width: 1020px; margin: 0 auto; padding: 56px 28px 80px; }
p, ul { max-width: 46em; }
h1, h2 {
  font-family: "Iowan Old Style", "Palatino Linotype", Palatino, Georgia, "Songti SC",
    "Noto Serif CJK SC", "Source Han Serif SC", SimSun, serif;
  font-weight: 600; line-height: 1.25; letter-spacing: .005em;
}
h1 { font-size: 46px; margin: 14px 0 18px; }
h2 { font-size: 26px; margin: 64px 0 10px; display: flex; gap: 14px; align-items: baseline; }
h2 i { font-style: normal; color: var(--accent); font-variant-numeric: lining-nums; }
.lead { font-size: 18.5px; line-height: 1.75; }
.quiet, figcaption { color: var(--quiet); }
.eyebrow { color: var(--quiet); font-size: 13.5px; letter-spacing: .08em; }
.top { display: flex; justify-content: space-between; align-items: center; gap: 16px; }
.switch { display: inline-flex; border: 1px solid var(--line); border-radius: 99px; padding: 2px; }
.switch label { padding: 2px 14px; border-radius: 99px; cursor: pointer; font-size: 14px; }
.choice { position: absolute; opacity: 0; pointer-events: none; }
#show-zh:checked ~ .page .en, #show-en:checked ~ .page .zh { display: none; }
#show-zh:checked ~ .page label[for=show-zh], #show-en:checked ~ .page label[for=show-en] {
  background: var(--ink); color: var(--paper);
}
#show-zh:focus-visible ~ .page label[for=show-zh],
#show-en:focus-visible ~ .page label[for=show-en] { outline: 2px solid var(--data); }
figure {
  margin: 22px 0 8px; background: var(--paper); border: 1px solid var(--line);
  border-radius: 14px; padding: 18px 20px 14px;
}
figure .scroll { overflow-x: auto; }
figure svg { display: block; width: 100%; height: auto; }
figure.narrow svg { max-width: 340px; }
.dark { display: none; }
@media (prefers-color-scheme: dark) { .light { display: none; } .dark { display: block; } }
figcaption { font-size: 14.5px; line-height: 1.6; margin-top: 10px; max-width: 62em; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 0 22px; }
.german { font-size: 19px; line-height: 1.6; margin: 26px 0 0; max-width: 44em; }
.german b { color: var(--data); }
table { border-collapse: collapse; width: 100%; font-size: 15.5px; margin: 18px 0 10px; }
th, td { padding: 7px 12px 7px 0; text-align: left; border-bottom: 1px solid var(--line); }
th { color: var(--quiet); font-weight: 500; font-size: 14px; vertical-align: bottom; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.main { font-weight: 700; color: var(--accent); }
tr.part td { font-weight: 700; padding-top: 20px; }
td.changed { color: var(--accent); font-weight: 700; }
li { margin: 10px 0; }
code { background: var(--sunk); border-radius: 5px; padding: 1px 6px; font-size: .9em; }
pre {
  background: var(--sunk); border-radius: 10px; padding: 11px 16px; margin: 4px 0 18px;
  overflow-x: auto; font-size: 14px; line-height: 1.5;
}
pre code { background: none; padding: 0; font-size: inherit; }
code, pre {
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Noto Sans Mono CJK SC", monospace;
}
footer { margin-top: 70px; padding-top: 18px; border-top: 1px solid var(--line); font-size: 14px; }
@media (max-width: 640px) { .page { padding: 30px 16px 60px; } h1 { font-size: 34px; } }
@media print { .switch { display: none; } figure { break-inside: avoid; } }
"""


def shell(title: str, parts: Sequence[str], lang: str, style: str = "") -> str:
    """Return the page with these parts of HTML; `lang` is the language that it opens in."""
    checked = {one: " checked" if one == lang else "" for one in ("zh", "en")}
    return f"""<!doctype html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · Glasshead</title>
<style>{css_variables()}{STYLE}{style}</style>
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
