"""The routes of Runs: files that grow, files that are broken, and what the lab left."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.lab.claims import store
from glasshead.lab.claims.claim import Finding
from glasshead.lab.claims.stats import Interval
from glasshead.lab.claims.verdict import Verdict
from glasshead.lab.ladder import climb, read_text, summaries
from glasshead.lab.ladder_figure import as_json
from glasshead.lab.texts import Words
from glasshead.serve import run_files
from glasshead.serve.library import Library
from glasshead.serve.run_files import (
    HeadFilm,
    Sample,
    read_heads,
    read_metrics,
    read_samples,
)
from glasshead.training.run_log import RunLog

from .conftest import live
from .trained import READER_STEPS, WRITER_STEPS

SCRIPT = "<script>alert(1)</script>"


def get(live, path, **query):
    return httpx.get(f"{live.url}/api/{path}", params=query)


def lines_of(n, first=0):
    return [{"step": step, "loss": 1 / (step + 1)} for step in range(first, first + n)]


def written(lines):
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


@given(
    cuts=st.lists(st.integers(0, 1200), max_size=7), most=st.integers(60, 97), n=st.integers(0, 23)
)
def test_a_file_read_as_it_grows_is_the_file_read_at_once(tmp_path_factory, cuts, most, n):
    file = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    data, found, cursor = written(lines_of(n)), [], ""
    for end in [*sorted(cuts), len(data)]:
        file.write_bytes(data[:end])
        while True:
            more = read_metrics(file, cursor, most)
            found = more.lines if more.anew else found + more.lines
            cursor = more.cursor
            if not more.more:
                break
    assert found == lines_of(n)


@pytest.mark.parametrize("n", [2, 7])
def test_the_folder_is_walked_as_often_for_many_runs_as_for_few(server, tmp_path, monkeypatch, n):
    walked, walk = [], Library._locations
    monkeypatch.setattr(Library, "_locations", lambda self: walked.append(self) or walk(self))
    for i in range(n):
        (tmp_path / f"run-{i}").mkdir()
        (tmp_path / f"run-{i}" / "config.json").write_text("{}")
    assert len(get(server(tmp_path), "runs").json()["runs"]) == n
    assert len(walked) == 2


def test_a_run_that_was_cut_back_is_read_anew(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(written(lines_of(13)))
    known = read_metrics(file)
    length = len(written(lines_of(5)))
    RunLog(tmp_path, tensorboard=False).truncate({file.name: length}, 5)  # as resuming does
    assert read_metrics(file, known.cursor).anew
    other = [{"step": step, "loss": 7.0} for step in range(5, 23)]  # longer than it was
    file.write_bytes(file.read_bytes() + written(other))
    more = read_metrics(file, known.cursor)
    assert more.anew
    assert more.lines == [*lines_of(5), *other]


@given(st.text(max_size=40))
def test_no_cursor_breaks_the_reading(tmp_path_factory, cursor):
    file = tmp_path_factory.getbasetemp() / "metrics.jsonl"
    file.write_bytes(written(lines_of(3)))
    assert read_metrics(file, cursor).lines in (lines_of(3), [])


def test_lines_that_are_no_metrics_are_counted_and_left_out(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(
        b'{"step": 1, "loss": 2.5, "name": "x"}\n\xff\xfe\n[1]\n{"loss": 3}\n' + b"[" * 5000 + b"\n"
        b'{"step": 2, "loss": NaN, "val_loss": 1e999, "lr": 0.5}\n{"step": 3, "lo'
    )
    found = read_metrics(file)
    assert found.lines == [{"step": 1, "loss": 2.5}, {"step": 2, "lr": 0.5}]
    assert found.damaged == 4


def test_samples_are_told_apart_by_their_steps(tmp_path):
    recorder = RunLog(tmp_path, tensorboard=False)
    recorder.write_sample(10, "one\n\ntwo")
    recorder.write_sample(20, SCRIPT)
    file = tmp_path / "samples.txt"
    assert read_samples(file) == [Sample(10, "one\n\ntwo"), Sample(20, SCRIPT)]
    assert read_samples(file, last=1) == [Sample(20, SCRIPT)]
    # From the middle of the file on, only what is whole.
    assert read_samples(file, most=len(SCRIPT) + 20) == [Sample(20, SCRIPT)]
    assert read_samples(tmp_path / "none.txt") == []


def test_every_run_says_how_far_it_is(served, world_runs):
    found = {run["id"]: run for run in get(served, "runs").json()["runs"]}
    assert set(found) == {"reader", "translator", "writer"}
    last = json.loads((world_runs / "writer" / "metrics.jsonl").read_text().splitlines()[-1])
    assert found["writer"]["step"] == found["writer"]["steps"] == last["step"] == WRITER_STEPS
    assert found["writer"]["val_loss"] == last["val_loss"]
    assert found["writer"]["age"] > 0


def test_metrics_samples_and_settings_of_a_run(served, world_runs):
    folder = world_runs / "writer"
    told = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = get(served, "runs/writer/metrics").json()
    assert found["lines"] == told
    again = get(served, "runs/writer/metrics", after=found["cursor"]).json()
    assert (again["lines"], again["anew"]) == ([], False)
    assert get(served, "runs/writer/samples").json() == {"samples": []}
    samples = get(served, "runs/reader/samples").json()["samples"]
    assert samples[-1]["step"] == READER_STEPS
    assert "它(→小猫)" in samples[-1]["text"]
    config = get(served, "runs/writer/config").json()
    assert config["kind"] == "gpt"
    assert config["model"]["d_model"] == 64
    assert config["data"]["sources"] == ["stories.txt"]  # and not where it lay
    assert "/" not in json.dumps(config["data"])


@pytest.fixture
def folder(world_runs, tmp_path):
    """A folder to spoil."""
    shutil.copytree(world_runs / "reader", tmp_path / "group" / "reader")
    return tmp_path


def test_broken_runs_are_listed_with_the_reason(server, folder):
    half = folder / "half"
    half.mkdir()
    (half / "config.json").write_text("{")
    (half / "metrics.jsonl").write_bytes(written(lines_of(3)))
    live = server(folder)
    half, reader = sorted(get(live, "runs").json()["runs"], key=lambda run: run["kind"])
    assert (half["kind"], half["step"], half["steps"]) == ("broken", 2, None)
    assert "JSON" in half["reason"]
    assert str(folder) not in half["reason"]
    assert reader["id"] == "group/reader"
    assert get(live, "runs/half/metrics").json()["lines"] == lines_of(3)
    assert get(live, "runs/half/config").status_code == 400


def test_a_run_that_is_being_written_is_read_on(server, folder, monkeypatch):
    live = server(folder)
    file = folder / "group" / "reader" / "metrics.jsonl"
    cursor = get(live, "runs/group/reader/metrics").json()["cursor"]
    with open(file, "ab") as growing:
        growing.write(b'{"step": 1500, "loss": 0.25}\n{"step": 1510, "lo')
    more = get(live, "runs/group/reader/metrics", after=cursor).json()
    assert more["lines"] == [{"step": 1500, "loss": 0.25}]
    with open(file, "ab") as growing:
        growing.write(b'ss": 0.125}\n')
    more = get(live, "runs/group/reader/metrics", after=more["cursor"]).json()
    assert more["lines"] == [{"step": 1510, "loss": 0.125}]
    changed = file.stat().st_mtime
    monkeypatch.setattr(run_files, "time", SimpleNamespace(time=lambda: changed + 7))
    [run] = get(live, "runs").json()["runs"]
    assert (run["step"], run["loss"], run["age"]) == (1510, 0.125, 7)


@pytest.fixture(scope="module")
def inside(world_runs, tmp_path_factory):
    """A server on a folder inside of another, with a run in each."""
    root = tmp_path_factory.mktemp("outside")
    for place in ("reader", "group/reader"):
        shutil.copytree(world_runs / "reader", root / place)
    with live(root / "group") as found:
        yield found


@pytest.mark.parametrize(
    "name", ["..", "../..", "/etc", "%2e%2e/%2e%2e", "../reader", "group", "group/", "no"]
)
@pytest.mark.parametrize("what", ["metrics", "samples", "config"])
def test_only_runs_inside_the_folder_are_read(inside, name, what):
    assert get(inside, f"runs/reader/{what}").status_code == 200
    assert get(inside, f"runs/{name.replace('/', '%2f')}/{what}").status_code == 404


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_links_out_of_the_folder_are_refused(server, folder, tmp_path_factory):
    secret = tmp_path_factory.mktemp("elsewhere") / "metrics.jsonl"
    secret.write_bytes(written(lines_of(3)))
    own = folder / "group" / "reader" / "metrics.jsonl"
    own.unlink()
    own.symlink_to(secret)
    (folder / "ladder").mkdir()
    (folder / "ladder" / "ladder.json").symlink_to(secret)
    live = server(folder)
    found = get(live, "runs").json()
    assert found["ladders"] == []
    assert "link" in found["runs"][0]["reason"]
    assert found["runs"][0]["step"] is None
    assert get(live, "runs/group/reader/metrics").status_code == 404


def test_a_ladder_is_found_and_told(server, folder):
    text = read_text(None)
    climbs = list(climb([1, 2], text, steps=3))
    (folder / "up").mkdir()
    file = folder / "up" / "ladder.json"
    told = as_json(summaries(climbs), text)
    told["text"]["name"] = "/some/where/poems.txt"
    told["rungs"][1]["val"] = float("nan")  # one that diverged
    file.write_text(json.dumps(told))
    live = server(folder)
    assert get(live, "runs").json()["ladders"] == ["up"]
    found = get(live, "ladder", id="up").json()
    assert found["text"]["name"] == "poems.txt"
    assert [rung["rung"] for rung in found["rungs"]] == [1, 2]
    assert found["rungs"][0]["val"] == climbs[0].val
    assert found["rungs"][1]["val"] is None
    curve = found["rungs"][0]["climbs"][0]["curve"]
    assert [point["step"] for point in curve] == [1, 2, 3]
    assert get(live, "ladder", id="group").status_code == 404
    file.write_text(f'{{"text": {{}}, "rungs": "{SCRIPT}"}}')
    reply = get(live, "ladder", id="up")
    assert reply.status_code == 400
    assert "rungs" in reply.json()["error"]["message"]


def stored(number=5):
    finding = Finding(
        Verdict.HOLDS_WHEN,
        Words(en="It holds for two.", zh="对两个成立。"),
        {"effect": Interval(0.5, 0.25, 0.75)},
    )
    return store.StoredResult(
        number, True, (0, 1, 2), {"losses": [1.0]}, finding, "abc", 1.5, "2026", {}, {}
    )


def test_claims_are_found_and_told(server, folder):
    place = folder / "claims"
    place.mkdir()
    picture = b"\x89PNG\r\n\x1a\n rest of it"
    store.write_result(place, stored(), {"en": picture, "zh": b"<svg onload=alert(1)>"})
    (place / "07.json").write_text("{}")
    live = server(folder)
    assert get(live, "runs").json()["claims"] == ["claims"]
    five, seven = get(live, "claims", id="claims").json()["claims"]
    assert (five["number"], five["finding"]["verdict"]) == (5, "holds only when")
    assert five["finding"]["words"] == {"en": "It holds for two.", "zh": "对两个成立。"}
    assert (five["quick"], five["seeds"]) == (True, [0, 1, 2])
    assert (seven["number"], seven["reason"]) == (7, "finding: Field required")
    reply = get(live, "claims/figure", id="claims", number=5)
    assert (reply.content, reply.headers["content-type"]) == (picture, "image/png")
    # What calls itself a picture and is none is not given out.
    assert get(live, "claims/figure", id="claims", number=5, lang="zh").status_code == 404
    assert get(live, "claims/figure", id="claims", number=6).status_code == 404
    assert get(live, "claims", id="../claims").status_code == 404


def test_one_run_alone_can_be_served(server, world_runs):
    live = server(world_runs / "reader")
    [run] = get(live, "runs").json()["runs"]
    assert get(live, f"runs/{run['id']}/metrics").json()["lines"]
    assert Path(run["id"]).name == "reader"


def test_of_a_file_that_is_not_there_nothing_more_is_to_be_read(tmp_path):
    found = read_metrics(tmp_path / "metrics.jsonl")
    assert (found.anew, found.more, found.lines, found.damaged) == (True, False, [], 0)


def test_a_film_of_heads_has_evenly_spaced_frames_and_only_whole_lines(tmp_path):
    file = tmp_path / "heads.jsonl"
    assert read_heads(file) == HeadFilm([], {})
    lines = [json.dumps({"step": n, "sink": [[n / 1000, None]]}) for n in range(500)]
    lines[7] = '{"step": 7, "sink": [["no number"]]}'
    file.write_text("not json\n" + "\n".join(lines) + '\n{"step": 500, "si')
    found = read_heads(file)
    assert 150 < len(found.steps) <= 200
    assert found.steps == sorted(found.steps)
    assert found.steps[-1] == 499
    assert found.numbers["sink"][-1] == [[0.499, None]]
    assert len(found.numbers["sink"]) == len(found.steps)
