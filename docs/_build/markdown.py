"""Docstrings and help texts as Markdown."""

import re
from collections.abc import Iterator


def fence(code: str, language: str) -> str:
    return f"```{language}\n{code}\n```"


def prose(text: str) -> str:
    """Angle brackets outside of `code` are letters, not tags.

    >>> prose("A < B, `C < D`")
    'A &lt; B, `C < D`'
    """
    return _outside_code(text, "<", "&lt;")


def cell(text: str) -> str:
    """Text for a table's cell: bars outside of `code` end no cell."""
    return _outside_code(prose(" ".join(text.split())), "|", "\\|")


def _outside_code(text: str, old: str, new: str) -> str:
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else p.replace(old, new) for p in pieces)


def from_docstring(text: str) -> str:
    """Examples, arguments and indented blocks become what Markdown has for them.

    >>> from_docstring("Doubles.\\n\\nArgs:\\n    x: a number.")
    'Doubles.\\n\\n**Args**\\n\\n- `x`: a number.'
    """
    return "\n\n".join(_blocks(text))


def _blocks(text: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n", text.strip("\n")) if text else []:
        lines = block.splitlines()
        bare = [line.strip() for line in lines]
        examples = [i for i, line in enumerate(bare) if line.startswith(">>> ")]
        if examples:
            if examples[0]:
                yield prose("\n".join(bare[: examples[0]]))
            yield fence(_dedented(lines[examples[0] :]), "pycon")
        elif bare[0] in {"Args:", "Returns:", "Raises:"}:
            yield f"**{bare[0][:-1]}**" + "\n\n" + _entries(lines[1:])
        elif all(line.startswith("    ") for line in lines):
            yield fence(_dedented(lines), "python" if _is_python(_dedented(lines)) else "text")
        else:
            yield from _with_code(lines)


def _with_code(lines: list[str]) -> Iterator[str]:
    """A paragraph, some of whose last lines may be indented: those are code."""
    cut = next((i for i, line in enumerate(lines) if i and line.startswith("    ")), len(lines))
    listed = lines[0].lstrip().startswith(("- ", "* "))
    cut = len(lines) if listed else cut
    yield prose("\n".join(lines[:cut]))
    if lines[cut:]:
        yield fence(_dedented(lines[cut:]), "text")


def _entries(lines: list[str]) -> str:
    """`name: what it is`, each of which may go on in lines that are indented further."""
    out: list[str] = []
    for line in _dedented(lines).splitlines():
        if line.startswith(" ") and out:
            out[-1] += " " + line.strip()
        elif (found := re.match(r"(\w+(?:, \w+)*): (.*)", line)) is not None:
            out.append(f"- `{found[1]}`: {found[2]}")
        else:
            out.append(f"- {line}")
    return prose("\n".join(out))


def _dedented(lines: list[str]) -> str:
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[margin:] for line in lines)


def _is_python(code: str) -> bool:
    try:
        compile(code, "docstring", "exec")
    except SyntaxError:
        return False
    return bool(re.search(r"[=(]", code))
