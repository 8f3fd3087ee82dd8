"""A run's folder: what is saved comes back, and what cannot be read says so in one line."""

import json
import os
import shutil
import stat
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import glasshead
from glasshead.checkpoint import RunFolder, State, load, load_parameters, parameters
from glasshead.errors import CheckpointError
from glasshead.files.checksums import CHECKSUMS
from glasshead.files.tensors import read_tensors, write_tensors
from glasshead.files.writing import atomic_write
from glasshead.model.gpt import GPT
from glasshead.text.tokenizer import ByteTokenizer
from tests.training.cases import TEXT, new_model, new_run, trainer

ROOT = Path(__file__).resolve().parents[1]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
DTYPES += [torch.int64, torch.int32, torch.uint8, torch.bool]


def state_of(step: int, value: float = 1.0) -> State:
    return State({"model.a": torch.full((3,), value)}, {"step": step})


def restored(run: RunFolder, **options: bool) -> list[tuple[int, str]]:
    """The step and the file that `load_state` chose."""
    seen: list[tuple[int, str]] = []
    run.load_state(lambda state, file: seen.append((state.progress["step"], file.name)), **options)
    return seen


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=9),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 5), max_size=3)),
        max_size=7,
    )
)
def test_tensors_are_read_back_by_the_safetensors_library(tmp_path_factory, kinds):
    path = tmp_path_factory.mktemp("tensors") / "x.safetensors"
    tensors = {
        name: torch.randint(0, 2, shape).to(dtype)
        for name, (dtype, shape) in kinds.items()
        if name != "__metadata__"
    }
    with path.open("wb") as file:
        write_tensors(file, tensors, {"about": "春"})
    for back in (load_file(path), read_tensors(path)[0]):
        assert back.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert back[name].dtype == tensor.dtype
            assert torch.equal(back[name], tensor)
    assert read_tensors(path)[1] == {"about": "春"}


