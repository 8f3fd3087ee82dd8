"""Names of a package that are imported only when they are first used."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, names: dict[str, Any], modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    Args:
        package: its `__name__`.
        names: its `globals()`, where each name is stored once it is imported.
        modules: the names that each module inside the package provides.
    """
    places = {name: module for module, some in modules.items() for name in some}

    def get(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        names[name] = getattr(import_module(f"{package}.{places[name]}"), name)
        return names[name]

    def list_names() -> list[str]:
        public = {name for name in names if name[:1] != "_" or name[:2] == "__"}
        own = {"__getattr__", "__dir__", "TYPE_CHECKING", "lazy_names"}
        return sorted({*public, *places} - own)

    return get, list_names
