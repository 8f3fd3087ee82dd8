"""Runs a script under Triton's interpreter: python -m tests.observe.interpreted SCRIPT.

Triton 3.6 turns arrays of one element into numbers, which NumPy 2.4 refuses; here it asks properly.
It also looks through its whole language anew for each call inside a program, of which all is
replaced by then; here it looks only where something is left to replace.
"""

import inspect
import runpy
import sys
from functools import cache
from typing import Any

from triton.language.core import is_builtin
from triton.runtime import interpreter

_patch = interpreter._patch_lang_tensor
_patch_all = interpreter._patch_builtin


def _patch_lang_tensor(tensor: Any, scope: Any) -> None:
    _patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))
    scope.set_attr(tensor, "__int__", lambda self: int(self.handle.data.item()))


@cache
def _builtins(pkg: Any) -> list[str]:
    return [name for name, member in inspect.getmembers(pkg) if is_builtin(member)]


def _patch_builtin(pkg: Any, builder: Any, scope: Any) -> None:
    if any(is_builtin(getattr(pkg, name)) for name in _builtins(pkg)):
        _patch_all(pkg, builder, scope)


interpreter._patch_lang_tensor = _patch_lang_tensor
interpreter._patch_builtin = _patch_builtin

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
