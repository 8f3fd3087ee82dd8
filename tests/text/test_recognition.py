"""A text is in the world exactly if it could be told there."""

from dataclasses import replace

import pytest

from glasshead.text.tinyworld import World, spell
from glasshead.text.tinyworld.endings import ENDINGS
from glasshead.text.tinyworld.recognition import recognize


@pytest.mark.parametrize("lang", ["zh", "en", "de"])
def test_every_story_is_recognized_with_its_answers(lang):
    for split in ("train", "test"):
        for index in range(61):
            story = World(11).story(split, index)
            found = recognize(story.text(lang), lang)
            assert (found.why, found.story is not None) == ("", True), story
            assert found.story.tokens[lang] == story.tokens[lang]
            assert found.story.pronouns[lang] == story.pronouns[lang]


def test_a_story_without_a_word_or_with_its_parts_exchanged_has_no_shape():
    story = World.seed_story()
    tokens = story.tokens["zh"]
    for wrong in (tokens[:1] + tokens[2:], tokens[4:], tokens[::-1], tokens + tokens):
        assert recognize(spell(wrong, "zh"), "zh").why == "shape"


def test_an_ending_that_fits_both_nouns_is_ambiguous():
    story = next(
        story
        for story in World(0).stories("test")
        if "land" in story.actor.kinds and "bird" in story.thing.kinds and not story.ending.case
    )
    hungry = replace(story, about="actor", ending=ENDINGS[0], lead="now")
    found = recognize(hungry.text("zh"), "zh")
    assert found.why == "ambiguous"
    assert set(found.choices) == {story.actor.zh, story.thing.zh}


def test_an_unknown_word_is_named():
    text = World.seed_story().text("en").replace("butterfly", "rocket")
    assert recognize(text, "en").detail == "rocket"
    assert recognize("", "zh").why == "shape"


def test_what_does_not_happen_is_impossible():
    story = World.seed_story()
    spring = next(e for e in ENDINGS if e.zh.startswith("@ 发霉"))
    found = recognize(replace(story, ending=spring).text("zh"), "zh")
    assert found.why == "impossible"
