"""Who may import whom, how long a file may be, what a name promises: kept by machine."""

import ast
import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from docs._build import architecture
from docs._build.imports import PACKAGE, ROOT, ROW, imported, part_of

MODULES = sorted(PACKAGE.rglob("*.py"))

MAX_LINES = 400
OURS = {"glasshead", "lessons", "bench", "docs", "tools"}
BANNED_NAMES = {"utils.py", "common.py", "helpers.py", "misc.py"}


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def violations(name: str, source: str) -> list[str]:
    part = Path(name).parts[0].removesuffix(".py")
    if part not in ROW:
        return [f"{name}: '{part}' is no part of the design"]
    return [
        f"{name}:{line}: {part} imports {module}"
        for line, module in imported(name, source)
        if (other := part_of(module)) and other != part and ROW[other] >= ROW[part]
    ]


def test_a_part_imports_itself_and_earlier_parts_only():
    found = [
        violation
        for path in MODULES
        for violation in violations(
            path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")
        )
    ]
    assert found == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("errors.py", "import glasshead.text.corpus"),
        ("text/corpus.py", "from glasshead.attention import steps"),
        ("attention/mask.py", "from glasshead import text"),
        ("attention/mask.py", "from ..model import gpt"),
        ("attention/mask.py", "from .. import cli"),
        ("attention/deep/er.py", "from ...model.gpt import GPT"),
        ("model/gpt.py", "def f():\n    from glasshead.observe.trace import Atlas"),
        ("observe/recording.py", "import glasshead.model.gpt as gpt"),
        ("training/loop.py", "if TYPE_CHECKING:\n    from glasshead.generation import beam"),
        ("lab/ladder.py", "import importlib\nimportlib.import_module('glasshead.cli')"),
        ("lab/ladder.py", "from glasshead import load"),
        ("checkpoint.py", "import glasshead"),
        ("wherever.py", ""),
    ],
)
def test_an_import_against_the_order_is_found(name, source):
    assert len(violations(name, source)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("text/corpus.py", "from glasshead.errors import InputError\nimport json"),
        ("attention/multihead.py", "from . import mask\nfrom .cache import Cache"),
        ("observe/tile_engine.py", "from ..attention.mask import Mask"),
        ("cli/steps.py", "from glasshead import __version__, lab"),
        ("__init__.py", "def load(path):\n    from glasshead.checkpoint import load"),
    ],
)
def test_an_import_along_the_order_is_let_through(name, source):
    assert violations(name, source) == []


def test_the_steps_are_numpy_only():
    source = (PACKAGE / "attention/steps.py").read_text(encoding="utf-8")
    outside = {module.split(".")[0] for _, module in imported("attention/steps.py", source)}
    assert outside - set(sys.stdlib_module_names) == {"numpy", "glasshead"}


def test_no_class_name_stands_for_two_things():
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(short(path))
    assert len(places) > 300
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def too_long(path: Path) -> bool:
    return len(path.read_text(encoding="utf-8").splitlines()) > MAX_LINES


def test_no_file_is_too_long_or_named_after_nothing():
    folders = [ROOT / name for name in ("glasshead", "tests", "bench", "lessons", "docs")]
    files = [p for f in folders for p in f.rglob("*") if p.suffix in {".py", ".js", ".css"}]
    assert PACKAGE / "errors.py" in files
    assert [short(p) for p in files if too_long(p)] == []
    assert [short(p) for p in files if p.name in BANNED_NAMES] == []


def test_no_line_that_neither_ruff_nor_eslint_reads_is_too_long():
    files = [ROOT / "page.d.ts", *PACKAGE.rglob("*.css"), *(ROOT / "docs").rglob("*.css")]
    files = [path for path in files if path.parent.name != "vendor"]
    long = [
        f"{short(path)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 100
    ]
    assert len(files) > 5
    assert long == []


def test_a_file_of_401_lines_is_too_long(tmp_path):
    path = tmp_path / "long.py"
    path.write_text("x = 1\n" * 400)
    assert not too_long(path)
    path.write_text("x = 1\n" * 401)
    assert too_long(path)


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def exported(source: str) -> set[str]:
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return set(ast.literal_eval(value))
    return set()


def private_names(source: str) -> list[str]:
    """Names with an underscore that a source takes from a module of the project."""
    found, modules = list[str](), set[str]()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=module, names=names, level=level) if (
                level or (module or "").partition(".")[0] in OURS
            ):
                modules |= {alias.asname or alias.name for alias in names}
                found += [f"{module}.{alias.name}" for alias in names if is_private(alias.name)]
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (
                module in modules and is_private(name) and module.islower()
            ):
                found.append(f"{module}.{name}")
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined(source: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.AsyncFunctionDef(name=name)
            ):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
    return names


def missing_names(path: Path) -> list[str]:
    """What `__all__` of a module names although the module does not have it."""
    source = path.read_text(encoding="utf-8")
    unknown = exported(source) - defined(source)
    if not unknown:
        return []
    module = importlib.import_module(dotted(path))  # a module may make its names on demand
    return [f"{short(path)}: {name}" for name in sorted(unknown) if not hasattr(module, name)]


def test_every_name_in_all_exists():
    assert [missing for path in MODULES for missing in missing_names(path)] == []


def test_a_name_in_all_that_does_not_exist_is_found():
    source = '__all__ = ["here", "gone"]\ndef here(): ...\n'
    assert exported(source) - defined(source) == {"gone"}


def test_no_module_uses_private_names_of_another():
    files = [path for folder in OURS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 300
    found = {short(path): private_names(path.read_text(encoding="utf-8")) for path in files}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from glasshead.model.gpt import _init",
        "def f():\n    from .gpt import GPT, _init",
        "from glasshead.model import gpt\ngpt._init()",
    ],
)
def test_a_private_name_of_another_module_is_found(source):
    assert len(private_names(source)) == 1


def test_own_private_names_and_those_of_others_are_not_found():
    source = "import torch\nfrom glasshead import __version__\ntorch._C\nself._x\n_f()"
    assert private_names(source) == []


@pytest.mark.parametrize("part", ["attention", "model"])
def test_a_package_exports_what_its_modules_do(part):
    """All that they list; of three modules only what is for others than this package."""
    package, chosen = importlib.import_module(f"glasshead.{part}"), {"layers", "scores"}
    for module, names in package._NAMES.items():
        listed = set(importlib.import_module(f"glasshead.{part}.{module}").__all__)
        assert set(names) <= listed if module in chosen else set(names) == listed, module
    assert sorted(package.__all__) == sorted(set(package.__all__))
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)
    with pytest.raises(AttributeError, match=f"'glasshead.{part}' has no attribute 'Musk'"):
        package.Musk  # noqa: B018


def test_examples_in_docstrings_are_true(tmp_path, monkeypatch):
    """What was printed instead is in the captured output. Examples may write files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paths = [path for path in MODULES if ">>> " in path.read_text(encoding="utf-8")]
    results = {short(path): doctest.testmod(importlib.import_module(dotted(path)))
               for path in paths}  # fmt: skip
    assert [name for name, result in results.items() if not result.attempted] == []
    assert [name for name, result in results.items() if result.failed] == []


def test_importing_the_package_is_cheap():
    code = "import sys, glasshead; print({'torch', 'numpy', 'rich', 'typer'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_page_of_the_architecture_is_current():
    page = architecture.PAGE.read_text(encoding="utf-8")
    hint = "run `make format`, which writes the tree and the graph anew"
    assert page == architecture.written(page), hint
    assert architecture.GRAPH.read_text(encoding="utf-8") == architecture.graph(), hint
