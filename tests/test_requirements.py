"""What pyproject.toml asks for: enough, and in versions that `make test-lowest` installs."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Its newest build for CPUs stays; triton comes with torch's builds for GPUs, each with its own.
NOT_LOWEST, NOT_PINNED = {"torch"}, {"triton"}


def required(*extras: str) -> Iterator[Requirement]:
    """What the package and some of its extras need directly."""
    for line in [*PROJECT["dependencies"], *(one for extra in extras for one in EXTRAS[extra])]:
        requirement = Requirement(line)
        if requirement.name == "glasshead":
            yield from required(*requirement.extras)
        else:
            yield requirement


def pinned(name: str) -> dict[str, Version]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all([s.operator for s in one.specifier] == ["=="] for one in found)
    return {
        canonicalize_name(one.name): Version(*(s.version for s in one.specifier)) for one in found
    }


def lowest(requirement: Requirement) -> Version:
    [bound] = (Version(s.version) for s in requirement.specifier if s.operator == ">=")
    return bound


def test_the_lowest_versions_are_those_that_the_project_allows():
    pins = pinned("constraints-lowest.txt")
    wrong = {
        str(one): pins.get(canonicalize_name(one.name))
        for one in required("test")
        if one.name not in NOT_LOWEST and pins.get(canonicalize_name(one.name)) != lowest(one)
    }
    assert wrong == {}


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-lowest.txt"])
def test_every_version_that_make_installs_is_allowed(name):
    pins = pinned(name)
    extras = ["test"] if "lowest" in name else ["dev", "bench"]
    for one in required(*extras):
        if one.name not in NOT_PINNED:
            assert one.specifier.contains(pins[canonicalize_name(one.name)]), one


def test_every_package_that_is_imported_is_asked_for():
    """What came along with another package may leave with it."""
    asked = {canonicalize_name(one.name) for one in required("hf", "notebook", "dev")}
    imported = {
        name.partition(".")[0]
        for path in (ROOT / "glasshead").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in _imports(node)
    }
    # `check` imports jax only for functions that have imported it themselves; who writes a table
    # as .parquet is told to install pyarrow.
    foreign = imported - {*sys.stdlib_module_names, "glasshead", "jax", "pyarrow"}
    assert {"torch", "numpy"} <= foreign
    assert {canonicalize_name(name) for name in foreign} <= asked


def _imports(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(name), level=0):
            return [name]
    return []


def test_each_extra_is_explained():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for extra in EXTRAS:
        assert re.search(rf"`{extra}`", text), extra
