"""Every view of a living page: its answers are the server's own, and they reach the screen."""

import base64
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import numpy as np
import pytest

from glasshead.checkpoint import load
from glasshead.page.examples import example_texts
from glasshead.page.living import plan_living
from tests.page.engine import engine

from .test_living import assert_close, floats, greedy

pytestmark = pytest.mark.deep

Ask = Callable[..., Any]
VARIES = ("seen", "model", "name", "version", "limits", "langs")


def without(told: Any) -> Any:
    """Without what names the run, the recording or the place where it runs."""
    return {key: value for key, value in told.items() if key not in VARIES}


@pytest.fixture
def both(served: Any, world_runs: Path, tmp_path: Path) -> Any:
    """Ask the page's engine and the server the same; return the answers of both."""

    def open_both(name: str, ask: Ask) -> Callable[..., tuple[Any, Any]]:
        def asked(path: str, body: Any = None, seen: tuple[str, str] = ("", "")) -> Any:
            method = "GET" if body is None else "POST"
            sent = None if body is None else {"model": name, **body}
            mine = ask(method, path.format(seen=seen[0]), sent)
            theirs = httpx.request(method, served.url + path.format(seen=seen[1]), json=sent)
            assert (mine["status"], theirs.status_code) == (200, 200), (mine, theirs.text)
            if theirs.headers["content-type"] == "application/octet-stream":
                assert mine["headers"]["x-shape"] == theirs.headers["x-shape"]
                return floats(mine["body"]), np.frombuffer(theirs.content, "<f4")
            return mine["body"], theirs.json()

        return asked

    return open_both


@pytest.mark.parametrize("name", ["reader", "writer", "translator"])
def test_atlas_and_steps_are_those_of_the_server(
    both: Any, world_runs: Path, tmp_path: Path, name: str
) -> None:
    run = load(world_runs / name)
    text = example_texts(run)[0]["text"]
    with engine(run, tmp_path) as ask:
        asked = both(name, ask)
        mine, theirs = asked("/api/atlas", {"text": text})
        seen = mine["seen"], theirs["seen"]
        assert_close(without(mine), without(theirs))
        for layer in theirs["layers"]:
            index, T, S = layer["index"], layer["T"], layer["S"]
            for head in range(layer["heads"]):
                at = {"layer": index, "head": head}
                for level in range(layer["levels"]):
                    for hide in ("true", "false"):
                        where = {**at, "level": level, "row": 0, "col": 0, "hide_sink": hide}
                        cells = asked(f"/api/seen/{{seen}}/cells?{urlencode(where)}", seen=seen)
                        np.testing.assert_allclose(*cells, atol=1e-5)
                where = {**at, "query": T - 1, "key": S - 2, "top": 5}
                row = asked(f"/api/seen/{{seen}}/row?{urlencode(where)}", seen=seen)
                assert [one["key"] for one in row[0]["keys"]] == [
                    one["key"] for one in row[1]["keys"]
                ]
                assert_close(*row)
            for side in ("rows", "cols"):
                where = {"layer": index, "side": side, "start": 1, "stop": 9}
                pieces = asked(f"/api/seen/{{seen}}/tokens?{urlencode(where)}", seen=seen)
                assert_close(*pieces)
        mine, theirs = asked("/api/look", {"text": text})
        seen = mine["seen"], theirs["seen"]
        for layer in theirs["layers"]:
            where = {"layer": layer["index"], "head": 1, "query": 3}
            steps = asked(f"/api/seen/{{seen}}/steps?{urlencode(where)}", seen=seen)
            for one in steps:  # a row that sees all keys may be said in either way
                one["allowed"] = one["allowed"] or [True] * len(one["keys"])
            assert_close(*steps, tolerance=1e-4)


