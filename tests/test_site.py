"""The site of docs/: built without a network, and needing none to be read."""

import os
import re
import subprocess
import sys
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import pytest

from docs._build.imports import ROOT
from glasshead.cli import COMMANDS
from tests.browser import find_chromium

pytestmark = pytest.mark.deep

BROWSER = find_chromium()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Built strictly: a link to nowhere is an error. The lessons run in tests of their own."""
    pytest.importorskip("material", reason="needs mkdocs-material")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    quiet = {"GLASSHEAD_RUN_LESSONS": "false", "NO_MKDOCS_2_WARNING": "1"}
    nowhere = {f"{name}_proxy": "http://127.0.0.1:9" for name in ("http", "https", "all")}
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **quiet, **nowhere}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out


class Loaded(HTMLParser):
    """What a browser fetches for a page without being asked."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        have = dict(attrs)
        rel = (have.get("rel") or "").split()
        if tag == "link" and not {"stylesheet", "icon", "preload", "preconnect"} & {*rel}:
            return
        names = ("href",) if tag == "link" else () if tag == "a" else ("src", "srcset", "data")
        self.urls += [url for name in names if (url := have.get(name))]


def test_a_page_loads_nothing_from_elsewhere(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) > 40
    outside = {
        url
        for page in pages
        for url in Loaded(page.read_text(encoding="utf-8")).urls
        if re.match(r"(https?:)?//", url)
    }
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    outside |= {*re.findall(r"(?:url\(|@import )['\"]?((?:https?:)?//[^)'\"]+)", styles)}
    assert outside == set()


def test_what_is_loaded_from_elsewhere_is_found():
    page = '<a href="https://a.b"><script src="//c.d/e.js"></script><link rel="icon" href="x">'
    assert Loaded(page).urls == ["//c.d/e.js", "x"]


def test_both_languages_have_every_page(site):
    chinese = {p.relative_to(site / "zh") for p in (site / "zh").rglob("*.html")}
    pages = {p.relative_to(site) for p in site.rglob("*.html")}
    english = {p for p in pages if p.parts[0] not in ("zh", "live")}
    assert english - {Path("404.html")} == chinese - {Path("404.html")}
    for name, word in (("index.html", "课程"), ("reference/cli.html", "选项")):
        assert word in (site / "zh" / name).read_text(encoding="utf-8")
        assert word not in re.sub(r"<nav.*?</nav>", "", (site / name).read_text(encoding="utf-8"))


def test_the_reference_has_every_command_and_lesson(site):
    page = (site / "reference/cli.html").read_text(encoding="utf-8")
    assert re.findall(r'<h2 id="([^"]+)"', page) == [*COMMANDS]
    lessons = {p.stem.replace("_", "-") for p in (ROOT / "lessons").glob("[0-9]*.py")}
    assert {p.stem for p in (site / "lessons").glob("[0-9]*.html")} == lessons
    python = (site / "reference/python/attention.html").read_text(encoding="utf-8")
    assert "MultiHeadAttention" in python


@pytest.fixture(params=["file", "server"])
def address(request, site):
    """The site as it lies, and behind a static server."""
    if request.param == "file":
        yield site.as_uri()
        return
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("page", ["index.html", "zh/index.html"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_visitor_cuts_an_arc_on_the_front_page(browser, address, page, width):
    context = browser.new_context(viewport={"width": width, "height": 844})
    tab, asked = context.new_page(), []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(f"{address}/{page}")
    model = tab.frame_locator("iframe.living")
    before = model.locator(".answer .large b").first.text_content()
    model.locator(".scissors").first.click()
    model.locator(".answer .both").wait_for()
    model.locator(".answer button").first.click()  # in every head
    tab.wait_for_timeout(0)
    assert before in ("kitten", "小猫")
    changed = model.locator(".answer .both b").last
    changed.filter(has_not_text=before).wait_for()
    assert {re.match(r"\w+:(//127\.0\.0\.1:\d+)?", url)[0] for url in asked} <= {
        "file:", "blob:", "data:", re.match(r"\w+:(//127\.0\.0\.1:\d+)?", address)[0]
    }  # fmt: skip
    context.close()


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
@pytest.mark.parametrize(("page", "word"), [("index.html", "mask"), ("zh/index.html", "注意力")])
def test_the_files_can_be_searched_as_they_lie(site, tmp_path, page, word):
    """Without a server, in the theme's own search, which a browser denies its worker there."""
    calm = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    calm += ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    place = [f"--user-data-dir={tmp_path}", "--virtual-time-budget=30000", "--dump-dom"]
    url = f"{(site / page).as_uri()}?q={quote(word)}"
    command = [BROWSER, *calm, *place, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    found = re.search(r'md-search-result__meta">(\d+)', done.stdout)
    assert found
    assert int(found[1]) >= 3
