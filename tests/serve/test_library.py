"""What lies in a folder is listed as what it is, and nothing outside of it can be reached."""

import json
import os
import shutil
import sys

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glasshead.errors import CheckpointError, InputError, NotFoundError
from glasshead.generation.opening import open_inspectable
from glasshead.serve.library import Library
from glasshead.text.tokenizer import CharTokenizer

from ..generation.runs import make_run
from ..observe import folders

LETTERS = CharTokenizer("abcdefg")


def new_run(path, **fields):
    return make_run(path, LETTERS, n_heads=2, **fields)


def kinds(library):
    return {entry.id: entry.kind for entry in library.list()}


@pytest.fixture(scope="module")
def all_kinds(tmp_path_factory):
    """A run, models of the transformers library, a .glass file, one and two folders deep."""
    root = tmp_path_factory.mktemp("all")
    new_run(root / "letters", n_layers=3)
    new_run(root / "deep" / "er" / "letters")
    new_run(root / "deep" / "er" / "too" / "deep" / "letters")
    folders.gpt2(root / "theirs" / "gpt2")
    folders.bert(root / "theirs" / "bert")
    folders.t5(root / "theirs" / "t5")
    open_inspectable(root / "letters").record("abcab").save(root / "book.glass")
    (root / "notes.txt").write_text("nothing")
    (root / "empty").mkdir()
    return root


def test_reading_that_takes_long_is_told_once(all_kinds, monkeypatch, caplog):
    caplog.set_level("INFO", "glasshead.serve")
    patient = Library(all_kinds)
    patient.list()
    assert not caplog.records
    monkeypatch.setattr("glasshead.serve.library.QUIET_SECONDS", -1.0)
    found = Library(all_kinds).list()
    [record] = caplog.records
    assert (record.msg, record.about) == ("reading", {"models": len(found), "done": 0})


def test_everything_is_listed_as_what_it_is(all_kinds):
    found = {entry.id: entry for entry in Library(all_kinds).list()}
    assert {name: entry.kind for name, entry in found.items()} == {
        "letters": "gpt",
        "deep/er/letters": "gpt",
        "theirs/gpt2": "gpt",
        "theirs/bert": "encoder",
        "theirs/t5": "transformers",
        "book.glass": "glass",
    }
    letters, book, t5 = found["letters"], found["book.glass"], found["theirs/t5"]
    assert (letters.n_layers, letters.n_heads, letters.max_len, letters.vocab_size) == (3, 2, 13, 7)
    assert (book.n_layers, book.n_heads, book.max_len, book.vocab_size) == (3, 2, 5, None)
    assert t5.n_layers
    assert set(letters.can) == {"look", "write", "steps", "atlas"}
    assert set(book.can) == {"atlas"}
    assert "write" not in t5.can
    assert found["deep/er/letters"].name == "letters"


def test_listing_reads_no_weights(all_kinds, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("weights were read")

    for module in ("checkpoint.run_folder", "checkpoint.importing", "serve.library"):
        monkeypatch.setattr(sys.modules[f"glasshead.{module}"], "load", never, raising=False)
    monkeypatch.setattr("glasshead.checkpoint.safetensors_folder.SafetensorsFolder.read", never)
    monkeypatch.setattr("glasshead.checkpoint.run_folder.read_tensors", never)
    assert "broken" not in kinds(Library(all_kinds)).values()


@pytest.mark.parametrize("name", ["letters", "theirs/gpt2", "theirs/bert", "theirs/t5"])
def test_every_model_can_be_opened_and_looked_into(all_kinds, name):
    served = Library(all_kinds).open(name)
    text = "abcab" if name == "letters" else "The cat sat."
    seen = served.inspectable.record(text)
    assert len(seen.layers) >= 2
    if served.entry.kind == "transformers":
        assert served.run is None
    else:
        assert served.inspectable.model is served.run.model  # one model in memory, not two


def test_a_glass_file_is_opened_as_an_atlas(all_kinds):
    served = Library(all_kinds).open("book.glass")
    assert served.run is served.inspectable is None
    assert served.trace.shape(0) == (1, 2, 5, 5)


@pytest.mark.parametrize("which", ["letters", "book.glass", "theirs/gpt2"])
def test_one_thing_is_served_alone_under_its_own_name(all_kinds, which):
    library = Library(all_kinds / which)
    [entry] = library.list()
    assert entry.id == entry.name == which.rpartition("/")[2]
    assert library.open(entry.id).entry == entry
    with pytest.raises(NotFoundError):
        library.open("deep/er/letters")


def test_a_template_for_chats_is_found(tmp_path):
    folder = folders.gpt2(tmp_path / "chatty")
    assert "chat" not in Library(tmp_path).find("chatty").can
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert "chat" in Library(tmp_path).find("chatty").can
    encoder = folders.bert(tmp_path / "encoder")
    (encoder / "chat_template.jinja").write_text("{{ messages }}")
    assert "chat" not in Library(tmp_path).find("encoder").can


def test_a_known_family_with_unknown_settings_is_only_to_be_looked_at(tmp_path):
    folder = folders.gpt2(tmp_path / "odd")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "scale_attn_by_inverse_layer_idx": True})
    )
    entry = Library(tmp_path).find("odd")
    assert (entry.kind, entry.reason[:23]) == ("transformers", "only to be looked at: c")
    assert Library(tmp_path).open("odd").run is None


