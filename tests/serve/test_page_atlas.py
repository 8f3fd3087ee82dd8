"""The Atlas in a real browser: a map of 100,000 tokens, and what is written in the page."""

import re
from contextlib import suppress
from urllib.parse import parse_qs

import pytest

from glasshead.observe.trace import open_glass
from glasshead.text.tinyworld import corpus
from tests.serve.conftest import live, meanwhile, until
from tests.serve.made_up import SCRIPT, long_atlas

pytestmark = pytest.mark.deep
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")

NAME = "<b>long.glass"
READY = ".map[data-missing='0']"


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    path = tmp_path_factory.mktemp("books") / NAME
    long_atlas(100_000).save(path)
    return path


@pytest.fixture(scope="module")
def shelf(book):
    with live(book.parent) as found:
        # The first look from afar at a head that was not measured takes seconds; once.
        found.app.state.library.open(NAME).trace.cells(0, 0, 10)
        yield found


@pytest.fixture(scope="module")
def exact(book):
    return open_glass(book)


def opened(page, shelf, address=""):
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{shelf.url}/#view=atlas&lang=en&head=0&{address}")
    page.wait_for_selector(READY)
    return page.locator(".sheet")


def now(page):
    return {
        name: values[0]
        for name, values in parse_qs(page.evaluate("location.hash.slice(1)")).items()
    }


def level(page):
    return int(page.get_attribute(".map", "data-level"))


def zoom_in_to_a_weight(page, sheet, exact):
    """From the whole map down to one weight, its words, and the same place by its address."""
    coarsest = level(page)
    sheet.focus()
    for finer in reversed(range(coarsest)):
        page.keyboard.press("+")
        page.wait_for_selector(f"{READY}[data-level='{finer}']")
    for _ in range(5):
        page.keyboard.press("+")
    page.keyboard.press("d")  # to the diagonal, where there is something to see
    page.wait_for_selector(READY)
    box = sheet.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 + 60)
    until(lambda: re.search(r"weight [\d.]", page.inner_text(".tip")))
    tip = page.inner_text(".tip")
    row, col = (int(n.replace(",", "")) for n in re.findall(r"(?:row|column) ([\d,]+)", tip))
    weight = float(re.search(r"weight ([\d.e-]+)", tip)[1])
    assert col <= row
    assert weight == pytest.approx(float(exact.tile(0, 0, row, col)), rel=0.06, abs=6e-4)
    # The text has come along.
    until(lambda: page.locator(".strip .here").count() == 2)
    until(lambda: page.inner_text(".strip >> nth=0 >> .here") == exact.tokens[0][row])
    until(lambda: page.inner_text(".strip >> nth=1 >> .here") == exact.tokens[0][col])
    # The address shows the same to someone else.
    page.clock.run_for(1000)  # it is written once the map has been still
    until(lambda: "at" in now(page))
    place = now(page)["at"]
    page.reload()
    page.wait_for_selector(READY)
    page.clock.run_for(1000)
    assert now(page)["at"] == place
    page.locator(".sheet").focus()
    page.keyboard.press("Home")
    page.clock.run_for(1000)
    until(lambda: "at" not in now(page))
    assert level(page) == coarsest


def test_100_000_tokens_from_afar_down_to_single_weights(page, shelf, exact):
    page.clock.install()
    sheet = opened(page, shelf)
    assert "100,000 tokens" in page.inner_text(".titles")
    assert level(page) == 8  # about 700 pixels for 100,000 tokens
    zoom_in_to_a_weight(page, sheet, exact)


def test_while_a_page_loads_a_coarser_one_is_shown_and_what_is_out_of_sight_is_given_up(
    page, shelf
):
    sheet = opened(page, shelf)
    held, aborted = [], []
    page.on("requestfailed", lambda request: aborted.append(request.url))
    page.route("**/cells?*", lambda route: held.append(route))
    sheet.focus()
    for _ in range(5):
        page.keyboard.press("+")
    meanwhile(page, lambda: held)
    page.wait_for_selector(".map:not([data-missing='0'])")
    shades = """() => {
      const canvas = document.querySelector(".sheet"), found = new Set();
      const {width, height} = canvas;
      const data = canvas.getContext("2d").getImageData(width / 4, height / 2, 200, 200).data;
      for (let i = 0; i < data.length; i += 4) found.add(data.slice(i, i + 3).join());
      return found.size;
    }"""
    meanwhile(page, lambda: page.evaluate(shades) > 20)  # no blank paper
    assert int(page.get_attribute(".map", "data-missing")) > 0
    before = len(held)
    page.keyboard.press("Shift+ArrowUp")
    meanwhile(page, lambda: len(aborted))
    assert len(held) >= before
    page.unroute("**/cells?*")
    for route in held:
        with suppress(playwright.Error):  # those that were given up
            route.continue_()
    page.keyboard.press("Home")
    page.wait_for_selector(READY)


