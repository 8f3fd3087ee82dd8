"""The address for a phone: with the key, to what is on the page, and only where it leads there."""

from urllib.parse import urlsplit

import httpx

from tests.page.test_qr_code import decoded

KEY = "a+key/with=signs"


def told(live, key=None, **params):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    answer = httpx.get(f"{live.url}/api/phone", params=params, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_server_for_this_machine_alone_tells_how_to_open_it(served, world_runs):
    found = told(served)
    assert found["command"] == f"glasshead serve {world_runs.resolve()} --host 0.0.0.0"
    assert (found["url"], found["rows"]) == (None, [])


def test_the_code_holds_an_address_that_opens_the_page(server, world_runs):
    live = server(world_runs, host="0.0.0.0", api_key=KEY)
    found = told(live, KEY, hash="#model=reader&lang=zh")
    url = urlsplit(found["url"])
    assert (url.query, url.fragment) == ("key=a%2Bkey%2Fwith%3Dsigns", "model=reader&lang=zh")
    assert url.port == live.port
    assert found["whole"]
    rows = [[one == "1" for one in row] for row in found["rows"]]
    assert decoded(rows)[1] == found["url"]
    opened = httpx.get(f"{live.url}/?{url.query}")
    assert opened.status_code == 303
    assert opened.cookies
    # The key is for those who have it.
    assert httpx.get(f"{live.url}/api/phone").status_code == 401


def test_a_text_too_long_for_a_screen_is_left_out(server, world_runs):
    live = server(world_runs, host="0.0.0.0", api_key=KEY)
    found = told(live, KEY, hash="#text=" + "%E5%AE%83" * 99)
    assert not found["whole"]
    assert "#" not in found["url"]
