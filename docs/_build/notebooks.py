"""Make notebooks/*.ipynb of the scripts beside them, executed, with their pictures.

    python -m docs._build.notebooks          writes those whose script is another than before
    python -m docs._build.notebooks --all    writes all
"""

import os
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

from docs._build.imports import ROOT

__all__ = ["FOLDER", "execute", "is_current", "scripts", "to_notebook"]

FOLDER = ROOT / "notebooks"


def scripts() -> list[Path]:
    return sorted(FOLDER.glob("*.py"))


def to_notebook(script: Path) -> nbformat.NotebookNode:
    """Return the notebook of a script, without outputs; the same bytes each time."""
    notebook = jupytext.read(script, fmt="py:percent")
    for number, cell in enumerate(notebook.cells, 1):
        cell["id"] = f"cell-{number}"
        cell["metadata"] = {}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook["metadata"] = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return notebook


def execute(script: Path) -> nbformat.NotebookNode:
    """Return the notebook with its outputs; raise what a cell raises. It runs in an empty folder."""
    notebook = to_notebook(script)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=900, record_timing=False, resources={"metadata": {"path": folder}}
        )
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        client.execute(env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    notebook["metadata"]["language_info"] = {"name": "python"}  # the kernel adds its version
    return notebook


def is_current(script: Path) -> bool:
    """Return whether the notebook beside a script has its cells."""
    file = script.with_suffix(".ipynb")
    if not file.exists():
        return False
    stored = nbformat.read(file, as_version=4)
    cells = [(cell.cell_type, cell.source) for cell in stored.cells]
    return cells == [(cell.cell_type, cell.source) for cell in to_notebook(script).cells]


def main() -> None:
    for script in scripts():
        if "--all" in sys.argv or not is_current(script):
            nbformat.write(execute(script), script.with_suffix(".ipynb"))
            print(script.with_suffix(".ipynb"))


if __name__ == "__main__":
    main()
