"""The page's shell in a real browser: languages, themes, address, keyboard, narrow screens."""

import numpy as np
import pytest

from glasshead.observe.colours import Scale, palette

from .byte_gpt import byte_gpt

pytestmark = pytest.mark.deep

EVIL = ('<img src=x onerror="evil=1">', "</script><script>evil=2</script>")


def opened(page, served, address=""):
    page.goto(f"{served.url}/#{address}")
    page.wait_for_selector(".tabs [aria-selected=true]")
    return page


def test_every_tab_has_a_name_in_both_languages(page, served):
    opened(page, served, "lang=en")
    english = page.locator(".tabs button").all_inner_texts()
    page.click("#language")
    chinese = page.locator(".tabs button").all_inner_texts()
    assert len(english) == len(chinese) == 6
    assert all(name.isascii() for name in english)
    assert not any(name.isascii() for name in chinese)
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    page.reload()  # it is remembered, also without the address
    page.wait_for_selector(".tabs [aria-selected=true]")
    assert page.locator(".tabs button").all_inner_texts() == chinese


def test_dark_and_light_by_button_and_by_the_system(page, served):
    paper = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="dark")
    opened(page, served)
    assert page.evaluate(paper) == "rgb(21, 23, 27)"
    page.click("#theme")
    assert page.evaluate(paper) == "rgb(252, 251, 248)"
    assert "theme=light" in _address(page, "theme=light")
    page.click("#theme")
    assert page.evaluate(paper) == "rgb(21, 23, 27)"
    page.click("#theme")  # as the system again
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => {paper} === 'rgb(252, 251, 248)'")


def test_back_undoes_a_change_of_view(page, served):
    opened(page, served, "view=look&lang=en")
    page.get_by_role("tab", name="Steps").click()
    page.wait_for_selector(".steps-table")
    page.go_back()
    page.wait_for_selector(".head-card")
    assert page.get_by_role("tab", name="Look").get_attribute("aria-selected") == "true"


def test_skipping_to_the_content_changes_nothing_else(page, served):
    opened(page, served, "lang=en&view=steps&model=reader&head=2")
    page.wait_for_selector(".steps-table", state="attached")
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "view"
    assert "view=steps" in page.url
    assert page.get_by_role("tab", name="Steps").get_attribute("aria-selected") == "true"


def test_tabs_are_moved_along_by_arrows(page, served):
    opened(page, served, "lang=en&view=look")
    page.get_by_role("tab", name="Look").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-steps"
    page.keyboard.press("Enter")
    page.wait_for_selector(".steps-table")


def test_everything_is_reached_by_tab_and_shows_where_it_is(page, served):
    opened(page, served, "lang=en&view=look")
    page.wait_for_selector(".words-over .word")
    page.evaluate("document.body.focus()")
    met = set()
    for _ in range(90):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break  # behind the last element comes the browser's own
        met.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", page.evaluate("document.activeElement.outerHTML")[:200]
    assert {"skip", "model", "language", "theme", "tab-look", "word"} <= met


@pytest.mark.parametrize("view", ["look", "steps", "look&shape=matrix"])
def test_nothing_runs_out_of_a_narrow_screen(page, served, view):
    page.set_viewport_size({"width": 360, "height": 740})
    opened(page, served, f"lang=en&view={view}")
    page.wait_for_selector(".card canvas")
    page.wait_for_load_state("networkidle")
    page.wait_for_function("document.documentElement.scrollWidth <= 360")
    for box in page.locator(".settings button:visible, .tabs button").all():
        assert box.bounding_box()["height"] >= 36


def test_the_chosen_tab_is_in_sight_on_a_narrow_screen(page, served):
    page.set_viewport_size({"width": 390, "height": 844})
    opened(page, served, "view=runs&lang=en")
    tab = page.locator("#tab-runs").bounding_box()
    assert 0 <= tab["x"]
    assert tab["x"] + tab["width"] <= 390


def test_script_in_names_texts_and_the_address_is_shown_as_text(page, server, tmp_path):
    name = "<img src=x onerror=window.evil=1>"
    byte_gpt(tmp_path / name)
    broken = tmp_path / "<b>half<b>"
    broken.mkdir()
    (broken / "config.json").write_text('{"<script>alert(1)</script>')
    mine = server(tmp_path)
    opened(page, mine, "lang=en")
    assert name in page.inner_text("#model")
    for text in EVIL:
        page.fill(".asking textarea", text)
        page.keyboard.press("Enter")
        page.wait_for_function(
            """text => [...document.querySelectorAll(".words-over .word")]
                .map((one) => one.dataset.word).join("") === text.replaceAll(" ", "")""",
            arg=text,
        )
    page.select_option("#model", label="<b>half<b>")
    page.wait_for_selector(".empty")
    assert "<b>half<b>" in page.inner_text(".empty")
    evil = EVIL[0]
    page.goto("about:blank")
    page.goto(
        f"{mine.url}/#model={evil}&view={evil}&lang={evil}&text={evil}&layer={evil}&cut={evil}"
    )
    page.wait_for_selector(".words-over .word")
    assert page.evaluate("window.evil") is None
    assert page.locator("main img, main script").count() == 0


