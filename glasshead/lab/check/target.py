"""Find what TARGET names, and make it callable: import it, read its source, construct a class."""

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from glasshead.errors import InputError, did_you_mean, near_file
from glasshead.lab.check.roles import Parameter, parameters, role_of

__all__ = ["SIZES", "CheckTarget", "called_method", "find_target", "make_target"]

# Sizes that differ from each other, so that no two dimensions are mistaken for one another.
SIZES: dict[str, Any] = {
    "width": 24,
    "heads": 4,
    "kv_heads": 2,
    "head_width": 6,
    "max_len": 32,
    "layers": 2,
    "vocab": 29,
    "dropout": 0.0,
    "window": 3,
    "batch": 3,
}


@dataclass(frozen=True, eq=False)
class CheckTarget:
    """What is checked. `function` is what is called, `owner` the object that holds parameters."""

    name: str
    function: Callable[..., Any]
    owner: Any  # None for a function
    source: str  # "" if unknown
    path: str
    first_line: int
    parameters: list[Parameter]
    made_with: Mapping[str, Any] = field(default_factory=dict)  # how the object was constructed
    remake: Callable[[Mapping[str, Any]], Any] | None = None

    @property
    def text(self) -> str:
        """Return all that is written about the target: source, comments and documentation."""
        return "\n".join([self.source, self.documentation])

    @property
    def built_with(self) -> dict[str, Any]:
        """Return the arguments of the constructor, with its defaults."""
        listed = parameters(type(self.owner), calling=False) if self.owner is not None else []
        defaults = {e.name: e.default for e in listed if e.default is not None}
        return {**defaults, **self.made_with}

    @property
    def whole_text(self) -> str:
        """Return the text with that of the functions and classes of its file that it names."""
        function = self.function if self.owner is None else called_method(self.owner)
        names = getattr(inspect.unwrap(function), "__globals__", {})
        home = getattr(inspect.unwrap(function), "__module__", None)
        parts, known = [self.text], {self.name}
        for part in parts:  # grows by what they name in turn
            for word in dict.fromkeys(re.findall(r"\b[A-Za-z_]\w*\b", part)):
                found = None if word in known else names.get(word)
                known.add(word)
                if callable(found) and getattr(found, "__module__", None) == home:
                    parts.append(_read_source(found)[0])
        return "\n".join(parts)

    @property
    def documentation(self) -> str:
        """Return docstrings and comments; a comment with the line of code that it stands on."""
        docs = [inspect.getdoc(self.function) or ""]
        if self.owner is not None:
            docs.append(inspect.getdoc(type(self.owner)) or "")
            methods = (getattr(self.owner, name, None) for name in ("forward", "call", "__call__"))
            docs += [inspect.getdoc(each) or "" for each in methods if inspect.ismethod(each)]
        return "\n".join([*docs, *(line for line in self.source.splitlines() if "#" in line)])


def find_target(name: str) -> Any:
    """Import `file.py:name` or `package.module:name`. The file is executed."""
    place, colon, attribute = name.rpartition(":")
    if not colon:
        raise InputError(
            f"'{name}' does not say what to check",
            hint="write file.py:name, package.module:Class, or the folder of a model",
        )
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = [n for n in vars(found) if not n.startswith("_")]
            raise InputError(f"{place} has no '{part}'", hint=did_you_mean(part, known))
        found = getattr(found, part)
    return found


def _import_file(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"there is no file {path}", hint=near_file(path, "check the path"))
    name = re.sub(r"\W", "_", path.stem) + "_checked"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"{path} cannot be imported: {type(error).__name__}: {error}",
            hint=f"run it alone first: python {path}",
        ) from error
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module


def _import_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"cannot import '{name}': {error}", hint="is it installed?") from None


def make_target(found: Any, given: Mapping[str, Any], name: str = "") -> CheckTarget:
    """Wrap a function, an object, or a class, which is constructed with small sizes.

    Args:
        given: values for parameters of the constructor or the call whose names are not known.
    """
    name = name or getattr(found, "__name__", type(found).__name__)
    if not inspect.isclass(found):
        return _wrap(found, name)
    owner, made_with = _construct(found, given)
    target = _wrap(owner, name)

    def remake(changes: Mapping[str, Any]) -> Any:
        return _construct(found, {**given, **changes})[0]

    return CheckTarget(**{**vars(target), "made_with": made_with, "remake": remake})


