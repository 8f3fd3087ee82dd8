"""The page's own engine under Node, for tests: `with engine(run) as ask: ask("GET", path)`."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from glasshead.checkpoint import Run
from glasshead.page.entries import describe
from glasshead.page.packing import Precision, pack_run

SCRIPT = Path(__file__).with_name("engine_answers.mjs")


@contextmanager
def engine(
    run: Run, folder: Path, precision: Precision = "float32", *options: str
) -> Iterator[Callable[..., Any]]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node")
    packed = pack_run(run, describe(run.path.name, run.path), precision)
    told, data = folder / "told.json", folder / "parameters.bin"
    told.write_text(json.dumps(packed.told), encoding="utf-8")
    data.write_bytes(packed.data)
    with subprocess.Popen(
        [node, str(SCRIPT), str(told), str(data), *options],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
    ) as process:  # fmt: skip
        assert process.stdin
        assert process.stdout
        stdin, stdout = process.stdin, process.stdout

        def ask(method: str, path: Any, body: Any = None, lang: str = "en") -> Any:
            stdin.write(json.dumps([method, path, body, lang]) + "\n")
            stdin.flush()
            line = stdout.readline()
            assert line, "the engine ended"
            return json.loads(line)

        yield ask
        stdin.close()
