"""Show an answer on a terminal: the sentence with its arcs, or why there is no answer."""

from collections.abc import Iterator

from rich.text import Text

from glasshead.lab.ask import Asked, PronounAnswer
from glasshead.lab.texts import Language, read_texts, texts_in

__all__ = ["show"]

TEXTS = read_texts(__file__)


def show(asked: Asked, lang: Language = "en") -> Iterator[Text]:
    text = texts_in(lang, TEXTS)
    if not asked.is_inside:
        values = {
            "word": asked.detail,
            "choices": text["or"].join(asked.choices),
            "confidence": asked.confidence,
            "least": asked.least,
        }
        yield Text(text["outside"], style="yellow")
        yield Text(text[f"why.{asked.outside}"].format(**values))
        yield Text(text[f"try.{asked.lang}"])
        return
    if asked.translation:
        yield Text(asked.translation, style="bold")
    for answer in asked.answers:
        yield from _answer(asked, answer, text)
    yield Text(text["confidence"].format(confidence=asked.confidence, least=asked.least))


def _answer(asked: Asked, answer: PronounAnswer, text: dict[str, str]) -> Iterator[Text]:
    noun = asked.words[answer.looks_at]
    values = {
        "pronoun": answer.pronoun,
        "place": answer.index + 1,
        "word": answer.word,
        "noun": noun,
        "seen": answer.looks_at + 1,
        "weight": answer.weight,
        "confidence": answer.confidence,
        "cut": answer.cut_word,
        "cut_confidence": answer.cut_confidence,
    }
    kind = "translator" if asked.translation else "reader"
    yield Text("")
    yield Text(text[f"{kind}.answer"].format(**values), style="bold")
    yield Text("  " + text[f"{kind}.arc"].format(**values))
    changes = answer.cut_word != (answer.pronoun if asked.translation else answer.word)
    yield Text("  " + text["cut_changes" if changes else "cut_stays"].format(**values))