def test_reading_and_choices_are_those_of_the_server(
    both: Any, world_runs: Path, tmp_path: Path
) -> None:
    run = load(world_runs / "writer")
    text = example_texts(run)[0]["text"]
    ids = run.tokenizer.encode_ids(text).tolist()
    with engine(run, tmp_path) as ask:
        asked = both("writer", ask)
        for body in ({"text": text}, {"text": ""}, {"ids": ids * 6, "alternatives": 3}):
            mine, theirs = asked("/api/write/read", body)
            assert mine["from"] == theirs["from"]
            for key in ("tokens", "next"):
                assert len(mine[key]) == len(theirs[key])
                for one, other in zip(mine[key], theirs[key], strict=True):
                    assert (one["id"] if "id" in one else one["text"]) == (
                        other["id"] if "id" in other else other["text"]
                    )
                    assert_close(one.get("logprob"), other.get("logprob"), 1e-4)
        mine, theirs = asked("/api/write/look", {"ids": ids, "at": len(ids)})
        for layer, other in zip(mine["layers"], theirs["layers"], strict=True):
            for head, their in zip(layer["heads"], other["heads"], strict=True):
                assert_close(dict(head), dict(their), 1e-5)


def test_translations_are_those_of_the_server(both: Any, world_runs: Path, tmp_path: Path) -> None:
    run = load(world_runs / "translator")
    with engine(run, tmp_path) as ask:
        asked = both("translator", ask)
        mine, theirs = asked("/api/translate/examples?model=translator&start=0&n=3")
        assert mine["langs"] == theirs["langs"]
        assert_close(mine["pairs"], theirs["pairs"])
        text = "".join(example["text"] for example in example_texts(run)[:2])
        for how in ({}, {"beam": 1}, {"beam": 6, "n_best": 2, "alpha": 0}):
            mine, theirs = asked("/api/translate", {"text": text, **how})
            assert_close(mine, theirs, 1e-4)
        [first, *_] = theirs["parts"]
        for layer in (None, 0):
            body = {"source": first["source"], "target": first["candidates"][0]["target"]}
            mine, theirs = asked("/api/translate/look", {**body, "layer": layer})
            weights = [np.frombuffer(base64.b64decode(one.pop("weights")), "<f4")
                       for one in (mine, theirs)]  # fmt: skip
            np.testing.assert_allclose(*weights, atol=1e-5)
            assert mine == theirs


NAME = "我的 <b>模型 & 'x' #1%"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_view_opens_on_a_phone_without_a_network(
    browser: Any, world_runs: Path, tmp_path: Path, lang: str
) -> None:
    """Of runs with a name that HTML, addresses and regular expressions read in another way."""
    shutil.copytree(world_runs / "writer", tmp_path / NAME)
    plan_living(tmp_path / NAME).write(tmp_path / "writer.html")
    plan_living(world_runs / "translator", "int8").write(tmp_path / "translator.html")
    context = browser.new_context(
        offline=True, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    page, troubles = context.new_page(), []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda told: troubles.append(told.text))
    page.on("request", lambda asked: troubles.append(asked.url)
            if not asked.url.startswith(("file:", "blob:", "data:")) else None)  # fmt: skip

    def go(name: str, **state: Any) -> None:
        page.goto("about:blank")
        where = urlencode({**state, "lang": lang})
        page.goto(f"{(tmp_path / f'{name}.html').as_uri()}#{where}")

    def fits() -> None:
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"{width} pixels wide"

    run = load(world_runs / "writer")
    go("writer", view="look")
    page.locator(".words-over .word").first.wait_for()
    assert page.get_by_text(NAME).count()
    fits()
    go("writer", view="steps")
    page.locator(".steps-table tbody tr").first.wait_for()
    fits()
    go("writer", view="atlas")
    page.locator(".view form button, main button").first.wait_for()
    fits()
    # With only the best token to draw from, any temperature gives torch's greedy text.
    go("writer", view="write", topk=1, temperature=1.5, max=16)
    page.locator("textarea").fill("小猫")
    page.locator("form button").first.click()
    ids = run.tokenizer.encode_ids("小猫").tolist()
    expected = run.tokenizer.decode([*ids, *greedy(run.model, run, ids)[:16]])
    page.wait_for_function(
        "(text) => [...document.querySelectorAll('.token')].map((one) => one.textContent).join('')"
        ".replace(/[↵\\s]/g, '') === text.replace(/\\s/g, '')",
        arg=expected,
    )
    fits()
    go("translator", view="translate")
    page.locator(".translation").first.wait_for()
    assert page.locator(".translation").first.inner_text().strip()
    fits()
    context.close()
    assert troubles == []
