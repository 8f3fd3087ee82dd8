"""No file takes more memory than a block of it, and none that grows a thousandfold is believed."""

import gzip
import lzma
import os
import sys
from pathlib import Path

import pytest

from glasshead.cli.atlas import _read_text
from glasshead.cli.score import _FileParts
from glasshead.errors import InputError
from glasshead.text import sources
from glasshead.text.corpus import read_documents, read_pieces
from glasshead.text.sources import Report, allow_decompressed, find_sources, read_parts
from glasshead.text.tokenizer import BPETokenizer, ByteTokenizer
from glasshead.training.language import TextConfig, train_tokenizer
from tests.observe.peak_memory import peak_memory

LINE = "The quick cat sat on the mat; it is happy. 小猫饿了，它在睡。\n"


def pieces(path):
    return "".join(text for text, _ in read_pieces([path]))


@pytest.fixture
def bomb(tmp_path, monkeypatch):
    """A file of one letter, 800 times as large as it looks."""
    monkeypatch.setattr(sources, "BEGINNING", 1 << 20)

    def make(opener, name):
        path = tmp_path / name
        with opener(path, "wb") as file:
            file.write(b"a" * (5 << 20))
        return path

    token = sources._most_decompressed.set(None)
    yield make
    sources._most_decompressed.reset(token)


@pytest.mark.parametrize(("opener", "name"), [(gzip.open, "a.txt.gz"), (lzma.open, "a.txt.xz")])
def test_text_that_grows_a_hundredfold_is_refused_unless_it_is_allowed(bomb, opener, name):
    path = bomb(opener, name)
    with pytest.raises(InputError, match="decompress to") as found:
        pieces(path)
    assert "--decompressed" in found.value.hint
    allow_decompressed(0.004)
    with pytest.raises(InputError, match=r"more than 0\.004 GB"):
        pieces(path)
    allow_decompressed(0.01)
    assert len(pieces(path)) == 5 << 20


@pytest.mark.parametrize(("opener", "name"), [(gzip.open, "a.txt.gz"), (lzma.open, "a.txt.xz")])
def test_what_would_be_refused_is_refused_before_the_model_runs(bomb, opener, name):
    path = bomb(opener, name)
    with pytest.raises(InputError, match="decompress to"):
        _FileParts(str(path))
    allow_decompressed(0.01)
    assert len("".join(next(iter(_FileParts(str(path)))))) == 5 << 20


