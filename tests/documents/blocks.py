"""The code blocks of a Markdown page, and what the comment before one says of running it.

    <!-- run: --steps 20 -->          a smaller setting: its `glasshead train` lines get this too
    <!-- run: fails -->               its last command is a mistake, which is what it shows
    <!-- run: in the background -->   it goes on while the rest of the page runs
    <!-- not run: needs 8 GPUs -->    it is only checked: commands, flags and targets exist

A `text` block right behind one that ran shows what it printed; … stands for what was left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

LANGUAGES = {"bash", "python", "text", "json"}
RUNNING = {"bash", "python"}

_MARK = re.compile(r"<!-- (run|not run): (.+?) -->$")


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    line: int  # of its first line of code
    more: str = ""  # flags for its `glasshead train` lines
    fails: bool = False
    background: bool = False
    not_run: str = ""  # why
    follows: bool = False  # nothing but blank lines stand between it and the block before

    @property
    def commands(self) -> list[str]:
        """Its command lines, each whole, without comments."""
        joined = self.code.replace("\\\n", " ")
        return [line for raw in joined.splitlines() if (line := without_comment(raw).strip())]


def without_comment(line: str) -> str:
    """
    >>> without_comment('glasshead look runs "a # b" -o x.png    # a picture')
    'glasshead look runs "a # b" -o x.png'
    """
    quoted = r"""(?:"[^"]*"|'[^']*'|[^"'#]|(?<=\S)#)*"""
    found = re.match(quoted, line)
    return (found[0] if found else line).rstrip()


def blocks(page: str) -> Iterator[Block]:
    """
    >>> [b] = blocks("<!-- run: --steps 20 -->\\n```bash\\nglasshead train my.txt\\n```")
    >>> b.more, b.commands
    ('--steps 20', ['glasshead train my.txt'])
    """
    lines = page.splitlines()
    at, end_of_last = 0, -1
    while at < len(lines):
        fence = re.match(r"^( *)```+ *(\S*)", lines[at])
        if not fence:
            at += 1
            continue
        end = next(i for i in range(at + 1, len(lines)) if lines[i].strip().startswith("```"))
        code = "\n".join(line.removeprefix(fence[1]) for line in lines[at + 1 : end])
        marks = _read_mark(lines[at - 1] if at else "", at)
        before = at - 1 if marks else at
        blank = not any(line.strip() for line in lines[end_of_last + 1 : before])
        yield Block(fence[2], code, at + 2, follows=blank and end_of_last >= 0, **marks)
        at, end_of_last = end + 1, end


def _read_mark(line: str, number: int) -> dict[str, object]:
    if not re.match(r"\s*<!--.*\brun\b", line):
        return {}
    mark = _MARK.search(line)
    match (mark[1], mark[2]) if mark else ("", ""):
        case "not run", reason:
            return {"not_run": reason}
        case "run", "fails":
            return {"fails": True}
        case "run", "in the background":
            return {"background": True}
        case "run", flags if flags.startswith("--"):
            return {"more": flags}
    raise ValueError(f"line {number} is a mark before a block that nobody knows: {line}")


def prose(page: str) -> str:
    """A page without its blocks, its `code`, its comments and the targets of its links."""
    page = re.sub(r"^( *)```.*?^\1```$", "", page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    return re.sub(r"`[^`]*`|\]\([^)]*\)", " ", page)
