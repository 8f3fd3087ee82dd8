"""Corpora: what is read, what is skipped and why, and what a named file must be."""

import gzip
import io
import json
import lzma
import os
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.errors import ConfigError, InputError
from glasshead.text.corpus import (
    Document,
    Report,
    Skipped,
    read_documents,
    split_by_document,
    split_by_position,
)
from glasshead.text.pairs import read_pairs


def texts(*sources, **options):
    return [document.text for document in read_documents(sources, **options)]


def test_documents_know_their_name(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("春江\r\nab".encode())
    (document,) = read_documents([path])
    assert document == Document(str(path), "春江\r\nab")


@given(st.text(min_size=1).filter(lambda text: "\0" not in text and text[0] != "\ufeff"))
def test_text_is_kept_as_it_is(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "kept.txt"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())  # the mark is dropped
    assert texts(path) == [text]


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_characters_that_lie_across_two_reads_stay_whole(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr("glasshead.text.sources.BLOCK", 7)
    text = "a🙂春é\r\n" * 13
    path = tmp_path / f"a.txt{suffix}"
    open_as = {"": open, ".gz": gzip.open, ".xz": lzma.open}[suffix]
    with open_as(path, "wb") as file:
        file.write(text.encode())
    assert texts(path) == [text]


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_json_lines_are_a_document_each(tmp_path, suffix):
    path = tmp_path / f"a.jsonl{suffix}"
    lines = [{"text": "one\u2028\n"}, {"text": "春", "other": 3}]
    content = "\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    open_as = {"": open, ".gz": gzip.open, ".xz": lzma.open}[suffix]
    with open_as(path, "wb") as file:
        file.write(content.encode())
    found = list(read_documents([path]))
    assert [(document.name, document.text) for document in found] == [
        (f"{path}:1", "one\u2028\n"),
        (f"{path}:3", "春"),
    ]


def test_json_lines_take_another_field(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "x"}\n')
    assert texts(path, field="body") == ["x"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": ', "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"texts": "x"}', "no field 'text' \\(it has: texts\\)"),
        ('{"text": 3}', "field 'text' is not text"),
        (r'{"text": "\ud800"}', "field 'text' has half of a surrogate pair"),
    ],
)
def test_a_bad_json_line_is_an_error_when_named_and_skipped_when_found(tmp_path, line, reason):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n' + line + '\n{"text": "better"}\n')
    with pytest.raises(InputError, match=f"a.jsonl:2: {reason}"):
        texts(path)
    report = Report()
    assert texts(tmp_path, report=report) == ["good", "better"]
    (skipped,) = report.skipped
    assert (skipped.name, skipped.line) == (str(path), 2)


def test_an_empty_json_text_is_skipped_in_a_named_file_too(tmp_path):
    path, report = tmp_path / "a.jsonl", Report()
    path.write_text('{"text": ""}\n{"text": "x"}\n')
    assert texts(path, report=report) == ["x"]
    assert report.skipped == [Skipped(str(path), "empty 'text'", 1)]


