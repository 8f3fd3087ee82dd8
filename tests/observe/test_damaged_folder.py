"""Folders of the transformers library that are broken or lie, looked at."""

import json
import os

import pytest
import torch

from glasshead.errors import InputError
from glasshead.generation.opening import open_inspectable

pytest.importorskip("transformers", reason="needs transformers")

from tests.model import foreign


@pytest.fixture
def theirs(tmp_path):
    return foreign.folder(tmp_path / "theirs")


def refused(path):
    with pytest.raises(InputError) as found:
        open_inspectable(path)
    assert found.value.hint
    assert "\n" not in str(found.value)
    return str(found.value)


def test_a_pointer_of_git_lfs(theirs):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 91837\n"
    (theirs / "model.safetensors").write_text(pointer)
    assert "pointer of Git LFS" in refused(theirs)


def test_half_a_download(theirs):
    file = theirs / "model.safetensors"
    file.write_bytes(file.read_bytes()[:4099])
    assert "model.safetensors is damaged" in refused(theirs)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 10**30},
        {"num_hidden_layers": 10**6},
        {"hidden_size": 10**12},
        {"max_position_embeddings": 10**15},
        {"num_hidden_layers": "two"},
        {"num_attention_heads": 0},
        {"rope_parameters": 7},
    ],
)
def test_settings_that_do_not_fit(theirs, changes):
    file = theirs / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    assert "config.json" in refused(theirs) or "cannot be opened" in refused(theirs)


@pytest.mark.parametrize("name", ["intermediate_size", "vocab_size"])
def test_sizes_that_make_more_parameters_than_there_are_allocate_nothing(theirs, name):
    """Each is smaller than the model, so that only their product is too large."""
    file = theirs / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: 9973}))
    with torch.autograd.profiler.profile(profile_memory=True) as seen:
        assert "parameters" in refused(theirs)
    assert max((one.cpu_memory_usage for one in seen.function_events), default=0) < 10**6


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "vocab.txt"])
def test_a_named_pipe(theirs, name):
    (theirs / name).unlink(missing_ok=True)
    os.mkfifo(theirs / name)
    assert "named pipe" in refused(theirs)
