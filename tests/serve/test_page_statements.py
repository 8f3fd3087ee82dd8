"""What the page says: with its figure, in the reader's language, and not more than is so."""

import re
import shutil

import pytest

from glasshead.text.tinyworld import World

from .byte_gpt import byte_gpt
from .conftest import until

pytestmark = pytest.mark.deep

STORY = World.seed_story()
TURNING = "\u202e\u2066\u200f\u061c"  # characters that change the direction of text
# Every text of the page and every attribute that is shown; a field shows what was typed in it.
OBEYED = """(turning) => {
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode())
    if (walk.currentNode.parentElement.tagName !== "TEXTAREA") found.push(walk.currentNode.data);
  for (const one of document.querySelectorAll("[title], [aria-label]"))
    found.push(one.title, one.getAttribute("aria-label"));
  return found.filter((text) => text && [...turning].some((one) => text.includes(one)));
}"""
# The texts that are written on any canvas.
SPY = """window.written = [];
for (const kind of [CanvasRenderingContext2D, OffscreenCanvasRenderingContext2D]) {
  const write = kind.prototype.fillText;
  kind.prototype.fillText = function (text, ...rest) {
    window.written.push(text);
    return write.call(this, text, ...rest);
  };
}"""


def test_a_sentence_that_is_translated_has_a_gloss(page, served):
    page.goto(f"{served.url}/#view=translate&lang=en")
    page.wait_for_selector(f".translate-source .gloss >> text={STORY.text('en')}")
    page.get_by_role("button", name="它 = 蝴蝶 (butterfly)").click()
    page.wait_for_selector(f".translate-source .gloss >> text={STORY.flip().text('en')}")
    page.wait_for_selector(".translate-verdict >> text=它 stands for 蝴蝶 (butterfly)")
    page.locator("#language").click()
    page.wait_for_selector(".translate-verdict >> text=“它”指蝴蝶")
    assert page.locator(".translate-source .gloss").is_hidden()


def test_a_card_says_which_look_was_cut_and_shows_it_broken(page, served):
    page.add_init_script(SPY)
    page.goto(f"{served.url}/#model=reader&lang=en&text={STORY.text('zh')}")
    page.wait_for_selector(".answer .large b")

    def card():
        page.evaluate("window.written = []")
        with page.expect_download():
            page.get_by_role("button", name="Share", exact=True).click()
        return " ".join(page.evaluate("window.written"))

    assert "may not look" not in card()
    page.locator(".scissors[data-word=小猫]").click()
    page.wait_for_selector(".scissors.again[data-word=小猫]")
    assert re.search(r"‘它’ may not look at ‘小猫’ in head \d:\d, and the model", card())
    page.get_by_role("button", name="Cut it in every head").click()
    page.wait_for_function("() => location.hash.includes('*')")
    page.wait_for_function("() => !document.querySelector('.lit')")
    page.wait_for_load_state("networkidle")
    assert "in any head, and the model" in card()


def test_a_head_that_stands_out_is_named_with_its_figure(page, served):
    page.goto(f"{served.url}/#model=writer&lang=en&text=小猫昨天在公园里追逐一只蝴蝶")
    page.wait_for_selector(".telling .chip")
    for chip in page.locator(".telling .chip").all_inner_texts():
        assert re.search(r"\d:\d\s*[<\d]", chip)
    none = page.locator(".telling >> text=No head looks mainly at one kind of word").count()
    roles = page.evaluate(
        "async () => (await (await fetch('/api/look', {method: 'POST', headers: "
        "{'content-type': 'application/json'}, body: JSON.stringify({model: 'writer', "
        "text: '小猫昨天在公园里追逐一只蝴蝶'})})).json()).telling.map((one) => one.role)"
    )
    assert bool(none) == ({*roles} <= {"sharpest", "broadest"})


def test_a_model_that_does_not_know_the_text_says_what_it_knows(page, served):
    page.goto(f"{served.url}/#model=reader&lang=en&text=I like apples.")
    page.wait_for_selector(".unreadable >> text=knows these 267 only")
    page.locator(".unreadable .offer").first.click()
    page.wait_for_selector(".answer .large b")
    page.goto(f"{served.url}/#model=writer&lang=en&text=Ω")
    page.wait_for_selector(".unreadable >> text=characters of its training text only")
    page.troubles.clear()  # the browser tells of the 400


def test_a_view_that_no_model_here_is_for_says_how_to_get_one(page, server, world_runs, tmp_path):
    shutil.copytree(world_runs / "reader", tmp_path / "reader")
    mine = server(tmp_path)
    page.goto(f"{mine.url}/#lang=en")
    page.wait_for_selector(".answer .large b")
    for view, command in (("write", "train book.txt"), ("translate", "train --pairs")):
        page.locator(f"#tab-{view}").click()
        page.wait_for_selector(f".empty pre >> text={command}")
    page.go_back()
    page.wait_for_selector(".empty pre >> text=train book.txt")


@pytest.mark.parametrize(
    ("view", "ready"),
    [
        ("look", ".answer .large b"),
        ("look&dir=to", ".strip >> nth=0"),
        ("look&shape=matrix", ".cells-over"),
        ("steps", ".verdicts p"),
        ("write", ".write-alternatives button >> nth=0"),
        ("atlas", ".map[data-missing='0']"),
    ],
)
def test_characters_that_change_directions_are_shown_and_not_obeyed(
    page, server, tmp_path, view, ready
):
    byte_gpt(tmp_path / TURNING[:2], max_len=97)
    page.add_init_script(SPY)
    text = "".join(f"{one} txt.exe " for one in TURNING)
    page.goto(f"{server(tmp_path).url}/#lang=en&view={view}&text={text}")
    page.wait_for_selector(ready)
    page.wait_for_load_state("networkidle")
    until(lambda: "U+202E" in page.evaluate("document.body.innerText + window.written.join('')"))
    assert page.evaluate(OBEYED, TURNING) == []
    written = page.evaluate("window.written.join('')")
    assert not {*written} & {*TURNING}
