"""Texts to begin with: for each model some that it can read."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from glasshead.checkpoint import Run
from glasshead.errors import InputError
from glasshead.model.gpt import GPT
from glasshead.text.tinyworld import LANGUAGES, Story, World
from glasshead.text.tokenizer import CharTokenizer, WordTokenizer

__all__ = [
    "beginning",
    "describe_story",
    "example_texts",
    "known_words",
    "last_pronoun",
    "story_pairs",
    "world_languages",
]

PAGE_LANGUAGES = ("zh", "en")
SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？]|\n")
WORD_END = re.compile(r"\S(?=\s)|[\u3040-\u9fff]")
PLAIN = (
    "那个小猫，它昨天在公园里追逐一只蝴蝶，现在它饿坏了。",
    "The animal didn't cross the street because it was too tired.",
    "When Mary and John went to the store, John gave a drink to Mary.",
    "春江潮水连海平，海上明月共潮生。",
    "To be, or not to be, that is the question.",
)


def example_texts(run: Run | None) -> list[dict[str, Any]]:
    """Return texts to begin with, each as {text, pin, ending, gloss, names}.

    Of a story, `pin` is the word that is asked about and `ending` what decides it; `gloss` is the
    story in the page's other languages, `names` its nouns. A model that was trained on a text
    has lines of that text first, then those that its tokenizer cuts into few tokens. None stands
    for a model of the transformers library.
    """
    if run is None:
        return [_plain(text) for text in PLAIN]
    languages = [] if isinstance(run.model, GPT) else world_languages(run.config.data)
    if languages:
        return list(_stories(languages[0]))
    own = run.config.data.get("excerpts")
    mine = [text for text in own if isinstance(text, str)] if isinstance(own, list) else []
    read = [text for text in mine if _tokens_per_byte(run, text) is not None]
    costs = {text: cost for text in PLAIN if (cost := _tokens_per_byte(run, text)) is not None}
    texts = (*read, *sorted(costs, key=costs.__getitem__))
    return [_plain(_unfinished(text) if isinstance(run.model, GPT) else text) for text in texts]


def known_words(run: Run | None) -> list[str] | None:
    """Return the words, or the characters, that a model can read; None if it can read any text."""
    tokenizer = None if run is None else run.tokenizer
    if isinstance(tokenizer, WordTokenizer):
        return list(dict.fromkeys(word.strip() for word in tokenizer.words if word.strip()))
    if isinstance(tokenizer, CharTokenizer):
        return [character for character in tokenizer.characters if character.strip()]
    return None


def beginning(text: str, most: int, count_tokens: Callable[[str], int]) -> str:
    """Return the first sentences of a text that have `most` tokens at most, or else words."""

    def fits(part: str) -> bool:
        try:
            return 0 < count_tokens(part) <= most
        except InputError:
            return False

    for ends in (SENTENCE_END, WORD_END):
        places = [found.end() for found in ends.finditer(text)]
        n = bisect_left(places, True, key=lambda end: not fits(text[:end].rstrip()))
        if n:
            return text[: places[n - 1]].rstrip()
    return ""


def _unfinished(text: str) -> str:
    """Leave out the last word, or the last character of a text without spaces, for a GPT to say.

    >>> _unfinished("That is the question."), _unfinished("海上明月共潮生。")
    ('That is the', '海上明月共潮')
    """
    return re.sub(r"\s*(?:[A-Za-z0-9'’-]+|\w)\W*$", "", text) or text


def _plain(text: str) -> dict[str, Any]:
    return {"text": text, "pin": None, "ending": None, "gloss": {}, "names": {}}


def _stories(lang: str) -> Iterator[dict[str, Any]]:
    """The README's story, first without what stands between, each with both endings."""
    whole = World.seed_story()
    short = replace(whole, manner=None, forgotten=None, topic=False)
    for story in (short, short.flip(), whole, whole.flip()):
        text, pin = story.text(lang), last_pronoun(story, lang)
        yield {
            "text": text,
            "pin": pin,
            "ending": text[text.rindex(pin) + len(pin) :].strip(" .。"),
            **_gloss(story, lang),
        }


def _gloss(story: Story, lang: str) -> dict[str, Any]:
    """The story and its nouns in the page's other languages."""
    others = [other for other in PAGE_LANGUAGES if other != lang]
    return {
        "gloss": {other: story.text(other) for other in others},
        "names": {
            getattr(noun, lang): {other: getattr(noun, other) for other in others}
            for noun in (story.actor, story.thing)
        },
    }


def _tokens_per_byte(run: Run, text: str) -> float | None:
    """None if the model cannot read the text."""
    try:
        ids = run.tokenizer.prompt_ids(text)
    except InputError:
        return None
    unknown = run.tokenizer.specials.get("<unk>")
    if unknown in ids or len(ids) > run.config.model.get("max_len", len(ids)):
        return None
    return len(ids) / len(text.encode())


def world_languages(data: Mapping[str, Any]) -> list[str]:
    """The languages of the embedded world that a model was trained on, the one it reads first.

    `data` is that of its config.
    """
    name, key = ("refer", "lang") if data.get("task") == "refer" else ("world", "langs")
    settings = data.get(name)
    if data.get("task") != name or not isinstance(settings, dict):
        return []
    languages = str(settings.get(key, "zh")).split(",")
    return languages if {*languages} <= {*LANGUAGES} else []


def story_pairs(
    source: str, target: str, start: int = 0
) -> Iterator[tuple[int, tuple[Story, Story]]]:
    """Yield numbered stories, each with the same story with the other ending; 0 is the README's.

    In German the last word for 它 tells which of the two it stands for: er, sie or es.
    """
    world = World(0)
    for number in count(start):
        story = world.story("test", number - 1) if number else World.seed_story()
        both = (story, story.flip())
        in_source = [last_pronoun(one, source) for one in both]
        in_target = [last_pronoun(one, target) for one in both]
        tells = target != "de" or (
            in_target[0] != in_target[1] and {*in_target} <= {"er", "sie", "es"}
        )
        alike = source == "de" or in_source[0] == in_source[1]
        if story.about != "place" and tells and alike:
            yield number, both


def describe_story(story: Story, source: str, target: str) -> dict[str, Any]:
    """Return a story as the Translate view shows it."""
    last = story.pronouns[source][-1]
    return {
        "text": story.text(source),
        "pronoun": last_pronoun(story, source),
        "index": last.index,  # among the words
        "stands_for": last.word,
        "referent": last.referent_index,
        "wanted": story.text(target),
        "wanted_pronoun": last_pronoun(story, target),
        **_gloss(story, source),
    }


def last_pronoun(story: Story, lang: str) -> str:
    return story.tokens[lang][story.pronouns[lang][-1].index]
