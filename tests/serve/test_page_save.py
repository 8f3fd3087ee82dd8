"""Out of the page in a real browser: each view as PNG, as SVG, and as a file without a server."""

import io
import re
import xml.etree.ElementTree as ET
from itertools import cycle

import pytest
from matplotlib.image import imread

from glasshead.text.tinyworld import World, corpus

from .conftest import live, meanwhile, until

pytestmark = pytest.mark.deep

STORY = World.seed_story()
TEXT = STORY.text("zh")
LONG = "".join(corpus(12, "zh", 1))
SVG = "{http://www.w3.org/2000/svg}"

# view: where it is, what is there once it is drawn, and whose words must be in what is saved
VIEWS = {
    "look": (f"model=reader&text={TEXT}", ".result tbody tr", ".words-over .word"),
    "atlas": (f"model=writer&text={LONG}", ".map[data-missing='0'] ~ * .strip span", ".titles"),
    "steps": (f"model=reader&text={TEXT}", ".steps-table", ".steps-table tbody th"),
    "write": ("model=writer&max=16&go=1&text=那只小狗昨天", ".write-heads li", ".token"),
    "translate": ("", ".translate-heads canvas", ".translation"),
    "runs": ("", ".run-chart li[data-id='writer']", ".run-id"),
}
IN_SVG = {"look": ["小猫", "它", "reader"], "atlas": ["Layer", "writer"],
          "steps": ["小猫", "Softmax", "reader"], "write": ["那", "What may come next", "writer"],
          "translate": ["小猫", "es", "translator"],
          "runs": ["reader", "translator", "writer"]}  # fmt: skip


def opened(page, served, view, more="&lang=en"):
    address, ready, _ = VIEWS[view]
    page.goto(f"{served.url}/#view={view}&{address}{more}")
    wait(page, view, ready)


def wait(page, view, ready):
    page.wait_for_selector(ready.partition(" ~ ")[0], state="attached")
    if view == "atlas":
        page.wait_for_selector(".strip span[data-at]")
    page.wait_for_function("() => !document.querySelector('.view.busy, .busy .view')")


def saved(page, kind, folder):
    page.click("#save")
    with page.expect_download() as download:
        page.click(f"#save-menu [data-kind={kind}]")
    name = download.value.suggested_filename
    assert name.endswith(f".{kind}")
    download.value.save_as(folder / name)
    return folder / name


def words(page, view):
    return page.locator(VIEWS[view][2]).all_inner_texts()


def canvases(page):
    """The pixels of all that is drawn, as their text."""
    page.evaluate("() => document.activeElement.blur()")
    page.mouse.move(2, 400)
    return page.evaluate(
        "() => [...document.querySelectorAll('.view canvas')].map((one) => one.toDataURL())"
    )


@pytest.mark.parametrize(
    ("view", "theme"), list(zip(VIEWS, cycle(["light", "dark"]), strict=False))
)
def test_a_view_saves_as_a_picture_twice_as_fine(page, served, view, theme, tmp_path):
    opened(page, served, view, f"&lang=en&theme={theme}")
    svg = ET.parse(saved(page, "svg", tmp_path)).getroot()
    wide, high = float(svg.get("width")), float(svg.get("height"))
    pixels = imread(io.BytesIO(saved(page, "png", tmp_path).read_bytes()))
    assert pixels.shape[:2] == (round(2 * high), round(2 * wide))
    assert (pixels[..., 3] == 1).all()  # on paper, not on nothing
    assert (pixels[4, 4, :3].mean() > 0.9) == (theme == "light")
    middle = pixels[120:-120, 40:-40, :3].reshape(-1, 3)
    assert len({tuple(p) for p in (middle[::7] * 255).astype(int)}) > 12


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_saves_as_a_drawing_that_holds_its_words(page, served, view, tmp_path):
    opened(page, served, view)
    path = saved(page, "svg", tmp_path)
    svg = ET.parse(path).getroot()
    text = "\n".join(one.text or "" for one in svg.iter(f"{SVG}text"))
    assert all(word in text for word in IN_SVG[view])
    assert "Glasshead" in text
    tags = {one.tag.removeprefix(SVG) for one in svg.iter()}
    assert tags <= {"svg", "rect", "path", "text", "image", "clipPath", "g"}
    links = [one.get("href") for one in svg.iter(f"{SVG}image")]
    assert all(link.startswith("data:image/png;base64,") for link in links)
    assert bool(links) == (view in ("atlas", "runs"))
    page.goto(path.as_uri())  # a browser shows it as it is
    assert page.locator("svg > text").first.is_visible()
    page.troubles.clear()  # a file is no server


