"""A plugin for pytest: the fixture `assert_attention`, and `--check-attention TARGET`."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

__all__ = ["assert_attention", "pytest_addoption", "pytest_collection_modifyitems"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("glasshead").addoption(
        "--check-attention",
        metavar="TARGET",
        action="append",
        default=[],
        help="also check attention, as `glasshead check` does: file.py:name or package.module:name",
    )


@pytest.fixture(name="assert_attention")
def assert_attention() -> Callable[..., None]:
    """Return `glasshead.testing.assert_attention`."""
    from glasshead.testing import assert_attention

    return assert_attention


class AttentionItem(pytest.Item):
    """One TARGET as a test."""

    def __init__(self, *, target: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.target = target

    def runtest(self) -> None:
        from glasshead.lab.check.report import check_named, show

        report = check_named(self.target)
        if not report.ok:
            raise AssertionError("\n".join(line.plain for line in show(report)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        hint = getattr(excinfo.value, "hint", "")
        return f"{excinfo.value}" + (f"\nhint: {hint}" if hint else "")

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self.path, None, f"attention {self.target}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    items += list(_items(session, config))


def _items(session: pytest.Session, config: pytest.Config) -> Iterator[pytest.Item]:
    for target in config.getoption("--check-attention"):
        yield AttentionItem.from_parent(session, name=target, target=target)