# What is broken


def cut(name, keep=0.5):
    def spoil(run):
        data = (run / name).read_bytes()
        (run / name).write_bytes(data[: int(len(data) * keep)])

    return spoil


def remove(name):
    return lambda run: (run / name).unlink()


def rewrite(name, text):
    return lambda run: (run / name).write_text(text)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (remove("config.json"), "config.json"),
        (cut("config.json"), "not JSON"),
        (rewrite("config.json", "[" * 100_000), "not JSON"),
        (rewrite("config.json", '{"format": 99}'), "format 99"),
        (
            rewrite(
                "config.json",
                '{"format": 1, "kind": "gtp", "model": {}, "train": {}, "data": {}}',
            ),
            "config.json is damaged",
        ),
        (
            rewrite(
                "config.json",
                '{"format": 1, "kind": "gpt", "model": {"x": 1}, "train": {}, "data": {}}',
            ),
            "config.json is damaged",
        ),
        (remove("model.safetensors"), "model.safetensors is missing"),
        (cut("model.safetensors"), "damaged"),
        (cut("model.safetensors", 0), "damaged"),
        (remove("tokenizer.json"), "tokenizer.json"),
        (cut("tokenizer.json"), "tokenizer.json"),
    ],
)
def test_a_broken_run_is_listed_with_the_reason_and_the_others_work(tmp_path, spoil, says):
    new_run(tmp_path / "good")
    spoil(new_run(tmp_path / "bad"))
    library = Library(tmp_path)
    bad, good = library.list()
    assert (bad.kind, good.kind) == ("broken", "gpt")
    assert says in bad.reason
    assert str(tmp_path) not in bad.reason
    assert bad.can == ()
    with pytest.raises(CheckpointError, match="bad is broken"):
        library.open("bad")
    assert library.open("good").run


def test_a_run_whose_weights_do_not_fit_is_known_as_broken_once_it_was_opened(tmp_path):
    new_run(tmp_path / "run")
    shutil.copy(
        new_run(tmp_path / "other", n_layers=3) / "model.safetensors",
        tmp_path / "run" / "model.safetensors",
    )
    library = Library(tmp_path)
    assert library.find("run").kind == "gpt"
    with pytest.raises(CheckpointError, match="run is broken"):
        library.open("run")
    assert library.find("run").kind == "broken"
    assert "unknown" in library.find("run").reason


def test_a_run_that_is_mended_is_broken_no_longer(tmp_path):
    run = new_run(tmp_path / "run")
    whole = (run / "model.safetensors").read_bytes()
    cut("model.safetensors")(run)
    library = Library(tmp_path)
    assert kinds(library) == {"run": "broken"}
    (run / "model.safetensors").write_bytes(whole)
    assert kinds(library) == {"run": "gpt"}
    assert library.open("run").run


@pytest.mark.parametrize("keep", [0, 0.001, 0.5, 0.999])
def test_a_half_written_glass_file_is_broken(all_kinds, tmp_path, keep):
    data = (all_kinds / "book.glass").read_bytes()
    (tmp_path / "half.glass").write_bytes(data[: int(len(data) * keep)])
    assert kinds(Library(tmp_path)) == {"half.glass": "broken"}