@pytest.fixture(scope="module")
def kept(world_runs, browser, tmp_path_factory):
    """Every view saved as a page, with what it showed; the server is gone by then."""
    folder = tmp_path_factory.mktemp("saved")
    found = {}
    with live(world_runs) as served:
        for view in VIEWS:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            opened(page, served, view, "&lang=en&theme=dark")
            page.wait_for_load_state("networkidle")
            path = saved(page, "html", folder)
            found[view] = path, words(page, view), canvases(page)
            page.close()
    return found


@pytest.fixture
def alone(page):
    """A page that may ask for nothing but the file itself."""
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.context.set_offline(True)

    def open_file(path):
        page.goto(path.as_uri())
        page.troubles[:] = [one for one in page.troubles if path.as_uri()[:180] not in one]

    yield open_file
    assert [url for url in asked if not url.startswith(("data:", "blob:"))][1:] == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_saved_page_shows_the_same_without_a_server(page, alone, kept, view):
    path, before, drawn = kept[view]
    alone(path)
    wait(page, view, VIEWS[view][1])
    until(lambda: words(page, view) == before)
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    assert page.inner_text(".settings .chip") == "Saved page"
    until(lambda: canvases(page) == drawn)
    assert page.locator(".problem").count() == 0
    # In the other language and by day it is drawn anew, from what is in the file.
    page.click("#language")
    wait(page, view, VIEWS[view][1])
    assert re.search("[\u4e00-\u9fff]", page.inner_text(".tabs button"))
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("() => document.documentElement.dataset.theme") == "light"
    if view != "write":  # the names of its tokens are those of the text
        until(lambda: canvases(page) != drawn)
    assert page.locator(".problem").count() == 0
    assert page.locator("#save-menu [data-kind]").count() == 3  # card, PNG and SVG; the page is one
    page.wait_for_load_state("networkidle")


def test_in_a_saved_look_heads_and_words_can_be_chosen(page, alone, kept):
    alone(kept["look"][0])
    wait(page, "look", VIEWS["look"][1])
    first = page.inner_text(".head-name")
    for n in range(page.locator(".thumb").count()):
        thumb = page.locator(".thumb").nth(n)
        layer, head = thumb.get_attribute("data-head").split(":")
        thumb.click()
        page.wait_for_selector(f".head-name:text-is('Layer {layer} · head {head}')")
        assert page.locator(".problem").count() == 0
    assert page.inner_text(".head-name") != first
    page.locator(".words-over .word[data-word='公园']").first.click()
    page.wait_for_selector(".head-card h1:has-text('公园')")
    page.locator(".ways summary").click()
    page.locator(".switches input").nth(1).click()  # without the first word
    page.wait_for_function("() => location.hash.includes('nosink')")
    page.wait_for_selector(".look-sheet")
    assert page.locator(".look-sheet").count() == 1
    # What the model would have to be asked says so in one line.
    page.locator("textarea").fill("那只小狗昨天在公园里，它饿了。")
    page.keyboard.press("Enter")
    page.wait_for_selector(".problem >> text=it needs the server")
    assert page.locator(".problem p").count() == 2


def test_in_a_saved_atlas_what_is_too_near_says_that_it_needs_the_server(page, alone, kept):
    alone(kept["atlas"][0])
    wait(page, "atlas", VIEWS["atlas"][1])
    page.locator(".heads button").last.click()  # from afar every head is there
    page.wait_for_function("() => location.hash.includes('head=3')")
    page.wait_for_selector(".note .problem >> text=it needs the server")
    page.wait_for_selector(".map[data-missing='0']:not(.busy)")
    assert page.evaluate(
        """() => {
          const canvas = document.querySelector(".sheet");
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          return new Set(new Uint32Array(data.buffer)).size > 100;
        }"""
    )


