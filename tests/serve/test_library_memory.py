"""Models that the server keeps open: each read once, the last few kept, changed ones read anew."""

import threading

import torch

from glasshead.checkpoint import RunFolder
from glasshead.serve.library import Library

from .test_library import new_run


def test_a_model_is_read_once_however_many_ask(tmp_path, monkeypatch):
    from glasshead.serve import library as module

    new_run(tmp_path / "letters")
    count, load = [], module.load
    monkeypatch.setattr(module, "load", lambda path: count.append(path) or load(path))
    library, found = Library(tmp_path), []
    threads = [
        threading.Thread(target=lambda: found.append(library.open("letters"))) for _ in range(7)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(count) == 1
    assert len(found) == 7
    assert len(set(map(id, found))) == 1


def test_the_last_few_are_kept(tmp_path):
    for name in "abc":
        new_run(tmp_path / name)
    library = Library(tmp_path, keep=2)
    a, b = library.open("a"), library.open("b")
    assert library.open("a") is a
    library.open("c")
    assert (a.evicted, b.evicted, library.n_open) == (False, True, 2)
    assert library.open("a") is a
    assert library.open("b") is not b


def test_a_model_that_has_trained_on_is_read_anew(tmp_path):
    run = new_run(tmp_path / "run")
    library = Library(tmp_path)
    old = library.open("run")
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 2}\n')
    assert library.open("run") is old
    model = RunFolder.open(run).config.new_model()
    torch.nn.init.constant_(model.head.bias, 17.0)
    RunFolder.open(run).save_model(model, step=5)
    new = library.open("run")
    assert old.evicted
    assert new.stamp != old.stamp
    assert new.run.step == 5
    assert new.run.model.head.bias[0] == 17
