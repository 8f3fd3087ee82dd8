"""How heads are ranked by what they look at from a word."""

import httpx
import numpy as np


def test_heads_that_rest_on_the_first_word_do_not_lead_in_a_causal_model(served):
    def numbers(layer, head):
        params = {"layer": layer, "head": head}
        answer = httpx.get(f"{served.url}/api/seen/{found['seen']}/weights", params=params)
        return np.frombuffer(answer.content, "<f4").reshape(n, n)

    def ranked(word):
        params = {"layer": 0, "query": found["words"][word]["start"]}
        return httpx.get(f"{served.url}/api/seen/{found['seen']}/from", params=params).json()

    asked = {"model": "writer", "text": "那只小狗昨天在公园里"}
    found = httpx.post(f"{served.url}/api/look", json=asked).json()
    n = len(found["words"])
    heads = [(layer, head) for layer in range(2) for head in range(4)]
    most = {head: numbers(*head)[-1][1:-1].max() for head in heads}
    answer = ranked(-1)
    assert answer["besides_first"]
    assert [(one["layer"], one["head"]) for one in answer["heads"]] == sorted(
        heads, key=most.__getitem__, reverse=True
    )
    assert all(one["at"] not in (0, n - 1) for one in answer["heads"])
    assert not ranked(1)["besides_first"]  # it can look at nothing else