def test_each_tensor_starts_at_a_multiple_of_its_width(tmp_path):
    tensors = {str(dtype): torch.ones(3, dtype=dtype) for dtype in reversed(DTYPES)}
    with (tmp_path / "x.safetensors").open("wb") as file:
        write_tensors(file, tensors, {})
    whole = (tmp_path / "x.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + size])
    starts = {name: header[name]["data_offsets"][0] + 8 + size for name in tensors}
    assert all(starts[name] % tensor.element_size() == 0 for name, tensor in tensors.items())


def test_a_slice_of_a_tensor_is_saved_as_what_it_shows(tmp_path):
    whole = torch.arange(30.0).view(5, 6)
    with (tmp_path / "x.safetensors").open("wb") as file:
        write_tensors(file, {"a": whole[1:4, 2:4].mT}, {})
    assert torch.equal(load_file(tmp_path / "x.safetensors")["a"], whole[1:4, 2:4].mT)


@pytest.mark.parametrize("tied", [False, True])
def test_a_loaded_model_computes_what_the_saved_one_did(tmp_path, tied):
    model = new_model(tied=tied, head_bias=False, dropout=0.5)
    new_run(tmp_path / "run", model)
    loaded = glasshead.load(tmp_path / "run")
    ids = torch.randint(0, model.config.vocab_size, (2, 11))
    assert torch.equal(loaded.model(ids), model.eval()(ids))
    assert not loaded.model.training
    assert loaded.tokenizer.decode(loaded.tokenizer.encode(TEXT).ids) == TEXT
    assert loaded.config.kind == "gpt"
    assert (loaded.path, loaded.step) == (tmp_path / "run", 0)
    assert loaded.model.head.weight is loaded.model.embedding.weight or not tied


def test_a_tied_head_is_stored_once(tmp_path):
    new_run(tmp_path / "run", new_model(tied=True, head_bias=False))
    names = load_file(tmp_path / "run" / "model.safetensors").keys()
    assert "embedding.weight" in names
    assert "head.weight" not in names


def test_nothing_is_pickled(tmp_path):
    # What torch pickles of a state in parts, checkpoint/sharded.py reads without running anything.
    files = {*(ROOT / "glasshead").rglob("*.py")} - {ROOT / "glasshead/checkpoint/sharded.py"}
    sources = [path.read_text(encoding="utf-8") for path in files]
    assert not [s for s in sources if "import pickle" in s or "torch.save(" in s]
    assert not [s for s in sources if "torch.load(" in s]
    trainer(tmp_path / "run", steps=3).train()
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file():  # torch.save writes zip files, pickle begins with \x80
            assert file.read_bytes()[:1] != b"\x80"
            assert file.read_bytes()[:2] != b"PK"


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with atomic_write(path) as file:
            file.write(b"half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with atomic_write(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"


@pytest.mark.parametrize("rotate", [True, False])
def test_at_every_moment_of_saving_a_state_there_is_one(tmp_path, monkeypatch, rotate):
    run = new_run(tmp_path / "run")
    run.save_state(state_of(7))
    states, replace = [], os.replace

    def note(*paths):
        states.append(any(file.exists() for file in run.states))
        replace(*paths)

    monkeypatch.setattr(os, "replace", note)
    run.save_state(state_of(11), rotate=rotate)
    assert states
    assert all(states)
    assert restored(run)[0][0] == 11


def test_the_last_two_states_are_kept(tmp_path):
    run = new_run(tmp_path / "run")
    assert not run.load_state(lambda state, file: None)
    for step in (10, 20, 30):
        run.save_state(state_of(step))
    assert restored(run) == [(30, "last.safetensors")]
    assert restored(run, last_is_good=False) == [(20, "previous.safetensors")]
    run.save_state(state_of(31), rotate=False)
    assert restored(run) == [(31, "last.safetensors")]
    assert restored(run, last_is_good=False) == [(20, "previous.safetensors")]


def damages(whole: bytes) -> dict[str, bytes]:
    """What can happen to a safetensors file."""
    (size,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + size])
    lying = json.dumps({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 99999]}}).encode()
    unnamed = json.dumps({k: v for k, v in header.items() if k != "__metadata__"}).encode()
    return {
        "empty": b"",
        "cut in the length": whole[:5],
        "cut in the header": whole[: 8 + size // 2],
        "cut in the data": whole[:-3],
        "too long": whole + b"\0",
        "zeros": bytes(len(whole)),
        "a length beyond the end": b"\xff" * 8 + whole[8:],
        "offsets beyond the end": len(lying).to_bytes(8, "little") + lying,
        "nothing about it": len(unnamed).to_bytes(8, "little") + unnamed + whole[8 + size :],
        "text": b"not a tensor at all, and long enough to be read as a header",
    }


DAMAGES = list(damages(b"\2" + bytes(7) + b"{}"))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_last_state_gives_way_to_the_previous_and_says_so(tmp_path, capsys, damage):
    run = new_run(tmp_path / "run")
    run.save_state(state_of(10))
    run.save_state(state_of(20))
    last = run.state_files[0]
    last.write_bytes(damages(last.read_bytes())[damage])
    assert restored(run) == [(10, "previous.safetensors")]
    said = capsys.readouterr().err
    assert "last.safetensors is" in said
    assert "going back to step 10" in said
    assert said.count("\n") == 1
    run.save_state(state_of(11))  # must not push the damaged one over the whole one
    assert restored(run) == [(11, "last.safetensors")]
    assert restored(run, last_is_good=False) == [(10, "previous.safetensors")]


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path, capsys):
    run = new_run(tmp_path / "run")
    run.save_state(state_of(10))
    run.state_files[0].replace(run.state_files[1])
    assert restored(run) == [(10, "previous.safetensors")]
    assert "last.safetensors is missing" in capsys.readouterr().err


def test_two_damaged_states_are_an_error(tmp_path):
    run = new_run(tmp_path / "run")
    for file in run.state_files:
        file.write_bytes(b"junk")
    with pytest.raises(CheckpointError, match=r"last\.safetensors is damaged") as caught:
        restored(run)
    assert caught.value.hint


@pytest.mark.parametrize("damage", [d for d in DAMAGES if d != "nothing about it"])
def test_a_damaged_model_is_replaced_by_the_training_state(tmp_path, capsys, damage):
    trainer(tmp_path / "run", steps=3).train()
    file = tmp_path / "run" / "model.safetensors"
    file.write_bytes(damages(file.read_bytes())[damage])
    loaded = load(tmp_path / "run")
    assert loaded.step == 3
    assert "last.safetensors instead" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "run" / "state")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        load(tmp_path / "run")


