"""What each view asks the server for: every setting of the address is in its request."""

from urllib.parse import parse_qsl, urlsplit

import pytest

from glasshead.text.tinyworld import World

TEXT = World.seed_story().text("zh")
SHOWN = {"tokens": "true", "hide_sink": "true", "ratio": "true"}
EDGE = {"layer": 1, "head": None, "query": 5, "query_stop": 6, "key": 2, "key_stop": 3}
ALL = "text={text}&temperature=0.55&topp=0.35&minp=0.03&penalty=1.15&topk=5&max=16&seed=7&go=1"
DRAWN = {"temperature": 0.55, "top_p": 0.35, "min_p": 0.03, "repetition_penalty": 1.15,
         "top_k": 5, "max_tokens": 16, "seed": 7}  # fmt: skip
USUAL = {"temperature": 0.8, "top_p": 1, "min_p": 0, "repetition_penalty": 1, "top_k": None,
         "max_tokens": 64, "seed": 0}  # fmt: skip


def requests_of(page, live, address, ready):
    """(path, body or query) of what the page asks for until `ready` is shown."""
    found = []

    def note(request):
        url = urlsplit(request.url)
        body = request.post_data_json if request.method == "POST" else dict(parse_qsl(url.query))
        found.append((url.path.split("/")[-1], body))

    page.on("request", note)
    page.goto(f"{live.url}/#lang=en&{address}")
    page.wait_for_selector(ready)
    return found


@pytest.mark.parametrize(
    ("view", "ready", "address", "wanted"),
    [
        ("look", ".result tbody tr",
         "model=reader&text={text}&tokens=1&nosink=1&ratio=1&layer=1&head=2&query=5"
         "&cut=h0.1_e1.*.5.6.2.3",
         [("look", {"model": "reader", "text": TEXT, "tokens": True}), ("thumbs", SHOWN),
          ("from", {"layer": "0", "query": "5", **SHOWN}),
          ("to", {"layer": "0", "key": "5", **SHOWN}),
          ("weights", {"layer": "1", "head": "2", **SHOWN}),
          ("ablate", {"model": "reader", "text": TEXT, "heads": [[0, 1]], "edges": [EDGE],
                      "at": 5})]),
        ("steps", ".verdicts", "model=reader&text={text}&layer=1&head=2&query=5",
         [("look", {"model": "reader", "text": TEXT, "tokens": True}),
          ("steps", {"layer": "1", "head": "2", "query": "5"})]),
        ("translate", ".token-map, canvas", "model=translator&text={text}&beam=8&n=2&alpha=1",
         [("translate", {"model": "translator", "text": TEXT, "beam": 8, "n_best": 2,
                         "alpha": 1})]),
        ("translate", ".token-map, canvas", "model=translator&text={text}",
         [("translate", {"model": "translator", "text": TEXT, "beam": 4, "n_best": 4,
                         "alpha": 0.6})]),
    ],
)  # fmt: skip
def test_every_setting_is_sent(page, served, view, ready, address, wanted):
    found = requests_of(page, served, f"view={view}&{address.format(text=TEXT)}", ready)
    for one in wanted:
        assert one in found


@pytest.mark.parametrize(("address", "wanted"), [(ALL, DRAWN), ("text={text}&go=1", USUAL)])
def test_write_sends_how_tokens_are_drawn_and_another_seed_to_go_on(page, served, address, wanted):
    text = TEXT[:7]
    address = f"view=write&model=writer&{address.format(text=text)}"
    found = requests_of(page, served, address, ".write-heads li")
    [body] = [body for path, body in found if path == "write"]
    given = len(body.pop("ids"))
    assert body == {"model": "writer", **wanted}
    with page.expect_request("**/api/write") as sent:
        page.get_by_role("button", name="One token").click()
    body = sent.value.post_data_json
    n = len(body.pop("ids"))
    assert n > given
    seed = wanted["seed"] * 65_537 + n
    assert body == {"model": "writer", **wanted, "max_tokens": 1, "seed": seed}
    page.wait_for_selector(".write-heads li")
