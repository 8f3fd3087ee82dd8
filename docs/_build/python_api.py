"""The reference of the Python names, from signatures and docstrings; nothing is imported."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docs._build.imports import PACKAGE
from docs._build.markdown import fence, from_docstring

PARTS = ("attention", "model", "observe", "text", "training", "generation", "checkpoint", "api")
WIDTH = 88

Function = ast.FunctionDef | ast.AsyncFunctionDef


def package_page() -> str:
    """The names at the top of the package: functions first, then classes."""
    module = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    names = next(ast.literal_eval(v) for name, v in assigned(module) if name == "_NAMES")
    found = [
        find(name, PACKAGE.joinpath(*place.split(".")))
        for place, some in names.items()
        for name in some
        if name != "complete"  # another name of generate
    ]
    found.sort(key=lambda one: (isinstance(one[0], ast.ClassDef), one[0].name.lower()))
    out = ["# glasshead", from_docstring(ast.get_docstring(module) or "")]
    for node, where in found:
        out += [f"## {node.name}", *described(node, "###"), f"*`{where}`*"]
    return "\n\n".join(out) + "\n"


def part_page(part: str) -> str:
    """Every module of a part that says which of its names are for others."""
    head = (PACKAGE / part / "__init__.py").read_text(encoding="utf-8")
    out = [f"# glasshead.{part}", from_docstring(ast.get_docstring(ast.parse(head)) or "")]
    for path in sorted((PACKAGE / part).rglob("*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        nodes = {n.name: n for n in module.body if isinstance(n, Function | ast.ClassDef)}
        public = [v for name, v in assigned(module) if name == "__all__"]
        if found := [nodes[name] for v in public for name in ast.literal_eval(v) if name in nodes]:
            out += [f"## {dotted(path)}", from_docstring(ast.get_docstring(module) or "")]
            for node in found:
                out += [f"### {node.name}", *described(node, "####")]
    return "\n\n".join(part for part in out if part) + "\n"


def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def assigned(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value


def find(name: str, place: Path) -> tuple[Function | ast.ClassDef, str]:
    """A name's definition, in a module or in one of a package's modules."""
    for path in sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]:
        body = ast.parse(path.read_text(encoding="utf-8")).body
        nodes = [n for n in body if isinstance(n, Function | ast.ClassDef) and n.name == name]
        if nodes:
            return nodes[-1], dotted(path)  # overloads come before what they are of
    raise LookupError(f"{name} is not defined in {place}")


def described(node: Function | ast.ClassDef, deeper: str) -> Iterator[str]:
    """Signature and docstring; of a class also its fields and its public methods."""
    said = from_docstring(ast.get_docstring(node) or "")
    if not isinstance(node, ast.ClassDef):
        yield fence(signature(node), "python")
        yield said
        return
    methods = {n.name: n for n in node.body if isinstance(n, Function)}
    bases = ", ".join(map(ast.unparse, node.bases))
    lines = [f"class {node.name}" + (f"({bases})" if bases else "")]
    lines += [f"    {ast.unparse(n)}" for n in node.body if isinstance(n, ast.AnnAssign)]
    if "__init__" in methods:
        lines = [signature(methods["__init__"], node.name)]
    yield fence("\n".join(lines), "python")
    yield said
    for name, method in methods.items():
        text = ast.get_docstring(method)
        if text and (not name.startswith("_") or name == "__call__"):
            yield f"{deeper} {node.name}.{name}"
            yield fence(signature(method), "python")
            yield from_docstring(text)


def signature(node: Function, made: str = "") -> str:
    """`def name(arguments) -> result`, one argument a line where it would be long.

    `made` is the class whose `__init__` this is: how its objects are made is shown then.

    >>> [f] = ast.parse("def f(a: int, *, b: int=2) -> str: ...").body
    >>> signature(f)
    'def f(a: int, *, b: int = 2) -> str'
    """
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and not made else ""
    if {ast.unparse(mark) for mark in node.decorator_list} & {"property", "cached_property"}:
        return f"{node.name}:{returns.removeprefix(' ->')}"
    given = arguments(node.args)
    word = made or f"def {node.name}"
    flat = f"{word}({', '.join(given)}){returns}"
    if len(flat) <= WIDTH:
        return flat
    return f"{word}(\n" + "".join(f"    {one},\n" for one in given) + f"){returns}"


def arguments(args: ast.arguments) -> list[str]:
    """Each argument as it is written, without `self`."""
    parts, depth = [""], 0
    for char in ast.unparse(args):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    spaced = [re.sub(r"^(\*{0,2}\w+: [^=]+)=", r"\1 = ", part.strip()) for part in parts]
    return [part for part in spaced if part not in {"", "self", "cls"}]
