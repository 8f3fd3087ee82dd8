"""What `pip install glasshead` gives: the wheel in an environment of its own, and its extras."""

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from glasshead.errors import install_command, install_hint

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "glasshead"
EXTRAS = {"hf", "notebook"}  # for users; the others are for work on the package

Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """What `python -m build` makes: the source distribution, and the wheel out of that."""
    pytest.importorskip("hatchling", reason="needs hatchling, which builds the wheel")
    pytest.importorskip("build", reason="needs build")
    folder = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    [path] = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The `bin` of a new environment with the wheel in it, whose other packages are this one's."""
    place = tmp_path_factory.mktemp("环境 with spaces") / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    offline = ["--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check"]
    subprocess.run([*pip, *offline, str(wheel)], check=True, capture_output=True)
    [site] = place.glob("lib/python*/site-packages")
    # A path in a .pth file is searched, but .pth files in it are not read: the checkout stays out.
    (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


@pytest.fixture
def call(installed, tmp_path) -> Callable[..., Done]:
    def run(program: str, *args: str) -> Done:
        clean = {"PATH": "/usr/bin:/bin", "LANG": "en_US.UTF-8", "HOME": str(tmp_path)}
        return subprocess.run(
            [installed / program, *args], cwd=tmp_path, env=clean, capture_output=True, text=True
        )

    return run


@pytest.mark.deep
def test_it_holds_the_package_the_page_and_the_lessons_and_nothing_else(wheel):
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    folders = ((PACKAGE, "glasshead"), (ROOT / "lessons", "glasshead/lessons"))
    expected = {
        f"{name}/{path.relative_to(folder).as_posix()}"
        for folder, name in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == expected
    assert {"glasshead/page/web/index.html", "glasshead/lessons/01_dot_products.py"} <= packed
    kinds = {Path(name).suffix for name in packed}
    assert kinds <= {".py", ".js", ".css", ".html", ".svg", ".typed", ".json", ".toml", ".txt"}
    # The poems of `glasshead ladder --text ci`, where they come from, and uPlot's licence.
    texts = {Path(name).name for name in packed if name.endswith(".txt")}
    assert texts == {"ci.txt", "ci_notice.txt", "uPlot-LICENSE.txt"}


@pytest.mark.deep
def test_an_index_would_take_both(built):
    pytest.importorskip("twine", reason="needs twine")
    paths = sorted(map(str, built.iterdir()))
    assert len(paths) == 2
    command = [sys.executable, "-m", "twine", "check", "--strict", *paths]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.deep
def test_it_is_small(wheel):
    """A second on a slow line: torch is a hundred times as large. What grows is to be told here.

    Of its 1.7 MB 1.0 are Python, 0.26 the page, 0.15 the poems (which are in no package that could
    be asked for instead) and 0.05 Chinese messages.
    """
    assert wheel.stat().st_size < 2_000_000
    sizes = {one.filename: one.compress_size for one in zipfile.ZipFile(wheel).infolist()}
    large = {name for name, size in sizes.items() if size > 60_000}
    assert large == {"glasshead/text/ci.txt"}


@pytest.mark.deep
def test_it_works_where_it_is_installed(call, installed):
    where = call("python", "-c", "import glasshead; print(glasshead.__file__)").stdout
    assert where.startswith(str(installed.parent))
    assert "Examples:" in call("glasshead", "--help").stdout
    steps = call("glasshead", "steps", "Hello shiny sun!", "--query", "shiny", "--json")
    assert json.loads(steps.stdout)
    lessons = call("glasshead", "lesson", "--lang", "en").stdout.splitlines()
    assert len(lessons) == len([*(ROOT / "lessons").glob("[0-9]*.py")])


# Without what only some need


def test_extras_are_few():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = {"test", "check", "dev", "bench"}
    assert set(project["optional-dependencies"]) - own == EXTRAS


def python(*args: str, cwd: Path) -> Done:
    """Run this Python, in which the package is installed from the checkout."""
    english = {**os.environ, "LANG": "en_US.UTF-8", "LC_ALL": "en_US.UTF-8"}
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, env=english, capture_output=True, text=True
    )


NEEDED = [  # what is missing, the command that needs it, the extra that has it
    ("transformers", ["look", "theirs", "Hello"], "hf"),
    ("huggingface_hub", ["import", "someone/model", "-o", "run"], "hf"),
    ("gguf", ["import", "model.gguf", "-o", "run"], "hf"),
]
# One process for all, because each imports torch. None makes an import fail, as of nothing there.
WITHOUT = """
import contextlib, io, json, sys
from glasshead.cli import run
for name, args, _ in json.loads(sys.argv[1]):
    kept = {key: sys.modules.pop(key) for key in [*sys.modules] if key.split(".")[0] == name}
    sys.modules[name] = None
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = run(args)
    print(json.dumps([code, said.getvalue()]))
    del sys.modules[name]
    sys.modules.update(kept)
"""


def test_without_an_extra_the_command_that_needs_it_says_how_to_install_it(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "theirs/model.safetensors").write_bytes(b"")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    done = python("-c", WITHOUT, json.dumps(NEEDED), cwd=tmp_path)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    for (name, _, extra), (code, said) in zip(NEEDED, told, strict=True):
        problem, _, hint = said.partition("hint: ")
        assert code == 2, said
        assert name in problem
        assert install_command(extra) in hint


def test_without_the_notebooks_extra_showing_says_how_to_install_it(tmp_path):
    code = (
        "import sys; sys.modules['anywidget'] = None\n"
        "import glasshead\nfrom glasshead.observe.viewer import show_trace\n"
        "try: show_trace(None)\nexcept glasshead.GlassheadError as e: print(e, e.hint, sep='|')"
    )
    wanted = f"anywidget, which is not installed|{install_hint('notebook')}"
    assert wanted in python("-c", code, cwd=tmp_path).stdout
