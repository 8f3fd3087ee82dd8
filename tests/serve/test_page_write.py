"""Write in a browser: tokens as they come, other ones taken, and what was looked at."""

import time

import pytest

from glasshead.serve.writer import Writer

from .conftest import meanwhile, until
from .painting import painted

pytestmark = pytest.mark.deep

TEXT = "那只小狗昨天在公园里"


def open_write(page, live, more=""):
    page.goto(f"{live.url}/#view=write&lang=en{more}")
    page.wait_for_selector(".write-form")


def write(page, text=TEXT):
    page.locator("textarea").fill(text)
    page.get_by_role("button", name="Write", exact=True).click()
    ended(page)


def ended(page):
    page.wait_for_selector(".write-foot >> text=as many as asked for")
    page.wait_for_selector(".write-heads li")


def tokens(page):
    return page.locator(".token").all_text_contents()


def test_another_token_is_taken_and_the_rest_is_written_anew(page, served):
    open_write(page, served, "&max=16")
    write(page)
    before = tokens(page)
    place = len(TEXT) + 3
    page.locator(".token").nth(place).click()
    assert page.locator(".write-next h2").inner_text() == f"Instead of “{before[place]}”"
    page.wait_for_selector(".write-alternatives .own")
    other = page.locator(".write-alternatives button:not(:disabled)").nth(1)
    word = other.locator(".word").inner_text()
    other.click()
    page.wait_for_selector(".token.chosen-by-hand")
    ended(page)
    after = tokens(page)
    assert after[:place] == before[:place]
    assert after[place].rstrip("\n") == word
    assert len(after) == place + 1 + 16


def test_one_token_and_on(page, served):
    open_write(page, served, "&max=16")
    write(page)
    n = len(tokens(page))
    page.get_by_role("button", name="One token").click()
    until(lambda: page.evaluate("n => document.querySelectorAll('.token').length === n", n + 1))
    ended(page)
    page.get_by_role("button", name="Go on").click()
    until(lambda: page.evaluate("n => document.querySelectorAll('.token').length === n", n + 17))
    ended(page)
    # At once: the list is drawn anew when the answer to "what next" comes.
    third = page.locator(".write-alternatives button").nth(2)
    word = third.evaluate("b => (b.click(), b.querySelector('.word').innerText)")
    page.wait_for_selector(".token.chosen-by-hand")
    assert page.locator(".token.chosen-by-hand").text_content().rstrip("\n") == word


@pytest.fixture
def unhurried(monkeypatch):
    """Write 40 tokens, and no more before the client has left: it is never too late to stop."""
    write, begun = Writer._write, {}

    def until_left(writer):
        enough = writer.tokens - begun.setdefault(writer, writer.tokens) >= 40
        if enough and writer.jobs and not any(job.gone for job in writer.jobs.values()):
            time.sleep(0.01)
        else:
            write(writer)

    monkeypatch.setattr(Writer, "_write", until_left)


@pytest.mark.usefixtures("unhurried")
def test_stop_stops(page, served):
    open_write(page, served, "&max=1024")
    page.locator("textarea").fill(TEXT)
    page.get_by_role("button", name="Write", exact=True).click()
    until(lambda: page.evaluate("document.querySelectorAll('.token').length > 14"))
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector(".write-foot >> text=stopped")
    n = len(tokens(page))
    assert n < len(TEXT) + 1024
    until(lambda: served.app.state.engine.n_running == 0)
    assert len(tokens(page)) == n
    assert page.get_by_role("button", name="Write", exact=True).is_visible()


def test_what_a_token_looked_at_is_shown_in_the_text(page, served, shot):
    open_write(page, served, "&max=16")
    write(page)
    page.locator(".token").nth(12).click()
    page.wait_for_selector("text=What was looked at to write it")
    assert page.locator(".write-heads li").count() == 8  # of two layers
    strongest = page.locator(".write-heads li").nth(0)
    share = strongest.locator(".seen span").first.inner_text().split()[-1]
    strongest.locator("button").click()
    page.wait_for_selector(".write-heads .chosen")
    until(lambda: page.evaluate("location.hash.includes('colour=look')"))
    darkest = """() => {
      const sum = (numbers) => numbers.map(Number).reduce((a, b) => a + b);
      const light = (one) => sum(one.style.backgroundColor.match(/\\d+/g) ?? [999]);
      const all = [...document.querySelectorAll(".token")];
      return all.sort((a, b) => light(a) - light(b))[0].textContent;
    }"""
    # The address may change before the colours do.
    until(lambda: page.evaluate(darkest) == strongest.locator("b").first.inner_text())
    assert int(share.rstrip("%").split(".")[0]) > 10
    later = page.locator(".token").evaluate_all(
        "all => all.slice(12).every(one => !one.style.backgroundColor)"
    )
    assert later  # it looked at nothing that came after
    shot(page, "write-look")


def test_tokens_are_walked_by_keys(page, served):
    open_write(page, served, "&max=16")
    write(page)
    page.locator(".token").nth(12).click()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".token:nth-child(14).selected")
    assert page.locator(".token").nth(13).get_attribute("aria-selected") == "true"
    page.keyboard.press("Home")
    page.wait_for_selector("text=The first token was given")


