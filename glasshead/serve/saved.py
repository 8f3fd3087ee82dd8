"""The page as one file that works without a server: its modules and styles inside, and data.

    before, after = parts()
    html = before + quoted({"kind": "saved", ...}) + after        see web/brought.js

All modules become one script, each a function that gives what it exports, after those it imports.
The page allows that script and that style sheet by their hashes, and nothing else: no other
script, no request to anywhere. Data stands in an element that no browser runs.
"""

import base64
import hashlib
import json
import re
from functools import cache
from importlib import resources
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

__all__ = ["bundle", "parts", "quoted", "router"]

router = APIRouter(prefix="/api", tags=["save"])

WEB = resources.files("glasshead.serve") / "web"
IMPORT = re.compile(
    r"^import (?:(?:(?P<default>\w+)|\* as (?P<all>\w+)|\{(?P<names>[^}]*)\}) from )?"
    r'"(?P<path>\.[^"]+)";[^\n]*$',
    re.MULTILINE,
)
EXPORT = re.compile(r"^export (?=(?:(?:async )?function|class|const) (\w+))", re.MULTILINE)
DEFAULT = re.compile(r"^export default ", re.MULTILINE)
LEFT = re.compile(r"^\s*(?:import|export)\b(?!\.meta)[^\n]*", re.MULTILINE)


class Page(BaseModel):
    """What stands before and after the data."""

    before: str
    after: str


@router.get("/page")
def page() -> Page:
    before, after = parts()
    return Page(before=before, after=after)


def quoted(data: Any) -> str:
    """JSON that can stand in a script element, whatever is in it.

    >>> quoted({"text": "</script>"})
    '{"text": "\\\\u003c/script>"}'
    """
    return json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


@cache
def parts() -> tuple[str, str]:
    """The page before and after its data."""
    script, style = bundle(_read, "main.js"), _styles()
    icon = base64.b64encode(_read("icon.svg").encode()).decode()
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    head, body = _read("index.html").split("</head>")
    kept = [line for line in head.splitlines() if not re.match("<(link|script)", line)]
    # A policy counts for what follows it.
    at = next(n for n, line in enumerate(kept) if "charset" in line) + 1
    kept[at:at] = [f'<meta http-equiv="Content-Security-Policy" content="{policy}">']
    kept += [
        f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">',
        f"<style>{style}</style>",
        "</head>",
    ]
    main, end = body.split("</body>")
    before = "\n".join(kept) + main + '<script type="application/json" id="brought">'
    return before, f'</script>\n<script type="module">{script}</script>\n</body>{end}'


def bundle(read: Any, start: str) -> str:
    """One script of a module and all that it imports; `read(path)` gives a module's text."""
    done: dict[str, str] = {}
    _add(read, start, done, ())
    script = "\n".join(done.values())
    wrong = re.search(r"</?script|<!--|\r", script, re.IGNORECASE)
    if wrong:
        raise ValueError(f"a module holds {wrong[0]!r}, which would end the script")
    return script


def _add(read: Any, path: str, done: dict[str, str], within: tuple[str, ...]) -> None:
    if path in done:
        return
    if path in within:
        raise ValueError(f"modules import each other: {' -> '.join((*within, path))}")
    text = read(path)
    for found in IMPORT.finditer(text):
        _add(read, _beside(path, found["path"]), done, (*within, path))
    names = EXPORT.findall(text)
    text = IMPORT.sub(lambda found: _taken(path, found), text)
    text = EXPORT.sub("", text)
    text, defaults = DEFAULT.subn("const $default = ", text)
    if left := LEFT.search(text):
        raise ValueError(f"{path}: cannot put this into one script: {left[0]}")
    given = ", ".join([*names, *(["default: $default"] if defaults else [])])
    done[path] = f"const {_name(path)} = (() => {{\n{text}\nreturn {{ {given} }};\n}})();"


def _taken(path: str, found: re.Match[str]) -> str:
    module = _name(_beside(path, found["path"]))
    if found["default"]:
        return f"const {{ default: {found['default']} }} = {module};"
    if found["all"]:
        return f"const {found['all']} = {module};"
    if found["names"]:
        return f"const {{{found['names'].replace(' as ', ': ')}}} = {module};"
    return ""


def _beside(path: str, relative: str) -> str:
    """
    >>> _beside("views/look.js", "../dom.js"), _beside("views/look.js", "./look_head.js")
    ('dom.js', 'views/look_head.js')
    """
    steps = path.split("/")[:-1]
    for step in relative.split("/"):
        if step == "..":
            steps.pop()
        elif step != ".":
            steps.append(step)
    return "/".join(steps)


def _name(path: str) -> str:
    return "$" + re.sub(r"\W", "_", path.removesuffix(".js"))


def _styles() -> str:
    files = [WEB / "style.css", *sorted((WEB / "views").iterdir(), key=lambda file: file.name)]
    return "\n".join(file.read_text("utf-8") for file in files if file.name.endswith(".css"))


def _read(path: str) -> str:
    return (WEB / path).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
