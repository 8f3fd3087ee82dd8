"""The page in a real browser: its first view, panning a long map, and one page of that map.

    python -m bench.page [--runs runs/demo] [--tokens 100000] [--tries 5] [--json]

Serves a small reader and a map of many tokens on loopback, and opens both in Chromium (as the tests
find it). Told are the milliseconds from the address to the first view, those from a click on an arc
to the answer without it, how long frames take while the map is dragged and zoomed (95 of 100 are
shorter) and those of an empty page that is dragged alike, in turns, which is what the browser and
the machine allow; the processor time of a frame in the page's main thread; the longest task that
holds the page meanwhile (by the clock, and on a processor), and the milliseconds of processor time
that the server takes for one page of the map at each level.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser import CHROMIUM, find_chromium
from tests.serve import trained
from tests.serve.conftest import live
from tests.serve.made_up import long_atlas

READY = ".map[data-missing='0']"
KINDS = ("RunTask", "ThreadControllerImpl::RunTask")  # of tasks
SIDE = 128  # cells of one page of the map


def first_view(page: Page, url: str) -> float:
    """Return milliseconds until the words of the example are visible."""
    page.goto("about:blank")
    page.goto(f"{url}/#model=reader")
    page.wait_for_selector(".words-over .word")
    return float(page.evaluate("() => performance.now()"))


def cut(page: Page, url: str) -> float:
    """Return milliseconds from the click on an arc until the answer after the cut is painted."""
    page.goto("about:blank")
    page.goto(f"{url}/#model=reader")
    page.wait_for_selector(".answer .large b")
    page.wait_for_load_state("networkidle")
    return float(
        page.evaluate("""() => new Promise((done) => {
          const start = performance.now();
          const seen = new MutationObserver(() => {
            if (!document.querySelector(".answer .both")) return;
            seen.disconnect();
            requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
          });
          seen.observe(document.body, { childList: true, subtree: true });
          document.querySelector(".scissors").click();
        })""")
    )


FRAMES = """() => {
  window.intervals = [];
  let last = performance.now();
  const next = (now) => {
    window.intervals.push(now - last);
    last = now;
    requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
}"""


def drag(page: Page, x: float, y: float) -> tuple[float, int]:
    """Drag and zoom there; return ms, which 95 of 100 frames do not exceed, and their number."""
    page.evaluate(FRAMES)
    page.mouse.move(x, y)
    page.mouse.down()
    for step in range(40):
        page.mouse.move(x - 14 * (step % 20), y + 11 * (step % 20))
        page.wait_for_timeout(16)
    page.mouse.up()
    for step in range(30):
        page.mouse.wheel(0, -120 if step < 20 else 160)
        page.wait_for_timeout(16)
    frames = sorted(page.evaluate("window.intervals"))
    return float(frames[int(0.95 * (len(frames) - 1))]), len(frames)


def drag_nothing(page: Page) -> float:
    """Return the same of an empty page."""
    page.goto("data:text/html,<title>empty</title>")
    return drag(page, 600, 450)[0]


def pan(page: Page, browser: Browser, url: str, place: str) -> tuple[float, float, float, float]:
    """Return ms: the 95th percentile of frames, the processor time of one, the longest task by the
    clock, and on a processor."""
    page.goto("about:blank")  # each try begins from nothing
    page.goto(f"{url}/#view=atlas&lang=en&head=0&model=long.glass&at={place}")
    page.wait_for_selector(READY)
    box = page.locator(".sheet").bounding_box()
    assert box
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    categories = ["disabled-by-default-devtools.timeline", "devtools.timeline", "toplevel"]
    browser.start_tracing(page=page, categories=categories)
    p95, n_frames = drag(page, x, y)
    page.wait_for_selector(READY)
    tasks = _tasks(browser.stop_tracing())
    longest = max(tasks, key=lambda task: task["dur"])
    # The one kind of task may stand within the other.
    kinds = [sum(t["tdur"] for t in tasks if t["name"] == kind) for kind in KINDS]
    return p95, max(kinds) / 1000 / n_frames, longest["dur"] / 1000, longest["tdur"] / 1000


def _tasks(trace: bytes) -> list[dict[str, Any]]:
    """Return the tasks of the page's main thread."""
    events = json.loads(trace)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    (began,) = (e for e in events if e["name"] == "TracingStartedInBrowser")
    (frame,) = began["args"]["data"]["frames"]  # the browser may have other pages' processes
    return [
        e for e in events
        if e["name"] in KINDS and "tdur" in e
        and e["pid"] == frame["processId"] and names.get((e["pid"], e["tid"])) == "CrRendererMain"
    ]  # fmt: skip


def map_pages(url: str, tokens: int, tries: int) -> dict[int, float]:
    """Return the median milliseconds of processor time of one page of the map, by level."""
    found = {}
    with httpx.Client(base_url=url, timeout=600) as ask:
        seen = ask.post("/api/open", json={"model": "long.glass"}).json()["seen"]
        for level in range(12):
            if (row := tokens // (SIDE << level) - 1) < 0:  # the last whole one
                break
            took = []
            for col in range(min(tries, row + 1)):
                where = {"layer": 0, "head": 0, "level": level, "row": row, "col": col}
                start = time.process_time()
                ask.get(f"/api/seen/{seen}/cells", params=where).raise_for_status()
                took.append((time.process_time() - start) * 1000)
            found[level] = statistics.median(took)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, help="a folder with a reader; else one is trained")
    parser.add_argument("--tokens", type=int, default=100_000, help="of the long map")
    parser.add_argument("--tries", type=int, default=5, help="the median of so many is told")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        root = Path(folder) / "served"
        if args.runs:
            shutil.copytree(args.runs / "reader", root / "reader")
        else:
            trained.train(Path(folder), root)
        long_atlas(args.tokens).save(root / "long.glass")
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(CHROMIUM))
        page = browser.new_page(locale="en-US", viewport={"width": 1440, "height": 900})
        page.set_default_timeout(300_000)
        with live(root) as found:
            trace = found.app.state.library.open("long.glass").trace
            trace.cells(0, 0, trace.levels(0) - 1)  # seconds, once
            views = [first_view(page, found.url) for _ in range(args.tries)]
            cuts = [cut(page, found.url) for _ in range(args.tries)]
            place = f"{0.6 * args.tokens:.0f},{0.7 * args.tokens:.0f},-5.5"
            empty, tasks = [], []
            for _ in range(args.tries):
                empty.append(drag_nothing(page))
                tasks.append(pan(page, browser, found.url, place))
            pages = map_pages(found.url, args.tokens, args.tries)
        browser.close()
    frames, of_frame, clock, processor = (
        statistics.median(times) for times in zip(*tasks, strict=True)
    )
    if args.json:
        about = {"first_view_ms": statistics.median(views),
                 "cut_to_answer_ms": statistics.median(cuts), "frame_p95_ms": frames,
                 "frame_cpu_ms": of_frame,
                 "empty_frame_p95_ms": statistics.median(empty),
                 "longest_task_ms": clock, "longest_task_cpu_ms": processor,
                 "map_page_cpu_ms": pages}  # fmt: skip
        print(json.dumps(about))
        return
    print(f"first view                      {statistics.median(views):7.0f} ms")
    print(f"cut to changed answer           {statistics.median(cuts):7.0f} ms")
    print(f"frames while panning, p95       {frames:7.1f} ms")
    print(f"frames of an empty page, p95    {statistics.median(empty):7.1f} ms")
    print(f"a frame in the main thread      {of_frame:7.1f} ms of processor time")
    print(f"longest task while panning      {clock:7.1f} ms, {processor:.1f} on a processor")
    for level, took in pages.items():
        print(f"a page of the map at level {level:2}   {took:7.1f} ms of processor time")


if __name__ == "__main__":
    main()