def test_typed_html_is_text_and_what_is_wrong_is_told(page, served):
    open_write(page, served)
    page.locator("textarea").fill("<img src=x onerror=alert(1)>")
    page.get_by_role("button", name="Write", exact=True).click()
    page.wait_for_selector(".write-form .problem")
    assert "'<'" in page.locator(".problem").inner_text()
    assert page.locator("main img").count() == 0
    page.troubles.clear()  # the browser reports the 400


@pytest.mark.parametrize("painter", ["CanvasPainter", "SvgPainter"])
def test_the_view_can_be_painted(page, served, painter):
    open_write(page, served, "&max=16&text=" + TEXT)
    made = painted(page, painter, "write", "writer", ".write-alternatives li")
    if painter == "SvgPainter":
        assert made.startswith("<svg")
        assert "狗" in made
    else:
        assert min(map(float, made.split())) > 300


def test_in_chinese_in_the_dark_on_a_phone(page, served, shot):
    page.set_viewport_size({"width": 360, "height": 740})
    open_write(page, served, "&max=16&theme=dark")
    write(page)
    page.locator("#language").click()
    page.wait_for_selector("text=接下来可能是")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    shot(page, "write-phone")


def test_what_is_typed_and_not_sent_yet_stays(page, served):
    open_write(page, served, f"&text={TEXT}")
    page.wait_for_selector(".write-heads li")
    field = page.locator("textarea")
    field.fill("小狗")
    page.locator("#theme").click()
    assert field.input_value() == "小狗"
    page.locator("#language").click()
    page.wait_for_selector("text=接下来可能是")
    assert field.input_value() == "小狗"
    assert "".join(tokens(page)) == TEXT
    # Another text in the address is news.
    page.evaluate("location.hash = location.hash.replace(/text=[^&]*/, 'text=小猫')")
    meanwhile(page, lambda: tokens(page)[:2] == ["小", "猫"])
    assert field.input_value() == "小猫"


def test_what_went_wrong_while_writing_stays_until_something_begins(page, served):
    open_write(page, served, f"&max=16&text={TEXT}")
    page.wait_for_selector(".write-heads li")
    told = {"error": {"message": "no more ink"}}
    page.route("**/api/write", lambda route: route.fulfill(status=500, json=told))
    with page.expect_response("**/api/write/look"):  # comes after all else
        page.get_by_role("button", name="Go on").click()
    assert "no more ink" in page.locator(".write-form .problem").inner_text()
    page.unroute("**/api/write")
    page.get_by_role("button", name="One token").click()
    page.wait_for_selector(".write-form .problem", state="detached")
    page.troubles.clear()  # the browser reports the 500


def test_where_nothing_is_written_any_more_nothing_can_be_stopped(page, served):
    open_write(page, served, f"&max=1024&go=1&text={TEXT}")
    until(lambda: page.evaluate("document.querySelectorAll('.token').length > 14"))
    page.route("**/api/write/read", lambda route: route.abort())
    page.locator("textarea").press("Control+Enter")
    page.wait_for_selector(".write-form .problem")
    assert page.get_by_role("button", name="Write", exact=True).is_visible()
    assert not page.get_by_role("button", name="Stop").is_visible()
    page.troubles.clear()  # the browser tells of the failed request


@pytest.mark.usefixtures("unhurried")
def test_in_another_language_what_may_come_next_is_that_of_the_last_token(page, served):
    open_write(page, served, f"&max=1024&go=1&text={TEXT}")
    until(lambda: page.evaluate("document.querySelectorAll('.token').length > 14"))
    with page.expect_request("**/api/write/read") as asked:
        page.locator("#language").click()
    assert len(asked.value.post_data_json["ids"]) == len(tokens(page))
    page.wait_for_selector(".write-heads li")


def test_a_text_that_made_room_for_another_can_be_come_back_to(page, served):
    open_write(page, served, f"&max=16&text={TEXT}")
    write(page)
    first = tokens(page)
    assert page.locator(".write-history").is_hidden()
    page.get_by_role("button", name="Another way").click()
    page.wait_for_selector(".write-foot >> text=as many as asked for")
    page.wait_for_selector(".write-heads li")
    second = tokens(page)
    page.locator(".write-history summary").click()
    page.locator(".write-history button").first.click()
    meanwhile(page, lambda: tokens(page) == first)
    assert page.locator("textarea").input_value() == TEXT
    # What else might have come is asked again.
    page.locator(".token").last.click()
    page.wait_for_selector(".write-alternatives .own")
    page.reload()
    page.wait_for_selector(".write-history summary")
    assert "(2)" in page.inner_text(".write-history summary")
    page.locator(".write-history summary").click()
    shown = page.locator(".write-history button").all_inner_texts()
    assert any("".join(second[len(TEXT) :])[:8] in one for one in shown)


def test_back_returns_to_the_beginning_before(page, served):
    open_write(page, served, f"&max=16&text={TEXT}")
    page.wait_for_selector(".write-heads li")
    page.locator("textarea").fill("小狗")
    page.locator("textarea").press("Control+Enter")
    meanwhile(page, lambda: len(tokens(page)) > 10)
    page.go_back()
    meanwhile(page, lambda: page.locator("textarea").input_value() == TEXT)
