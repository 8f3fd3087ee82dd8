"""The table of colours as files of the page: `web/colours.css` and `web/colours.js`.

After a change of `observe/colours.py`, write them anew:

    python -m glasshead.page.colour_files
"""

import json
from pathlib import Path

from glasshead.observe.colours import COLOURS, DIVERGING, SEQUENTIAL, SERIES, Theme
from glasshead.page.bundle import WEB

__all__ = ["colour_files", "css_variables"]

NOTE = "Written by glasshead/page/colour_files.py from glasshead/observe/colours.py."


def css_variables() -> str:
    """The colours as CSS variables: those of `data-theme`, or else of the system's theme."""

    def rule(selector: str, theme: Theme) -> str:
        lines = [f"  --{name}: {value};" for name, value in COLOURS[theme].items()]
        return "\n".join([f"{selector} {{", f"  color-scheme: {theme};", *lines, "}"])

    by_system = rule(":root:not([data-theme])", "dark")
    return "\n".join(
        [
            rule(":root", "light"),
            rule(':root[data-theme="dark"]', "dark"),
            f"@media (prefers-color-scheme: dark) {{\n{by_system}\n}}\n",
        ]
    )


def colour_files() -> dict[str, str]:
    """Return the text of each file by its name in `web/`."""
    tables = {"COLOURS": COLOURS, "SEQUENTIAL": SEQUENTIAL, "DIVERGING": DIVERGING,
              "SERIES": SERIES}  # fmt: skip
    exports = [f"export const {name} = {json.dumps(table, indent=2)};"
               for name, table in tables.items()]  # fmt: skip
    return {
        "colours.css": f"/* {NOTE} */\n\n{css_variables()}",
        "colours.js": f"// {NOTE}\n\n" + "\n".join(exports) + "\n",
    }


if __name__ == "__main__":
    for name, text in colour_files().items():
        Path(str(WEB / name)).write_text(text, encoding="utf-8")