def test_the_text_the_small_map_and_two_fingers_move_the_map(page, shelf):
    opened(page, shelf, "at=30000,50000,2")
    until(lambda: page.locator(".strip .here").count() == 2)
    target = page.locator(".strip >> nth=0 >> .here + span")
    at = int(target.get_attribute("data-at"))
    target.click()
    until(lambda: float(now(page)["at"].split(",")[1]) == pytest.approx(at, abs=1))
    mini = page.locator(".mini").bounding_box()
    page.mouse.click(mini["x"] + mini["width"] / 4, mini["y"] + mini["height"] * 0.75)
    until(lambda: float(now(page)["at"].split(",")[1]) == pytest.approx(75_000, rel=0.02))
    x, y, zoom = (float(n) for n in now(page)["at"].split(","))
    assert x == pytest.approx(25_000, rel=0.05)
    touch = """([kind, ...points]) => points.forEach(([pointerId, clientX, clientY]) => {
      const told = {pointerId, clientX, clientY, pointerType: "touch", bubbles: true};
      document.querySelector(".sheet").dispatchEvent(new PointerEvent(kind, told));
    })"""
    page.evaluate("HTMLCanvasElement.prototype.setPointerCapture = () => {}")
    box = page.locator(".sheet").bounding_box()
    cx, cy = box["x"] + 62 + (box["width"] - 62) / 2, box["y"] + 50 + (box["height"] - 50) / 2
    page.evaluate(touch, ["pointerdown", [1, cx - 40, cy], [2, cx + 40, cy]])
    page.evaluate(touch, ["pointermove", [1, cx - 80, cy], [2, cx + 80, cy]])
    page.evaluate(touch, ["pointerup", [1, cx - 80, cy], [2, cx + 80, cy]])
    until(lambda: float(now(page)["at"].split(",")[2]) == pytest.approx(zoom + 1, abs=0.05))
    assert float(now(page)["at"].split(",")[1]) == pytest.approx(y, abs=2)


def test_tokens_and_names_that_are_html_are_shown_as_text(page, shelf):
    opened(page, shelf, "at=6,6,5")
    until(lambda: page.locator(".strip .here").count() == 2)
    assert SCRIPT in page.inner_text(".strip >> nth=0")
    assert page.inner_text(".titles h1") == NAME
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("model", ["reader", "translator", "writer"])
def test_the_text_that_is_there_at_first_can_be_read(page, served, model):
    page.goto(f"{served.url}/#view=atlas&lang=en&model={model}")
    page.wait_for_function("() => document.querySelector('textarea')?.value")
    page.get_by_role("button", name="Read").click()
    page.wait_for_selector(READY)


def test_a_text_is_read_in_the_page_in_both_languages_by_day_and_by_night(page, served, shot):
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{served.url}/#view=atlas&lang=zh&model=writer&layer=1")
    page.locator("textarea").fill("".join(corpus(60, "zh", 1)))
    page.get_by_role("button", name="开始读").click()
    page.wait_for_selector(READY)
    page.locator(".heads .layer >> nth=1").locator("button >> nth=2").click()
    until(lambda: (now(page).get("layer"), now(page).get("head")) == ("1", "2"))
    page.wait_for_selector(READY)
    seen = now(page)["seen"]
    box = page.locator(".sheet").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.7)
    page.wait_for_selector(".note ol")
    page.mouse.move(10, 10)
    shot(page, "atlas")
    before = page.evaluate("document.querySelector('.sheet').toDataURL()")
    page.locator("#theme").click()
    page.locator("#theme").click()
    until(lambda: page.evaluate("document.documentElement.dataset.theme") == "dark")
    until(lambda: page.evaluate("document.querySelector('.sheet').toDataURL()") != before)
    shot(page, "atlas-dark")
    page.locator("#language").click()
    page.wait_for_selector(READY)
    assert "Who looks" in page.inner_text(".texts")
    assert now(page)["seen"] == seen
    page.get_by_text("Hide the sink").click()
    page.wait_for_selector(READY)
    until(lambda: now(page).get("nosink") == "1")
    page.get_by_role("radio", name="Mean").click()
    until(lambda: now(page).get("show") == "mean")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
    shot(page, "atlas-phone")