def test_a_pickled_model_is_never_loaded(tmp_path):
    folder = folders.gpt2(tmp_path / "pickled")
    (folder / "model.safetensors").unlink()

    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "exploded"),))

    torch.save({"x": Bomb()}, folder / "pytorch_model.bin")
    [entry] = Library(tmp_path).list()
    assert (entry.kind, "pickled" in entry.reason) == ("broken", True)
    with pytest.raises(CheckpointError):
        Library(tmp_path).open("pickled")
    assert not (tmp_path / "exploded").exists()


def test_what_is_still_being_written_is_not_listed(tmp_path):
    new_run(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / ".run-2.new")
    (tmp_path / ".book.glass.new").write_bytes(b"half")
    assert kinds(Library(tmp_path)) == {"run": "gpt"}


# What is outside


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    run = new_run(tmp_path / "run")
    (run / name).unlink()
    os.mkfifo(run / name)
    assert kinds(Library(tmp_path)) == {"run": "broken"}


@pytest.mark.parametrize("inside", ["", "config.json", "model.safetensors", "tokenizer.json"])
def test_a_link_that_leads_out_is_refused(tmp_path, inside):
    secret, root = new_run(tmp_path / "secret"), tmp_path / "root"
    new_run(root / "good")
    target = root / "linked"
    if inside:
        shutil.copytree(secret, target)
        (target / inside).unlink()
    (target / inside if inside else target).symlink_to(secret / inside)
    library = Library(root)
    entry = library.find("linked")
    assert (entry.kind, "link to outside" in entry.reason) == ("broken", True)
    with pytest.raises(CheckpointError):
        library.open("linked")
    assert library.open("good")


def test_links_of_all_kinds_do_no_harm(tmp_path):
    root = tmp_path / "root"
    new_run(root / "run")
    (root / "again").symlink_to(root / "run")
    (root / "round").symlink_to(root)
    (root / "self").symlink_to(root / "self")
    (root / "nowhere.glass").symlink_to(root / "nothing")
    (root / "passwords.glass").symlink_to("/etc/passwd")
    new_run(tmp_path / "outside" / "deep" / "run")
    (root / "out").symlink_to(tmp_path / "outside")
    found = kinds(Library(root))
    assert found.pop("run") == found.pop("again") == "gpt"
    assert found.pop("nowhere.glass") == found.pop("passwords.glass") == "broken"
    assert not any("out" in name for name in found)
    assert Library(root).open("again").run


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "/", "../secret", "run/../../secret", "./run", "run/", "//run", "run\0",
     "run/config.json", "%2e%2e/secret", "..\\secret", "RUN", "run\n", "file:run", "a" * 10**6],
)  # fmt: skip
def test_only_names_of_the_list_are_opened(tmp_path, name):
    new_run(tmp_path / "secret")
    new_run(tmp_path / "root" / "run")
    library = Library(tmp_path / "root")
    for use in (library.open, library.find, library.path):
        with pytest.raises(NotFoundError) as caught:
            use(name)
        assert len(str(caught.value)) < 300
    with pytest.raises(NotFoundError):
        library.open(str(tmp_path / "secret"))


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text() | st.lists(st.sampled_from(["..", ".", "/", "letters", "\\"])).map("".join))
def test_no_name_leads_out_of_the_folder(all_kinds, name):
    library = Library(all_kinds)
    try:
        path = library.path(name)
    except NotFoundError:
        return
    assert path.resolve().is_relative_to(all_kinds.resolve())


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems refuse such names")
def test_names_are_data(tmp_path):
    names = ["<img src=x onerror=alert(1)>", "a b\n\"c'&amp;", "小猫", "𝔘", "%2e"]
    for name in names:
        new_run(tmp_path / name)
    library = Library(tmp_path)
    assert {entry.name for entry in library.list()} == set(names)
    assert all(library.open(name).run for name in names[:2])


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems refuse such names")
def test_a_name_that_is_not_utf8_is_broken_and_can_be_told(tmp_path):
    os.rename(new_run(tmp_path / "run"), os.fsencode(tmp_path) + b"/run\xff")
    [entry] = Library(tmp_path).list()
    assert entry.kind == "broken"
    json.dumps(entry.id).encode()


@pytest.mark.parametrize("name", ["nothing", "notes.txt"])
def test_what_is_not_there_or_no_model_is_refused(all_kinds, name):
    with pytest.raises(InputError, match=name) as caught:
        Library(all_kinds / name)
    assert caught.value.hint
