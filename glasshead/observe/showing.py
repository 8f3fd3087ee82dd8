"""Who shows an atlas. Observing knows no page; the package, which knows both, names one here."""

from importlib import import_module
from typing import Any

from glasshead.errors import InputError, install_hint

__all__ = ["shown", "shown_by"]

_viewers: list[str] = []


def shown_by(module: str) -> None:
    """The module whose `show` shows. It is read when something is to be shown."""
    _viewers[:] = [module]


def shown(seen: Any, **how: Any) -> Any:
    [viewer] = _viewers
    try:
        module = import_module(viewer)
    except ModuleNotFoundError as error:
        raise InputError(
            f"showing needs {error.name}, which is not installed",
            hint=install_hint("notebook"),
        ) from None
    return module.show(seen, **how)
