"""Runs in a browser: curves over each other, live, with all that a run wrote shown as text."""

import json
import shutil

import pytest

from glasshead.lab.claims import store
from glasshead.lab.ladder import climb, read_text, summaries
from glasshead.lab.ladder_figure import as_json
from glasshead.training.run_log import RunLog

from .conftest import until
from .test_routes_runs import stored
from .trained import READER_STEPS

pytestmark = pytest.mark.deep

SCRIPT = "<img src=x onerror=alert(1)>"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d494844520000000100000001080600000"
    "01f15c4890000000d49444154789c63606060f80f00010401005fe5c34b0000000049454e44ae426082"
)


@pytest.fixture
def folder(world_runs, tmp_path):
    """Runs of all fates: trained, training, broken, and with names that are HTML."""
    for name in ("reader", "translator"):
        shutil.copytree(world_runs / name, tmp_path / name)
    shutil.copytree(world_runs / "reader", tmp_path / "odd" / SCRIPT)
    RunLog(tmp_path / "odd" / SCRIPT, tensorboard=False).write_sample(901, f"</script>{SCRIPT}")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.json").write_text("{")
    return tmp_path


def train_until(run, steps):
    """Let the run look as if it still had to train until this step."""
    config = run / "config.json"
    config.write_text(config.read_text().replace(f'"steps": {READER_STEPS}', f'"steps": {steps}'))
    (run / "checksums.json").unlink()  # as in runs from before there were any


def open_runs(page, live, more=""):
    page.goto(f"{live.url}/#view=runs&lang=en{more}")
    page.wait_for_selector(".run-list li")


def said(page, name):
    return page.locator(f".run-chart li[data-id='{name}']").inner_text()


def drawn(page):
    """How many colours the chart has: an empty one has few."""
    return page.evaluate(
        """() => {
          const canvas = document.querySelector(".run-chart canvas");
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          return new Set(new Uint32Array(data.buffer)).size;
        }"""
    )


def reads_on(page, place, told):
    """Let the page ask again, as it does every few seconds, until it says this there."""

    def asked_again():
        page.clock.fast_forward(10_000)
        return told in (page.locator(f"{place} li[data-id='reader']").text_content() or "")

    until(asked_again)


def test_a_run_that_trains_is_followed(page, server, folder):
    file = folder / "reader" / "metrics.jsonl"
    train_until(folder / "reader", 9000)
    page.clock.install()
    open_runs(page, server(folder))
    with open(file, "ab") as growing:
        growing.write(b'{"step": 1000, "loss": 0.5, "lr": 0.1}\n{"step": 1010, "val')
    reads_on(page, ".run-chart", "step 1000, training loss 0.500")
    reads_on(page, ".run-list", "training")
    with open(file, "ab") as growing:
        growing.write(b'_loss": 0.25}\n')
    reads_on(page, ".run-chart", "step 1010, training loss 0.500, validation loss 0.250")
    reads_on(page, ".run-list", "step 1,010 of 9,000")
    assert page.locator(".run-list li[data-id='reader'] .badge.live").count() == 1


def test_a_server_that_is_lost_is_told_until_it_is_back(page, server, folder):
    train_until(folder / "reader", 9000)
    (folder / "reader" / "metrics.jsonl").touch()
    page.clock.install()
    open_runs(page, server(folder))
    page.wait_for_selector(".run-list .badge.live")
    page.wait_for_selector(".run-settings table")
    page.route("**/api/runs", lambda route: route.abort())
    page.clock.fast_forward(10_000)
    page.wait_for_selector(".run-side .problem:has-text('does not answer')")
    assert page.locator(".badge.live").count() == 0
    assert page.locator(".run-list li").count() == 4  # what was known stays
    page.unroute("**/api/runs")
    page.clock.fast_forward(10_000)
    page.wait_for_selector(".run-list .badge.live")
    assert page.locator(".problem").count() == 0
    page.troubles.clear()  # the browser tells of the failed request


def test_a_run_is_asked_for_its_curve_once_at_a_time(page, served):
    open_runs(page, served, "&shown=writer")
    page.wait_for_selector(".run-chart li[data-id='writer']", state="attached")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(
        """async () => {
          const state = await import("/web/state.js");
          state.set({ shown: "reader" });
          state.set({ linear: 1 });
        }"""
    )
    page.wait_for_selector(
        ".run-chart li[data-id='reader']:not(:has-text('step 0,'))", state="attached"
    )
    assert sum(url.endswith("/reader/metrics?after=") for url in asked) == 1


def test_broken_runs_say_why(page, server, folder):
    open_runs(page, server(folder))
    half = page.locator(".run-list li[data-id='half']")
    assert "broken" in half.inner_text()
    assert "JSON" in half.inner_text()
    assert half.locator("input").is_disabled()


def test_settings_and_samples_of_a_run_are_text(page, server, folder):
    open_runs(page, server(folder))
    page.locator(".run-list li", has_text="odd/").locator("button").click()
    page.wait_for_selector(f"text=</script>{SCRIPT}")
    page.wait_for_selector(".run-settings table")
    assert SCRIPT in page.locator(".run-settings header").inner_text()
    # What differs from the runs beside it comes first; the rest is folded.
    steps = page.locator(
        ".run-settings tr.differs", has=page.get_by_role("rowheader", name="steps")
    )
    assert len(set(steps.locator("td").all_inner_texts())) > 1
    assert page.locator(".run-differ tr.differs", has_text="d_model").count() == 0
    row = page.locator(".run-alike tr", has_text="d_model")
    assert not row.is_visible()
    page.locator(".run-alike > summary").click()
    assert row.inner_text().split() == ["d_model", "64"]
    assert page.locator("main img").count() == 0


def points_at(page, metric):
    """What the tip says of this metric in the middle of its chart."""
    page.locator(f"figure:has(figcaption:text-is('{metric}')) .u-over").hover()
    page.wait_for_selector(".tip:visible p + p")
    return page.locator(".tip").inner_text()


def test_every_metric_has_a_chart_by_steps_tokens_and_time(page, server, folder):
    shutil.rmtree(folder / "odd")
    shutil.rmtree(folder / "translator")
    with open(folder / "reader" / "metrics.jsonl", "w") as file:
        for step in range(0, 101, 10):
            line = {"step": step, "loss": 2.0, "lr": 0.003, "grad_norm": 7.5, SCRIPT: 0.25,
                    "tokens": 1000 * step, "tokens_per_s": 500.0,
                    "seconds": 36.0 * step}  # fmt: skip
            file.write(json.dumps(line) + "\n")
    open_runs(page, server(folder))
    page.wait_for_selector(".run-metrics figure")
    assert page.locator("figcaption").all_inner_texts() == [
        "loss (nats a token)", "learning rate", "gradient norm", "tokens/s", SCRIPT,
    ]  # fmt: skip
    assert "gradient norm 7.500" in points_at(page, "gradient norm")
    assert "step 50" in points_at(page, "learning rate")
    page.get_by_role("radio", name="Tokens").click()
    page.wait_for_function("() => location.hash.includes('by=tokens')")
    assert "50,000 tokens" in points_at(page, "gradient norm")
    page.get_by_role("radio", name="Time").click()
    page.wait_for_function("() => location.hash.includes('by=seconds')")
    assert "30:00" in points_at(page, "gradient norm")
    # Dragged along one chart, all of them show that part; a double click shows all again.
    box = page.locator(".run-chart .u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 90)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 90, steps=4)
    page.mouse.up()
    page.wait_for_function("() => location.hash.includes('zoom=')")
    assert page.get_by_role("button", name="Whole run").is_visible()
    assert points_at(page, "gradient norm").startswith(("44:", "45:"))
    page.locator(".run-chart .u-over").dblclick()
    page.wait_for_function("() => !location.hash.includes('zoom=')")
    page.locator(".run-chart .run-plot").focus()
    page.keyboard.press("+")
    page.wait_for_function("() => location.hash.includes('zoom=')")


def test_the_ladder_and_the_claims_are_shown_where_they_are(page, server, folder, shot):
    text = read_text(None)
    (folder / "ladder").mkdir()
    told = as_json(summaries(list(climb([1, 2], text, steps=40))), text)
    told["rungs"][1]["adds"] = SCRIPT
    (folder / "ladder" / "ladder.json").write_text(json.dumps(told))
    (folder / "claims").mkdir()
    store.write_result(folder / "claims", stored(), {"en": PNG, "zh": PNG})
    (folder / "claims" / "07.json").write_text("[")
    open_runs(page, server(folder))
    rows = page.locator(".ladder tbody tr")
    rows.first.wait_for()
    assert "embedding and head" in rows.nth(0).inner_text()
    assert SCRIPT in rows.nth(1).inner_text()
    claims = page.locator(".claims li")
    assert "holds only when" in claims.nth(0).inner_text()
    assert "cannot be read" in claims.nth(1).inner_text()
    claims.nth(0).locator("summary").click()
    until(lambda: page.evaluate("document.querySelector('.claim-figure img')?.naturalWidth === 1"))
    page.locator("#language").click()
    page.wait_for_selector("text=对两个成立。")
    page.wait_for_selector("text=有条件成立")
    shot(page, "runs-zh")


def test_a_phone_is_wide_enough(page, server, folder):
    page.set_viewport_size({"width": 360, "height": 740})
    open_runs(page, server(folder))
    page.wait_for_selector(".run-settings table")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_film_shows_heads_form(page, server, folder):
    run = folder / "reader"
    config = json.loads((run / "config.json").read_text())
    config["train"]["watch_heads"] = 50
    (run / "config.json").write_text(json.dumps(config))
    (run / "checksums.json").unlink()
    frames = [
        {"step": 50 * n, "entropy": [[2.0, 1.0]] * 2, "induction": [[0.0, 0.1 * n], [0, None]]}
        for n in range(5)
    ]
    (run / "heads.jsonl").write_text("".join(json.dumps(one) + "\n" for one in frames))
    open_runs(page, server(folder), "&run=reader")
    page.wait_for_selector(".run-film .film-table td")
    cell = page.locator(".film-table td[data-head='0:1']")
    assert cell.get_attribute("aria-label") == "layer 0, head 1: 0.40"
    assert page.locator(".film-table caption").inner_text() == "induction at step 200"
    page.locator(".run-film input[type=range]").fill("1")
    assert cell.get_attribute("aria-label") == "layer 0, head 1: 0.10"
    assert page.locator(".film-table caption").inner_text() == "induction at step 50"
    page.locator(".run-film select").select_option("entropy")
    assert cell.get_attribute("aria-label") == "layer 0, head 1: 1.00"
    assert page.locator(".film-table td[data-head='1:1']").count() == 1
    assert page.locator(".film-loss .film-mark").count() == 1
