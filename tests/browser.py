"""The browser that the tests of pages drive."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["CHROMIUM", "browser", "find_chromium"]

CHROMIUM = ("--no-sandbox", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--disable-gpu", "--no-first-run")  # fmt: skip


def find_chromium() -> str | None:
    """The browser that is installed; None means Playwright's own, if there is one."""
    named = [os.environ.get("GLASSHEAD_CHROMIUM"), "chromium", "google-chrome"]
    return next((path for name in named if name and (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    found = find_chromium()
    with sync_api.sync_playwright() as playwright:
        if found is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("needs Chromium; $GLASSHEAD_CHROMIUM can name it")
        chromium = playwright.chromium.launch(executable_path=found, args=list(CHROMIUM))
        yield chromium
        chromium.close()
