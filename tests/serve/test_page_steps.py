"""Steps in a real browser: what the page computes is what the server computes."""

from xml.etree import ElementTree

import httpx
import numpy as np
import pytest

from glasshead.text.tinyworld import World
from glasshead.text.tokenizer import BPETokenizer
from tests.generation.runs import make_run

from .painting import painted

pytestmark = pytest.mark.deep

TEXT = World.seed_story().text("zh")


def opened(page, served, address):
    page.goto(f"{served.url}/#view=steps&lang=en&{address}")
    page.wait_for_selector(".steps-table", state="attached")
    return page


def column(page, n):
    cells = page.locator(f".steps-table tbody tr td:nth-of-type({n})").all()
    return np.array(
        [float(one.get_attribute("data-value").replace("Infinity", "inf")) for one in cells]
    )


def server_steps(served, model, layer, head, query):
    body = {"model": model, "text": TEXT}
    seen = httpx.post(f"{served.url}/api/look", json=body, timeout=60).json()["seen"]
    params = {"layer": layer, "head": head, "query": query}
    return httpx.get(f"{served.url}/api/seen/{seen}/steps", params=params, timeout=60).json()


@pytest.mark.parametrize(
    ("model", "layer", "head", "query"),
    [("writer", 1, 1, 13), ("translator", 3, 2, 4)],
)
def test_the_pages_weights_are_the_servers(page, served, model, layer, head, query):
    found = server_steps(served, model, layer, head, query)
    address = f"model={model}&text={TEXT}&layer={layer}&head={head}&query={query}"
    opened(page, served, address)
    np.testing.assert_allclose(column(page, 1), found["products"], rtol=1e-12)
    np.testing.assert_allclose(column(page, 4), found["weights"], atol=2e-6)
    assert page.inner_text(".verdicts p >> nth=0") == "These are exactly the model's own weights."


def test_four_steps_are_numbered_and_the_mask_is_not(page, served):
    page.goto(f"{served.url}/#view=runs&lang=en")  # Steps is mounted beside it, to be painted
    svg = painted(page, "SvgPainter", "steps", "reader", ".steps-table")
    texts = [one.text for one in ElementTree.fromstring(svg).iter() if one.tag.endswith("text")]
    names = ["1", "Scores", "2", "Scaled", "Masked", "3", "Softmax", "4", "Weighted sum"]
    assert [text for text in texts if text in {*names, "5"}] == names


def test_a_mask_hides_what_comes_later(page, served):
    opened(page, served, "model=reader&layer=1&head=0&query=4")
    page.get_by_role("radio", name="Hide the future").click()
    page.wait_for_selector(".verdicts .changed")
    weights = column(page, 4)
    assert (weights[5:] == 0).all()
    assert weights.sum() == pytest.approx(1)
    assert np.isneginf(column(page, 3)[5:]).all()


def test_without_its_mask_a_gpt_sees_the_future(page, served):
    opened(page, served, f"model=writer&text={TEXT}&layer=0&head=0&query=5&mask=none")
    assert (column(page, 4)[6:] > 0).all()


def test_temperature_divides_the_scores(page, served):
    found = server_steps(served, "reader", 0, 0, 26)
    opened(page, served, f"model=reader&text={TEXT}&layer=0&head=0&query=26")
    page.get_by_label("Temperature").fill("1")  # 2 to the power of 1
    page.wait_for_selector(".verdicts .changed")
    heated = np.array(found["products"]) * found["scale"] / 2
    wanted = np.exp(heated - heated.max())
    np.testing.assert_allclose(column(page, 4), wanted / wanted.sum(), rtol=1e-9)
    assert "Temperature 2.00" in page.inner_text(".verdicts")


def test_another_word_is_chosen_by_pointer_and_by_arrows(page, served):
    opened(page, served, "model=reader")
    page.get_by_role("radio", name="公园").click()
    page.wait_for_function("() => document.querySelector('.lead').innerText.includes('公园')")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.lead').innerText.includes('里')")
    page.get_by_label("Head", exact=True).select_option("3")
    page.wait_for_function("() => location.hash.includes('head=3')")


def test_the_strips_say_their_numbers_under_the_pointer(page, served):
    opened(page, served, "model=reader&layer=1&head=0&query=26")
    page.locator(".steps-scroll canvas").hover(position={"x": 300, "y": 180})
    assert "q·k" in page.inner_text(".tip")


def test_a_word_wider_than_a_phone_does_not_widen_the_page(page, server, tmp_path):
    text = "Donaudampfschifffahrtsgesellschaftskapitänsmützenhersteller"
    make_run(tmp_path / "run", BPETokenizer.train([text] * 50, vocab_size=400))
    page.set_viewport_size({"width": 390, "height": 844})
    opened(page, server(tmp_path), f"model=run&text={text}&scale=off&mask=causal")
    assert text in page.inner_text(".lead")
    assert text in page.inner_text(".verdicts")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    inside = page.locator(".steps-scroll")  # the table is as wide as ever, in its own box
    assert inside.evaluate("box => box.scrollWidth") > 390
