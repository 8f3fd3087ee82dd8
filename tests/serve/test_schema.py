"""The API as a fuzzer sees it: whatever is sent by its own schema, or against it, nothing fails.

A fuzzer's own names are of nothing that is served, so it is also given names that are.
"""

import copy
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, settings

from glasshead.serve.app import create_app
from glasshead.serve.config import ServeConfig
from glasshead.serve.library import Library
from glasshead.text.tinyworld import World

from .conftest import live
from .test_library import new_run

pytestmark = pytest.mark.deep
requests = pytest.importorskip("requests", reason="needs requests")
schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis")
not_a_server_error = pytest.importorskip("schemathesis.checks").not_a_server_error
SchemathesisConfig = pytest.importorskip("schemathesis.config").SchemathesisConfig

EXAMPLES = int(os.environ.get("GLASSHEAD_EXAMPLES", "12"))  # a route and test
STORY = World.seed_story().text("zh")
NAMES = ["reader", "translator", "writer", "book.glass", "broken"]
TEXTS = [STORY, "", "\0", "<script>", "它" * 70, "a" * 101]

with tempfile.TemporaryDirectory() as _nothing:
    OPENAPI: dict[str, Any] = create_app(Library(Path(_nothing)), ServeConfig()).openapi()


def knowing(found: Any) -> Any:
    """The schema, with names and texts that mean something."""
    if isinstance(found, list):
        return [knowing(each) for each in found]
    if not isinstance(found, dict):
        return found
    made = {name: knowing(each) for name, each in found.items()}
    if made.get("in") == "query" and made["schema"].get("type") == "integer":
        made["schema"] = {"anyOf": [{"enum": [0, 1]}, made["schema"]]}
    if made.get("in") == "query" and made["name"] == "model":
        made["schema"] = {"enum": NAMES}
    properties = made.get("properties")
    if isinstance(properties, dict):
        if "model" in properties:
            properties["model"] = {"enum": NAMES}
        if "text" in properties:
            properties["text"] = {"anyOf": [{"enum": TEXTS}, properties["text"]]}
        if "max_tokens" in properties:  # enough to see whether it works
            properties["max_tokens"] = {"type": "integer", "minimum": 1, "maximum": 5}
    return made


def schema(found: dict[str, Any]) -> Any:
    # Hypothesis alone: the fuzzer's own list of borders has a hundred requests a route.
    coverage = {"enabled": bool(os.environ.get("GLASSHEAD_EXAMPLES"))}
    config = SchemathesisConfig.from_dict({"phases": {"coverage": coverage}})
    return schemathesis.openapi.from_dict(found, config=config)


SESSION = requests.Session()
AS_IT_IS, KNOWING = schema(OPENAPI), schema(knowing(copy.deepcopy(OPENAPI)))
BOUNDED = settings(
    max_examples=EXAMPLES,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    deadline=None,
)


@pytest.fixture(scope="module")
def fuzzed(world_runs, tmp_path_factory):
    """A server with every kind of thing in it, and what was recorded of each model."""
    root = tmp_path_factory.mktemp("fuzzed")
    for name in ("reader", "translator", "writer"):
        (root / name).mkdir()
        for file in ("config.json", "tokenizer.json", "model.safetensors", "metrics.jsonl"):
            (root / name / file).write_bytes((world_runs / name / file).read_bytes())
    (new_run(root / "broken") / "config.json").write_text("{")
    library = Library(root)
    library.open("writer").inspectable.record(STORY).save(root / "book.glass")
    with live(root, max_text=200, max_tokens=100, waiting=1000) as found:
        seen = [
            httpx.post(f"{found.url}/api/look", json={"model": name, "text": STORY}).json()["seen"]
            for name in ("reader", "translator", "writer")
        ]
        seen.append(
            httpx.post(f"{found.url}/api/open", json={"model": "book.glass"}).json()["seen"]
        )
        yield found, seen


@AS_IT_IS.parametrize()
@BOUNDED
def test_nothing_that_is_sent_makes_it_fail(case, fuzzed):
    found, _ = fuzzed
    case.call_and_validate(
        base_url=found.url, session=SESSION, checks=[not_a_server_error], timeout=60
    )


@KNOWING.parametrize()
@BOUNDED
def test_nothing_that_is_sent_about_what_is_served_makes_it_fail(case, fuzzed):
    found, seen = fuzzed
    chosen = len(str(case.query))
    known = {"seen": seen[chosen % len(seen)], "name": NAMES[chosen % 4]}
    for name in known.keys() & case.path_parameters.keys():
        case.path_parameters[name] = known[name]
    case.call_and_validate(
        base_url=found.url, session=SESSION, checks=[not_a_server_error], timeout=60
    )


def test_the_fuzzer_reaches_most_routes(fuzzed):
    """They have answered by now, and not only refused."""
    found, _ = fuzzed
    told = httpx.get(f"{found.url}/metrics").text.replace(":path}", "}")
    answered = set(re.findall(r'requests_total\{route="(.*)",method="(.*)",status="2..', told))
    routes = {(path, m.upper()) for path, methods in OPENAPI["paths"].items() for m in methods}
    assert len(routes & answered) >= 0.6 * len(routes), sorted(routes - answered)
