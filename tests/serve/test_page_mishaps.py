"""The page when things go wrong: strange addresses, wrong keys, a server away or forgetful."""

import json

import pytest

from .conftest import meanwhile
from .test_page_shell import opened

pytestmark = pytest.mark.deep


@pytest.mark.parametrize(
    "address",
    [
        "view=look&model=reader&layer=1&head=-1&query=abc",
        "view=look&model=reader&layer=999&head=1.5&query=-0&cut=9.9;a.b,,,",
        "view=steps&model=reader&layer=1&head=-1&query=1e9&heat=x&mask=y&scale=z",
        "view=write&model=writer&go=1&text=它&seed=abc&temperature=zzz&topk=-3&max=1e9&penalty=-1",
        "view=write&model=writer&go=1&text=它&seed=1e300&topp=0&minp=7&topk=1.5&max=-2",
        "view=translate&model=translator&beam=-1&n=1e9&alpha=x&layer=99&head=-7&best=99&part=-1",
        "view=atlas&model=reader&text=它&layer=-1&head=99&at=NaN,-1,1e99&by=x&show=y",
        "view=runs&run=nope&scale=x",
        "view=toString&model=__proto__&lang=__proto__&theme=constructor&__proto__=1",
        "view=<script>&model=<img>&lang=xx&theme=xx&layer=[]&head={}",
        "%%%&=&view",
    ],
)
def test_an_address_that_says_anything_shows_something(page, served, address):
    """Nothing goes wrong in the page, nor does it ask the server for what cannot be."""
    refused = []
    page.on("response", lambda reply: reply.status >= 400 and refused.append(reply.url))
    opened(page, served, address)
    page.wait_for_load_state("networkidle")
    assert len(page.inner_text("#view")) > 20
    assert page.locator(".problem").count() == 0
    assert refused == []


def test_a_wrong_key_is_told_and_another_can_be_typed(page, server, world_runs):
    mine = server(world_runs, api_key="open-sesame")
    page.goto(f"{mine.url}/#lang=en")
    page.wait_for_selector("input[type=password]")
    assert page.locator("[role=alert]").count() == 0
    for wrong in ("open sesame", "密钥", "", "close-sesame"):
        page.fill("input[type=password]", wrong)
        page.keyboard.press("Enter")
        page.wait_for_selector("[role=alert]:has-text('not the key')")
    page.reload()
    page.wait_for_selector("input[type=password]")
    page.fill("input[type=password]", " open-sesame ")
    page.keyboard.press("Enter")
    page.wait_for_selector(".words-over .word")
    page.troubles.clear()  # the browser tells of each 401


@pytest.mark.parametrize("view", ["look", "steps"])
@pytest.mark.parametrize("how", ["button", "example"])
def test_what_failed_can_be_asked_again(page, served, view, how):
    opened(page, served, f"lang=en&model=reader&view={view}")
    shown = {"look": ".words-over .word", "steps": ".query-words button"}[view]
    page.wait_for_selector(shown)
    page.route("**/api/**", lambda route: route.abort())
    example = page.locator(".tries .chip").nth(1)
    example.click()
    page.wait_for_selector(".problem:has-text('does not answer')")
    page.unroute("**/api/**")
    if how == "example":
        example.click()
    else:
        page.locator("form.asking button[type=submit]").click()
    page.wait_for_selector(shown)
    assert page.locator(".problem").count() == 0
    page.troubles.clear()  # the browser tells of the failed request


@pytest.mark.parametrize("view", ["look", "steps"])
def test_a_text_that_is_sent_again_while_it_is_read_is_shown(page, served, view):
    """Who waits a moment too long before Enter sends it twice: the pause has sent it already."""
    opened(page, served, f"lang=en&model=reader&view={view}")
    shown = {"look": ".words-over .word", "steps": ".query-words button"}[view]
    page.wait_for_selector(shown)
    text = page.locator(".tries .chip").nth(1).get_attribute("title")
    held = []
    page.route("**/api/look", lambda route: held.append(route))
    page.fill(".asking textarea", text)
    meanwhile(page, lambda: len(held) == 1)
    page.keyboard.press("Enter")
    meanwhile(page, lambda: len(held) == 2)
    held[1].continue_()
    page.wait_for_function(
        """([shown, text]) => [...document.querySelectorAll(shown)]
            .map((one) => one.dataset.word ?? one.textContent).join("") === text""",
        arg=[shown, text],
    )


@pytest.mark.parametrize("view", ["look", "steps"])
def test_a_text_that_the_server_forgot_is_read_again(page, server, world_runs, view):
    mine = server(world_runs)
    opened(page, mine, f"lang=en&model=reader&view={view}&layer=0&head=0")
    shown = {"look": ".words-over .word", "steps": ".query-words button"}[view]
    page.wait_for_selector(shown)
    store = mine.app.state.traces
    store._traces.popitem()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("location.hash = location.hash.replace('head=0', 'head=3')")
    with page.expect_response("**/api/look") as reading:
        pass
    assert json.loads(reading.value.body())["seen"]
    page.wait_for_load_state("networkidle")
    page.wait_for_selector(shown)
    assert page.locator(".problem").count() == 0
    assert sum(url.endswith("/api/look") for url in asked) == 1
    page.troubles.clear()  # the browser tells of the 404


@pytest.mark.parametrize(
    ("view", "model"), [("look", "reader"), ("atlas", "reader"), ("translate", "translator")]
)
def test_what_is_typed_takes_the_place_of_an_example_that_comes_late(page, served, view, model):
    held = []
    page.route("**/examples?*", lambda route: held.append(route))
    page.goto(f"{served.url}/#view={view}&model={model}&lang=zh")
    field = page.locator("textarea")
    field.focus()
    meanwhile(page, lambda: held)
    for route in held:
        route.continue_()
    page.wait_for_function("() => document.querySelector('textarea').value")
    assert page.evaluate("() => getSelection().toString()") == field.input_value()
    page.keyboard.type("小狗")
    assert field.input_value() == "小狗"
