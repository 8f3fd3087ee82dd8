"""Damage within the tensors of a .glass file is found when the part is used."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from glasshead.errors import InputError
from glasshead.observe.recording import observing
from glasshead.observe.trace import open_glass
from tests.training.cases import new_model


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path, model = tmp_path_factory.mktemp("glass") / "a.glass", new_model().eval()
    with torch.no_grad(), observing(model, ids=torch.arange(11)[None]) as trace:
        model(torch.arange(11)[None])
    trace.statistics(0)
    trace.save(path)
    return path


def spoiled(written, path, name):
    """Return a copy of the file in which the last byte of one tensor differs."""
    data = bytearray(written.read_bytes())
    size = int.from_bytes(data[:8], "little")
    data[8 + size + json.loads(data[8 : 8 + size])[name]["data_offsets"][1] - 1] ^= 2
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("0.k", lambda trace: trace.row(0, 0, -1)),
        ("0.lse", lambda trace: trace.weights(0)),
        ("0.statistics.received", lambda trace: trace.statistics(0)),
        ("0.statistics.overview_mean", lambda trace: trace.means()),
    ],
)
def test_a_damaged_tensor_is_an_error_where_it_is_used_and_nowhere_else(
    written, tmp_path, name, use
):
    trace, whole = open_glass(spoiled(written, tmp_path / "b.glass", name)), open_glass(written)
    assert torch.equal(trace.row(1, 0, -1), whole.row(1, 0, -1))
    use(whole)
    for _ in range(2):
        with pytest.raises(InputError, match=f"'{name}' is not what was written"):
            use(trace)


def test_damaged_ids_are_found_on_opening(written, tmp_path):
    with pytest.raises(InputError, match="'ids' is not what was written"):
        open_glass(spoiled(written, tmp_path / "b.glass", "ids"))


def test_an_old_file_says_that_it_is_unverified(written, tmp_path, capsys):
    with safe_open(written, "pt") as file:
        about = {name: file.metadata()[name] for name in ("glass", "header")}
    save_file(load_file(written), tmp_path / "old.glass", about)
    row = open_glass(tmp_path / "old.glass").row(0, 0, -1)
    assert torch.equal(row, open_glass(written).row(0, 0, -1))
    assert capsys.readouterr().err.count("unverified") == 1