def test_a_compressed_text_like_any_other_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "BEGINNING", 1 << 10)
    text = "".join(f"{n * n} and {n}\n" for n in range(50_000))
    with gzip.open(tmp_path / "a.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    assert pieces(tmp_path / "a.gz") == text


def test_training_a_tokenizer_reads_in_blocks(tmp_path):
    path = tmp_path / "long.txt"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(97):
            file.write(LINE * 5000)
    size = path.stat().st_size >> 20
    before = peak_memory()
    found = train_tokenizer([path], TextConfig(tokenizer="byte"))
    assert isinstance(found, ByteTokenizer)
    if before:
        assert size > 30
        assert peak_memory() - before < size / 3


def test_pieces_are_the_documents(tmp_path, monkeypatch):
    monkeypatch.setattr("glasshead.text.corpus.WHOLE", 1 << 10)
    (tmp_path / "a.txt").write_text(LINE * 7001)
    (tmp_path / "b.txt").write_text("短")
    (tmp_path / "c.txt").write_bytes(LINE.encode() * 5003 + b"\xff")
    (tmp_path / "d.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    reports = Report(), Report()
    joined, document = [], ""
    for text, ends in read_pieces([tmp_path], report=reports[0]):
        document += text
        if ends:
            joined, document = [*joined, document], ""
    whole = [each.text for each in read_documents([tmp_path], report=reports[1])]
    assert joined == whole
    assert document == ""
    assert reports[0].skipped == reports[1].skipped != []


def test_atlas_reads_no_more_than_its_tokens_need(bomb):
    path = bomb(gzip.open, "a.txt.gz")
    assert _read_text(str(path), 100) == "a" * (1 << 16)
    assert len(_read_text(str(path), 5000)) == 320_000


def test_a_line_of_json_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LINE", 1 << 20)
    (tmp_path / "a.jsonl").write_text('{"text": "' + "a" * (3 << 20) + '"}')
    [source] = find_sources([tmp_path / "a.jsonl"], Report())
    with pytest.raises(InputError, match="a line has more than"):
        list(read_parts(source, Report()))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no /dev/zero")
def test_a_device_is_not_read_for_ever():
    [source] = find_sources(["/dev/zero"], Report())
    with pytest.raises(InputError, match="binary"):
        list(read_parts(source, Report()))
    assert os.path.exists("/dev/zero")


def test_folders_of_the_system_and_files_that_nobody_may_see_are_skipped(tmp_path, monkeypatch):
    for name in ("proc", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("text\n")
    secret = tmp_path / "data" / "secret"
    secret.symlink_to("a.txt")
    monkeypatch.setattr(sources, "_SYSTEM", (str(tmp_path / "proc"),))
    stat = os.stat

    def refuse(path, *args, **more):
        if path == secret or path == str(secret):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *args, **more)

    monkeypatch.setattr(os, "stat", refuse)
    report = Report()
    found = find_sources([tmp_path], report)
    assert [source.path for source in found] == [tmp_path / "data" / "a.txt"]
    assert {Path(one.name).name for one in report.skipped} == {"proc", "secret"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no /proc")
@pytest.mark.parametrize("folder", ["/proc", "/proc/self", "/sys", "/dev"])
def test_a_folder_of_the_system_has_no_texts_even_if_it_is_named(folder):
    report = Report()
    assert find_sources([folder], report) == []
    assert [one.name for one in report.skipped] == [folder]


def test_reading_and_walking_say_how_far_they_are(tmp_path):
    for number in range(2003):
        (tmp_path / f"{number:04}.txt").write_text(f"{number}\n")
    counts, steps = [], []
    find_sources([tmp_path], Report(), counts.append)
    assert counts == [1000, 2000]
    config = TextConfig(tokenizer="bpe")
    train_tokenizer([tmp_path], config, 300, progress=lambda *step: steps.append(step))
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert {total for _, total in steps} == {size}
    assert [done for done, _ in steps].count(size) >= 2  # it is read twice
    once = [done for done, _ in steps[: [done for done, _ in steps].index(size)]]
    assert once == sorted(once)
    assert len(set(once)) > 2000


@pytest.mark.parametrize("letters", ["latin", "chinese"])
def test_a_tokenizer_learns_from_a_part_of_a_large_text(tmp_path, monkeypatch, letters):
    first = ord("a") if letters == "latin" else ord("一")
    text = "\n".join(" ".join(chr(first + n * k % 26) * 2 for k in range(30)) for n in range(997))
    for number in range(40):  # as many documents, each a piece
        (tmp_path / f"{number:02}.txt").write_text(text[number * 1000 :][:1000])
    size, learned, report = 0, [], Report()
    for file in tmp_path.iterdir():
        size += file.stat().st_size
    monkeypatch.setattr("glasshead.training.language.LEARNED", size // 4)
    encode = BPETokenizer.train.__func__
    several = BPETokenizer.train_on_characters.__func__

    def train(cls, texts, *more):
        texts = list(texts)
        learned.append(sum(len(one.encode()) for one in texts))
        return encode(cls, texts, *more)

    def train_on_characters(cls, texts, *more, grow):
        learned.append(sum(len(one.encode()) for one in texts()))
        return several(cls, texts, *more, grow=grow)

    monkeypatch.setattr(BPETokenizer, "train", classmethod(train))
    monkeypatch.setattr(BPETokenizer, "train_on_characters", classmethod(train_on_characters))
    train_tokenizer([tmp_path], TextConfig(tokenizer="bpe"), 800, report=report)
    [taken] = learned
    assert abs(taken - size / 4) < size / 39
    [note] = report.notes
    assert "the tokenizer learns from" in note
