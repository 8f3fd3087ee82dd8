"""Share in a browser: a card by one tap, the link, and the code for a phone."""

import pytest
from matplotlib.image import imread

from glasshead.text.tinyworld import World

pytestmark = pytest.mark.deep

TEXT = World.seed_story().text("zh")


def open_story(page, live, more=""):
    page.goto(f"{live.url}/{more}#model=reader&lang=en&text={TEXT}")
    page.wait_for_selector(".answer .large b")


def card(page, folder, name):
    with page.expect_download() as download:
        page.get_by_role("button", name="Share", exact=True).click()
    assert download.value.suggested_filename == "glasshead-look-reader-card.png"
    download.value.save_as(folder / name)
    return imread(folder / name)


def test_one_tap_gives_a_card_which_shows_a_cut_too(page, served, tmp_path, shot):
    open_story(page, served)
    before = card(page, tmp_path, "before.png")
    assert before.shape[:2] == (1260, 2400)
    page.locator(".scissors").first.click()
    page.wait_for_selector(".answer .both")
    after = card(page, tmp_path, "after.png")
    assert before.shape == after.shape
    assert (before != after).any()
    paper = before[20, -20]
    assert (before != paper).any(-1).mean() > 0.02  # something is on it


def test_the_link_and_the_code_for_a_phone_lead_to_what_is_shown(page, served, server, world_runs):
    open_story(page, served)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#save")
    page.click("#save-menu [data-kind=link]")
    page.wait_for_selector(".toast >> text=Link copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.url
    page.click("#save")
    page.click("#save-menu [data-kind=phone]")
    page.wait_for_selector("dialog pre >> text=--host 0.0.0.0")
    page.get_by_role("button", name="Close").click()
    page.wait_for_selector("dialog", state="detached")
    live = server(world_runs, host="0.0.0.0", api_key="k" * 9)
    open_story(page, live, "?key=" + "k" * 9)
    page.click("#save")
    page.click("#save-menu [data-kind=phone]")
    address = page.inner_text("dialog .address")
    assert f":{live.port}/?key=kkkkkkkkk#model=reader" in address
    page.wait_for_selector("dialog canvas")
    page.get_by_role("button", name="Close").click()
    page.goto("about:blank")  # the server ends
