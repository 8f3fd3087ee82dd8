"""Look in a real browser: sentences are typed, rankings read off the page, heads taken away."""

import json
import re

import pytest

from glasshead.text.tinyworld import World

from .byte_gpt import byte_gpt

pytestmark = pytest.mark.deep

STORY = World.seed_story()
TEXT, OTHER = STORY.text("zh"), STORY.flip().text("zh")
WORD = ".words-over .word"


def opened(page, served, address=f"model=reader&lang=en&text={TEXT}"):
    page.goto(f"{served.url}/#{address}")
    page.wait_for_selector(f"{WORD}, .cells-over")
    return page


def ranking(page, way="from"):
    rows = page.locator(".strip" if way == "from" else ".rank-card.to .ranking button").all()
    return [(r.get_attribute("data-head"), r.get_attribute("data-word")) for r in rows]


def head_is(page, name):
    page.wait_for_function(
        "name => document.querySelector('.pin-line')?.innerText.startsWith(name)", arg=name
    )


def said(page):
    return [row.split() for row in page.locator(".result tbody tr").all_inner_texts()]


@pytest.mark.parametrize(("text", "noun"), [(TEXT, "小猫"), (OTHER, "蝴蝶")])
def test_a_typed_sentence_is_read_and_its_answer_told(page, served, text, noun):
    opened(page, served, "model=reader&lang=zh")
    page.fill(".asking textarea", "")
    page.type(".asking textarea", text)
    page.keyboard.press("Enter")
    page.wait_for_function(
        "noun => document.querySelector('.result tbody .said')?.innerText === noun", arg=noun
    )
    shows(page, text)
    assert noun in {word for _, word in ranking(page)}


def test_a_pinned_word_is_followed_by_both_rankings(page, served):
    opened(page, served, f"model=reader&lang=en&text={TEXT}")
    page.get_by_role("button", name="蝴蝶, word 13").click()
    page.wait_for_function(
        "() => document.querySelector('.rank-card.to h2').innerText === 'Who looks at ‘蝴蝶’'"
    )
    assert page.inner_text(".head-card h1") == "What does 蝴蝶 stand for?"
    assert (len(ranking(page)), len(ranking(page, "to"))) == (8, 6)
    page.get_by_role("button", name="All 8 heads").click()
    assert len(ranking(page, "to")) == 8
    page.get_by_role("button", name="Unpin").click()
    page.wait_for_selector(".strip", state="detached")
    assert "Click a word" in page.inner_text(".seen-here")


