"""Runs a script under Triton's interpreter: python -m tests.observe.interpreted SCRIPT.

Triton 3.6 turns arrays of one element into numbers, which NumPy 2.4 refuses; here it asks properly.
"""

import runpy
import sys
from typing import Any

from triton.runtime import interpreter

_patch = interpreter._patch_lang_tensor


def _patch_lang_tensor(tensor: Any, scope: Any) -> None:
    _patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))
    scope.set_attr(tensor, "__int__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patch_lang_tensor

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
