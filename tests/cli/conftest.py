"""What tests of commands share."""

import io
import sys

import pytest


@pytest.fixture
def stdin(monkeypatch):
    """`stdin(b"...")` gives the next command something to read."""

    def give(data: bytes, terminal: bool = False) -> None:
        stream = io.TextIOWrapper(io.BytesIO(data))
        stream.isatty = lambda: terminal
        monkeypatch.setattr(sys, "stdin", stream)

    return give
