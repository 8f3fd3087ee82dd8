"""Read pairs of a sentence and its translation, and report what looks wrong with them."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from glasshead.errors import InputError
from glasshead.text.sources import Report, Skipped, find_sources, read_text

__all__ = ["Pair", "bleu_words", "read_pairs"]


@dataclass(frozen=True)
class Pair:
    source: str
    target: str
    line: int  # from 1
    name: str = field(default="", compare=False)  # of the files


def read_pairs(
    source: str | Path,
    target: str | Path | None = None,
    *,
    languages: tuple[str, str] | None = None,
    limit: int | None = None,
    columns: tuple[int, int] = (0, 1),
    report: Report | None = None,
) -> list[Pair]:
    """Read pairs from two files line by line, or from the `columns` of one file with tabs.

    Lines that are empty or longer than `limit` characters on either side are skipped. Lines whose
    sides look swapped, or not in `languages`, are kept and reported as suspects.
    """
    report = Report() if report is None else report
    if target is None:
        name, rows = str(source), _columns(source, columns, report)
    else:
        name, rows = f"{source} | {target}", _side_by_side(source, target)
    pairs: list[Pair] = []
    for line, left, right in rows:
        empty = [side for side, text in (("source", left), ("target", right)) if not text.strip()]
        if empty:
            report.skip(name, f"empty {' and '.join(empty)}", line)
        elif limit is not None and max(len(left), len(right)) > limit:
            report.skip(name, f"longer than {limit} characters", line)
        else:
            pairs.append(Pair(left, right, line, name))
    if not pairs:
        raise InputError(
            f"{name}: no pairs", hint="; ".join(report.summary(2)) or "check the two sides"
        )
    same = sum(pair.source == pair.target for pair in pairs)
    if 2 * same > len(pairs):
        report.notes.append(
            f"{name}: source and target of {same} of {len(pairs)} pairs are the same"
        )
    _find_suspects(pairs, languages, name, report)
    return pairs


def _read_lines(path: str | Path) -> list[str]:
    """Split a file at line feeds, with or without a carriage return, and nowhere else."""
    found = find_sources([path], Report())
    if not (len(found) == 1 and found[0].named):
        raise InputError(f"{path} is not a file", hint="name one file for each side")
    text = "".join(read_text(found[0]))
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _side_by_side(source: str | Path, target: str | Path) -> Iterator[tuple[int, str, str]]:
    left, right = _read_lines(source), _read_lines(target)
    if len(left) != len(right):
        raise InputError(
            f"{source} has {len(left)} lines but {target} has {len(right)}",
            hint="line N of one file must translate line N of the other",
        )
    for line, (one, other) in enumerate(zip(left, right, strict=True), 1):
        yield line, one, other


def _columns(
    path: str | Path, columns: tuple[int, int], report: Report
) -> Iterator[tuple[int, str, str]]:
    rows = [line.split("\t") for line in _read_lines(path)]
    widths = Counter(len(row) for row in rows if row != [""])
    width = widths.most_common(1)[0][0] if widths else max(columns) + 1
    if width <= max(columns):
        raise InputError(
            f"{path} has {width} columns, so there is no column {max(columns) + 1}",
            hint="write source TAB target on each line, or give two files",
        )
    if width > 2:
        first, second = (column + 1 for column in columns)
        report.notes.append(f"{path} has {width} columns: {first} and {second} are used")
    for line, row in enumerate(rows, 1):
        if len(row) == width:
            yield line, row[columns[0]], row[columns[1]]
        else:
            report.skip(str(path), f"not {width - 1} tabs" if row != [""] else "empty line", line)


_SCRIPTS = {
    "CJK": re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]"),
    "Latin": re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]"),
    "Cyrillic": re.compile("[\u0400-\u052f]"),
    "Greek": re.compile("[\u0370-\u03ff]"),
    "Arabic": re.compile("[\u0600-\u06ff]"),
    "Hebrew": re.compile("[\u0590-\u05ff]"),
    "Hangul": re.compile("[\uac00-\ud7a3]"),
    "Thai": re.compile("[\u0e00-\u0e7f]"),
    "Devanagari": re.compile("[\u0900-\u097f]"),
}
_LANGUAGES = {
    "CJK": "zh ja",
    "Latin": "en de fr es it pt nl sv da no fi pl cs hu ro tr vi id",
    "Cyrillic": "ru uk bg",
    "Greek": "el",
    "Arabic": "ar fa ur",
    "Hebrew": "he",
    "Hangul": "ko",
    "Thai": "th",
    "Devanagari": "hi mr ne",
}
_SCRIPT_OF = {code: script for script, codes in _LANGUAGES.items() for code in codes.split()}
# Frequent words that distinguish languages of the Latin script.
_FREQUENT = {
    "en": "the and is of to with that you it are have my for this at",
    "de": "der das und ist ein eine mit nicht auf sie ich zu er dem den",
    "fr": "le les et est une des dans avec pas je vous que il pour du",
    "es": "el los y una con por las su lo del para se un está en",
}
_WORDS_OF = {code: frozenset(words.split()) for code, words in _FREQUENT.items()}
_WORD = re.compile(r"\w+")


def _find_suspects(
    pairs: list[Pair], languages: tuple[str, str] | None, name: str, report: Report
) -> None:
    """Report pairs whose sides look swapped, or a side that is not in its language.

    Two scripts are distinguished by their letters; two languages of one script, if named, by their
    frequent words.
    """
    codes = [re.split("[-_]", code.lower())[0] for code in languages or ()]
    some = pairs[:1000]
    left = _main_script([pair.source for pair in some])
    right = _main_script([pair.target for pair in some])
    if codes:
        left, right = _SCRIPT_OF.get(codes[0], left), _SCRIPT_OF.get(codes[1], right)
    if left != right:
        measure, enough = partial(_count_letters, scripts=(left, right)), 4
    elif codes and codes[0] != codes[1] and _FREQUENT.keys() >= set(codes):
        left, right = codes
        measure, enough = partial(_count_words, languages=(left, right)), 2
    else:
        return
    swapped = 0
    for pair in pairs:
        # How much of each side is in the left language, and how much in the right one.
        source, target = measure(pair.source), measure(pair.target)
        if source[0] * sum(target) < target[0] * sum(source):
            reason = "sides look swapped"
            swapped += 1
        elif not source[0] and source[1] >= enough:
            reason = f"the source does not look {left}"
        elif not target[1] and target[0] >= enough:
            reason = f"the target does not look {right}"
        else:
            continue
        report.suspects.append(Skipped(name, reason, pair.line))
    if 2 * swapped > len(pairs):
        report.notes.append(
            f"{name}: the two sides look swapped, {swapped} of {len(pairs)} pairs read as "
            f"{right} to {left} instead of {left} to {right}"
        )


def _count_letters(text: str, scripts: Sequence[str]) -> list[int]:
    # A Chinese character carries as much as several letters of an alphabet.
    return [
        len(_SCRIPTS[script].findall(text)) * (4 if script in ("CJK", "Hangul") else 1)
        for script in scripts
    ]


def _count_words(text: str, languages: Sequence[str]) -> list[int]:
    words = _WORD.findall(text.lower())
    return [len(_WORDS_OF[language].intersection(words)) for language in languages]


def _main_script(texts: list[str]) -> str:
    names = list(_SCRIPTS)
    votes: Counter[str] = Counter()
    for text in texts:
        counts = _count_letters(text, names)
        votes[names[counts.index(max(counts))]] += 1
    return votes.most_common(1)[0][0]


def bleu_words(targets: Sequence[str]) -> str:
    """Return the tokenizer that sacrebleu must use: "zh" for Chinese, otherwise its default.

    >>> bleu_words(["小猫饿了。"]), bleu_words(["The kitten is hungry."])
    ('zh', '13a')
    """
    chinese = sum(any("\u3400" <= c <= "\u9fff" for c in text) for text in targets)
    return "zh" if 2 * chinese > len(targets) else "13a"
