"""Byte-level BPE, trained on the user's text by Hugging Face `tokenizers`."""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from glasshead.errors import ConfigError, InputError
from glasshead.text.base_tokenizer import Ids, Tokenizer, number_specials, utf8

__all__ = [
    "VISIBLE_BYTES",
    "BPETokenizer",
    "Cutter",
    "find_marks",
    "split_gpt2_words",
    "split_words",
    "token_to_bytes",
]

# A word is a run of letters with the space before it; Chinese and Japanese runs are separate from
# Latin ones; numbers have up to three digits. Line ends are words of their own, so that a long text
# can be cut at lines (see Cutter).
_CJK = r"\p{Han}\p{Hiragana}\p{Katakana}"
_WORDS = "|".join(
    [
        r"'(?:[sdmt]|ll|ve|re)",
        rf" ?[\p{{L}}\p{{M}}&&[^{_CJK}]]+",
        rf"[{_CJK}]+",
        r" ?\p{N}{1,3}",
        r" ?[^\s\p{L}\p{M}\p{N}]+",
        r"[\r\n]+",
        r"[^\S\r\n]+(?!\S)",
        r"[^\S\r\n]+",
    ]
)
_GPT2_WORDS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def split_words() -> pre_tokenizers.PreTokenizer:
    """Return a pre-tokenizer that splits text into the words above, written in bytes."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def split_gpt2_words() -> pre_tokenizers.PreTokenizer:
    """Return the pre-tokenizer of GPT-2, which other programs know too."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _visible_bytes() -> dict[str, int]:
    """Map each character of a byte-level vocabulary to its byte.

    Bytes that are printable in Latin-1 are written as themselves, the others as U+0100, U+0101, ...
    """
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [value for value in range(256) if value not in printing]
    shown = {chr(value): value for value in printing}
    return shown | {chr(0x100 + index): value for index, value in enumerate(hidden)}


VISIBLE_BYTES = _visible_bytes()
_OF_BYTE = {value: character for character, value in VISIBLE_BYTES.items()}
MOST_CHARACTERS = 20_000  # tokens of one character; Chinese newspapers use some 8,000


def _to_visible(text: str) -> str:
    """Write a text as a byte-level vocabulary does; the inverse of `token_to_bytes`."""
    return "".join(_OF_BYTE[value] for value in text.encode())


class BPETokenizer(Tokenizer):
    """Byte-level BPE, stored as a `tokenizer.json` of Hugging Face.

    >>> tokenizer = BPETokenizer.train("low lower lowest low low", vocab_size=260)
    >>> [tokenizer.token_bytes(token) for token in tokenizer.encode_ids("low slow")]
    [b'low', b' ', b's', b'low']
    """

    kind = "bpe"

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        # Off by default and not stored; without it, "<eos>" in a text becomes the special token.
        inner.encode_special_tokens = True
        self._inner = inner
        added = inner.get_added_tokens_decoder()
        vocabulary = inner.get_vocab(with_added_tokens=True)
        table = empty_table(vocabulary)
        for token, number in vocabulary.items():
            if number in added:
                table[number] = b"" if added[number].special else token.encode()
            else:
                table[number] = token_to_bytes(token)
        missing = {bytes([value]) for value in range(256)}.difference(table)
        if missing:
            raise InputError(
                f"the vocabulary lacks {len(missing)} of the 256 bytes, so some texts have no ids",
                hint="train one with BPETokenizer.train, or use a GPT-2 style tokenizer",
            )
        specials = {str(token.content): number for number, token in added.items() if token.special}
        super().__init__(table, specials)
        self.marks = find_marks(inner)

    @classmethod
    def train(
        cls,
        texts: str | Iterable[str],
        vocab_size: int,
        specials: Sequence[str] = (),
        cut: Callable[[], pre_tokenizers.PreTokenizer] = split_words,
    ) -> "BPETokenizer":
        """Learn merges from the texts, never across the words that the pre-tokenizer `cut` makes.

        The vocabulary is smaller than `vocab_size` if the texts run out of pairs to merge.
        """
        least = 256 + len(number_specials(specials, first=0))
        if vocab_size < least:
            raise ConfigError(
                f"vocab_size ({vocab_size}) must be at least {least}: "
                f"256 bytes and {len(specials)} special tokens",
                hint="choose a larger vocab_size, or the byte tokenizer",
            )
        inner = tokenizers.Tokenizer(models.BPE())
        inner.pre_tokenizer = cut()
        inner.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=2,
            special_tokens=list(specials),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        whole = [texts] if isinstance(texts, str) else texts
        inner.train_from_iterator((piece for text in whole for piece in _pieces(text)), trainer)
        return cls(inner)

    @classmethod
    def train_on_characters(
        cls,
        texts: Callable[[], Iterable[str]],
        vocab_size: int,
        specials: Sequence[str] = (),
        cut: Callable[[], pre_tokenizers.PreTokenizer] = split_words,
        *,
        grow: bool = False,
    ) -> "BPETokenizer":
        """Make each character of the texts a token, then learn merges of characters.

        For writing of thousands of characters, such as Chinese: `train` leaves the rarer ones in
        bytes, and a model that has to write them in bytes writes half characters, too. Bytes are
        left for characters that do not occur, and the rarest where there is no room for them.

        Args:
            texts: returns the texts anew; they are read twice.
            grow: make the vocabulary larger than `vocab_size` if MOST_CHARACTERS need that.

        >>> tokenizer = BPETokenizer.train_on_characters(lambda: ["春江潮水连海平"], 300)
        >>> [tokenizer.token_bytes(token).decode() for token in tokenizer.encode_ids("江水")]
        ['江', '水']
        """
        counts = Counter[str]()
        for text in texts():
            counts.update(utf8(text).decode())
        common = [character for character, _ in counts.most_common(MOST_CHARACTERS)]
        room = vocab_size - 256 - len(number_specials(specials, first=0))
        # A character's bytes are merged from the left: the first two, with the third, ...
        merges = dict[tuple[str, str], None]()
        for word in map(_to_visible, common):
            steps = {(word[:end], word[end]): None for end in range(1, len(word))}
            if grow or len(merges | steps) <= room:
                merges |= steps
        room -= len(merges)
        if room > 0:
            learner = tokenizers.Tokenizer(models.BPE())
            words = _WORDS if cut is split_words else _GPT2_WORDS
            learner.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(words), "isolated")
            trainer = trainers.BpeTrainer(
                vocab_size=len(common) + room,
                min_frequency=2,
                limit_alphabet=len(common),
                show_progress=False,
            )
            pieces = (piece for text in texts() for piece in _pieces(text))
            learner.train_from_iterator(pieces, trainer)
            found = json.loads(learner.to_str())["model"]["merges"]
            merges |= {(_to_visible(one), _to_visible(two)): None for one, two in found}
        tokens = dict.fromkeys([*specials, *sorted(VISIBLE_BYTES), *map("".join, merges)])
        vocabulary = {token: number for number, token in enumerate(tokens)}
        inner = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
        inner.add_special_tokens(list(specials))
        inner.pre_tokenizer, inner.decoder = cut(), decoders.ByteLevel()
        return cls(inner)

    def encode_ids(self, text: str) -> Ids:
        parts = [
            np.array(self._inner.encode_batch_fast([piece], add_special_tokens=False)[0].ids)
            for piece in _pieces(text)
        ]
        ids = np.concatenate(parts).astype(np.int32) if parts else np.zeros(0, dtype=np.int32)
        # A foreign tokenizer.json may drop or change text in ways that none of its fields shows.
        kept, size = int(self.byte_lengths[ids].sum()), len(utf8(text))
        if kept != size:
            raise InputError(
                f"the tokenizer keeps only {kept} of the text's {size} bytes",
                hint="use a tokenizer that does not change text, or train one",
            )
        return ids

    def words(self, text: str) -> list[str]:
        """Split a text into the words that merges stay within, one character for each byte.

        >>> BPETokenizer.train("low", vocab_size=256).words("low lower")
        ['low', 'Ġlower']
        """
        return [word for word, _ in self._inner.pre_tokenizer.pre_tokenize_str(text)]

    def to_json(self) -> str:
        return str(self._inner.to_str())

    hugging_face_json = to_json


