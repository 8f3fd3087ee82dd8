"""Living pages: trained models as one file, whose answers are those of the server's own parts."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from glasshead.checkpoint import Run, load
from glasshead.generation.opening import make_inspectable
from glasshead.observe.view import ViewConfig
from glasshead.page.examples import example_texts
from glasshead.page.living import plan_living
from glasshead.page.look_answers import (
    LookView,
    binary_map,
    binary_thumbnails,
    describe_look,
    rank_heads,
)
from tests.page.engine import engine

KINDS = {"reader": "reader", "writer": "gpt", "translator": "translator"}
SHOWN = (ViewConfig(), ViewConfig(tokens=True, hide_sink=True), ViewConfig(ratio=True))


def floats(body: str) -> Any:
    return np.frombuffer(base64.b64decode(body), "<f4")


def assert_close(mine: Any, theirs: Any, tolerance: float = 2e-5) -> None:
    """The same JSON, up to rounding."""
    if isinstance(theirs, dict):
        assert mine.keys() == theirs.keys()
        for key, value in theirs.items():
            assert_close(mine[key], value, tolerance)
    elif isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            assert_close(one, other, tolerance)
    elif isinstance(theirs, float):
        assert mine == pytest.approx(theirs, abs=tolerance, rel=tolerance)
    else:
        assert mine == theirs


@pytest.mark.parametrize("name", KINDS)
def test_answers_are_those_of_the_server(world_runs: Path, tmp_path: Path, name: str) -> None:
    run = load(world_runs / name)
    text = example_texts(run)[0]["text"]
    trace = make_inspectable(run).record(text)
    with engine(run, tmp_path) as ask:
        for shown in SHOWN:
            view = LookView(trace, shown)
            body = {"model": name, "text": text, "tokens": shown.tokens}
            found = ask("POST", "/api/look", body)["body"]
            seen = found.pop("seen")
            told = {"model": name, "kind": KINDS[name], "text": text}
            expected = json.loads(json.dumps({**told, **describe_look(view, KINDS[name])}))
            assert_close(found, expected)
            switches = {
                "tokens": shown.tokens, "hide_sink": shown.hide_sink, "ratio": shown.ratio,
            }  # fmt: skip
            options = "&".join(f"{key}={str(on).lower()}" for key, on in switches.items())
            for layer, head in view.heads():
                path = f"/api/seen/{seen}/weights?layer={layer}&head={head}&{options}"
                mine, theirs = ask("GET", path), binary_map(view, (layer, head))
                assert mine["headers"]["x-shape"] == theirs.headers["x-shape"]
                tolerance = 1e-5 if not shown.ratio else 1e-4
                expected_map = np.frombuffer(theirs.data, "<f4")
                np.testing.assert_allclose(floats(mine["body"]), expected_map, atol=tolerance)
            mine, theirs = ask("GET", f"/api/seen/{seen}/thumbs?{options}"), binary_thumbnails(view)
            assert mine["headers"]["x-shapes"] == theirs.headers["x-shapes"]
            layer = view.layers[0].index
            for way, named in (("from", "query"), ("to", "key")):
                path = f"/api/seen/{seen}/{way}?layer={layer}&{named}=2&{options}"
                ranked = ask("GET", path)["body"]
                expected = rank_heads(view, layer, 2, way)  # type: ignore[arg-type]
                assert (ranked["word"], ranked["of"]) == (expected["word"], expected["of"])
                best = ranked["heads"][0], expected["heads"][0]
                assert best[0]["most"] == pytest.approx(best[1]["most"], rel=1e-4)


def test_a_text_that_is_too_long_gets_the_servers_answer(
    served: Any, world_runs: Path, tmp_path: Path
) -> None:
    text = "那个小猫昨天在公园里追逐一只蝴蝶，现在它饿坏了。" * 30
    asked = {"model": "writer", "text": text}
    expected = httpx.post(f"{served.url}/api/look", json=asked).json()
    assert expected["long"]
    with engine(load(world_runs / "writer"), tmp_path) as ask:
        assert ask("POST", "/api/look", asked)["body"] == expected


@pytest.mark.deep
def test_fifty_texts_and_two_hundred_greedy_tokens(world_runs: Path, tmp_path: Path) -> None:
    from glasshead.text.tinyworld import corpus

    run = load(world_runs / "writer")
    model: Any = run.model
    texts = list(corpus(50, "zh", 77))[:50]
    inspectable = make_inspectable(run)
    with engine(run, tmp_path) as ask:
        worst = 0.0
        for text in texts:
            found = ask("POST", "/api/look", {"model": "w", "text": text, "tokens": True})["body"]
            view = LookView(inspectable.record(text), ViewConfig(tokens=True))
            for layer, head in view.heads():
                path = f"/api/seen/{found['seen']}/weights?layer={layer}&head={head}&tokens=true"
                theirs = np.frombuffer(binary_map(view, (layer, head)).data, "<f4")
                worst = max(worst, float(abs(floats(ask("GET", path)["body"]) - theirs).max()))
        assert worst <= 1e-5
        ids = run.tokenizer.encode_ids(texts[0][:5]).tolist()
        body = {"ids": ids, "max_tokens": 200, "temperature": 0}
        events = ask("POST", "/api/write", body)["events"]
    assert [data["id"] for event, data in events if event == "token"] == greedy(model, run, ids)


def greedy(model: Any, run: Run, ids: list[int]) -> list[int]:
    from glasshead.generation.decode import generate
    from glasshead.generation.sampling import GREEDY

    return [
        step[0] for step in generate(model, [ids], GREEDY, max_tokens=200) if step[0] is not None
    ]


def test_a_living_page_cuts_and_writes_without_a_network(
    browser: Any, world_runs: Path, tmp_path: Path
) -> None:
    for name in ("reader", "writer"):
        plan_living(world_runs / name).write(tmp_path / f"{name}.html")
    context = browser.new_context(locale="en-US", offline=True)
    page, troubles = context.new_page(), []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda told: troubles.append(told.text))
    page.on("request", lambda asked: troubles.append(asked.url)
            if not asked.url.startswith(("file:", "blob:", "data:")) else None)  # fmt: skip
    page.goto((tmp_path / "reader.html").as_uri())
    page.get_by_role("button", name="Cut it in every head").click()
    page.locator(".answer .both").wait_for()
    page.goto((tmp_path / "writer.html").as_uri() + "#view=write&lang=en")
    page.locator("textarea").fill("小猫")
    page.get_by_role("button", name="Write", exact=True).click()
    page.wait_for_function("document.querySelectorAll('.token').length > 20")
    context.close()
    assert troubles == []


def test_a_model_that_does_not_start_says_so(
    browser: Any, world_runs: Path, tmp_path: Path
) -> None:
    """As where memory does not hold it: here its parameters are cut short."""
    html = plan_living(world_runs / "reader").html()
    damaged = re.sub(r'(id="parameters">)[^<]*', r"\g<1>AAAA", html)
    (tmp_path / "reader.html").write_text(damaged, encoding="utf-8")
    for lang, said in (("en", "This browser cannot run"), ("zh", "这个浏览器运行不了这个模型")):
        context = browser.new_context(offline=True)
        page = context.new_page()
        page.goto((tmp_path / "reader.html").as_uri() + f"#lang={lang}")
        page.get_by_text(said).first.wait_for()
        context.close()
