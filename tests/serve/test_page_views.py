"""Every view once in a real browser; the other test_page files test the rest of each view."""

import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from glasshead.text.tinyworld import World

from . import test_page_atlas as atlas
from . import test_page_look as look
from . import test_page_runs as runs
from . import test_page_save as save
from . import test_page_shell as shell
from . import test_page_steps as steps
from . import test_page_translate as translate
from . import test_page_write as write
from .byte_gpt import byte_gpt
from .conftest import until
from .made_up import long_atlas

SEED = World.seed_story()
TEXT = SEED.text("zh")
HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)>"


def test_look_shows_first_that_it_looks_at_its_noun(page, served, shot):
    page.set_viewport_size({"width": 1440, "height": 900})
    look.opened(page, served)
    page.wait_for_selector(".result tbody tr")
    assert "它" in page.inner_text(".pin-line")
    assert page.inner_text(".head-card h1") == "What does 它 stand for?"
    assert page.locator(".strip[aria-pressed=true]").get_attribute("data-word") == "小猫"
    assert page.inner_text(".answer .large b") == "小猫"
    assert look.said(page)[0][0] == "小猫"
    shot(page, "look")
    page.locator("#language").click()
    page.locator("#theme").click()
    page.locator("#theme").click()
    page.wait_for_selector("html[data-theme=dark]")
    page.wait_for_selector(".head-card h1:has-text('指的是谁')")
    shot(page, "look-dark")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
    shot(page, "look-phone")


def test_steps_shows_the_servers_weights_and_those_without_the_root(page, served, shot):
    page.set_viewport_size({"width": 1440, "height": 900})
    found = steps.server_steps(served, "reader", 1, 0, 26)
    steps.opened(page, served, f"model=reader&text={TEXT}&layer=1&head=0&query=26")
    products = np.array(found["products"])
    np.testing.assert_allclose(steps.column(page, 1), products, rtol=1e-12)
    np.testing.assert_allclose(steps.column(page, 4), found["weights"], atol=2e-6)
    assert page.inner_text(".verdicts p >> nth=0") == "These are exactly the model's own weights."
    shot(page, "steps")
    page.get_by_text("Divide by √d").click()
    page.wait_for_selector(".verdicts .changed")
    wanted = np.exp(products - products.max())
    shown = steps.column(page, 4)
    np.testing.assert_allclose(shown, wanted / wanted.sum(), rtol=1e-9, atol=1e-15)
    assert "Without √16" in page.inner_text(".verdicts")
    page.get_by_role("button", name="As the model does it").click()
    page.wait_for_selector(".verdicts .changed", state="detached")


def test_atlas_leads_from_the_whole_map_to_single_weights(page, server, tmp_path):
    exact = long_atlas(3001)
    exact.save(tmp_path / atlas.NAME)
    page.clock.install()
    sheet = atlas.opened(page, server(tmp_path))
    assert page.inner_text(".titles h1") == atlas.NAME
    assert "3,001 tokens" in page.inner_text(".titles")
    atlas.zoom_in_to_a_weight(page, sheet, exact)


def test_write_shows_a_text_token_by_token(page, served, shot):
    write.open_write(page, served, "&max=32")
    write.write(page)
    found = write.tokens(page)
    assert "".join(found).startswith(write.TEXT)
    assert page.locator(".token.given").count() == len(write.TEXT)
    assert len(found) == len(write.TEXT) + 32
    assert "32 tokens written" in page.locator(".write-foot").inner_text()
    colours = page.locator(".token").evaluate_all("all => all.map(x => x.style.backgroundColor)")
    assert colours[0] == ""  # nothing stood before it, so nothing was expected
    assert len(set(colours)) > 3
    assert page.locator(".write-next h2").inner_text() == "What may come next"
    assert page.locator(".write-alternatives li").count() == 8
    shot(page, "write")
    # The address holds all that is needed to write it again.
    until(lambda: page.evaluate("location.hash.includes('go=1')"))
    page.reload()
    write.ended(page)
    assert write.tokens(page) == found


def test_translate_has_both_meanings_one_click_apart(page, served, shot):
    translate.open_translate(page, served)
    assert translate.translation(page) == SEED.text("de")
    assert page.locator(".translation mark").inner_text() == "es"
    verdict = page.locator(".translate-verdict").inner_text()
    assert "stands for 小猫" in verdict
    assert "As in the story" in verdict
    shot(page, "translate")
    page.get_by_role("button", name="它 = 蝴蝶").click()
    page.wait_for_selector(".translation mark:text-is('er')")
    assert translate.translation(page) == SEED.flip().text("de")
    assert page.get_by_role("button", name="它 = 蝴蝶").get_attribute("aria-pressed") == "true"
    assert page.locator("textarea").input_value() == SEED.flip().text("zh")
    page.go_back()
    page.wait_for_selector(".translation mark:text-is('es')")


