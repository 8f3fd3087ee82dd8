"""The store: its ids are those of the texts, however they were cut, and never stale ones."""

import gzip
import io
import json
import os
import subprocess
import sys
import time
import tracemalloc
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glasshead.errors import ConfigError, InputError, UnknownCharacterError
from glasshead.text import parallel_encoding as parallel
from glasshead.text import sources
from glasshead.text import token_store as token_store_module
from glasshead.text.bpe import BPETokenizer, Cutter
from glasshead.text.corpus import Report, Skipped, read_documents, split_by_document
from glasshead.text.token_store import TokenStore, keep_streams, token_store
from glasshead.text.tokenizer import ByteTokenizer, CharTokenizer

SAMPLE = "春江潮水连海平, the river\nmeets the sea.\n\n  海上明月 1234 共潮生！\r\n" * 7
BPE = BPETokenizer.train([SAMPLE], 300, ["<eos>"])
EOS = BPE.specials["<eos>"]


def cut_small(monkeypatch, size=64):
    """Texts of a few lines are then cut as long ones are."""
    monkeypatch.setattr(Cutter.__init__, "__defaults__", (size,))
    monkeypatch.setattr(sources, "BLOCK", 50)


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_bytes((SAMPLE + "end").encode())
    (folder / "b.txt.gz").write_bytes(gzip.compress(SAMPLE[::-1].encode()))
    lines = [json.dumps({"text": f"document {index}\n\nof many"}) for index in range(50)]
    (folder / "c.jsonl").write_text("\n".join(lines))
    return folder


def expected(folder, tokenizer, separator):
    """The ids of every document by itself, by the shortest way."""
    after = [] if separator is None else [separator]
    return [tokenizer.encode_ids(d.text).tolist() + after for d in read_documents([folder])]


@pytest.mark.parametrize("separator", [None, EOS])
@pytest.mark.parametrize("tokenizer", [BPE, ByteTokenizer(["<eos>"])], ids=lambda t: t.kind)
def test_ids_and_documents_are_those_of_the_texts(
    corpus, tmp_path, monkeypatch, tokenizer, separator
):
    each = expected(corpus, tokenizer, separator)
    cut_small(monkeypatch)
    made = token_store([corpus], tokenizer, tmp_path / "cache", separator=separator)
    assert made.ids.tolist() == list(chain(*each))
    assert np.diff(made.documents).tolist() == [len(ids) for ids in each]
    assert isinstance(made.ids, np.memmap)
    assert made.ids.dtype == np.uint16


def test_the_named_field_of_json_lines_is_read(tmp_path):
    line = json.dumps({"text": "not this", "body": "the sea"})
    (tmp_path / "a.jsonl").write_text(line)
    for field, wanted in [("body", "the sea"), ("text", "not this")]:
        made = token_store([tmp_path / "a.jsonl"], BPE, tmp_path / "cache", field=field)
        assert BPE.decode(made.ids.tolist()) == wanted