def _wrap(found: Any, name: str) -> CheckTarget:
    if not callable(found) and called_method(found) is found:
        raise InputError(
            f"'{name}' is a {type(found).__name__}, which cannot be called",
            hint="name a function, a class or an object with forward or __call__",
        )
    plain = inspect.isroutine(found) or hasattr(found, "func")
    owner = None if plain else found
    function = found if plain else called_method(found)
    described = inspect.unwrap(function) if plain else type(found)
    source, path, line = _read_source(described)
    called = found if callable(found) else function
    return CheckTarget(name, called, owner, source, path, line, parameters(function))


def called_method(found: Any) -> Any:
    """Return the method of an object that computes: __call__ if it names its parameters."""
    methods = [getattr(found, name, None) for name in ("__call__", "forward", "call")]
    bound = [method for method in methods if inspect.ismethod(method)]
    named = [method for method in bound if parameters(method)]  # not only *args and **kwargs
    return next(iter(named or bound), found)


def _read_source(described: Any) -> tuple[str, str, int]:
    try:
        lines, first = inspect.getsourcelines(described)
        return "".join(lines), inspect.getsourcefile(described) or "", first
    except (OSError, TypeError):
        return "", "", 0


class ProbeConfig(dict[str, Any]):
    """A configuration that has a small value for each name it is asked for."""

    def __missing__(self, name: str) -> Any:
        role = role_of(name, calling=False)
        if role in SIZES:
            return SIZES[role]
        if role in ("bias_flag", "causal") or "bias" in name:
            return role == "causal"
        raise KeyError(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the configuration has no '{name}'") from None

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default


def _construct(cls: type, given: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Call a class with small sizes; raise InputError if none of the ways works."""
    problem: Exception | None = None
    for arguments in _arguments(cls, given):
        try:
            made = cls(**arguments)
            build = getattr(made, "build", None)
            if callable(build) and not getattr(made, "built", False):
                _build(build)
            return made, arguments
        except Exception as error:
            problem = problem or error
    raise InputError(
        f"cannot construct {cls.__name__}: {type(problem).__name__}: {problem}",
        hint="construct it yourself, or give the values: --with name=value",
    )


def _build(build: Callable[..., Any]) -> None:
    """Call the `build` of a Keras-like layer with the shape of an input, if it wants one."""
    shape = (3, 5, SIZES["width"])
    for arguments in ((shape,), (shape, shape, shape), (shape, shape), ()):
        try:
            build(*arguments)
            return
        except Exception:  # another number of shapes
            continue


def _arguments(cls: type, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield arguments to construct a class with, the most likely first."""
    listed = parameters(cls, calling=False)
    known = {each.name for each in listed}
    names = {each.role for each in listed}
    plain: dict[str, Any] = {}
    for each in listed:
        if each.name in given:
            plain[each.name] = given[each.name]
        elif (value := _value(each, given, names)) is not None:
            plain[each.name] = value
    plain |= {name: value for name, value in given.items() if name in known}
    yield plain
    required = {each.name for each in listed if each.required}
    yield {name: value for name, value in plain.items() if name in required or name in given}
    # One head, whose width may be the whole width.
    yield {n: SIZES["width"] if role_of(n, False) == "head_width" else v for n, v in plain.items()}


def _value(each: Parameter, given: Mapping[str, Any], roles: set[str]) -> Any:
    """Return a value for a parameter of a constructor; None to leave it to its default."""
    if each.role == "config" or is_dataclass(each.annotation):
        return _config(each.annotation, given)
    if each.role == "rng":
        return _generator(each)
    if each.role == "causal":
        return True if each.required else None
    if each.role == "bias_flag":
        return False if each.required else None
    if each.role == "head_width" and not each.required and each.default is None:
        return None
    if each.role == "kv_heads" and "heads" not in roles:
        return SIZES["kv_heads"]
    if each.role == "dropout" and not isinstance(each.default, (int, float, type(None))):
        return None
    if each.role == "window" and not each.required:
        return None
    if each.role in SIZES:
        return SIZES[each.role]
    return None


def _config(annotation: Any, given: Mapping[str, Any]) -> Any:
    if not is_dataclass(annotation):
        return ProbeConfig(given)
    values = {}
    for each in fields(annotation):
        role = role_of(each.name, calling=False)
        if each.name in given:
            values[each.name] = given[each.name]
        elif role in SIZES and role != "window":
            values[each.name] = SIZES[role]
    return annotation(**values) if isinstance(annotation, type) else ProbeConfig(given)


def _generator(each: Parameter) -> Any:
    import numpy as np

    if "seed" in each.name:
        return 0
    if "jax" in sys.modules and "numpy" not in str(each.annotation):
        import jax

        return jax.random.PRNGKey(0)
    return np.random.default_rng(0)
