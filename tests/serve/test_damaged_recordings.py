"""Recordings in files that are damaged, cut or gone while the server reads them."""

import json
import os

import httpx
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from .conftest import HUNG
from .made_up import long_atlas

HALF = "\ud800"  # of a character: JSON can escape it, UTF-8 cannot hold it


def post(mine, path, **ask):
    return httpx.post(f"{mine.url}{path}", json=ask, timeout=HUNG)


@pytest.fixture
def glass(tmp_path):
    """A measured .glass file, its header and its tensors, and what writes it anew."""
    atlas = long_atlas(300)
    atlas.statistics(0)
    file = tmp_path / "a.glass"
    atlas.save(file)
    with safe_open(file, "pt") as opened:
        header = json.loads(opened.metadata()["header"])
    tensors = load_file(file)

    def write(header, tensors):
        kept = {name: tensor.clone() for name, tensor in tensors.items()}
        save_file(kept, tmp_path / "new", {"glass": "1", "header": json.dumps(header)})
        os.replace(tmp_path / "new", file)  # a server may have mapped the old one

    return header, tensors, write


@pytest.mark.parametrize(
    "name", ["lse", "sizes", "slash", "self_weight", "lookers", "overview_max"]
)
def test_statistics_that_are_none_are_damage(server, tmp_path, glass, name):
    header, tensors, write = glass
    mine = server(tmp_path)
    for value in (None, 7, "x", [], {"tensor": None}, {"tensor": "0.q"}):
        header["layers"][0]["record"]["statistics"][name] = value
        write(header, tensors)
        assert post(mine, "/api/open", model="a.glass").status_code == 400, value


def test_statistics_of_another_shape_are_damage(server, tmp_path, glass):
    header, tensors, write = glass
    mine = server(tmp_path)
    for name in ("lse", "previous_weight", "vertical", "diagonality"):
        write(header, tensors)
        assert post(mine, "/api/open", model="a.glass").status_code == 200
        write(header, {**tensors, f"0.statistics.{name}": torch.zeros(11)})
        assert post(mine, "/api/open", model="a.glass").status_code == 400, name


def test_sizes_that_are_no_counts_are_damage(server, tmp_path, glass):
    header, tensors, write = glass
    mine = server(tmp_path)
    for size in (1e308, 10**30, -3, True, None, "x"):
        header["layers"][0]["record"]["shape"][1] = size
        write(header, tensors)
        assert httpx.get(f"{mine.url}/api/models").status_code == 200
        assert post(mine, "/api/open", model="a.glass").status_code == 400, size


def test_half_a_character_among_the_tokens_is_damage(server, tmp_path, glass):
    header, tensors, write = glass
    header["tokens"][0][3] = HALF
    write(header, tensors)
    assert post(server(tmp_path), "/api/open", model="a.glass").status_code == 400


def test_a_file_that_is_cut_while_it_is_open_is_forgotten(server, tmp_path):
    file = tmp_path / "a.glass"
    long_atlas(3001).save(file)
    mine = server(tmp_path)
    seen = post(mine, "/api/open", model="a.glass").json()["seen"]
    row = f"{mine.url}/api/seen/{seen}/row?layer=0&head=1&query=2999"
    assert httpx.get(row).status_code == 200
    os.truncate(file, 10_000)  # touching what is gone would end the process
    assert httpx.get(row).status_code == 404
    assert post(mine, "/api/open", model="a.glass").status_code == 400


@pytest.mark.parametrize("end", ["deleted", "replaced"])
def test_a_file_that_is_gone_lives_on_for_who_looks_at_it(server, tmp_path, end):
    file = tmp_path / "a.glass"
    long_atlas(307).save(file)
    mine = server(tmp_path)
    seen = post(mine, "/api/open", model="a.glass").json()["seen"]
    if end == "deleted":
        file.unlink()
    else:
        long_atlas(101).save(file)
    row = f"{mine.url}/api/seen/{seen}/row?layer=0&head=1&query=300"
    assert httpx.get(row).status_code == 200


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("q", (1, 2, 300, 0)),  # a head without width
        ("k", (1, 2, 300, 0)),
        ("lse", (1, 2, 299)),
        ("lse", (1, 1, 300)),
        ("k", (1, 2, 299, 16)),
        ("k", (1, 3, 300, 16)),
        ("q", (1, 2, 300, 13)),
    ],
)
def test_tensors_that_do_not_fit_each_other_are_damage(server, tmp_path, glass, name, shape):
    header, tensors, write = glass
    changed = {**tensors, f"0.{name}": torch.zeros(shape)}
    if shape[-1] == 0:
        changed |= {"0.q": torch.zeros(1, 2, 300, 0), "0.k": torch.zeros(1, 2, 300, 0)}
    write(header, changed)
    reply = post(server(tmp_path), "/api/open", model="a.glass")
    assert reply.status_code == 400
    assert "fit" in reply.text
