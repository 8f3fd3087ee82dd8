"""Texts to begin with, for each model those that it can read."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from glasshead.errors import InputError
from glasshead.model.gpt import GPT
from glasshead.serve.library import Served
from glasshead.serve.translating import variants, world_languages

__all__ = ["examples_of"]

STORIES = 2  # each in two endings
PLAIN = (
    "那个小猫，它昨天在公园里追逐一只蝴蝶，现在它饿坏了。",
    "The animal didn't cross the street because it was too tired.",
    "When Mary and John went to the store, John gave a drink to Mary.",
    "春江潮水连海平，海上明月共潮生。",
    "To be, or not to be, that is the question.",
)


def examples_of(served: Served) -> list[dict[str, Any]]:
    """Texts, and of stories the word that is asked for: {text, pin}."""
    if langs := _world_languages(served):
        return list(_stories(langs[0]))
    found = [text for text in PLAIN if _reads(served, text)]
    return [{"text": text, "pin": None} for text in sorted(found, key=lambda t: _cost(served, t))]


def _world_languages(served: Served) -> list[str]:
    if served.loaded is None or isinstance(served.loaded.model, GPT):
        return []
    return world_languages(served.loaded)


def _stories(lang: str) -> Iterator[dict[str, Any]]:
    for _, both in islice(variants(lang, "de"), STORIES):
        for story in both:
            last = story.pronouns[lang][-1]
            yield {"text": story.text(lang), "pin": story.tokens[lang][last.index]}


def _reads(served: Served, text: str) -> bool:
    if served.loaded is None:
        return True
    try:
        ids = served.loaded.tokenizer.prompt_ids(text)
    except InputError:
        return False
    unknown = served.loaded.tokenizer.specials.get("<unk>")
    return unknown not in ids and len(ids) <= (served.entry.max_len or len(ids))


def _cost(served: Served, text: str) -> float:
    """Tokens a byte: few where the tokenizer was made for such texts."""
    if served.loaded is None:
        return 0
    return len(served.loaded.tokenizer.prompt_ids(text)) / len(text.encode())
