"""`glasshead doctor RUN`: every file of a run against its digest."""

import json
import shutil

import pytest

from tests.training.cases import trainer


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run"
    trainer(path, steps=3, save_every=1).train()
    return path


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def test_a_whole_run_is_good_and_is_not_changed(cli, run, whole):
    code, out, err = cli("doctor", run)
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["good"] * 7
    for file in whole.rglob("*"):
        assert file.is_dir() or (run / file.relative_to(whole)).read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    "name",
    ["config.json", "tokenizer.json", "model.safetensors", "metrics.jsonl", "samples.txt",
     "state/last.safetensors", "state/previous.safetensors", "checksums.json"],
)  # fmt: skip
def test_a_damaged_file_is_named(cli, run, name):
    data = bytearray((run / name).read_bytes())
    data[9 if name.endswith(("jsonl", "txt")) else -9] ^= 16
    (run / name).write_bytes(data)
    code, out, err = cli("doctor", run)
    assert code == 1
    assert "hint:" in err
    damaged = [line for line in out.splitlines() if line.startswith("damaged")]
    assert name in damaged[0]


def test_a_run_without_digests_is_unverified(cli, run):
    (run / "checksums.json").unlink()
    code, out, _ = cli("doctor", run, "--json")
    found = {each["file"]: each["verdict"] for each in json.loads(out)["files"]}
    assert code == 0
    assert found[str(run / "config.json")] == found[str(run / "tokenizer.json")] == "unverified"


def test_what_is_no_run_is_an_error(cli, tmp_path):
    assert cli("doctor", tmp_path / "none").code == 2
    (tmp_path / "empty").mkdir()
    assert cli("doctor", tmp_path / "empty").code == 2
