"""Guided tours on live models: each can be walked to its end, left at any time, and linked to."""

import re

import pytest

from glasshead.page.bundle import WEB

LIST = (WEB / "views" / "tour_list.js").read_text("utf-8")
WORDS = (WEB / "views" / "tour_words.js").read_text("utf-8")
TOURS = re.findall(r'^    id: "(\w+)"', LIST, re.MULTILINE)
STEPS = [part.count("{ at:") for part in re.split(r'^    id: "', LIST, flags=re.MULTILINE)[1:]]


def test_five_tours_have_at_most_eight_steps_with_words_in_both_languages():
    assert len(TOURS) == 5
    assert all(2 <= n <= 8 for n in STEPS)
    for lang in WORDS.split("\n  zh: {"):
        found = re.findall(r'^    "tour\.(\w+)\.(\d+)":', lang, re.MULTILINE)
        assert {*found} == {(name, str(i + 1)) for name, n in zip(TOURS, STEPS, strict=True)
                            for i in range(n)}  # fmt: skip


def begin(page, served, query, more="lang=en"):
    page.goto(f"{served.url}/{query}#{more}")
    page.wait_for_selector(".tour")


@pytest.mark.deep
@pytest.mark.parametrize(("name", "steps"), list(zip(TOURS, STEPS, strict=True)))
def test_a_link_begins_a_tour_that_leads_to_its_end(page, served, shot, name, steps):
    begin(page, served, f"?tour={name}")
    for n in range(1, steps + 1):
        page.wait_for_selector(f".tour header .number >> text={n} / {steps}")
        page.wait_for_selector(".tour-ring", state="visible")
        page.wait_for_selector(".view.busy", state="detached")
        page.wait_for_function("!document.querySelector('.tour-text').textContent.includes('…')")
        shot(page, f"tour-{name}-{n}")
        page.locator(".tour .primary").click()
    page.wait_for_selector(".tour", state="detached")
    page.wait_for_function("() => !location.href.includes('tour')")


@pytest.mark.deep
def test_what_a_step_asks_for_is_done_by_hand_or_by_the_tour(page, served):
    begin(page, served, "", "lang=en&tour=one&step=6&model=reader&view=look")
    page.locator(".scissors:not(.again)").first.click()
    page.wait_for_selector(".tour >> text=7 / 7")
    page.wait_for_function("() => location.hash.includes('cut=')")
    page.get_by_role("button", name="Back", exact=True).click()
    page.wait_for_selector(".tour >> text=6 / 7")
    page.wait_for_function("() => !location.hash.includes('cut=')")
    page.get_by_role("button", name="Do it for me").click()
    page.wait_for_selector(".tour >> text=7 / 7")
    page.wait_for_selector(".answer .both")
    page.click("#language")
    page.wait_for_selector(".tour >> text=跳过")
    page.get_by_role("button", name="跳过").click()
    page.wait_for_selector(".tour", state="detached")
    page.click("#tour")
    page.click("#tour-menu [data-tour=many]")
    page.wait_for_selector(".tour >> text=许多头")
    page.keyboard.press("Escape")
    page.wait_for_selector(".tour", state="detached")
