"""`seen.show()` in a real notebook: JupyterLab, its kernel and a browser. Skipped without them."""

import importlib.util
import json
import os
import socket
import subprocess
import sys

import httpx
import pytest

from glasshead.text.tinyworld import World

from .conftest import HUNG, until

for needed in ("jupyterlab", "ipykernel", "anywidget"):
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}", allow_module_level=True)

pytestmark = pytest.mark.deep

TEXT = World.seed_story().text("zh")


def cell(n, *lines):
    return {"cell_type": "code", "id": f"cell-{n}", "execution_count": None, "metadata": {},
            "outputs": [], "source": "\n".join(lines)}  # fmt: skip


@pytest.fixture
def notebook(tmp_path, world_runs):
    """The address of a notebook of two cells, on a server of its own."""
    (tmp_path / "runs").symlink_to(world_runs)
    look = f'seen = glasshead.look("runs/reader", "{TEXT}")'
    cells = [
        cell(0, "import glasshead", "", look, 'seen.show(lang="en")'),
        cell(1, 'seen.show(view="atlas", lang="zh", theme="dark", height=560)'),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "seen.ipynb").write_text(json.dumps(book), encoding="utf-8")
    told = tmp_path / "CONFIG/lab/user-settings/@jupyterlab/apputils-extension"
    told.mkdir(parents=True)
    (told / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root",
               "--ip=127.0.0.1", f"--port={port}", "--IdentityProvider.token=secret",
               f"--ServerApp.root_dir={tmp_path}"]  # fmt: skip
    environment = {**os.environ, **own, "IPYTHONDIR": str(tmp_path / "ipython")}
    with open(tmp_path / "log", "wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{address}/api") or server.poll() is not None)
        assert server.poll() is None, (tmp_path / "log").read_text()[-2000:]
        yield f"{address}/doc/tree/seen.ipynb?token=secret"
    finally:
        server.terminate()  # ends its kernel as well
        server.wait(HUNG)


def answers(address):
    try:
        return httpx.get(address).is_success
    except httpx.TransportError:
        return False


def test_cells_show_the_page_and_what_is_clicked_is_answered(notebook, page, shot):
    ours = []  # Jupyter's own scripts lie under /static/

    def said(message):
        if message.type == "error" and "/static/" not in message.location["url"]:
            ours.append(message.text)

    page.on("console", said)
    page.on("pageerror", lambda error: ours.append(error))
    page.set_viewport_size({"width": 1280, "height": 1000})
    page.goto(notebook)
    page.get_by_text("| Idle").first.wait_for()  # the kernel
    page.locator(".jp-CodeCell >> nth=0 >> .cm-content").click()
    page.keyboard.press("Shift+Enter")
    look = page.frame_locator(".jp-CodeCell >> nth=0 >> iframe")
    first = look.locator(".strip[aria-pressed=true]")
    first.wait_for()
    assert first.get_attribute("data-word") == "小猫"
    look.locator(".thumb").last.wait_for()
    shot(page, "notebook")
    look.locator(".thumb").last.click()
    look.locator(".head-name", has_text="Layer 1 · head 3").wait_for()
    page.locator(".jp-CodeCell >> nth=1 >> .cm-content").click()
    page.keyboard.press("Shift+Enter")
    atlas = page.frame_locator(".jp-CodeCell >> nth=1 >> iframe")
    atlas.locator(".map[data-missing='0']").wait_for()
    atlas.locator(".sheet").click()
    atlas.locator(".note ol li").first.wait_for()
    shot(page, "notebook-atlas")
    assert ours == []
    page.troubles.clear()  # what Jupyter says of itself