@settings(max_examples=30)
@given(texts=st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_any_documents_come_back(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("any")
    lines = "\n".join(json.dumps({"text": text}) for text in texts)
    (folder / "a.jsonl").write_text(lines)
    made = token_store([folder / "a.jsonl"], BPE, folder / "cache", separator=EOS)
    starts, ends = made.documents[:-1], made.documents[1:]
    assert [BPE.decode(made.ids[a:b]) for a, b in zip(starts, ends, strict=True)] == texts


def test_processes_change_nothing(corpus, tmp_path, monkeypatch):
    cut_small(monkeypatch)
    monkeypatch.setattr(parallel, "FEW", 200)
    one = token_store([corpus], BPE, tmp_path / "one", separator=EOS, workers=1)
    two = token_store([corpus], BPE, tmp_path / "two", separator=EOS, workers=2)
    assert np.array_equal(one.ids, two.ids)
    assert np.array_equal(one.documents, two.documents)


def test_an_error_in_a_process_reaches_the_caller(tmp_path):
    # A tokenizer that loses text, so that the check on its bytes fails in the worker.
    lossy = json.loads(BPE.to_json())
    lossy["pre_tokenizer"]["pretokenizers"].insert(
        0, {"type": "Split", "pattern": {"String": "§"}, "behavior": "Removed", "invert": False}
    )
    units = [parallel.Unit([parallel.Part(text)], 0) for text in ("x" * 9, "y", "z§z")]
    tokenizer = parallel.tokenizer_from_json(json.dumps(lossy))
    results = parallel._in_pool(iter(units), tokenizer, None, 2)
    with pytest.raises(InputError, match="keeps only 2 of the text's 4 bytes") as caught:
        list(results)
    assert caught.value.hint


def test_a_script_without_a_main_guard_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from glasshead.errors import ConfigError\n"
        "from glasshead.text import parallel_encoding as parallel\n"
        "from glasshead.text.bpe import BPETokenizer\n"
        "tokenizer = BPETokenizer.train('some text', 256)\n"
        "units = [parallel.Unit([parallel.Part('text')], 0)] * 3\n"
        "parallel.FEW = 1\n"
        "try:\n"
        "    list(parallel.encode_units(units, tokenizer, None, 2))\n"
        "except ConfigError as error:\n"
        "    print(error.hint)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600)
    assert "if __name__ == '__main__':" in done.stdout


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks for processes in /proc")
def test_the_processes_of_a_killed_parent_end(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing\n"
        "from glasshead.text import parallel_encoding as parallel\n"
        "from glasshead.text.bpe import BPETokenizer\n"
        "if __name__ == '__main__':\n"
        "    def units():\n"
        "        while True:\n"
        "            yield parallel.Unit([parallel.Part('text')], 0)\n"
        "    tokenizer = BPETokenizer.train('some text', 256)\n"
        "    parallel.FEW = 1\n"
        "    for index, _ in enumerate(parallel.encode_units(units(), tokenizer, None, 2)):\n"
        "        if index == 9:\n"
        "            print(*[p.pid for p in multiprocessing.active_children()], flush=True)\n"
    )
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    with parent:
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert workers
        parent.kill()
    until = time.monotonic() + 120
    while any(running(pid) for pid in workers):
        assert time.monotonic() < until, f"{workers} hang"
        time.sleep(0.05)


def running(pid):
    """A process that has ended may stay listed as a zombie until someone asks for it."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def touch(path, seconds=0):
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + int(seconds * 1e9)))


def made_at(made):
    return made.path.stat().st_mtime_ns, made.path.stat().st_ino


def test_the_store_is_reused_while_nothing_changes(corpus, tmp_path):
    (corpus / "z.bin").write_bytes(b"\0\1")
    reports = Report(), Report()
    first = token_store([corpus], BPE, tmp_path / "cache", report=reports[0])
    before = made_at(first)
    again = token_store([corpus], BPE, tmp_path / "cache", report=reports[1])
    assert made_at(again) == before
    assert np.array_equal(again.ids, first.ids)
    name, reason = str(corpus / "z.bin"), "binary, not text (a NUL at byte 0)"
    assert reports[0].skipped == reports[1].skipped == [Skipped(name, reason)]
    touch(corpus / "a.txt", 9)  # the same content at another time
    assert made_at(token_store([corpus], BPE, tmp_path / "cache")) == before


def test_a_store_among_its_texts_is_reused_too(corpus):
    made = token_store([corpus], BPE, corpus / "cache")
    before = made_at(made)
    assert made_at(token_store([corpus], BPE, corpus / "cache")) == before
    assert made.report.skipped == []


def test_a_large_file_is_known_by_its_time(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(token_store_module, "SMALL", 10)
    before = made_at(token_store([corpus], BPE, tmp_path / "cache"))
    assert made_at(token_store([corpus], BPE, tmp_path / "cache")) == before
    touch(corpus / "a.txt", 9)
    assert made_at(token_store([corpus], BPE, tmp_path / "cache")) != before


@pytest.mark.parametrize("what", ["content", "file", "tokenizer", "separator", "field"])
def test_the_store_is_made_anew_when_something_changes(corpus, tmp_path, what):
    before = token_store([corpus], BPE, tmp_path / "cache")
    tokenizer, options = BPE, {}
    if what == "content":  # of the same length
        stat = (corpus / "a.txt").stat()
        (corpus / "a.txt").write_bytes((SAMPLE + "END").encode())
        os.utime(corpus / "a.txt", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif what == "file":
        (corpus / "d.txt").write_text("more")
    elif what == "tokenizer":
        tokenizer = BPETokenizer.train([SAMPLE], 290, ["<eos>"])
    elif what == "separator":
        options = {"separator": EOS}
    else:
        (corpus / "c.jsonl").write_text('{"text": "x", "body": "yy"}\n')
        token_store([corpus], BPE, tmp_path / "cache")
        options = {"field": "body"}
    after = token_store([corpus], tokenizer, tmp_path / "cache", **options)
    assert after.key != before.key
    assert after.ids.tolist() != before.ids.tolist()


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data[:-1],
        lambda data: data[:100],
        lambda data: data[:10],
        lambda data: b"",
        lambda data: data + b"x",
        lambda data: b"something else entirely" * 9,
        lambda data: data[:8] + b"\2\0\0\0" + data[12:],  # another version
        lambda data: data[:-9] + b"\xff" * 9,  # JSON that is not
        lambda data: data[:16] + b"\xff" * 8 + data[24:],  # more ids than there are
    ],
)
def test_a_harmed_or_foreign_file_is_made_anew(corpus, tmp_path, harm):
    made = token_store([corpus], BPE, tmp_path / "cache")
    ids = made.ids.tolist()
    made.path.write_bytes(harm(made.path.read_bytes()))
    with pytest.raises(InputError, match="is not a complete store of ids"):
        TokenStore.open(made.path)
    assert token_store([corpus], BPE, tmp_path / "cache").ids.tolist() == ids


def test_a_failed_build_leaves_the_old_store_and_no_litter(corpus, tmp_path):
    made = token_store([corpus / "a.txt"], BPE, tmp_path / "cache")
    before = made.path.read_bytes()
    (corpus / "a.txt").write_bytes(SAMPLE.encode() * 9 + b"\xff")
    with pytest.raises(InputError, match="invalid UTF-8 at byte"):
        token_store([corpus / "a.txt"], BPE, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [made.path.name]
    assert made.path.read_bytes() == before


def test_what_a_killed_process_left_is_removed_in_time(corpus, tmp_path):
    made = token_store([corpus], BPE, tmp_path / "cache")
    old, new = (made.path.with_name(f"{made.path.name}.{name}.tmp") for name in ("old", "new"))
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    os.utime(old, (time.time() - 2 * token_store_module.STALE,) * 2)
    made.path.write_bytes(b"")
    token_store([corpus], BPE, tmp_path / "cache")
    assert not old.exists()
    assert new.exists()  # another process may be writing it


def test_a_full_disk_is_one_clear_error(corpus, tmp_path):
    resource = pytest.importorskip("resource", reason="needs Unix's limits")
    (corpus / "long.txt").write_text(SAMPLE * 99)
    (tmp_path / "cache").mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(InputError, match=r"cannot write the ids to .*: File too large"):
            token_store([corpus], ByteTokenizer(), tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_store_that_another_process_made_meanwhile_and_reads_is_used(
    corpus, tmp_path, monkeypatch
):
    """As on Windows, where a file that is mapped cannot be replaced."""
    replace = os.replace

    def mapped(new, old):
        replace(new, old)  # by the other process
        raise PermissionError(13, "Access is denied")

    monkeypatch.setattr(os, "replace", mapped)
    store = token_store([corpus], ByteTokenizer(), tmp_path / "cache")
    monkeypatch.undo()
    other = token_store([corpus], ByteTokenizer(), tmp_path / "other")
    assert (store.ids == other.ids).all()

    def denied(new, old):
        raise PermissionError(13, "Access is denied")

    monkeypatch.setattr(os, "replace", denied)
    with pytest.raises(InputError, match="Access is denied"):
        token_store([corpus], ByteTokenizer(), tmp_path / "third")


def test_a_file_that_stops_being_text_leaves_no_ids(tmp_path, monkeypatch):
    cut_small(monkeypatch)
    (tmp_path / "a.txt").write_text("first\n")
    (tmp_path / "b.txt").write_bytes(SAMPLE.encode() + b"\xff")
    (tmp_path / "c.jsonl").write_bytes(b'{"text": "kept"}\n{"text": "x\xff"}')
    (tmp_path / "d.txt").write_text("last\n")
    (tmp_path / "e.txt").write_bytes(SAMPLE.encode() * 9 + b"\xff")
    report = Report()
    made = token_store([tmp_path], BPE, tmp_path / ".cache", report=report)
    assert BPE.decode(made.ids) == "first\nkeptlast\n"
    assert np.diff(made.documents).tolist() == [
        len(BPE.encode_ids(text)) for text in ("first\n", "kept", "last\n")
    ]
    names = [skipped.name for skipped in report.skipped if skipped.reason != "hidden"]
    assert names == [str(tmp_path / name) for name in ("b.txt", "c.jsonl", "e.txt")]


def test_an_unknown_character_is_placed_in_its_document(tmp_path, monkeypatch):
    cut_small(monkeypatch, 5)
    (tmp_path / "a.txt").write_text("ab\nba\n" * 9 + "abx")
    with pytest.raises(UnknownCharacterError, match=r"a\.txt: character 'x'.*line 19, column 3"):
        token_store([tmp_path / "a.txt"], CharTokenizer.train("ab\n"), tmp_path / "cache")


def test_large_vocabularies_take_four_bytes(tmp_path):
    characters = "".join(map(chr, [*range(32, 0xD800), *range(0xE000, 0x14000)]))
    tokenizer = CharTokenizer(characters)
    assert tokenizer.vocab_size > 1 << 16
    (tmp_path / "a.txt").write_text("\U00013fff!", encoding="utf-8")
    made = token_store([tmp_path / "a.txt"], tokenizer, tmp_path / "cache")
    assert made.ids.dtype == np.uint32
    assert made.ids.tolist() == [tokenizer.vocab_size - 1, 1]


def test_progress_counts_bytes_on_disk_up_to_the_end(corpus, tmp_path, monkeypatch):
    cut_small(monkeypatch)
    calls = []
    token_store(
        [corpus], BPE, tmp_path / "cache", progress=lambda done, total: calls.append((done, total))
    )
    total = sum(path.stat().st_size for path in corpus.iterdir())
    assert {of for _, of in calls} == {total}
    done = [done for done, _ in calls]
    assert done == sorted(done)
    assert len(done) > 5
    assert done[-1] == total


def test_standard_input_is_kept_so_that_it_can_be_read_again(tmp_path, monkeypatch):
    def pipe():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SAMPLE.encode())))

    pipe()
    (kept,) = keep_streams(["-"], tmp_path)
    assert kept.read_bytes() == SAMPLE.encode()
    pipe()
    before = made_at(token_store(["-"], BPE, tmp_path))
    pipe()
    assert made_at(token_store(["-"], BPE, tmp_path)) == before
    with pytest.raises(InputError, match="standard input: empty"):
        token_store(["-"], BPE, tmp_path)


def test_splitting_a_store_by_document_is_splitting_the_documents(corpus, tmp_path):
    made = token_store([corpus], BPE, tmp_path / "cache", separator=EOS)
    train, held = made.split_by_document(0.2, seed=5)
    documents = expected(corpus, BPE, EOS)
    expected_train, expected_held = split_by_document(documents, 0.2, seed=5)
    assert train.tolist() == list(chain(*expected_train))
    assert held.tolist() == list(chain(*expected_held))


def test_memory_stays_bounded(tmp_path):
    path, peaks = tmp_path / "a.txt", []
    for n_lines in (200_000, 1_000_000):  # 23 and 115 units
        with path.open("wb") as file:
            file.writelines(b"a line of text like any other\n" for _ in range(n_lines))
        tracemalloc.start()
        made = token_store([path], ByteTokenizer(), tmp_path / "cache")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(made.ids) == path.stat().st_size
    assert peaks[1] < 1.1 * peaks[0]


def test_nothing_to_read_is_an_error(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no files found"):
        token_store([tmp_path / "empty"], BPE, tmp_path / "cache")
    with pytest.raises(ConfigError, match="vocab_size"):
        BPETokenizer.train("x", 3)