def empty_table(vocabulary: Mapping[str, int]) -> list[bytes]:
    """Return a table with an empty entry for each id."""
    check_ids(vocabulary.values())
    return [b""] * (max(vocabulary.values(), default=-1) + 1)


def check_ids(numbers: Collection[int]) -> None:
    """Raise if ids are far beyond the number of tokens, which would fill the memory."""
    if numbers and max(numbers) > 2 * len(numbers) + 100_000:
        raise InputError(
            f"the vocabulary has {len(numbers)} tokens, but ids up to {max(numbers)}",
            hint="the file is damaged; get it again",
        )


def find_marks(inner: tokenizers.Tokenizer) -> tuple[list[int], list[int]]:
    """Return the special tokens that a tokenizer puts before and after a text."""
    framed, plain = inner.encode("a"), inner.encode("a", add_special_tokens=False)
    start = next((n for n, special in enumerate(framed.special_tokens_mask) if not special), 0)
    return framed.ids[:start], framed.ids[start + len(plain.ids) :]


def token_to_bytes(token: str) -> bytes:
    """Return the bytes of a token of a byte-level vocabulary."""
    try:
        return bytes([VISIBLE_BYTES[character] for character in token])
    except KeyError:
        raise InputError(
            f"token {token!r} is not written in bytes: this is not a byte-level BPE",
            hint="train one with BPETokenizer.train, or use a GPT-2 style tokenizer",
        ) from None


class Cutter:
    """Cuts a long text into pieces whose ids, concatenated, are the ids of the whole.

    A piece ends after a line end with visible characters on both sides. No word of ours crosses
    such a place, nor one of the GPT-2, GPT-4 and Llama 3 tokenizers (except that for GPT-2 a
    carriage return joins its line feed). After `limit` characters without one the text is cut
    anyway, to bound memory. The cuts depend on the text alone, not on how it arrives.
    """

    _PLACE = re.compile(r"\S\r?\n(?=\S)")

    def __init__(self, size: int = 1 << 18) -> None:
        self.size = size
        self.limit = 8 * size
        self._rest = ""

    def push(self, text: str) -> Iterator[str]:
        rest, start = self._rest + text, 0
        while len(rest) - start > self.size:
            end = start + self.limit
            place = self._PLACE.search(rest, start + self.size - 1, end + 1)
            if place is None and len(rest) <= end:
                break
            cut = place.end() if place else end
            yield rest[start:cut]
            start = cut
        self._rest = rest[start:]

    def flush(self) -> str:
        rest, self._rest = self._rest, ""
        return rest


def _pieces(text: str) -> Iterator[str]:
    utf8(text)
    cutter = Cutter()
    yield from cutter.push(text)
    if rest := cutter.flush():
        yield rest
