"""`glasshead world`, as a program or a person meets it."""

import json
import sys

import pytest

from glasshead.text.tinyworld import World


def test_a_pipe_gets_plain_text_one_language_a_line(cli):
    done = cli("world", "--show", "3", "--lang", "zh,de", "--seed", "5")
    told = [World(5).story("train", i) for i in range(3)]
    blocks = [f"{s.text('zh')}\n{s.text('de')}\n" for s in told]
    assert done == (0, "\n".join(blocks), "")


def test_one_language_is_one_story_a_line(cli):
    done = cli("world", "--show", "7", "--lang", "en", "--split", "test")
    assert done.out.splitlines() == [World(0).story("test", i).text("en") for i in range(7)]


def test_a_terminal_shows_what_each_pronoun_stands_for(cli, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = cli("world", "--show", "20").out.splitlines()
    stories = [World(0).story("train", i) for i in range(20)]
    for story, shown in zip(stories, lines[::4], strict=True):
        plain = shown
        for p in story.pronouns["zh"]:
            assert f"{story.tokens['zh'][p.index]}(→{p.word})" in shown
            plain = plain.replace(f"(→{p.word})", "")
        assert plain == story.text("zh")


def test_json_holds_the_whole_truth(cli):
    done = cli("world", "--show", "2", "--lang", "zh,en", "--json")
    records = [json.loads(line) for line in done.out.splitlines()]
    for index, record in enumerate(records):
        story = World(0).story("train", index)
        assert record["text"] == {"zh": story.text("zh"), "en": story.text("en")}
        assert record["alignment"].keys() == {"zh-en"}
        assert {tuple(pair) for pair in record["alignment"]["zh-en"]} == story.alignment("zh", "en")
        for p in record["pronouns"]["zh"]:
            assert record["tokens"]["zh"][p["referent_index"]] == p["word"]
        assert record["referent"] == story.referent.en


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--lang", "zh,fr"], "the world has no language 'fr'"),
        (["--lang", ""], "the world has no language ''"),
        (["--lang", "zh,zh"], "names a language twice"),
        (["--show", "0"], "--show (0) must be at least 1"),
        (["--seed", "-1"], "--seed '-1' must be at least 0"),
        (["--split", "valid"], "valid"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(cli, args, message):
    done = cli("world", *args)
    assert (done.code, done.out) == (2, "")
    assert message in done.err.splitlines()[0]
    assert "\n\nhint: " in done.err