WORDS = """() => [...document.querySelectorAll("body *")].flatMap((one) => [
    ...["title", "aria-label", "placeholder"].map((name) => one.getAttribute(name)),
    ...[...one.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data),
  ]).filter(Boolean)"""


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("view=look&model=reader", ".result tbody tr"),
        ("view=steps&model=reader", ".verdicts"),
        ("view=write&model=writer&text=那&go=1", ".write-alternatives li"),
        ("view=runs", ".run-settings table"),
        ("view=atlas&model=book.glass&head=0", atlas.READY),
    ],
)
def test_the_chinese_page_has_no_english_sentence(page, served, server, tmp_path, address, shown):
    if "book" in address:
        book = long_atlas(300)
        book.statistics(0)
        book.save(tmp_path / "book.glass")
        served = server(tmp_path)
    page.goto(f"{served.url}/#{address}&lang=zh")
    page.wait_for_selector(shown)
    english = re.compile(r"[A-Za-z]+(?: [a-z]+){2}")
    assert [text for text in page.evaluate(WORDS) if english.search(text)] == []


def test_runs_lays_curves_over_each_other_and_leaves_one_out(page, served, world_runs, shot):
    page.set_viewport_size({"width": 1440, "height": 900})
    runs.open_runs(page, served)
    page.wait_for_selector(".run-chart li[data-id='translator']", state="attached")
    last = json.loads((world_runs / "reader" / "metrics.jsonl").read_text().splitlines()[-1])
    until(lambda: f"step {last['step']}" in runs.said(page, "reader"))
    until(lambda: runs.drawn(page) > 20)
    page.wait_for_selector(".run-settings table")
    page.wait_for_selector("text=它(→小猫)")  # of the reader's samples
    assert page.get_by_text("Thick lines: validation").is_visible()
    assert page.get_by_text("Where the runs shown differ").is_visible()
    lines = (world_runs / "reader" / "metrics.jsonl").read_text().splitlines()
    losses = [line["val_loss"] for line in map(json.loads, lines) if "val_loss" in line]
    assert min(losses) < max(losses)
    told = float(re.search(r", best (.+)", runs.said(page, "reader"))[1])
    assert told == pytest.approx(min(losses), rel=0.06, abs=6e-4)  # it is rounded
    shot(page, "runs")
    page.get_by_label("Show reader", exact=True).uncheck()
    page.wait_for_selector(".run-chart li[data-id='reader']", state="detached")
    assert page.locator(".run-chart li[data-id='translator']").count() == 1
    until(lambda: "shown=" in page.evaluate("location.hash"))
    # Shared, it shows the same.
    page.reload()
    page.wait_for_selector(".run-chart li[data-id='translator']", state="attached")
    assert page.locator(".run-chart li[data-id='reader']").count() == 0


def test_the_address_brings_back_what_was_shown(page, served, browser):
    shell.opened(page, served, f"model=reader&lang=en&text={TEXT}")
    page.wait_for_selector(".words-over .word")
    page.get_by_role("button", name="昨天, word 6").click()
    page.get_by_text("Show it differently").click()
    page.get_by_role("radio", name="Matrix").click()
    page.get_by_text("Log scale").click()
    page.wait_for_selector(".cells-over")
    page.wait_for_function("() => location.hash.includes('log=1')")
    assert {"query=5", "shape=matrix", "log=1"} <= set(page.url.partition("#")[2].split("&"))
    other = browser.new_context(locale="en-US").new_page()
    other.goto(page.url)
    other.wait_for_selector(".cells-over")
    assert "昨天" in other.inner_text(".pin-line")
    assert other.get_by_role("switch", name="Log scale").is_checked()
    other.context.close()


def test_text_that_is_markup_stays_text_in_all_that_is_saved(page, server, tmp_path):
    folder = tmp_path / "runs"
    byte_gpt(folder / "<b onclick=alert(3)>")
    mine = server(folder)
    page.goto(f"{mine.url}/#view=look&lang=en")
    page.wait_for_selector(".words-over .word")  # its own example, which could else come after
    page.locator("textarea").fill(HOSTILE)
    page.keyboard.press("Enter")
    page.wait_for_selector(".words-over .word[data-word*='onerror']")
    svg = ET.parse(save.saved(page, "svg", tmp_path)).getroot()
    assert {one.tag.removeprefix(save.SVG) for one in svg.iter()} <= {"svg", "rect", "path", "text"}
    assert "onerror" in "".join(one.text or "" for one in svg.iter(f"{save.SVG}text"))
    path = save.saved(page, "html", tmp_path)
    html = path.read_text("utf-8")
    assert html.count("</script>") == 2
    assert HOSTILE not in html
    data = json.loads(re.search('id="embedded">(.*)</script>\n', html)[1])
    assert data["state"]["text"] == HOSTILE
    other = page.context.new_page()
    said = []
    other.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    other.on("pageerror", lambda error: said.append(str(error)))
    other.goto(path.as_uri())
    other.wait_for_selector(".words-over .word[data-word*='onerror']")
    assert other.locator("textarea").input_value() == HOSTILE
    assert other.locator(".settings .named").inner_text() == "<b onclick=alert(3)>"
    assert said == []
    page.goto("about:blank")
    page.troubles.clear()
