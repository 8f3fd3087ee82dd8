"""Tiny models of every family of the transformers library, from its own tests.

The tests are not part of the installed package: `open_cases` reads them from a checkout of the
library, of which only the folder `tests` is used.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import random
import re
import sys
import types
import unittest
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

__all__ = ["Case", "add_tests", "families", "open_cases"]

# Parts of the library's tests that have nothing to do with building models.
UNNEEDED = (
    "tests.test_fsdp_mixin", "tests.test_tensor_parallel_mixin", "tests.test_training_mixin",
    "tests.test_pipeline_mixin", "tests.exporters", "tests.test_executorch",
)  # fmt: skip


class _Empty(types.ModuleType):
    """A module in which every name is an empty class."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": _ignore, "__call__": lambda self, x, *_, **__: x})


def _ignore(self: Any, *args: Any, **options: Any) -> None:
    """Take any arguments."""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        wanted = name.startswith(UNNEEDED)
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if wanted else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


@dataclass(frozen=True)
class Case:
    """One test class of the library: its tiny config, inputs and model classes."""

    family: str
    name: str
    test: Any

    def build(self, generates: bool) -> tuple[nn.Module, dict[str, Any]]:
        """Return a model whose attention has preferences, and inputs for it."""
        _seed()
        if generates:
            config, inputs = self.test.prepare_config_and_inputs_for_generate()
            cls = self.test.all_generative_model_classes[0]
        else:
            config, inputs = self.test.model_tester.prepare_config_and_inputs_for_common()
            cls = self.test.all_model_classes[0]
            inputs = self.test._prepare_for_class(inputs, cls)
        _seed()
        model = cls(config).eval()
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and ("emb" in name or any(map(_is_score, name.split(".")))):
                parameter.data.mul_(3)
        return model, {k: v for k, v in inputs.items() if not _is_label(k)}

    @property
    def generates(self) -> bool:
        return bool(getattr(self.test, "all_generative_model_classes", ()))


def _is_score(name: str) -> bool:
    """Whether a parameter of this name makes queries or keys."""
    parts = ("q", "k", "qkv", "query", "key", "c_attn", "in_proj", "wq", "wk", "wqkv")
    return name.lower().removesuffix("_proj").removesuffix("_lin") in parts or "query" in name


def _is_label(name: str) -> bool:
    return "labels" in name or name in ("start_positions", "end_positions")


def _seed() -> None:
    torch.manual_seed(11)
    random.seed(11)


def families() -> list[str]:
    """Return the folders of the installed library that define models."""
    import transformers

    root = Path(transformers.__file__).parent / "models"
    return sorted(path.parent.name for path in root.glob("*/modeling_*.py"))


def open_cases(tests: Path, family: str) -> Iterator[Case]:
    """Yield the test classes of one family that build models."""
    add_tests(tests)
    for path in sorted((tests / "tests" / "models" / family).glob("test_modeling_*.py")):
        module = _import(f"tests.models.{family}.{path.stem}")
        for name, cls in sorted(vars(module).items()):
            is_test = isinstance(cls, type) and issubclass(cls, unittest.TestCase)
            if not is_test or cls.__module__ != module.__name__:
                continue
            if not any(hasattr(cls, x) for x in ("all_model_classes", "model_tester_class")):
                continue
            test = cls("setUp")
            test.setUp()
            if hasattr(test, "_prepare_for_class") and test.all_model_classes:
                yield Case(family, name, test)


def add_tests(tests: Path) -> None:
    """Make the checkout's tests importable, and import what all of them need."""
    if str(tests) not in sys.path:
        sys.path.insert(0, str(tests))
        sys.meta_path.insert(0, _Finder())
        _import("tests.causal_lm_tester")
        _import("tests.vlm_tester")


def _import(name: str) -> types.ModuleType:
    """Import a module of a checkout that may be older than the installed library: a name that the
    library has no more becomes an empty class."""
    while True:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # A package that only some of the tests need, and no model.
            if error.name is None or error.name.startswith(("tests", "transformers")):
                raise
            spec = importlib.machinery.ModuleSpec(error.name, None)
            sys.modules[error.name] = importlib.util.module_from_spec(spec)
            sys.modules[error.name].__class__ = _Empty
        except ImportError as error:
            missing = re.match(r"cannot import name '(\w+)' from '([\w.]+)'", str(error))
            if missing is None or hasattr(sys.modules[missing[2]], missing[1]):
                raise
            setattr(sys.modules[missing[2]], missing[1], type(missing[1], (), {}))
