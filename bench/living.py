"""A run as a living page, in a real browser without a network.

    python -m bench.living RUN [--precision int8] [--text FILE] [--tries 5]

Told are the size of the file, the milliseconds from opening it to the first view, those to read
1,000 tokens and show every head's map in the Atlas (each is computed whole), the tokens a second
while a text is written, and how far the weights of 50 texts and 200 greedy ids are from torch's
(of a float32 file). Times are by the clock; beside each is what the page took of a processor, which
other programs do not change.
"""

import argparse
import base64
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from glasshead.checkpoint import Run, load
from glasshead.generation.decode import generate
from glasshead.generation.opening import make_inspectable
from glasshead.generation.sampling import GREEDY
from glasshead.observe.view import ViewConfig
from glasshead.page.bundle import WEB, bundle
from glasshead.page.living import plan_living
from glasshead.page.look_answers import LookView, binary_map
from tests.browser import CHROMIUM, find_chromium

START = """([script, told, parameters]) => {
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const worker = new Worker(url), waiting = new Map();
  let last = 0;
  worker.onmessage = ({ data }) => waiting.get(data.number)?.(data);
  worker.postMessage({ told, parameters });
  window.ask = (method, path, body) => new Promise((done) => {
    const number = ++last, events = [];
    waiting.set(number, (data) => {
      if (data.chunk !== undefined) events.push([performance.now(), data.chunk]);
      else if (data.done) done({ events });
      else if (data.body !== undefined) done(data);
    });
    worker.postMessage({ number, method, path, body: body && JSON.stringify(body) });
  });
}"""
MAPS = """async ([text, heads]) => {
  const start = performance.now();
  const atlas = JSON.parse((await ask("POST", "/api/atlas", { text })).body);
  let cells = 0;
  for (const { index, levels } of atlas.layers)
    for (let head = 0; head < heads; head++) {
      const where = `layer=${index}&head=${head}&level=${levels - 1}&row=0&col=0`;
      cells += (await ask("GET", `/api/seen/${atlas.seen}/cells?${where}`)).body.byteLength / 4;
    }
  return [performance.now() - start, cells];
}"""
MAP = """async ([seen, layer, head]) => {
  const path = `/api/seen/${seen}/weights?layer=${layer}&head=${head}&tokens=true`;
  const bytes = new Uint8Array((await ask("GET", path)).body);
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}"""


class Renderers:
    """Processor seconds of the browser's pages."""

    def __init__(self, browser: Browser) -> None:
        self.session = browser.new_browser_cdp_session()

    def seconds(self) -> float:
        found = self.session.send("SystemInfo.getProcessInfo")["processInfo"]
        return sum(one["cpuTime"] for one in found if one["type"] == "renderer")


def first_view(browser: Browser, file: Path) -> tuple[float, float]:
    """Return ms to the first view: words, and the best head's weights below them."""
    page = browser.new_context(offline=True, viewport={"width": 1280, "height": 900}).new_page()
    cpu = Renderers(browser)
    before = cpu.seconds()
    page.goto(file.as_uri())
    page.wait_for_selector(".words-over .word")
    clock = float(page.evaluate("() => performance.now()"))
    used = 1000 * (cpu.seconds() - before)
    page.context.close()
    return clock, used


def start(browser: Browser, run: Run, precision: Any) -> Page:
    page = browser.new_context().new_page()
    page.goto("about:blank")
    page.context.set_offline(True)
    packed = plan_living(run.path, precision).packed
    script = bundle(lambda path: (WEB / path).read_text("utf-8"), "engine/worker.js")
    page.evaluate(START, [script, packed.told, base64.b64encode(packed.data).decode()])
    page.evaluate("() => ask('GET', '/api/models')")
    return page


def timed(browser: Browser, page: Page, script: str, given: Any) -> tuple[Any, float]:
    cpu = Renderers(browser)
    before = cpu.seconds()
    found = page.evaluate(script, given)
    return found, 1000 * (cpu.seconds() - before)


