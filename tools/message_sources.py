"""Find the texts that the package shows to people, by parsing it.

A text is a template: `{0}`, `{1}`, ... stand for the values of an f-string. An expression with
several outcomes, such as `"a" if x else "b"`, is several templates. Names are followed to what is
assigned to them in the same function or module, calls to what the called function returns, and
parameters to the arguments of every call.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TypeVar

PACKAGE = Path(__file__).resolve().parents[1] / "glasshead"
HOLE = "\0"  # a value, until the holes of a template are numbered
MOST = 12  # outcomes of one expression; with more, a value takes the place of its parts
# What these raise is answered over HTTP, or is about tensors that only Python code passes.
OVER_HTTP = ("serve/routes/", "serve/chat.py", "serve/openai")
NEVER_PRINTED = {"NotFoundError", "BusyError", "ClosingError", "ShapeError", "MaskError"}

WORDS = re.compile(r"[A-Za-z]{2}.* |^[, ;(]*[a-z]+ | [(]?[a-z]{2}")  # not a name alone
CHINESE = re.compile("[\u4e00-\u9fff]")  # from a table of both languages
METHODS = {"summary"}  # whose lines are shown

T = TypeVar("T")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Scope:
    """Where an expression stands: its module, and its function if there is one."""

    module: ast.Module
    function: Function | None = None


@dataclass
class Package:
    modules: dict[str, ast.Module]
    paths: dict[int, str] = field(default_factory=dict)  # by the id of the module
    functions: dict[str, list[tuple[Scope, Function]]] = field(default_factory=dict)
    constants: dict[str, list[tuple[Scope, ast.expr]]] = field(default_factory=dict)
    calls: dict[str, list[tuple[Scope, ast.Call]]] = field(default_factory=dict)
    errors: set[str] = field(default_factory=lambda: {"GlassheadError"})
    _open: list[ast.AST] = field(default_factory=list)  # what is being resolved
    _followed: set[tuple[str, str]] = field(default_factory=set)  # parameters
    found: dict[str, str] = field(default_factory=dict)  # template -> where

    @classmethod
    def parse(cls, root: Path = PACKAGE) -> "Package":
        paths = sorted(root.rglob("*.py"))
        package = cls({str(p.relative_to(root)): ast.parse(p.read_text("utf-8")) for p in paths})
        for path, module in package.modules.items():
            package.paths[id(module)] = path
            package._index(module, Scope(module))
        while (
            new := {
                node.name
                for module in package.modules.values()
                for node in ast.walk(module)
                if isinstance(node, ast.ClassDef)
                and {getattr(base, "id", "") for base in node.bases} & package.errors
            }
            - package.errors
        ):
            package.errors |= new
        return package

    def _index(self, node: ast.AST, scope: Scope) -> None:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, Function):
                inner = Scope(scope.module, child)
                self.functions.setdefault(child.name, []).append((inner, child))
            elif isinstance(child, ast.Assign) and scope.function is None:
                for target in child.targets:
                    if isinstance(target, ast.Name):
                        self.constants.setdefault(target.id, []).append((scope, child.value))
            elif isinstance(child, ast.Call):
                self.calls.setdefault(_name(child.func), []).append((scope, child))
            self._index(child, inner)

    def templates(self) -> dict[str, str]:
        """Return each template of at least two words with the file it is first found in."""
        for path, module in self.modules.items():
            if path.startswith(OVER_HTTP):
                continue
            scopes = [(s, c) for some in self.calls.values() for s, c in some if s.module is module]
            for scope, call in scopes:
                for text in self._texts_of(call, path):
                    self.add(text, scope, path)
        return self.found

    def _texts_of(self, call: ast.Call, path: str) -> Iterator[ast.expr]:
        """Yield the arguments of a call that are shown to people."""
        name = _name(call.func)
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        if name in self.errors - NEVER_PRINTED:
            yield from call.args[:2]
            yield from [keywords[key] for key in ("message", "hint") if key in keywords]
        elif (
            name in ("say", "translate")
            or (name == "report" and path == "cli/__init__.py")
            or (name == "print" and "stderr" in ast.unparse(keywords.get("file", call.func)))
            or (ast.unparse(call.func) == "sys.stderr.write")
        ):
            yield from call.args

    def add(self, text: ast.expr, scope: Scope, path: str) -> None:
        """Add the templates of an expression whose values are shown to people."""
        if isinstance(text, ast.Starred):
            text = text.value
        for template in self.outcomes(text, scope, path):
            self._add(template, path)

    def _add(self, template: str, path: str) -> None:
        text = template.replace(HOLE, "")
        if WORDS.search(text) and text.isprintable() and not CHINESE.search(text):
            self.found.setdefault(number(template.strip()), path)

    def outcomes(self, node: ast.expr, scope: Scope, path: str) -> list[str]:
        """Return the templates of an expression; `[HOLE]` if nothing is known about it."""
        if node in self._open or len(self._open) > 25:
            return [HOLE]
        self._open.append(node)
        try:
            found = list(dict.fromkeys(self._outcomes(node, scope, path)))
        finally:
            self._open.pop()
        if len(found) > MOST:
            for template in found:
                self._add(template, path)
            return [HOLE]
        return found or [HOLE]

    def _outcomes(self, node: ast.expr, scope: Scope, path: str) -> Iterator[str]:
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.JoinedStr(values=parts):
                yield from self._joined([self._part(part, scope, path) for part in parts], path)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                both = [self.outcomes(side, scope, path) for side in (left, right)]
                yield from self._joined(both, path)
            case ast.BinOp(op=ast.Mult(), left=ast.Constant(value=str(text))):
                yield from (text, "")  # a plural's s
            case ast.IfExp(body=one, orelse=other):
                yield from self.outcomes(one, scope, path)
                yield from self.outcomes(other, scope, path)
            case ast.BoolOp(values=values) | ast.List(elts=values) | ast.Tuple(elts=values):
                for value in values:
                    yield from self.outcomes(value, scope, path)
            case ast.ListComp(elt=value) | ast.GeneratorExp(elt=value) | ast.Starred(value=value):
                yield from self.outcomes(value, scope, path)
            case ast.Subscript(value=value, slice=ast.Slice()):
                yield from self.outcomes(value, scope, path)
            case ast.NamedExpr(value=value):
                yield from self.outcomes(value, scope, path)
            case ast.Name(id=name):
                yield from self._assigned(name, scope, path)
            case ast.Call():
                yield from self._returned(node, scope, path)
            case _:
                yield HOLE

    def _part(self, part: ast.expr, scope: Scope, path: str) -> list[str]:
        """Return what a piece of an f-string may be; what a call returns is a text of its own."""
        if not isinstance(part, ast.FormattedValue):
            return self.outcomes(part, scope, path)
        if part.format_spec is not None or part.conversion != -1:
            return [HOLE]
        found = self.outcomes(part.value, scope, path)
        if isinstance(part.value, ast.Call) or HOLE in found:
            for template in found:
                self._add(template, path)
            return [HOLE]
        return found

    def _joined(self, parts: list[list[str]], path: str) -> Iterator[str]:
        size = 1
        for index, some in enumerate(parts):
            size *= len(some)
            if size > MOST:
                for template in some:
                    self._add(template, path)
                parts[index], size = [HOLE], size // len(some)
        yield from map("".join, product(*parts))

    def _assigned(self, name: str, scope: Scope, path: str) -> Iterator[str]:
        if function := scope.function:
            names = [arg.arg for arg in _parameters(function)]
            if name in names:
                self._follow(function, name, path)
                yield HOLE
            for node in ast.walk(function):
                match node:
                    case ast.Assign(targets=[*targets], value=value):
                        yield from self._from_targets(name, targets, value, scope, path)
                    case ast.AnnAssign(target=target, value=ast.expr() as value):
                        yield from self._from_targets(name, [target], value, scope, path)
                    case ast.AugAssign(target=ast.Name(id=target), value=value) if target == name:
                        for template in self.outcomes(value, scope, path):
                            self._add(template.removeprefix("; "), path)
                    case ast.NamedExpr(target=ast.Name(id=target), value=value) if target == name:
                        yield from self.outcomes(value, scope, path)
                    case ast.For(target=ast.Name(id=target), iter=value) if target == name:
                        yield from self.outcomes(value, scope, path)
                    case ast.Call(func=ast.Attribute(value=ast.Name(id=target), attr="append")):
                        if target == name:
                            yield from self.outcomes(node.args[0], scope, path)
        if name.isupper():
            for where, value in self._visible(self.constants.get(name, []), name, scope):
                yield from self.outcomes(value, where, path)

    def _visible(
        self, some: list[tuple[Scope, T]], name: str, scope: Scope
    ) -> list[tuple[Scope, T]]:
        """Return what a name means in a module: its own, or what it imports."""
        own = [(where, node) for where, node in some if where.module is scope.module]
        imported = {
            node.module
            for node in ast.walk(scope.module)
            if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}
        }
        paths = {
            f"{(module or '').removeprefix('glasshead.').replace('.', '/')}" for module in imported
        }
        files = {f"{path}{end}" for path in paths for end in (".py", "/__init__.py")}
        return own or [one for one in some if self.paths[id(one[0].module)] in files]

    def _from_targets(
        self, name: str, targets: list[ast.expr], value: ast.expr, scope: Scope, path: str
    ) -> Iterator[str]:
        for target in targets:
            if isinstance(target, ast.Name) and target.id == name:
                yield from self.outcomes(value, scope, path)
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                for one, its in zip(target.elts, value.elts, strict=False):
                    if isinstance(one, ast.Name) and one.id == name:
                        yield from self.outcomes(its, scope, path)

    def _returned(self, call: ast.Call, scope: Scope, path: str) -> Iterator[str]:
        name = _name(call.func)
        if name == "join" and call.args:  # of texts, which `translate` cuts apart again
            for template in self.outcomes(call.args[0], scope, path):
                self._add(template, path)
        functions = self.functions.get(name, [])
        if isinstance(call.func, ast.Name):
            functions = self._visible(functions, name, scope)
        elif name not in METHODS:
            functions = []
        for where, function in functions:
            for node in ast.walk(function):
                if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
                    yield from self.outcomes(node.value, where, path)
        yield HOLE

    def _follow(self, function: Function, parameter: str, path: str) -> None:
        """Add what is passed for a parameter, wherever the function is called."""
        if (function.name, parameter) in self._followed or function.name.startswith("__"):
            return
        self._followed.add((function.name, parameter))
        names = [arg.arg for arg in _parameters(function)]
        for scope, call in self.calls.get(function.name, []):
            place = names.index(parameter) - (names[0] in ("self", "cls"))
            given = {keyword.arg: keyword.value for keyword in call.keywords}.get(parameter)
            if given is None and 0 <= place < len(call.args):
                given = call.args[place]
            if given is not None:
                self.add(given, scope, path)


def number(template: str) -> str:
    """Return a template with its holes numbered.

    >>> number("a \\0 of \\0")
    'a {0} of {1}'
    """
    pieces = template.split(HOLE)
    return "".join(piece + f"{{{i}}}" for i, piece in enumerate(pieces[:-1])) + pieces[-1]


def _name(function: ast.expr) -> str:
    return getattr(function, "id", None) or getattr(function, "attr", "")


def _parameters(function: Function) -> Iterable[ast.arg]:
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
