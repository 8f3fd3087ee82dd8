"""Damage that leaves a file readable is found by its digest."""

import os
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from glasshead.checkpoint import State, load
from glasshead.errors import CheckpointError
from glasshead.files.checksums import CHECKSUMS
from tests.test_checkpoint import restored
from tests.training.cases import new_run


@pytest.mark.parametrize("place", [0.5, 0.9, 0.999])
def test_a_flipped_bit_in_a_state_is_found_and_the_previous_one_used(tmp_path, capsys, place):
    run = new_run(tmp_path / "run")
    for step in (10, 20):
        run.save_state(State({"model.a": torch.arange(1009.0)}, {"step": step}))
    last = run.state_files[0]
    data = bytearray(last.read_bytes())
    data[int(place * len(data))] ^= 4
    last.write_bytes(data)
    assert restored(run) == [(10, "previous.safetensors")]
    assert "going back to step 10" in capsys.readouterr().err
    assert (run.path / "state" / "damaged.safetensors").read_bytes() == data


def test_zeroed_bytes_in_a_model_are_found(tmp_path):
    run = new_run(tmp_path / "run")
    file = run.path / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-48:] = b"\1" * 48
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match="is not what was written"):
        load(run.path)


def test_a_changed_config_is_found_and_an_old_run_says_that_it_is_unverified(tmp_path, capsys):
    run = new_run(tmp_path / "run")
    file = run.path / "config.json"
    file.write_text(file.read_text().replace('"dropout": 0.0', '"dropout": 0.5', 1) + " ")
    with pytest.raises(CheckpointError, match=r"config\.json is damaged"):
        load(run.path)
    (run.path / CHECKSUMS).unlink()
    save_file(load_file(run.path / "model.safetensors"), run.path / "model.safetensors")
    load(run.path)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "unverified" in said


@pytest.mark.parametrize("kills", [1, 2])
def test_a_kill_before_a_file_is_replaced_leaves_a_run_that_is_known(tmp_path, monkeypatch, kills):
    """checksums.json names the new file already, and the old one still stands there."""
    run, rename = new_run(tmp_path / "run"), os.replace
    before = (run.path / "config.json").read_bytes()

    def killed(source, target):
        if os.path.basename(target) == "config.json":
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", killed)
    for n in range(kills):
        with pytest.raises(KeyboardInterrupt):
            run.save_config(replace(run.config, train={"steps": n}))
    assert (run.path / "config.json").read_bytes() == before
    load(run.path)
    monkeypatch.undo()
    run.save_config(replace(run.config, train={"steps": 7}))
    assert load(run.path).config.train == {"steps": 7}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_pipes_devices_links_and_giants_are_refused_at_once(tmp_path, name):
    run = new_run(tmp_path / "run")
    file = run.path / name
    makers = {
        "named pipe": lambda: os.mkfifo(file),
        "link out of": lambda: file.symlink_to("/dev/zero"),
        "more than|damaged": lambda: file.write_bytes(b"") or os.truncate(file, 4 << 30),
    }
    for said, make in makers.items():
        file.unlink()
        make()
        with pytest.raises(CheckpointError, match=said) as found:
            load(run.path)
        assert name in str(found.value)
        assert "backup" in found.value.hint