def text_of(run: Run, text: str, n: int) -> str:
    """Return a beginning of the text with at most n tokens."""
    ids = run.tokenizer.encode_ids(text[: 12 * n]).tolist()[:n]
    return run.tokenizer.decode(ids)


def worst_weight(page: Page, run: Run, texts: list[str]) -> float:
    inspectable, worst = make_inspectable(run), 0.0
    for text in texts:
        body = {"text": text, "tokens": True}
        look = json.loads(page.evaluate("(b) => ask('POST', '/api/look', b)", body)["body"])
        view = LookView(inspectable.record(text), ViewConfig(tokens=True))
        for layer, head in view.heads():
            data = base64.b64decode(page.evaluate(MAP, [look["seen"], layer, head]))
            theirs = np.frombuffer(binary_map(view, (layer, head)).data, "<f4")
            worst = max(worst, float(abs(np.frombuffer(data, "<f4") - theirs).max()))
    return worst


def written(page: Page, ids: list[int], n: int) -> list[tuple[float, int]]:
    """Return the time and the id of each greedy token."""
    body = {"ids": ids, "max_tokens": n, "temperature": 0}
    events = page.evaluate("(b) => ask('POST', '/api/write', b)", body)["events"]
    told = [(at, json.loads(chunk.split("data: ")[1])) for at, chunk in events]
    return [(at, one["id"]) for at, one in told if "id" in one]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--precision", default="int8", choices=["float32", "float16", "int8"])
    parser.add_argument("--text", type=Path, required=True, help="lines to read")
    parser.add_argument("--tries", type=int, default=5)
    args = parser.parse_args()
    run = load(args.run)
    text = args.text.read_text(encoding="utf-8")
    config: Any = run.model.config
    told: dict[str, Any] = {"parameters": sum(p.numel() for p in run.model.parameters())}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(CHROMIUM))
        file = Path(folder) / "page.html"
        told["bytes"] = plan_living(run.path, args.precision).write(file)
        views = [first_view(browser, file) for _ in range(args.tries)]
        told["first_view_ms"], told["first_view_cpu_ms"] = medians(views)
        if run.config.kind == "gpt":
            page = start(browser, run, args.precision)
            n, maps = min(1000, config.max_len), []
            for number in range(args.tries):  # another text each time: recordings are kept
                long = text_of(run, text[number * 5 * n :], n)
                told["tokens"] = len(run.tokenizer.encode_ids(long))
                given = [long, config.n_heads]
                maps.append(timed(browser, page, MAPS, given))
            assert maps[0][0][1] > 0  # cells of the maps; NaN if there was none
            told["maps_ms"], told["maps_cpu_ms"] = medians([(m[0][0], m[1]) for m in maps])
            ids = run.tokenizer.encode_ids(text[:40]).tolist()[:8]
            rates = []
            for _ in range(args.tries):
                cpu = Renderers(browser)
                before = cpu.seconds()
                steps = written(page, ids, 200)
                used = cpu.seconds() - before
                rates.append((1000 * (len(steps) - 1) / (steps[-1][0] - steps[0][0]),
                              len(steps) / used))  # fmt: skip
            told["tokens_per_s"], told["tokens_per_cpu_s"] = medians(rates)
            exact = start(browser, run, "float32")
            steps = generate(run.model, [ids], GREEDY, max_tokens=200)  # type: ignore[arg-type]
            told["same_ids"] = [one for _, one in written(exact, ids, 200)] == [s[0] for s in steps]
        if run.config.kind != "translator":
            exact = start(browser, run, "float32")
            texts = [line for line in text.splitlines() if len(line) > 20][:50]
            told["texts"], told["worst_weight"] = len(texts), worst_weight(exact, run, texts)
        browser.close()
    print(json.dumps(told, indent=1))


def medians(pairs: list[tuple[float, float]]) -> list[float]:
    return [round(statistics.median(column), 1) for column in zip(*pairs, strict=True)]


if __name__ == "__main__":
    main()
