"""A report as one page, in two languages, by day and by night. Nothing is loaded from anywhere."""

from collections.abc import Sequence
from html import escape

__all__ = ["shell"]

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf7; --ink: #23211d; --quiet: #6d675d; --line: #e2ddd2; --panel: #ffffff;
  --heat: #c2410c; --deep: #9a3412; --ask: #1d4ed8; --good: #15803d; --code: #f1ede4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #161513; --ink: #ebe7de; --quiet: #a39c8f; --line: #34312c; --panel: #1e1c19;
    --heat: #fb923c; --deep: #fdba74; --ask: #93b4ff; --good: #6ee7a0; --code: #26231f;
  }
}
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
h2 i { font-style: normal; color: var(--heat); font-variant-numeric: lining-nums; }
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
#show-en:focus-visible ~ .page label[for=show-en] { outline: 2px solid var(--ask); }
figure {
  margin: 22px 0 8px; background: var(--panel); border: 1px solid var(--line);
  border-radius: 14px; padding: 18px 20px 14px;
}
figure .scroll { overflow-x: auto; }
figure svg { display: block; width: 100%; height: auto; }
figure.narrow svg { max-width: 340px; }
figcaption { font-size: 14.5px; line-height: 1.6; margin-top: 10px; max-width: 62em; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 0 22px; }
.german { font-size: 19px; line-height: 1.6; margin: 26px 0 0; max-width: 44em; }
.german b { color: var(--ask); }
svg text { fill: var(--ink); font-family: inherit; }
svg .word { font-size: 20px; text-anchor: middle; }
svg .asking { fill: var(--ask); font-weight: 700; }
svg .most { fill: var(--deep); font-weight: 700; }
svg .answer { font-size: 12.5px; text-anchor: middle; fill: var(--good); }
svg .name { font-size: 12px; text-anchor: end; fill: var(--quiet); }
svg .name.small { font-size: 13px; }
svg .name.best { fill: var(--ink); font-weight: 700; }
svg .column { font-size: 13.5px; text-anchor: middle; }
svg .tick { font-size: 12.5px; text-anchor: middle; fill: var(--quiet); }
svg .figure { font-size: 14px; text-anchor: middle; font-variant-numeric: tabular-nums; }
svg .figure.over { fill: var(--paper); }
svg .shade { fill: var(--heat); stroke: var(--line); stroke-width: .6; rx: 2px; }
svg .arc { fill: none; stroke: var(--heat); stroke-linecap: round; }
svg .ring { fill: none; stroke: var(--ink); stroke-width: 1.1; opacity: .55; }
svg .frame { fill: none; stroke: var(--ask); stroke-width: 1.8; rx: 4px; }
table { border-collapse: collapse; width: 100%; font-size: 15.5px; margin: 18px 0 10px; }
th, td { padding: 7px 12px 7px 0; text-align: left; border-bottom: 1px solid var(--line); }
th { color: var(--quiet); font-weight: 500; font-size: 14px; vertical-align: bottom; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.main { font-weight: 700; color: var(--deep); }
tr.part td { font-weight: 700; padding-top: 20px; }
td.changed { color: var(--deep); font-weight: 700; }
li { margin: 10px 0; }
code { background: var(--code); border-radius: 5px; padding: 1px 6px; font-size: .9em; }
pre {
  background: var(--code); border-radius: 10px; padding: 11px 16px; margin: 4px 0 18px;
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
    """The whole page of these parts of HTML; `lang` is the language that it opens in."""
    checked = {one: " checked" if one == lang else "" for one in ("zh", "en")}
    return f"""<!doctype html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · Glasshead</title>
<style>{STYLE}{style}</style>
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
