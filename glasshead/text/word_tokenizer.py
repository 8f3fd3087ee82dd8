"""A tokenizer for a closed list of words, for languages whose words are all known."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches

import numpy as np

from glasshead.errors import InputError
from glasshead.text.base_tokenizer import Ids, Tokenizer, number_specials, utf8

__all__ = ["WordTokenizer", "find_unknown", "segment"]


class WordTokenizer(Tokenizer):
    """One id for each word of a list; a text is split into the longest words that fit.

    Special tokens come first, then the words. A word may include the space before it, so that
    joined words are the text again.

    >>> tokenizer = WordTokenizer(["现在", "它", "饿坏", "了", "。"], ["<pad>"])
    >>> tokenizer.encode_ids("现在它饿坏了。").tolist()
    [1, 2, 3, 4, 5]
    """

    kind = "word"

    def __init__(self, words: Sequence[str], specials: Sequence[str] = ()) -> None:
        if not words or not all(words) or len(set(words)) < len(words):
            raise InputError(
                "a vocabulary needs at least one word; words must be distinct and not empty",
                hint="remove duplicates and empty words",
            )
        self.words = tuple(words)
        names = number_specials(specials, first=0)
        super().__init__([b""] * len(names) + [utf8(word) for word in words], names)
        self._id_of = {word: number for number, word in enumerate(words, len(names))}
        self._longest = max(map(len, words))

    def ids_of(self, words: Sequence[str]) -> list[int]:
        """Return the ids of words."""
        return [self._id_of[word] for word in words]

    def encode_ids(self, text: str) -> Ids:
        """Return the ids of the words; white space that is in no word is left out where needed."""
        utf8(text)
        words = segment(text, self._id_of, self._longest)
        if words is None:
            known = self._id_of.keys() | {*" \n\r\t\u3000"}
            spaced = segment(text, known, self._longest)
            words = spaced and tuple(word for word in spaced if word in self._id_of)
        if words is None:
            start, end = find_unknown(text, known, self._longest)
            near = get_close_matches(text[start:end].strip(), self.words, n=1, cutoff=0.5)
            raise InputError(
                f"'{text[start:end]}' (index {start}) is not one of the {len(self.words)} words of "
                "this vocabulary",
                hint=f"did you mean '{near[0].strip()}'?" if near else "use other words",
            )
        return np.array(self.ids_of(words), dtype=np.int32)

    def to_json(self) -> str:
        return self._own_json(words=self.words)


def segment(text: str, known: Collection[str], longest: int) -> tuple[str, ...] | None:
    """Split a text into known words, the longest first, with backtracking; None if impossible.

    >>> segment("abcd", {"ab", "abc", "cd"}, longest=3)
    ('ab', 'cd')
    """
    words: list[str] = []
    dead: set[int] = set()  # positions from which the end cannot be reached
    at, length = 0, longest
    while at < len(text):
        length = min(length, len(text) - at)
        while length and (text[at : at + length] not in known or at + length in dead):
            length -= 1
        if length:
            words.append(text[at : at + length])
            at, length = at + length, longest
        elif words:
            dead.add(at)
            length = len(words.pop())
            at -= length
        else:
            return None
    return tuple(words)


def find_unknown(text: str, known: Collection[str], longest: int) -> tuple[int, int]:
    """Return [start, end): from where no known word fits to where one begins again.

    >>> find_unknown("abxycd", {"ab", "abc", "cd"}, longest=3)
    (2, 4)
    """
    reached, ends = 0, {0}
    for at in range(len(text)):
        if at in ends:
            reached = at
            ends |= {at + n for n in range(1, longest + 1) if text[at : at + n] in known}
    for end in range(reached + 1, len(text)):
        if any(text[end : end + n] in known for n in range(1, longest + 1)):
            return reached, end
    return reached, len(text)