def test_parameters_of_another_shape_are_refused(tmp_path):
    path = tmp_path / "run"
    new_run(path)
    (path / CHECKSUMS).unlink()  # as its hint says to who changes a file by hand
    about = json.loads((path / "config.json").read_text())
    about["model"]["d_ff"] = 29
    (path / "config.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match=r"shape \(56, 14\).*shape \(29, 14\)"):
        load(path)
    about["model"]["n_layers"] = 3
    (path / "config.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match=r"lacks 'blocks\.2"):
        load(path)


def test_parameters_are_copied_all_or_not_at_all(tmp_path):
    model = new_model()
    before = {name: tensor.clone() for name, tensor in parameters(model).items()}
    wrong = {name: tensor + 1 for name, tensor in before.items()}
    wrong["head.bias"] = torch.zeros(1)
    with pytest.raises(CheckpointError, match=r"head\.bias"):
        load_parameters(model, wrong, tmp_path)
    assert all(torch.equal(parameters(model)[name], tensor) for name, tensor in before.items())


BAD_CONFIGS = {
    "nothing": ("", "is not JSON"),
    "half": ('{"format": 1, "ki', "is not JSON"),
    "not an object": ("[1]", "no format"),
    "another program's": ('{"hidden_size": 24}', "no format"),
    "newer": ('{"format": 99}', "format 99, but this glasshead reads up to 1"),
    "bare": ('{"format": 1, "kind": "gpt"}', "lacks one of"),
    "no such kind": (
        '{"format": 1, "kind": "gtp", "model": {}, "train": {}, "data": {}}',
        "unknown kind of model 'gtp'",
    ),
    "no such setting": (
        '{"format": 1, "kind": "gpt", "model": {"wings": 2}, "train": {}, "data": {}}',
        "does not describe a gpt.*wings",
    ),
    "a setting of the wrong type": (
        '{"format": 1, "kind": "gpt", "model": {"vocab_size": "x"}, "train": {}, "data": {}}',
        "does not describe a gpt",
    ),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_a_config_that_is_none_is_one_clear_error(tmp_path, case):
    text, message = BAD_CONFIGS[case]
    new_run(tmp_path / "run")
    (tmp_path / "run" / CHECKSUMS).unlink()
    (tmp_path / "run" / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=message) as caught:
        load(tmp_path / "run")
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_what_is_no_run_is_one_clear_error(tmp_path):
    new_run(tmp_path / "poems")
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("peoms", "does not exist"),
        ("empty", "cannot read config.json"),
        ("poems/config.json", "is a file, not a run"),
    ):
        with pytest.raises(CheckpointError, match=message) as caught:
            load(tmp_path / name)
        assert caught.value.hint
    with pytest.raises(CheckpointError) as caught:
        load(tmp_path / "peoms")
    assert "poems" in caught.value.hint


def test_a_tokenizer_of_another_run_is_refused(tmp_path):
    new_run(tmp_path / "run")
    (tmp_path / "run" / CHECKSUMS).unlink()
    ByteTokenizer().save(tmp_path / "run" / "tokenizer.json")
    with pytest.raises(CheckpointError, match="has 256 ids, the model"):
        load(tmp_path / "run")
    (tmp_path / "run" / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        load(tmp_path / "run")


def test_a_model_may_have_more_ids_than_its_tokenizer(tmp_path):
    """Tables of imported models are often padded to a round number."""
    small = new_model()
    padded = GPT(replace(small.config, vocab_size=small.config.vocab_size + 7))
    new_run(tmp_path / "run", padded)
    assert glasshead.load(tmp_path / "run").model.config == padded.config


def test_a_new_run_overwrites_nothing(tmp_path):
    run = new_run(tmp_path / "run")
    before = {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}
    with pytest.raises(CheckpointError, match="exists already") as caught:
        new_run(run.path)
    assert f"--resume {run.path}" in caught.value.hint
    assert before == {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="exists already"):
        new_run(tmp_path / "notes")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes", "run"]


def test_a_folder_that_a_kill_left_half_made_is_made_anew(tmp_path):
    left = tmp_path / ".run.new"
    left.mkdir()
    (left / "tokenizer.json").write_text("half")
    new_run(tmp_path / "run")
    assert load(tmp_path / "run").step == 0
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_an_empty_folder_can_become_a_run(tmp_path):
    (tmp_path / "run").mkdir()
    new_run(tmp_path / "run")
    assert load(tmp_path / "run").step == 0


def test_two_processes_cannot_train_one_run(tmp_path):
    run = new_run(tmp_path / "run")
    second = RunFolder.open(run.path).lock()
    with run.lock(), pytest.raises(CheckpointError, match="another process"):
        second.__enter__()
    with run.lock():
        pass


def test_files_of_the_library_are_read_too(tmp_path):
    run = new_run(tmp_path / "run")
    tensors = {name: tensor * 2 for name, tensor in parameters(new_model()).items()}
    save_file(tensors, run.path / "model.safetensors")
    found = parameters(load(run.path).model)
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_a_file_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    done: list[str] = []
    sync, rename = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("name"), rename(*paths)))
    with atomic_write(tmp_path / "file") as file:
        file.write(b"new")
    assert done == ["file", "name", "folder"]
