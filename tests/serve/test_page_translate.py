"""Translate in a browser: both meanings of 它 a click apart, and where each word looked."""

import re

import pytest

from glasshead.text.tinyworld import World

from .conftest import until
from .painting import painted

pytestmark = pytest.mark.deep

SEED = World.seed_story()


def open_translate(page, live, more=""):
    page.goto(f"{live.url}/#view=translate&lang=en{more}")
    page.wait_for_selector(".translate-heads canvas")


def translation(page):
    return page.locator(".translation").inner_text()


def sentences(page):
    """What each word looked at, as it is told to those who do not see the lines."""
    return page.locator(".translate-attention .spoken li").all_inner_texts()


def test_lines_and_matrix_stand_side_by_side_where_there_is_room(page, served):
    open_translate(page, served)
    lines, matrix = (page.get_by_role("img").nth(n).bounding_box() for n in (0, 1))
    assert abs(lines["y"] - matrix["y"]) < 20
    assert lines["x"] + lines["width"] < matrix["x"]


def test_another_story_brings_two_more_endings(page, served):
    open_translate(page, served)
    before = page.locator(".chip").all_inner_texts()
    page.get_by_role("button", name="Another story").click()
    until(
        lambda: page.evaluate(
            "before => [...document.querySelectorAll('.chip')][2].textContent !== before", before[2]
        )
    )
    assert page.locator(".chip").all_inner_texts()[:2] == before[:2]
    page.wait_for_selector(".chip.chosen:nth-child(1)")


def test_layer_and_head_are_chosen_and_a_mean_is_called_one(page, served):
    open_translate(page, served)
    caption = page.locator(".translate-attention > .quiet").first
    named = re.search(r"“es” looks most at 小猫: (\d+)% of its", caption.inner_text())
    none = "No head shows what “es” stands for" in caption.inner_text()
    assert none or int(named[1]) >= 15
    page.get_by_role("radiogroup", name="Head").get_by_role("radio", name="2").click()
    page.get_by_role("radiogroup", name="Layer").get_by_role("radio", name="1").click()
    until(lambda: page.evaluate("location.hash.includes('layer=1')"))
    assert caption.inner_text() == "Cross-attention of layer 1, head 2."
    heads = []
    for head in range(4):
        page.get_by_role("button", name=f"Layer 1, head {head}", exact=True).click()
        page.wait_for_selector(f"text=Cross-attention of layer 1, head {head}.")
        heads.append(sentences(page))
    assert len(heads[0]) == len(SEED.tokens["de"])
    assert len({str(head) for head in heads}) == 4
    page.get_by_role("radio", name="Mean").click()
    page.wait_for_selector("text=The mean of the 4 heads of layer 1: an average")
    # A reload shows the same.
    until(lambda: "head=mean" in page.evaluate("location.hash"))
    page.reload()
    page.wait_for_selector("text=The mean of the 4 heads of layer 1: an average")


def test_lines_and_matrix_name_what_a_word_looked_at(page, served):
    open_translate(page, served, "&layer=1&head=0")
    told = page.locator(".translate-told")
    assert told.inner_text().startswith("“es” looked at")
    canvas = page.get_by_label("Lines", exact=True).last
    canvas.focus()
    page.keyboard.press("ArrowUp")
    until(
        lambda: page.evaluate(
            "document.querySelector('.translate-told').textContent.startsWith('“ist” looked at')"
        )
    )
    page.keyboard.press("ArrowLeft")
    until(
        lambda: page.evaluate(
            "document.querySelector('.translate-told').textContent.includes('was looked at by')"
        )
    )
    page.get_by_role("radio", name="Matrix").click()
    assert not canvas.is_visible()
    matrix = page.locator(".translate-right > canvas")
    box = matrix.bounding_box()
    matrix.hover(position={"x": box["width"] - 20, "y": box["height"] - 20})
    page.wait_for_selector(".tip:has-text('→')")


def test_each_of_the_best_can_be_looked_into(page, served):
    open_translate(page, served)
    rows = page.locator(".translate-list tbody tr")
    assert rows.count() == 4
    scores = [float(row.locator("td").nth(1).inner_text()) for row in rows.all()]
    assert scores == sorted(scores, reverse=True)
    second = rows.nth(1).locator("button").inner_text().replace("‸", "")
    rows.nth(1).locator("button").click()
    until(
        lambda: page.evaluate(
            "text => document.querySelector('.translation').textContent === text", second
        )
    )
    until(lambda: page.evaluate("location.hash.includes('best=1')"))
    assert page.locator(".translate-list tr.chosen").count() == 1


def test_typed_html_is_text_and_what_is_wrong_is_told(page, served):
    open_translate(page, served)
    page.locator("textarea").fill("<img src=x onerror=alert(1)>它")
    page.get_by_role("button", name="Translate", exact=True).click()
    page.wait_for_selector(".translate-result .problem")
    assert "'<img'" in page.locator(".problem").inner_text()
    assert page.locator("main img").count() == 0
    page.troubles.clear()  # the browser reports the 400


@pytest.mark.parametrize("painter", ["CanvasPainter", "SvgPainter"])
def test_the_view_can_be_painted(page, served, painter):
    open_translate(page, served)
    made = painted(page, painter, "translate", "translator", ".translate-heads canvas")
    if painter == "SvgPainter":
        assert made.startswith("<svg")
        assert "Schmetterling" in made
        assert "蝴蝶" in made
    else:
        assert min(map(float, made.split())) > 400


def test_in_chinese_in_the_dark_on_a_phone(page, served, shot):
    page.set_viewport_size({"width": 360, "height": 740})
    open_translate(page, served, "&theme=dark")
    page.locator("#language").click()
    page.wait_for_selector("text=同一个字，两种意思")
    page.wait_for_selector("text=“它”指小猫，译成了“es”。")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 27)"
    shot(page, "translate-phone")


def test_what_is_typed_and_not_sent_yet_stays(page, served):
    open_translate(page, served)
    field = page.locator("textarea")
    field.fill(SEED.flip().text("zh"))
    with page.expect_request("**/api/translate") as asked:
        page.locator(".translate-source select").first.select_option("2")
    assert asked.value.post_data_json["text"] == SEED.text("zh")
    page.locator("#language").click()
    page.wait_for_selector(".translation mark:text-is('es')")
    assert field.input_value() == SEED.flip().text("zh")


def test_after_a_translation_into_nothing_another_can_be_chosen(page, served):
    def emptied(route):
        told = (reply := route.fetch()).json()
        told["parts"][0]["candidates"][1] |= {"text": "", "target": []}
        route.fulfill(response=reply, json=told)

    page.route("**/api/translate", emptied)
    open_translate(page, served)
    page.locator(".translate-list button").nth(1).click()
    page.wait_for_selector(".translate-heads canvas", state="hidden")
    page.locator(".translate-list button").first.click()
    page.wait_for_selector(".translate-heads canvas")
    assert translation(page) == SEED.text("de")