def test_a_saved_text_can_be_read_on_where_it_was_changed_by_hand(page, served, tmp_path):
    opened(page, served, "write")
    page.locator(".token").nth(9).click()
    page.wait_for_selector(".write-alternatives .own")
    page.locator(".write-alternatives button:not(:disabled)").nth(1).click()
    page.wait_for_selector(".token.chosen-by-hand")
    page.wait_for_selector(".write-foot >> text=as many as asked for")
    page.wait_for_selector(".write-heads li")
    before = page.locator(".token").all_text_contents()
    path = saved(page, "html", tmp_path)
    other = page.context.new_page()
    other.goto(path.as_uri())
    other.wait_for_selector(".write-heads li")
    assert other.locator(".token").all_text_contents() == before
    assert other.locator(".token.chosen-by-hand").count() == 1
    page.goto("about:blank")
    page.troubles.clear()


def test_a_saved_page_allows_nothing_but_itself(kept):
    html = kept["runs"][0].read_text("utf-8")
    policy = re.search('Content-Security-Policy" content="([^"]*)"', html)[1]
    assert "default-src 'none'" in policy
    assert re.search("script-src 'sha256-[^']+';", policy)
    assert re.search("style-src 'sha256-[^']+';", policy)
    assert not re.search("unsafe|https?:|connect-src", policy)


def test_the_menu_is_for_the_keyboard_too(page, served):
    opened(page, served, "look", "&lang=zh")
    button = page.locator("#save")
    assert button.get_attribute("aria-label") == "分享或保存当前视图"
    button.focus()
    page.keyboard.press("ArrowDown")
    at = "() => document.activeElement.dataset.kind"
    assert page.evaluate(at) == "card"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(at) == "png"
    page.keyboard.press("End")
    assert page.evaluate(at) == "phone"
    page.keyboard.press("Escape")
    assert page.evaluate("() => document.activeElement.id") == "save"
    assert page.locator("#save-menu").is_hidden()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    page.keyboard.press("Tab")
    assert page.locator("#save-menu").is_hidden()
    page.keyboard.press("Shift+Tab")
    with page.expect_download() as download:
        page.locator("#save").press("ArrowDown")
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "glasshead-look-reader-card.png"


def test_the_menu_and_a_saved_page_fit_a_narrow_screen(page, alone, kept):
    page.set_viewport_size({"width": 360, "height": 740})
    alone(kept["look"][0])
    wait(page, "look", VIEWS["look"][1])
    page.click("#save")
    box = page.locator("#save-menu").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    assert all(
        item.bounding_box()["height"] >= 44 for item in page.locator("#save-menu button").all()
    )
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360


def test_what_a_saved_page_holds_is_bounded(page, served):
    opened(page, served, "look")
    size, newest, begun = page.evaluate(
        """async () => {
          const recorded = await import("/web/answers.js");
          const api = await import("/web/api.js");
          const page = () => ({ buffer: new ArrayBuffer(1e6), headers: {} });
          for (let n = 0; n < 60; n++) recorded.keep(`GET /page${n}`, page());
          const found = await api.gather([]);
          const begun = Object.keys(found).some((key) => key.startsWith("POST /api/look"));
          return [JSON.stringify(found).length, "GET /page59" in found, begun];
        }"""
    )
    assert 15e6 < size <= 20.5e6
    assert newest
    assert begun  # what the view began with is never pushed out


def test_nothing_is_saved_of_nothing(page, served):
    page.goto(f"{served.url}/#view=atlas&model=writer&lang=en")
    page.wait_for_selector("form.asking")  # no text was read yet
    page.click("#save")
    page.click("#save-menu [data-kind=png]")
    page.wait_for_selector(".toast >> text=nothing to save yet")


def test_a_page_is_saved_as_it_was_when_it_was_asked_for(page, served, tmp_path):
    opened(page, served, "steps")
    before = words(page, "steps")
    held = []
    page.route("**/api/page", lambda route: held.append(route))
    page.click("#save")
    page.click("#save-menu [data-kind=html]")
    meanwhile(page, lambda: held)
    page.locator(".tries .chip").nth(1).click()
    page.locator("#tab-look").click()
    with page.expect_download() as download:
        held[0].continue_()
    download.value.save_as(tmp_path / "steps.html")
    other = page.context.new_page()
    other.goto((tmp_path / "steps.html").as_uri())
    other.wait_for_selector(f"{VIEWS['steps'][1]}, .problem", state="attached")
    assert words(other, "steps") == before
    page.goto("about:blank")
    page.troubles.clear()  # a file is no server


def test_saved_runs_are_there_also_in_a_tab_behind_others(page, alone, kept):
    page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => true })")
    alone(kept["runs"][0])
    wait(page, "runs", VIEWS["runs"][1])
    assert words(page, "runs") == kept["runs"][1]
