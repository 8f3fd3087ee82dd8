"""Models of the hub by their name, from a hub of our own on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlparse

import pytest

import glasshead
from glasshead.files.digest import digest

ROOT = Path(__file__).resolve().parents[1]
NAME, COMMIT = "someone/tiny", "5" * 40
Done = subprocess.CompletedProcess[str]


class Hub(ThreadingHTTPServer):
    """Serves the files of a folder as the model someone/tiny."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.folder, self.asked, self.breaks = folder, list[tuple[str, str, str | None]](), False

    def handle_error(self, *_: object) -> None:
        pass  # a connection that a client closed, or that broke on purpose


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_GET(self) -> None:
        path = urlparse(self.path).path
        if path.startswith("/api/"):
            self._describe(path)
            return
        file = self.server.folder / Path(path).name
        self.server.asked.append((self.command, file.name, self.headers["Range"]))
        if not path.startswith(f"/{NAME}/resolve/") or not file.is_file():
            self.send_error(404)
            return
        data = file.read_bytes()
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").split("-")[0])
        self.send_response(206 if self.headers["Range"] else 200)
        self.send_header("Content-Length", str(len(data) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("ETag", f'"{digest(data)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if self.command == "GET":
            broken = self.server.breaks and file.suffix == ".safetensors"
            self.wfile.write(
                data[start : start + (len(data) - start) // 2] if broken else data[start:]
            )
            self.close_connection = broken
            if broken:
                self.wfile.flush()
                self.connection.close()

    do_HEAD = do_GET

    def _describe(self, path: str) -> None:
        files = sorted(self.server.folder.iterdir())
        listed = [{"rfilename": file.name, "size": file.stat().st_size} for file in files]
        tree = [{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "0" * 40}
                for f in files]  # fmt: skip
        told = {"id": NAME, "modelId": NAME, "sha": COMMIT, "siblings": listed, "tags": []}
        known = path.startswith(f"/api/models/{NAME}")
        body = json.dumps(
            tree if "/tree/" in path else told if known else {"error": "none"}
        ).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama as a folder of the hub, with code and a pickle that nobody may fetch."""
    place = tmp_path_factory.mktemp("model")
    stories = "The kitten met a puppy. Now it is hungry.\n" * 40
    run = glasshead.train(stories, preset="llama", steps=2, n_layers=1, d_model=32, quiet=True,
                          out=place / "run", cache=place / "cache")  # fmt: skip
    folder = glasshead.export_model(run, place / "tiny").path
    (folder / "modeling_tiny.py").write_text("raise SystemExit('code of the hub ran')")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    return folder


@pytest.fixture
def hub(model: Path) -> Iterator[Hub]:
    with Hub(model) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def run(address: str, home: Path, *args: str) -> Done:
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(home / "hf"),
                   "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"}  # fmt: skip
    command = [sys.executable, "-m", "glasshead", *args]
    return subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True)


@pytest.mark.deep
def test_a_name_is_downloaded_once_and_then_works_offline(hub: Hub, tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{hub.server_port}"
    look = ["look", NAME, "The kitten met a puppy.", "--layer", "0", "--head", "1", "--json"]
    hub.breaks = True
    broken = run(address, tmp_path, *look)
    assert broken.returncode == 2, broken.stderr
    assert "could not be downloaded" in broken.stderr
    assert "files that are complete stay" in broken.stderr

    hub.breaks, hub.asked[:] = False, []
    first = run(address, tmp_path, *look)
    assert first.returncode == 0, first.stderr
    assert f"downloading {NAME}: " in first.stderr
    fetched = [file for how, file, _ in hub.asked if how == "GET"]
    assert fetched == ["model.safetensors"]
    hub.asked.clear()
    assert run(address, tmp_path, *look).stdout == first.stdout
    assert [asked for asked in hub.asked if asked[0] == "GET"] == []

    nowhere = "http://127.0.0.1:9"
    offline = run(nowhere, tmp_path, *look)
    assert offline.returncode == 0, offline.stderr
    assert "the hub cannot be reached; using the copy" in offline.stderr
    assert offline.stdout == first.stdout
    imported = run(nowhere, tmp_path, "import", NAME, "-o", "runs/tiny")
    assert imported.returncode == 0, imported.stderr
    other = run(nowhere, tmp_path, "look", "someone/else", "Hello")
    assert other.returncode == 2
    assert "cannot be downloaded" in other.stderr


@pytest.mark.deep
def test_no_code_and_nothing_pickled_is_fetched_or_run(
    hub: Hub, tmp_path: Path, model: Path
) -> None:
    address = f"http://127.0.0.1:{hub.server_port}"
    config = json.loads((model / "config.json").read_text())
    classes = {"AutoConfig": "modeling_tiny.C", "AutoModel": "modeling_tiny.M"}
    (model / "config.json").write_text(json.dumps({**config, "auto_map": classes}))
    (model / "checksums.json").unlink(missing_ok=True)
    seen = run(address, tmp_path, "look", NAME, "The kitten met a puppy.")
    assert seen.returncode == 0, seen.stderr
    assert {Path(file).suffix for _, file, _ in hub.asked} <= {
        ".json", ".safetensors", ".jinja", ".model",
    }  # fmt: skip
    (model / "model.safetensors").rename(model / "aside")
    (tmp_path / "other").mkdir()
    pickled = run(address, tmp_path / "other", "import", NAME, "-o", "run")
    (model / "aside").rename(model / "model.safetensors")
    assert pickled.returncode == 2
    assert "has no safetensors on the hub" in pickled.stderr
