"""The page as one file: how its modules become one script, and what the file allows."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.page.bundle import WEB, bundle, standalone_page

MODULES = {
    "main.js": """
import one from "./views/one.js";
import * as two from "./two.js";
import "./side.js"; // only for what it does
import {
  three,
  four as vier,
} from "./two.js";
console.log(JSON.stringify([one.name, two.three(), three(), vier, new two.Five().value]));
""",
    "views/one.js": """
import { three } from "../two.js";
export default { name: "one" + three() };
""",
    "two.js": """
const secret = 3;
export function three() {
  return secret;
}
export const four = 4;
export class Five {
  value = 5;
}
export async function six() {}
""",
    "side.js": """
const secret = "another";
globalThis.side = secret;
""",
}


class Elements(HTMLParser):
    """Every element with its attributes and the text in it, as a browser takes it."""

    def __init__(self, text):
        super().__init__()
        self.found, self.inside = [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append([tag, dict(attrs), ""])
        self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.found[-1][2] += data

    def of(self, tag):
        return [one for one in self.found if one[0] == tag]


def digest(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_modules_as_one_script_do_what_they_did_apart(tmp_path):
    for name, text in MODULES.items():
        path = tmp_path / "apart" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "apart" / "package.json").write_text('{"type": "module"}')
    (tmp_path / "one.mjs").write_text(bundle(MODULES.__getitem__, "main.js"))
    said = [
        subprocess.run(["node", file], capture_output=True, text=True, check=True).stdout
        for file in (tmp_path / "apart" / "main.js", tmp_path / "one.mjs")
    ]
    assert said[0] == said[1] == '["one3",3,3,4,5]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('import { a } from "./main.js";', "import each other: main.js -> main.js"),
        ('import a, { b } from "./two.js";', "cannot put this into one script: import a"),
        ("export let n = 0;", "cannot put this into one script: export let"),
        ('export { a } from "./two.js";', "cannot put this into one script: export {"),
        ('import x from "https://elsewhere/x.js";', "cannot put this into one script: import x"),
        ('const a = "</script>";', "would end the script"),
        ('const a = "<!--";', "would end the script"),
    ],
)
def test_a_module_that_cannot_be_put_in_is_found(text, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        bundle({**MODULES, "main.js": text}.__getitem__, "main.js")


def test_every_module_and_every_style_is_in_the_file():
    page = Elements(standalone_page({}))
    [style], scripts = page.of("style"), page.of("script")
    paths = [file.relative_to(WEB).as_posix() for file in WEB.rglob("*.js")]
    # What runs the model itself is only in a page that has a model inside (test_living.py).
    paths = [path for path in paths if not path.startswith("engine/")]
    named = re.findall(r"^const \$(\w+) = \(\(\) => \{$", scripts[1][2], re.MULTILINE)
    assert sorted(named) == sorted(re.sub(r"\W", "_", path[:-3]) for path in paths)
    for file in WEB.rglob("*.css"):
        assert file.read_text("utf-8") in style[2]
    assert [one[1] for one in scripts] == [
        {"type": "application/json", "id": "embedded"},
        {"type": "module"},
    ]


def test_the_file_allows_its_own_script_and_style_and_nothing_else():
    page = Elements(standalone_page({"text": "x"}))
    [policy] = [one[1]["content"] for one in page.of("meta") if "http-equiv" in one[1]]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules == {
        "default-src": "'none'",
        "script-src": digest(page.of("script")[1][2]),
        "style-src": digest(page.of("style")[0][2]),
        "img-src": "data: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    links = [value for _, attrs, _ in page.found for name, value in attrs.items()
             if name in ("src", "href")]  # fmt: skip
    assert all(link.startswith(("data:", "#")) for link in links)
    names = [name for name, attrs, _ in page.found]
    assert names.index("meta") < names.index("style") < names.index("script")


@given(st.recursive(st.text() | st.sampled_from(["</script>", "<!--", "<script>", "]]>", "\u2028"]),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_whatever_the_data_says_it_stays_data(data):
    page = Elements(standalone_page(data))
    assert json.loads(page.of("script")[0][2]) == data
    assert [one[0] for one in page.found] == [one[0] for one in Elements(standalone_page({})).found]
