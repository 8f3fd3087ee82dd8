"""Texts to begin with: for each model some that it can read."""

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

from glasshead.checkpoint import Run
from glasshead.errors import InputError
from glasshead.model.gpt import GPT
from glasshead.text.tinyworld import LANGUAGES, Story, World

__all__ = ["example_texts", "last_pronoun", "story_pairs", "world_languages"]

STORIES = 2  # each with two endings
PLAIN = (
    "那个小猫，它昨天在公园里追逐一只蝴蝶，现在它饿坏了。",
    "The animal didn't cross the street because it was too tired.",
    "When Mary and John went to the store, John gave a drink to Mary.",
    "春江潮水连海平，海上明月共潮生。",
    "To be, or not to be, that is the question.",
)


def example_texts(run: Run | None) -> list[dict[str, Any]]:
    """Return texts as {text, pin}; `pin` is the word of a story that is asked about.

    Texts that the tokenizer cuts into few tokens come first. None stands for a model of the
    transformers library, which gets all of them.
    """
    if run is None:
        return [{"text": text, "pin": None} for text in PLAIN]
    languages = [] if isinstance(run.model, GPT) else world_languages(run)
    if languages:
        return list(_stories(languages[0]))
    costs = {text: cost for text in PLAIN if (cost := _tokens_per_byte(run, text)) is not None}
    return [{"text": text, "pin": None} for text in sorted(costs, key=costs.__getitem__)]


def _stories(lang: str) -> Iterator[dict[str, Any]]:
    for _, both in islice(story_pairs(lang, "de"), STORIES):
        for story in both:
            yield {"text": story.text(lang), "pin": last_pronoun(story, lang)}


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


def world_languages(run: Run) -> list[str]:
    """The languages of the embedded world that a model was trained on, the one it reads first."""
    data = run.config.data
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


def last_pronoun(story: Story, lang: str) -> str:
    return story.tokens[lang][story.pronouns[lang][-1].index]