BAD = {
    "empty.txt": (b"", "empty"),
    "mark.txt": (b"\xef\xbb\xbf", "empty"),
    "binary.dat": (b"ab\0\x01", "binary, not text (a NUL at byte 2)"),
    "latin.txt": (b"\xef\xbb\xbfab\xe9c", "invalid UTF-8 at byte 5"),
    "cut.txt": ("ab春".encode()[:-1], "invalid UTF-8 at byte 2"),
    "late.txt": (b"x" * 20_000 + b"\xff", "invalid UTF-8 at byte 20000"),
    "short.gz": (gzip.compress(b"hello" * 999)[:-9], "damaged"),
    "not.gz": (b"hello", "damaged"),
    "short.xz": (lzma.compress(b"hello" * 999)[:-9], "damaged"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_named_file_must_be_text(tmp_path, name, monkeypatch):
    monkeypatch.setattr("glasshead.text.sources.BLOCK", 4)  # offsets count from the file's start
    content, reason = BAD[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        texts(path)
    assert str(caught.value).startswith(f"{path}: {reason}")
    assert caught.value.hint


def test_a_folder_skips_what_is_not_text_and_says_why(tmp_path):
    for name, (content, _) in BAD.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.txt").write_text("secret")
    if hasattr(os, "mkfifo"):  # Windows has no named pipes
        os.mkfifo(tmp_path / "pipe")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.txt").write_text("b")
    (tmp_path / "a.txt").write_text("a")
    for source in (tmp_path, f"{tmp_path}/*", f"{tmp_path}/**/*"):
        report = Report()
        assert texts(source, report=report) == ["a", "b"]
        reasons = {skipped.name: skipped.reason for skipped in report.skipped}
        for name, (_, reason) in BAD.items():
            assert reasons[str(tmp_path / name)].startswith(reason)
        assert reasons.get(str(tmp_path / "pipe"), "not a regular file") == "not a regular file"
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    report = Report()
    assert texts(tmp_path, report=report) == ["a", "b"]
    assert Skipped(str(tmp_path / ".hidden"), "hidden") in report.skipped
    assert Skipped(str(tmp_path / "link"), "a link to a folder") in report.skipped


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything"
)
def test_a_file_that_may_not_be_read_is_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("x")
    path.chmod(0)
    with pytest.raises(InputError, match=r"a\.txt: Permission denied"):
        texts(path)


def test_order_is_fixed_and_each_file_is_read_once(tmp_path):
    for name in ("b.txt", "a/z.txt", "a/b.txt", "c.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert texts(tmp_path) == ["a/b.txt", "a/z.txt", "b.txt", "c.md"]
    assert texts(f"{tmp_path}/**/*.txt") == ["a/b.txt", "a/z.txt", "b.txt"]
    report = Report()
    both = texts(tmp_path / "c.md", tmp_path, tmp_path / "c.md", report=report)
    assert both == ["c.md", "a/b.txt", "a/z.txt", "b.txt"]
    assert report.skipped == [Skipped(str(tmp_path / "c.md"), "already read")]


def test_standard_input_is_a_document(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("春\r\n".encode())))
    assert list(read_documents(["-"])) == [Document("standard input", "春\r\n")]
    with pytest.raises(InputError, match="standard input: empty"):
        texts("-")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_a_named_pipe_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("through",))
    writer.start()
    assert texts(tmp_path / "pipe") == ["through"]
    writer.join()


def test_a_missing_file_is_met_with_a_near_name(tmp_path):
    (tmp_path / "shakespeare.txt").write_text("x")
    with pytest.raises(InputError, match=r"no file or folder .*shakespear\.txt") as caught:
        read_documents([tmp_path / "shakespear.txt"])
    assert caught.value.hint == f"did you mean '{tmp_path / 'shakespeare.txt'}'?"
    with pytest.raises(InputError, match="no file matches"):
        read_documents([f"{tmp_path}/*.md"])


def test_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"(?m)^no files found$"):
        texts(tmp_path)
    (tmp_path / "a.bin").write_bytes(b"\0")
    with pytest.raises(InputError, match="no text in 1 files") as caught:
        texts(tmp_path)
    assert "a.bin" in caught.value.hint


def test_encodings_are_recognised_in_the_hint(tmp_path):
    for content, word in (
        (gzip.compress(b"x"), ".gz"),
        (lzma.compress(b"x"), ".xz"),
        ("春".encode("utf-16"), "UTF-16"),
        ("春江潮水连海平".encode("gb18030"), "GB18030"),
        ("Où est le garçon, à côté de la forêt?".encode("latin-1"), "WINDOWS-1252"),
    ):
        (tmp_path / "a.txt").write_bytes(content)
        with pytest.raises(InputError) as caught:
            texts(tmp_path / "a.txt")
        assert word in caught.value.hint


def test_splitting_by_position_is_the_original_ninety_percent():
    train, held = split_by_position(np.arange(997))
    assert len(train) == int(0.9 * 997)
    assert np.array_equal(np.concatenate([train, held]), np.arange(997))
    assert split_by_position("abcdefghij", 0.3) == ("abcdefg", "hij")


@given(st.integers(2, 200), st.floats(0.01, 0.99), st.integers(0, 2**70))
def test_splitting_by_document_keeps_each_whole_and_in_order(n, fraction, seed):
    documents = [f"document {index:03}" for index in range(n)]
    train, held = split_by_document(documents, fraction, seed)
    assert sorted(train + held) == documents
    assert train == sorted(train)
    assert held == sorted(held)
    assert abs(len(held) - fraction * n) <= 1
    assert min(len(train), len(held)) >= 1
    assert split_by_document(documents, fraction, seed) == (train, held)


def test_the_number_of_documents_held_out_is_rounded():
    assert [len(split_by_document(range(n), 0.1)[1]) for n in (2, 14, 17, 97)] == [1, 1, 2, 10]


def test_another_seed_holds_out_other_documents():
    assert split_by_document(range(97), 0.1, 1) != split_by_document(range(97), 0.1, 2)


def test_a_split_that_cannot_be_is_an_error():
    for fraction in (0, 1, -0.1, float("nan")):
        with pytest.raises(ConfigError, match="must be between 0 and 1"):
            split_by_position("abc", fraction)
    with pytest.raises(InputError, match="1 document cannot be split"):
        split_by_document(["one"])


def test_pairs_of_one_text_twice_are_told(tmp_path):
    path = tmp_path / "a"
    path.write_text("one\ntwo\nthree\n")
    report = Report()
    assert len(read_pairs(path, path, report=report)) == 3
    assert any("source and target of 3 of 3 pairs are the same" in note for note in report.notes)
    (tmp_path / "b").write_text("one\nzwei\ndrei\n")
    report = Report()
    read_pairs(path, tmp_path / "b", report=report)
    assert not any("are the same" in note for note in report.notes)