def test_heads_are_chosen_by_arrow_keys(page, served):
    page.goto(f"{served.url}/#view=atlas&lang=en&model=writer&text={corpus_text()}")
    page.wait_for_selector(READY)
    page.locator(".heads button[aria-selected=true]").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    until(lambda: (now(page).get("layer"), now(page).get("head")) == ("1", "1"))
    assert "Layer 1, head 1" in page.inner_text(".numbers")
    page.get_by_text("All numbers of this head").click()
    assert page.locator(".numbers tr").count() >= 10


def test_a_second_text_is_shown_and_back_shows_the_first(page, served):
    first, second, third = (corpus_text(seed) for seed in (1, 2, 3))
    page.goto(f"{served.url}/#view=atlas&lang=en&model=writer&text={first}")
    page.wait_for_selector(READY)
    other_text(page, second)
    shows(page, second)
    page.go_back()
    shows(page, first)
    # An answer that comes late does not take the place of what is shown by then.
    held = []
    page.route("**/api/atlas", lambda route: held.append(route))
    other_text(page, third)
    meanwhile(page, lambda: held)
    page.unroute("**/api/atlas")
    page.go_forward()
    shows(page, second)
    with suppress(playwright.Error):  # it has been given up
        held[0].continue_()
    page.wait_for_load_state("networkidle")
    shows(page, second)
    assert now(page)["text"] == second


def test_a_recording_that_the_server_forgot_is_made_again_once(page, server, world_runs):
    mine = server(world_runs)
    page.goto(f"{mine.url}/#view=atlas&lang=en&model=writer&text={corpus_text()}")
    page.wait_for_selector(READY)
    store = mine.app.state.traces
    store._traces.popitem()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.locator(".heads button").last.click()
    meanwhile(page, lambda: any("/api/atlas" in url for url in asked))
    shows(page, corpus_text())
    page.wait_for_load_state("networkidle")
    assert sum(url.endswith("/api/atlas") for url in asked) == 1
    assert "head 3" in page.inner_text(".numbers h2")
    page.troubles[:] = [one for one in page.troubles if "404" not in one]


def test_a_long_text_is_there_again_after_the_server_was(page, server, world_runs):
    mine = server(world_runs)
    text = "".join(corpus(120, "zh", 3))
    assert len(text) > 2000  # more than the address holds
    page.goto(f"{mine.url}/#view=atlas&lang=en&model=writer")
    page.locator("textarea").fill(text)
    page.get_by_role("button", name="Read", exact=True).click()
    page.wait_for_selector(READY)
    size = page.inner_text(".titles")
    store = mine.app.state.traces
    store._traces.popitem()  # as after a restart
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    nearer = page.get_by_role("button", name="Nearer")
    # The browser has kept what was shown from afar.
    meanwhile(page, lambda: nearer.click() or any("/api/atlas" in url for url in asked))
    page.wait_for_selector(READY)
    assert page.inner_text(".titles") == size
    assert "at" in now(page)  # where one was
    page.get_by_role("button", name="Other text").click()
    assert page.locator("textarea").input_value() == text
    page.troubles[:] = [one for one in page.troubles if "404" not in one]


def test_what_is_typed_is_there_after_another_tab_and_a_reload(page, served):
    page.goto(f"{served.url}/#view=atlas&lang=en&model=writer")
    page.wait_for_function("() => document.querySelector('textarea')?.value")
    page.locator("textarea").fill("小狗昨天")
    page.locator("#tab-steps").click()
    page.locator("#tab-atlas").click()
    assert page.locator("textarea").input_value() == "小狗昨天"
    page.reload()
    page.wait_for_selector("textarea")
    assert page.locator("textarea").input_value() == "小狗昨天"


def test_heads_are_small_maps_and_statistics_have_names(page, served):
    page.goto(f"{served.url}/#view=atlas&lang=en&model=writer&text={corpus_text()}")
    page.wait_for_selector(READY)
    maps = """() => [...document.querySelectorAll(".heads canvas")].map((one) => one.toDataURL())"""
    until(lambda: len(set(page.evaluate(maps))) == page.locator(".heads canvas").count())
    names = page.locator(".picker option").all_inner_texts()
    assert {"Entropy", "Induction"} <= set(names)
    assert max(map(len, names)) < 25
    assert "entropy in nats" in page.inner_text(".picker")


def other_text(page, text):
    page.get_by_role("button", name="Other text").click()
    page.locator("textarea").fill(text)
    page.get_by_role("button", name="Read", exact=True).click()


def shows(page, text):
    """The map of this text is drawn, and its words stand beside it."""
    page.wait_for_selector(READY)
    page.wait_for_function(
        "text => document.querySelector('.strip')?.textContent.includes(text)", arg=text
    )
    page.wait_for_selector(".legend canvas")


def corpus_text(seed=1):
    return "".join(corpus(5, "zh", seed))
