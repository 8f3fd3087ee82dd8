"""Byte-level BPE, trained on the user's text by Hugging Face `tokenizers`."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from glasshead.errors import ConfigError, InputError
from glasshead.text.table_tokenizer import Ids, TableTokenizer, number_specials, utf8

__all__ = [
    "VISIBLE_BYTES",
    "BPETokenizer",
    "Cutter",
    "find_marks",
    "split_gpt2_words",
    "split_words",
    "token_to_bytes",
]

# A word is a run of letters with the space before it; Chinese and Japanese runs stand apart from
# Latin ones; numbers go by three digits. Line ends share a word with nothing else, which is what
# lets a long text be cut at lines (see Cutter).
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


def split_words() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def split_gpt2_words() -> pre_tokenizers.PreTokenizer:
    """As GPT-2 cuts them, which every program knows how to."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _visible_bytes() -> dict[str, int]:
    """The character by which a byte-level vocabulary writes each byte -> that byte.

    Bytes that print as Latin-1 stand for themselves, the others for U+0100, U+0101, ...
    """
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [value for value in range(256) if value not in printing]
    shown = {chr(value): value for value in printing}
    return shown | {chr(0x100 + index): value for index, value in enumerate(hidden)}


VISIBLE_BYTES = _visible_bytes()


class BPETokenizer(TableTokenizer):
    """Byte-level BPE; its file is a Hugging Face `tokenizer.json`, ours or another's.

    >>> tokenizer = BPETokenizer.train("low lower lowest low low", vocab_size=260)
    >>> [tokenizer.token_bytes(token) for token in tokenizer.encode_ids("low slow")]
    [b'low', b' ', b's', b'low']
    """

    kind = "bpe"

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        # Off by default and not kept in the file; without it a typed <eos> becomes the special.
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
                f"the vocabulary lacks {len(missing)} of the 256 bytes, so some text has no ids",
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
        """Learn merges from the texts; the vocabulary is smaller when they run out of pairs.

        No merge reaches across the words that `cut` makes of a text.
        """
        least = 256 + len(number_specials(specials, first=0))
        if vocab_size < least:
            raise ConfigError(
                f"vocab_size ({vocab_size}) must be at least {least}: "
                f"256 bytes and {len(specials)} specials",
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

    def encode_ids(self, text: str) -> Ids:
        parts = [
            np.array(self._inner.encode_batch_fast([piece], add_special_tokens=False)[0].ids)
            for piece in _pieces(text)
        ]
        ids = np.concatenate(parts).astype(np.int32) if parts else np.zeros(0, dtype=np.int32)
        # A tokenizer.json from elsewhere may drop or change text in ways no field tells.
        kept, size = int(self.byte_lengths[ids].sum()), len(utf8(text))
        if kept != size:
            raise InputError(
                f"the tokenizer gives back {kept} of the text's {size} bytes",
                hint="use a tokenizer that keeps text as it is, or train one",
            )
        return ids

    def words(self, text: str) -> list[str]:
        """The pieces that no merge reaches across, each byte written as one character.

        >>> BPETokenizer.train("low", vocab_size=256).words("low lower")
        ['low', 'Ġlower']
        """
        return [word for word, _ in self._inner.pre_tokenizer.pre_tokenize_str(text)]

    def to_json(self) -> str:
        return str(self._inner.to_str())

    hugging_face_json = to_json


def empty_table(vocabulary: Mapping[str, int]) -> list[bytes]:
    """An entry for each id."""
    check_ids(vocabulary.values())
    return [b""] * (max(vocabulary.values(), default=-1) + 1)


def check_ids(numbers: Collection[int]) -> None:
    """Ids far beyond the number of tokens are a mistake, or meant to fill the memory."""
    if numbers and max(numbers) > 2 * len(numbers) + 100_000:
        raise InputError(
            f"the vocabulary has {len(numbers)} tokens, but ids up to {max(numbers)}",
            hint="the file is damaged; take it anew",
        )


def find_marks(inner: tokenizers.Tokenizer) -> tuple[list[int], list[int]]:
    """The specials that a tokenizer puts before and behind a whole text."""
    framed, plain = inner.encode("a"), inner.encode("a", add_special_tokens=False)
    start = next((n for n, special in enumerate(framed.special_tokens_mask) if not special), 0)
    return framed.ids[:start], framed.ids[start + len(plain.ids) :]


def token_to_bytes(token: str) -> bytes:
    try:
        return bytes([VISIBLE_BYTES[character] for character in token])
    except KeyError:
        raise InputError(
            f"token {token!r} does not spell bytes: this is not a byte-level BPE",
            hint="train one with BPETokenizer.train, or use a GPT-2 style tokenizer",
        ) from None


class Cutter:
    """Cuts a long text into pieces whose ids, put together, are the ids of the whole.

    A piece ends after a line end that has visible characters on both sides: our words never reach
    across such a place, nor do those of the GPT-2, GPT-4 and Llama 3 tokenizers (but for GPT-2 a
    carriage return there joins its line feed). A text that has none for `limit` characters is cut
    all the same, so that memory stays bounded. Where the cuts fall depends on the text alone, not
    on the parts in which it arrives.
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