def test_a_head_is_chosen_from_the_grid_and_by_keyboard(page, served):
    opened(page, served)
    page.locator(".thumb[data-head='0:1']").click()
    head_is(page, "Layer 0 · head 1")
    page.locator(".thumb[data-head='0:1']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    head_is(page, "Layer 1 · head 2")


def test_heads_are_sorted_by_any_statistic_and_it_is_explained(page, served):
    opened(page, served)
    values = page.evaluate(
        """async ([text]) => {
            const { post } = await import("/web/api.js");
            return (await post("/api/look", { model: "reader", text })).statistics;
        }""",
        [TEXT],
    )
    page.get_by_role("radio", name="By value").click()
    for name in ("entropy", "mean_distance"):
        page.get_by_label("Statistic").select_option(name)
        page.wait_for_function(
            "text => document.querySelector('.grid-card > p').innerText === text",
            arg=values[name]["explain"]["en"],
        )
        heads = [one.get_attribute("data-head") for one in page.locator(".thumb").all()]
        found = [values[name]["values"][int(h[0])][int(h[2])] for h in heads]
        assert found == sorted(found, reverse=True)


def test_the_matrix_tells_exact_weights_by_pointer_and_keyboard(page, served, shot):
    opened(page, served, f"model=reader&lang=en&text={TEXT}&shape=matrix&layer=1&head=0&theme=dark")
    page.wait_for_selector(".cells-over")
    page.wait_for_selector(".result tbody tr")
    shot(page, "look-matrix")
    page.focus(".cells-over")
    page.keyboard.press("ArrowUp")  # from the pinned row to the one above, 现在
    told = page.locator(".head-card [aria-live]").last.inner_text()
    found = re.fullmatch(r"现在 → 那: ([\d.e-]+)", told)
    assert found, told
    weights = page.evaluate(
        """async ([text]) => {
            const { post, bytes } = await import("/web/api.js");
            const { seen } = await post("/api/look", { model: "reader", text });
            const { buffer } = await bytes(`/api/seen/${seen}/weights?layer=1&head=0`);
            return [...new Float32Array(buffer)];
        }""",
        [TEXT],
    )
    assert float(found[1]) == pytest.approx(weights[25 * 30], rel=0.06, abs=1e-3)
    page.locator(".cells-over").hover(position={"x": 200, "y": 200})
    assert "→" in page.inner_text(".tip")
    page.mouse.click(*_cell(page, 26, 2))  # the row of 它: it was pinned, and is no more
    page.wait_for_function("() => location.hash.includes('query=none')")


def test_silencing_heads_shows_before_and_after(page, served):
    opened(page, served, "model=reader&lang=en&layer=1&head=0")
    page.wait_for_selector(".result tbody tr")
    assert page.locator(".result thead th").count() == 2
    page.get_by_role("button", name="Silence head 1:0").click()
    page.wait_for_selector(".result table.both")
    page.get_by_role("button", name="Silence all 4 heads of layer 1").click()
    page.wait_for_selector(".chip.chosen >> text=layer 1 silent")
    page.wait_for_selector(".verdict")
    before, after = next(row[1:] for row in said(page) if row[0] == "小猫")
    assert before == "100%"
    assert after != before
    page.get_by_role("button", name="Bring back: layer 1 silent").click()
    page.wait_for_selector(".result table.both", state="detached")


def test_a_look_is_cut_in_every_layer(page, served):
    opened(page, served, "model=reader&lang=en")
    page.wait_for_selector(".result tbody tr")
    page.get_by_label("the look at").select_option(label="小猫")
    page.get_by_label("in", exact=True).select_option("all")
    page.get_by_role("button", name="Cut", exact=True).click()
    page.wait_for_selector(".result table.both")
    chips = [" ".join(text.split()) for text in page.locator(".chips .chip").all_inner_texts()]
    assert chips == ["它 ↛ 小猫 in layer 0 ×", "它 ↛ 小猫 in layer 1 ×"]
    page.wait_for_function("() => location.hash.includes('cut=e0')")


def test_a_translator_shows_encoder_decoder_and_cross(page, served):
    opened(page, served, f"model=translator&lang=en&text={TEXT}")
    head_is(page, "Cross layer")
    sides = {one.get_attribute("data-side") for one in page.locator(WORD).all()}
    assert sides == {"row", "col"}
    page.get_by_role("radio", name="Encoder").click()
    head_is(page, "Encoder")
    assert page.locator(".thumb").count() == 8
    assert "它" in page.inner_text(".pin-line")
    page.wait_for_selector(".translations")


def test_a_word_of_the_source_is_pinned_to_see_who_looks_at_it(page, served):
    opened(page, served, "model=translator&lang=en")
    page.locator(f"{WORD}[data-side=col][data-word=小猫]").click()
    page.wait_for_function(
        "() => document.querySelector('.rank-card.to h2').innerText === 'Who looks at ‘小猫’'"
    )
    assert page.locator(".strip").count() == 0


def test_switches_change_what_is_shown(page, server, tmp_path):
    byte_gpt(tmp_path / "bytes")
    opened(page, server(tmp_path), "lang=en&text=The cat sat")
    assert page.locator(WORD).count() == 3
    page.get_by_text("Show it differently").click()
    page.get_by_text("× uniform").click()
    page.wait_for_function("() => document.querySelector('.legend').innerText.includes('≥16')")
    page.get_by_text("Log scale").click()  # the two exclude each other
    page.wait_for_function("() => !document.querySelector('.legend').innerText.includes('≥16')")
    assert not page.get_by_role("switch", name="× uniform").is_checked()
    page.get_by_text("Hide the sink").click()
    page.wait_for_function("() => location.hash.includes('nosink=1')")
    page.get_by_role("switch", name="Tokens").check()
    page.wait_for_function(f"() => document.querySelectorAll('{WORD}').length > 3")


def test_a_mistake_stands_where_the_result_would(page, served):
    opened(page, served, "model=reader&lang=en")
    page.fill(".asking textarea", "Ganz unbekannte Wörter")
    page.wait_for_selector(".problem")
    assert "is not one of the 267 words of this vocabulary" in page.inner_text(".problem")
    page.troubles.clear()  # the browser tells of the 400
    page.fill(".asking textarea", TEXT)
    page.wait_for_selector(WORD)


def test_a_long_text_is_sent_to_the_atlas(page, server, tmp_path):
    byte_gpt(tmp_path / "bytes")
    opened(page, server(tmp_path), "lang=en&text=short")
    page.fill(".asking textarea", "a b c d " * 110)
    page.wait_for_selector("text=Open in the Atlas")
    page.click("#save")
    page.click("#save-menu [data-kind=png]")
    page.wait_for_selector(".toast >> text=nothing to save yet")  # no picture of the text before
    page.get_by_role("button", name="Open in the Atlas").click()
    page.wait_for_function("() => location.hash.includes('view=atlas')")
    assert page.get_by_role("tab", name="Atlas").get_attribute("aria-selected") == "true"
    page.goto("about:blank")  # or it goes on asking a server that ends


def test_a_text_of_hundreds_of_words_is_still_shown(page, server, tmp_path):
    byte_gpt(tmp_path / "bytes")
    text = " ".join(f"w{n}" for n in range(300))
    opened(page, server(tmp_path), f"lang=en&text={text}&query=4")
    assert page.locator(WORD).count() == 300
    page.get_by_text("Show it differently").click()
    page.get_by_role("radio", name="Matrix").click()
    page.wait_for_selector(".cells-over")


def test_the_view_draws_itself_on_both_painters(page, served):
    opened(page, served)
    svg = page.evaluate(
        """async () => {
            const view = (await import("/web/views/look.js")).default;
            const state = await import("/web/state.js");
            const api = await import("/web/api.js");
            const { SvgPainter } = await import("/web/paint.js");
            const { models } = await api.get("/api/models");
            const root = document.body.appendChild(document.createElement("section"));
            const entry = models.find((one) => one.id === "reader");
            const mounted = view.mount(root, { entry, entries: models, state, api });
            const there = () => root.querySelector(".result tbody tr");
            while (!there()) await new Promise((go) => setTimeout(go, 50));
            const painter = new SvgPainter();
            mounted.picture(painter);
            mounted.unmount();
            return painter.toString();
        }"""
    )
    assert svg.count("<text") > 30
    assert ">小猫</text>" in svg
    assert json.dumps(svg)


def test_what_the_canvas_shows_is_also_said(page, served):
    opened(page, served)  # the head that looks most at one word
    page.wait_for_selector(".head-card .spoken caption", state="attached")
    caption = page.locator(".head-card .spoken caption").text_content()
    first = page.locator(".head-card .spoken tr").first.text_content()
    assert caption == "Where ‘它’ looks"
    assert first.startswith("小猫")


def _cell(page, row, col):
    """Where a cell of the matrix is: its grid is the picture's lower right part."""
    box = page.locator(".cells-over").bounding_box()
    place = page.evaluate(
        """async ([width, text]) => {
            const { laid } = await import("/web/views/look_matrix.js");
            const { CanvasPainter } = await import("/web/paint.js");
            const { post } = await import("/web/api.js");
            const { words } = await post("/api/look", { model: "reader", text });
            return laid(new CanvasPainter(), words, words, width);
        }""",
        [page.evaluate("() => document.querySelector('.head-card .scroll').clientWidth"), TEXT],
    )
    x = box["x"] + place["left"] + (col + 0.5) * place["cell"]
    return x, box["y"] + place["top"] + (row + 0.5) * place["cell"]


def shows(page, text):
    page.wait_for_function(
        """([shown, text]) => [...document.querySelectorAll(shown)]
            .map((one) => one.dataset.word).join("") === text""",
        arg=[WORD, text],
    )


def test_what_was_typed_just_before_a_click_is_read_and_back_undoes_it(page, served):
    opened(page, served, f"model=reader&lang=en&text={TEXT}")
    page.wait_for_selector(".thumb[data-head='0:1']")
    page.evaluate(
        """text => {
          const field = document.querySelector(".asking textarea");
          field.value = text;
          field.dispatchEvent(new InputEvent("input"));
          document.querySelector(".thumb[data-head='0:1']").click();
        }""",
        OTHER,
    )
    field = page.locator(".asking textarea")
    assert field.input_value() == OTHER
    shows(page, OTHER)
    field.focus()
    page.go_back()
    shows(page, TEXT)
    assert field.input_value() == TEXT


def test_half_a_word_is_not_read(page, served):
    page.clock.install()
    opened(page, served, f"model=reader&lang=en&text={TEXT}")
    asked = []
    page.on("request", lambda request: request.method == "POST" and asked.append(request))
    page.locator(".asking textarea").fill("")
    keys = page.context.new_cdp_session(page)
    keys.send("Input.imeSetComposition", {"text": "na", "selectionStart": 2, "selectionEnd": 2})
    page.clock.run_for(1000)  # longer than it waits for another key
    keys.send("Input.insertText", {"text": OTHER})
    shows(page, OTHER)
    assert {request.post_data_json["text"] for request in asked} == {OTHER}


def test_examples_that_did_not_come_are_asked_for_again(page, served):
    page.route("**/examples?*", lambda route: route.abort())
    page.goto(f"{served.url}/#view=look&model=reader&lang=en")
    page.wait_for_selector(".problem:has-text('does not answer')")
    page.unroute("**/examples?*")
    page.locator("#theme").click()
    page.wait_for_selector(WORD)
    page.troubles.clear()  # the browser tells of the failed request


def test_look_recovers_by_itself_when_the_server_returns(page, served):
    page.route("**/api/look", lambda route: route.abort())
    page.goto(f"{served.url}/#view=look&model=reader&lang=en")
    page.wait_for_selector(".problem:has-text('does not answer')")
    page.unroute("**/api/look")
    page.wait_for_selector(WORD)
    page.troubles.clear()  # the browser tells of the failed requests


def test_back_is_one_step_for_each_look_not_for_each_pause_in_typing(page, served):
    opened(page, served, f"model=reader&lang=en&text={TEXT}")
    for draft in ("那个小猫。", "那个小猫饿坏了。", "那个蝴蝶飞走了。"):
        page.fill(".asking textarea", draft)
        shows(page, draft)
    page.keyboard.press("Enter")
    page.go_back()
    shows(page, TEXT)
