"""Put the page into one HTML file that works without a server, with the data that it shows.

    html = standalone_page({"kind": "saved", ...})        see web/embedded.js

All modules become one script: each becomes a function that returns its exports, placed after the
modules it imports. The file's content security policy allows that script and that style sheet by
their hashes, and nothing else: no other script, no request to anywhere. The data stands in an
element that no browser runs.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

__all__ = [
    "WEB", "bundle", "living_page", "page_around_data", "standalone_page", "to_script_json",
]  # fmt: skip

WEB = resources.files("glasshead.page") / "web"
IMPORT = re.compile(
    r"^import (?:(?:(?P<default>\w+)|\* as (?P<all>\w+)|\{(?P<names>[^}]*)\}) from )?"
    r'"(?P<path>\.[^"]+)";[^\n]*$',
    re.MULTILINE,
)
EXPORT = re.compile(r"^export (?=(?:(?:async )?function|class|const) (\w+))", re.MULTILINE)
DEFAULT = re.compile(r"^export default ", re.MULTILINE)
UNSUPPORTED = re.compile(r"^\s*(?:import|export)\b(?!\.meta)[^\n]*", re.MULTILINE)


def standalone_page(data: Any) -> str:
    """Return the whole page as one HTML text that shows `data`."""
    before, after = page_around_data()
    return before + to_script_json(data) + after


def to_script_json(data: Any) -> str:
    """Write JSON that can stand in a script element, whatever texts it holds.

    >>> to_script_json({"text": "</script>"})
    '{"text": "\\\\u003c/script>"}'
    """
    return json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def living_page(data: Any, parameters: str) -> str:
    """Return the page as one HTML text that runs a model; `parameters` are in base64.

    Its policy also allows a worker and WebAssembly, and still no request to anywhere.
    """
    before, after = page_around_data(runs=True)
    blocks = {"engine": bundle(_read, "engine/worker.js"), "parameters": parameters}
    elements = "".join(
        f'<script type="text/plain" id="{name}">{text}</script>\n' for name, text in blocks.items()
    )
    return before + to_script_json(data) + after.replace("<script", f"{elements}<script", 1)


@cache
def page_around_data(runs: bool = False) -> tuple[str, str]:
    """Return the text of the standalone page before and after its data.

    `runs` says whether the page may start workers and WebAssembly, to run a model.
    """
    script, style = bundle(_read, "main.js"), _styles()
    icon = base64.b64encode(_read("icon.svg").encode()).decode()
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(script)}" + (" 'wasm-unsafe-eval'" if runs else ""),
            *(["worker-src blob:"] if runs else []),
            f"style-src {_hash(style)}",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    head, body = _read("index.html").split("</head>")
    lines = [line for line in head.splitlines() if not re.match("<(link|script)", line)]
    # A policy applies only to what follows it.
    first = next(n for n, line in enumerate(lines) if "charset" in line) + 1
    lines[first:first] = [f'<meta http-equiv="Content-Security-Policy" content="{policy}">']
    lines += [
        f'<link rel="icon" href="data:image/svg+xml;base64,{icon}">',
        f"<style>{style}</style>",
        "</head>",
    ]
    main, end = body.split("</body>")
    before = "\n".join(lines) + main + '<script type="application/json" id="embedded">'
    return before, f'</script>\n<script type="module">{script}</script>\n</body>{end}'


def bundle(read: Callable[[str], str], start: str) -> str:
    """Join the module `start` and all that it imports into one script.

    `read(path)` returns a module's text. Raises ValueError for what cannot be joined: modules that
    import each other, forms of import and export that the page does not use, and text that would
    end the script element.
    """
    scripts: dict[str, str] = {}
    _add_module(read, start, scripts, ())
    script = "\n".join(scripts.values())
    if wrong := re.search(r"</?script|<!--|\r", script, re.IGNORECASE):
        raise ValueError(f"a module holds {wrong[0]!r}, which would end the script")
    return script


def _add_module(
    read: Callable[[str], str], path: str, scripts: dict[str, str], importers: tuple[str, ...]
) -> None:
    if path in scripts:
        return
    if path in importers:
        raise ValueError(f"modules import each other: {' -> '.join((*importers, path))}")
    text = read(path)
    for found in IMPORT.finditer(text):
        _add_module(read, _resolve(path, found["path"]), scripts, (*importers, path))
    names = EXPORT.findall(text)
    text = IMPORT.sub(lambda found: _as_assignment(path, found), text)
    text = EXPORT.sub("", text)
    text, defaults = DEFAULT.subn("const $default = ", text)
    if left := UNSUPPORTED.search(text):
        raise ValueError(f"{path}: cannot put this into one script: {left[0]}")
    exports = ", ".join([*names, *(["default: $default"] if defaults else [])])
    scripts[path] = f"const {_variable(path)} = (() => {{\n{text}\nreturn {{ {exports} }};\n}})();"


def _as_assignment(path: str, found: re.Match[str]) -> str:
    """Write an import as assignments from the variable that holds the module's exports."""
    module = _variable(_resolve(path, found["path"]))
    if found["default"]:
        return f"const {{ default: {found['default']} }} = {module};"
    if found["all"]:
        return f"const {found['all']} = {module};"
    if found["names"]:
        return f"const {{{found['names'].replace(' as ', ': ')}}} = {module};"
    return ""


def _resolve(path: str, relative: str) -> str:
    """
    >>> _resolve("views/look.js", "../dom.js"), _resolve("views/look.js", "./look_head.js")
    ('dom.js', 'views/look_head.js')
    """
    steps = path.split("/")[:-1]
    for step in relative.split("/"):
        if step == "..":
            steps.pop()
        elif step != ".":
            steps.append(step)
    return "/".join(steps)


def _variable(path: str) -> str:
    return "$" + re.sub(r"\W", "_", path.removesuffix(".js"))


def _styles() -> str:
    folders = [sorted((WEB / name).iterdir(), key=lambda file: file.name)
               for name in ("vendor", "views")]  # fmt: skip
    files = [WEB / "colours.css", WEB / "style.css", *folders[0], *folders[1]]
    return "\n".join(file.read_text("utf-8") for file in files if file.name.endswith(".css"))


def _read(path: str) -> str:
    return (WEB / path).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