def test_a_view_takes_a_model_that_fits(page, served):
    opened(page, served, "model=reader&lang=en")
    page.get_by_role("tab", name="Translate").click()
    page.wait_for_selector(".toast")
    assert page.input_value("#model") == "translator"


def test_a_server_that_is_gone_is_told_in_words(page, server, world_runs):
    mine = server(world_runs)
    opened(page, mine, "lang=en&model=reader")
    page.wait_for_selector(".words-over .word")
    page.route("**/api/**", lambda route: route.abort())
    page.locator(".tries .chip").nth(1).click()
    page.wait_for_selector(".problem")
    assert "does not answer" in page.inner_text(".problem")
    page.troubles.clear()  # the browser tells of the failed request


def test_a_key_is_asked_for(page, server, world_runs):
    mine = server(world_runs, api_key="open-sesame")
    page.goto(f"{mine.url}/#lang=en")
    page.wait_for_selector("input[type=password]")
    page.fill("input[type=password]", "open-sesame")
    page.keyboard.press("Enter")
    page.wait_for_selector(".words-over .word")
    page.troubles.clear()  # the browser tells of the 401


@pytest.mark.parametrize("kind", ["linear", "log", "ratio"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_are_those_of_the_pictures(page, served, kind, theme):
    opened(page, served)
    values = np.array([[0.5, 0.25, 0.125], [1, 0, 0], [0.003, 0.4, 1e-9]])
    wanted = Scale.of(values, kind)
    found = page.evaluate(
        """async ([values, kind, theme]) => {
            const { Scale, palette } = await import("/web/scale.js");
            const scale = Scale.of(values, 3, kind);
            const shades = values.map((v) => scale.shade(v));
            return [scale.low, scale.high, shades, [...palette(kind, theme)]];
        }""",
        [values.ravel().tolist(), kind, theme],
    )
    assert found[0] == pytest.approx(wanted.low)
    assert found[1] == pytest.approx(wanted.high)
    assert np.abs(np.array(found[2]) - wanted.shades(values).ravel().astype(int)).max() <= 1
    ramp = np.array(found[3]).reshape(256, 3)
    assert np.abs(ramp - palette(kind, theme).astype(int)).max() <= 1


def test_pictures_are_the_same_on_canvas_and_as_svg(page, served):
    opened(page, served)
    found = page.evaluate(
        """async () => {
            const { CanvasPainter, SvgPainter } = await import("/web/paint.js");
            const { Scale } = await import("/web/scale.js");
            const draw = (p) => {
                p.size(80, 60, "#ffffff");
                p.rect(10, 10, 20, 20, { fill: "#ff0000" });
                p.cells(40, 10, 10, 10, [0, 1, 1, 0], 2, 2, new Scale("linear", 0, 1));
                p.line(0, 50, 80, 50, { stroke: "#00ff00", width: 4 });
                p.text(2, 8, "<&\\u0007>", { size: 8, fill: "#0000ff" });
            };
            const canvas = new CanvasPainter(document.createElement("canvas"), 1);
            const svg = new SvgPainter();
            draw(canvas); draw(svg);
            const image = new Image();
            image.src = "data:image/svg+xml," + encodeURIComponent(svg.toString());
            await image.decode();
            const other = document.createElement("canvas");
            other.width = 80; other.height = 60;
            const context = other.getContext("2d");
            context.drawImage(image, 0, 0);
            const points = [[20, 20], [45, 15], [55, 15], [60, 50], [70, 40]];
            const seen = (on) => {
                const { data } = on.getImageData(0, 0, 80, 60);
                return points.map(([x, y]) => [0, 1, 2, 3].map((c) => data[4 * (80 * y + x) + c]));
            };
            return [seen(canvas.context), seen(context), svg.toString()];
        }"""
    )
    assert found[0] == found[1]
    assert "&lt;&amp;&gt;" in found[2]


def _address(page, part):
    page.wait_for_function("part => location.hash.includes(part)", arg=part)
    return page.url