def test_read_pairs_reads_and_reports(tmp_path):
    source, target, report = tmp_path / "a.de", tmp_path / "a.en", Report()
    source.write_bytes("eins\u2028\r\n\r\ndrei\nvier\n".encode())  # U+2028 ends no line
    target.write_text("one\ntwo\n" + "long" * 9 + "\nfour\n")
    pairs = read_pairs(source, target, limit=20, report=report)
    assert [(p.source, p.target, p.line) for p in pairs] == [
        ("eins\u2028", "one", 1),
        ("vier", "four", 4),
    ]
    name = f"{source} | {target}"
    assert report.skipped == [
        Skipped(name, "empty source", 2),
        Skipped(name, "longer than 20 characters", 3),
    ]
    assert report.summary()[0] == f"skipped 1, empty source: {name}:2"


def test_files_of_different_length_are_an_error(tmp_path):
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "b").write_text("1\n2")
    with pytest.raises(InputError, match=r"a has 3 lines but .*b has 2"):
        read_pairs(tmp_path / "a", tmp_path / "b")


def test_tsv_uses_two_columns_and_reports_the_rest(tmp_path):
    path, report = tmp_path / "a.tsv", Report()
    path.write_text(
        "Hi.\t嗨。\tby x\nRun.\t跑。\nWait.\t等。\tby z\n\nGo.\t \tby w\nNo.\t不。\tby v\n"
    )
    pairs = read_pairs(path, report=report)
    assert [(p.source, p.line) for p in pairs] == [("Hi.", 1), ("Wait.", 3), ("No.", 6)]
    assert report.notes == [f"{path} has 3 columns: 1 and 2 are used"]
    assert [(s.reason, s.line) for s in report.skipped] == [
        ("not 2 tabs", 2),
        ("empty line", 4),
        ("empty target", 5),
    ]
    assert read_pairs(path, columns=(1, 0))[0].source == "嗨。"
    with pytest.raises(InputError, match="has 3 columns, so there is no column 4"):
        read_pairs(path, columns=(0, 3))


def test_pairs_that_cannot_be_are_errors(tmp_path):
    (tmp_path / "a.tsv").write_text("one\ntwo\n")
    with pytest.raises(InputError, match="has 1 columns, so there is no column 2"):
        read_pairs(tmp_path / "a.tsv")
    (tmp_path / "b.tsv").write_text("one\t\n\ttwo\n")
    with pytest.raises(InputError, match=r"b\.tsv: no pairs"):
        read_pairs(tmp_path / "b.tsv")
    with pytest.raises(InputError, match="is not a file"):
        read_pairs(tmp_path)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="nothing is not a file"):
        read_pairs(tmp_path / "nothing", tmp_path / "a.tsv")
    (tmp_path / "c.tsv").write_text("\n\n")
    with pytest.raises(InputError, match=r"c\.tsv: no pairs"):
        read_pairs(tmp_path / "c.tsv")


ZH_EN = [("我用Python。", "I use Python."), ("汤姆", "Tom"), ("OK", "OK"), ("三十", "30")]


def write_tsv(path, rows):
    path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("languages", [None, ("zh", "en"), ("zh-CN", "en_GB")])
def test_pairs_against_the_script_of_their_side_are_suspect(tmp_path, languages):
    odd = [("Come in, Python!", "请进，Python！"), ("你好", "你好"), ("Hello", "hello")]
    report = Report()
    path = write_tsv(tmp_path / "a.tsv", ZH_EN + odd)
    assert len(read_pairs(path, languages=languages, report=report)) == 7
    assert [(s.line, s.reason) for s in report.suspects] == [
        (5, "sides look swapped"),
        (6, "the target does not look Latin"),
        (7, "the source does not look CJK"),
    ]
    assert report.notes == []


def test_swapped_columns_are_noticed_when_the_languages_are_named(tmp_path):
    path = write_tsv(tmp_path / "a.tsv", [(b, a) for a, b in ZH_EN[:2]])
    report = Report()
    read_pairs(path, languages=("zh", "en"), report=report)
    assert "look swapped, 2 of 2 pairs read as Latin to CJK" in report.notes[0]
    assert [s.line for s in report.suspects] == [1, 2]


def test_swapped_files_of_one_script_are_noticed_by_their_words(data):
    folder, report = data / "pairs/multi30k-de-en", Report()
    pairs = read_pairs(
        *(folder / "val.en.gz", folder / "val.de.gz"), languages=("de", "en"), report=report
    )
    assert len(pairs) == 1014
    assert "pairs read as en to de instead of de to en" in report.notes[0]
    assert len(report.suspects) > 0.8 * len(pairs)


def test_real_pairs_raise_few_doubts(data):
    for source, target, languages, n in (
        ("3am-zh-en/train.zh.xz", "3am-zh-en/train.en.xz", ("zh", "en"), 23_931),
        ("multi30k-de-en/train.de.gz", "multi30k-de-en/train.en.gz", ("de", "en"), 29_000),
    ):
        report = Report()
        folder = data / "pairs"
        pairs = read_pairs(folder / source, folder / target, languages=languages, report=report)
        assert len(pairs) + len(report.skipped) == n
        assert len(report.suspects) < 0.01 * n
