"""The first view: a question, its answer, every head, and a cut, before anyone scrolls."""

import shutil

import pytest

from glasshead.text.tinyworld import World

from . import trained
from .conftest import live
from .test_page_look import WORD, shows

pytestmark = pytest.mark.deep

STORY = World.seed_story()
PARTS = (".head-card h1", ".answer .large b", ".strip >> nth=-1", ".endings", ".seen-here")


@pytest.fixture(scope="module")
def readers(world_runs, tmp_path_factory):
    """The reader of Chinese, and one of English that has hardly been trained."""
    place = tmp_path_factory.mktemp("readers")
    shutil.copytree(world_runs / "reader", place / "reader")
    trained._train(place / "reader-en", trained.find_dataset("refer"), "reader", 20,
                   batch_size=32, stories=500, world=1, val_stories=8, lang="en")  # fmt: skip
    with live(place) as found:
        yield found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("size", [(1440, 900), (390, 844)])
def test_the_story_is_above_the_fold_in_the_readers_language(
    browser, readers, shot, size, lang, theme
):
    width, height = size
    phone = width < 500  # fingers need larger buttons
    page = browser.new_page(viewport={"width": width, "height": height}, has_touch=phone,
                            is_mobile=phone, locale="en-US")  # fmt: skip
    page.goto(f"{readers.url}/#lang={lang}&theme={theme}")
    page.wait_for_selector(".answer .large b")
    assert page.input_value("#model") == ("reader" if lang == "zh" else "reader-en")
    for part in PARTS:
        box = page.locator(part).bounding_box()
        assert box["y"] + box["height"] <= size[1], part
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    shot(page, f"first-{lang}-{theme}-{size[0]}")
    page.close()


def test_a_sentence_in_another_language_has_a_gloss_and_so_has_the_answer(page, served):
    page.goto(f"{served.url}/#model=reader&lang=en")
    page.wait_for_selector(".answer .gloss >> text=kitten")
    ending = page.get_by_role("radio", name="飞走了")
    assert ending.is_enabled()
    ending.click()
    page.wait_for_selector(".answer .gloss >> text=butterfly")


def test_a_click_on_the_arc_cuts_it_and_the_picture_shows_the_model_then(page, served, shot):
    text = STORY.text("zh")
    page.goto(f"{served.url}/#model=reader&lang=en&text={text}")
    arc = page.locator(".scissors[data-word=小猫]")
    arc.click()
    page.wait_for_selector(".answer .both")
    page.wait_for_selector(".scissors.again[data-word=小猫]")
    # What is said of the picture is what it shows: nothing is left of the look.
    cells = page.locator(".head-card .spoken td:first-child").all_text_contents()
    assert cells
    assert "小猫" not in cells
    shot(page, "cut")
    page.get_by_role("button", name="Cut it in every head").click()
    page.wait_for_selector(".strip >> nth=0")
    page.wait_for_function("() => !document.querySelector('.lit')")
    page.get_by_role("button", name="Start again").click()
    page.wait_for_selector(".answer .both", state="detached")
    shows(page, text)


def test_a_sentence_is_one_tab_stop_with_arrow_keys(page, served):
    page.goto(f"{served.url}/#model=reader&lang=en")
    page.wait_for_selector(WORD)
    stops = "() => [...document.querySelectorAll('.words-over .word')].filter(w => !w.tabIndex)"
    assert page.evaluate(f"({stops})().map(w => w.dataset.word)") == ["它"]
    page.locator(f"{WORD}[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.word") == "饿坏"
    assert page.evaluate(f"({stops})().length") == 1
