"""How `Trace.show()` finds the page, which `observe` may not import.

`glasshead/__init__.py`, which stands above all parts, names the module.
"""

from importlib import import_module
from typing import Any

from glasshead.errors import InputError, install_hint

__all__ = ["set_viewer", "show_trace"]

_viewers: list[str] = []


def set_viewer(module: str) -> None:
    """Name the module whose `show(trace, **state)` shows traces. It is imported when needed."""
    _viewers[:] = [module]


def show_trace(trace: Any, **state: Any) -> Any:
    [viewer] = _viewers
    try:
        module = import_module(viewer)
    except ModuleNotFoundError as error:
        raise InputError(
            f"showing needs {error.name}, which is not installed",
            hint=install_hint("notebook"),
        ) from None
    return module.show(trace, **state)
