"""`glasshead score`: how well a model predicts a text, or translates."""

import codecs
import json
import math
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from glasshead.cli.flags import with_flags
from glasshead.cli.folders import confirm_folders
from glasshead.cli.score_pairs import score_pairs
from glasshead.cli.terminal import (
    AsJson,
    Decompressed,
    Device,
    ProgressDisplay,
    RunArgument,
    argument,
    console,
    drop_none,
    option,
    say,
    set_decompressed,
)

if TYPE_CHECKING:
    from rich.console import Console

    from glasshead.generation.score import Score, Surprises
    from glasshead.text.sources import DocumentPart
    from glasshead.text.tokenizer import Tokenizer

__all__ = ["score"]

FULL = 12.0  # bits of the strongest shade
LONG_LINE = 2000  # characters after which a line is shown before it ends
NONE = "–"  # the bits of a token that is not predicted


@with_flags(defaults=True, Search=("generation/beam.py", "SearchConfig"))
def score(
    run: RunArgument,
    file: Annotated[
        str | None, argument("FILE", "Text, also .gz, .xz or .jsonl; - for stdin.")
    ] = None,
    pairs: Annotated[
        list[str] | None, option("--pairs", "SRC TGT", "Two files, line by line, or one .tsv.")
    ] = None,
    out: Annotated[
        Path | None, option("--out", "FILE", "With --pairs: write the translations there.")
    ] = None,
    tokens: Annotated[
        bool, option("--tokens", None, "Show each token with its surprise in bits.")
    ] = False,
    stride: Annotated[
        int | None, option("--stride", "N", "Tokens between windows [default: half of max_len]")
    ] = None,
    device: Device = "auto",
    decompressed: Decompressed = None,
    as_json: AsJson = False,
    **flags: Any,
) -> None:
    """Measure how well a run's model predicts, or translates.

    Prints loss, perplexity and bits per byte of a text; BLEU and chrF of --pairs.

    \b
    Examples:
      glasshead score runs/poems held-out.txt
      glasshead score runs/poems held-out.txt --tokens
      glasshead score runs/poems - --json < held-out.txt
      glasshead score runs/de-en --pairs test.de test.en --out said.en

    Every token but the first of a text counts once. The first has no context to predict it from:
    its surprise is a dash, and null in JSON.

    A text longer than the model's max_len is read in windows that start --stride tokens apart:
    after the first window, each token is predicted from at least max_len - stride others. A smaller
    stride is more exact and slower.

    With --tokens the background shows the surprise, from 0 to 12 bits; without colours it follows
    the token, as in sun⟨3.2⟩. Bytes of one character are shown together.

    With --pairs the sources are translated by beam search and compared with the targets by
    sacrebleu; the signature after each figure gives its settings.
    """
    set_decompressed(decompressed)
    settings = drop_none(flags)
    only_text = {"--tokens": tokens or None, "--stride": stride}
    only_pairs = {"--out": out, **{f"--{n.replace('_', '-')}": v for n, v in settings.items()}}
    _check_kind(run, file, pairs, only_text if pairs else only_pairs)
    if pairs:
        score_pairs(run, pairs, settings, device, out, as_json)
    else:
        assert file is not None
        _score_text(run, file, tokens, stride, device, as_json)


def _check_kind(
    run: Path, file: str | None, pairs: list[str] | None, unfit: Mapping[str, object]
) -> None:
    """Check that a language model is scored on a text, and a translator on pairs."""
    from glasshead.checkpoint import RunFolder
    from glasshead.errors import ConfigError, InputError

    if pairs and file is not None:
        raise InputError(
            f"FILE ({file}) and --pairs ({' '.join(pairs)}) cannot go together",
            hint="use FILE for a language model, --pairs for a translator",
        )
    kind = RunFolder.open(run).config.kind
    if kind not in ("gpt", "transformer"):
        raise InputError(
            f"{run} is a {kind}, which cannot be scored", hint="name a GPT or a translator"
        )
    if kind == "gpt" and pairs:
        raise InputError(
            f"{run} is a GPT, which does not translate",
            hint=f"score it on a text: glasshead score {run} held-out.txt",
        )
    if kind == "transformer" and not pairs:
        raise InputError(
            f"{run} is a translator, which is scored on --pairs, not on a text",
            hint=f"try: glasshead score {run} --pairs SRC TGT",
        )
    if file is None and not pairs:
        raise InputError(
            "FILE is missing: there is no text to score",
            hint=f"try: glasshead score {run} held-out.txt",
        )
    given = [name for name, value in unfit.items() if value is not None]
    if given:
        raise ConfigError(
            f"{given[0]} works only {'without' if pairs else 'with'} --pairs",
            hint=f"leave {given[0]} out",
        )


def _score_text(
    run: Path, file: str, tokens: bool, stride: int | None, device: str, as_json: bool
) -> None:
    from glasshead.errors import InputError
    from glasshead.generation.opening import open_gpt
    from glasshead.generation.score import Score, encode_parts, surprises
    from glasshead.machine import pick_device

    loaded, model = open_gpt(run, pick_device(device))
    total, out, file_parts = Score(), console(), _FileParts(file)
    show: Any = None
    if tokens:
        show = JsonTokens() if as_json else TokenLines(out)
    # Where tokens are shown on a terminal, the bar stands below them.
    beside = tokens and not as_json and sys.stdout.isatty()
    with _ScoreProgress(out if beside else None) as bar:
        for text in file_parts:
            joiner = TokenJoiner(loaded.tokenizer)
            for part in surprises(model, encode_parts(loaded.tokenizer, text), stride):
                total.add(part, loaded.tokenizer)
                bar.update(total, file_parts.expected)
                for token, bits in joiner.add(part) if show else ():
                    show.add(token, bits, any_predicted=total.tokens > 0)
    if not total.tokens:
        raise InputError(
            f"{file} has fewer than two tokens, so there is nothing to predict",
            hint="score a longer text",
        )
    if as_json:
        figures = json.dumps({name: getattr(total, name) for name in FIGURES})
        print(show.end(figures) if show else figures)
        return
    if show:
        show.end()
        mark = f"⟨{NONE}⟩" if out.color_system is None else "no colour"
        say(f"{mark} for the first token of a text, which has no context")
    _print_table(total)


class _FileParts:
    """The texts of a file, each as an iterator of pieces, and how large they may be."""

    def __init__(self, file: str) -> None:
        from glasshead.text.sources import Report, check_growth, find_sources, total_bytes

        confirm_folders([file])
        self._report = Report()
        self._sources = find_sources([file], self._report)
        for source in self._sources:
            check_growth(source)
        self._size = total_bytes(self._sources)
        self._position = self._read = 0

    @property
    def expected(self) -> float | None:
        """The bytes of text in all files, by those read so far; None for a stream."""
        if not self._size or not self._position:
            return None
        return self._read * self._size / self._position

    def __iter__(self) -> Iterator[Iterator[str]]:
        from glasshead.text.sources import read_parts, total_bytes

        before = 0

        def at(position: int) -> None:
            self._position = before + position

        for source in self._sources:
            parts = read_parts(source, self._report, at=at)
            for _, pieces in groupby(parts, key=lambda piece: piece.name):
                yield self._counted(pieces)
            before += total_bytes([source])
        say(*self._report.summary())

    def _counted(self, pieces: "Iterator[DocumentPart]") -> Iterator[str]:
        for piece in pieces:
            self._read += len(piece.text.encode(errors="replace"))
            yield piece.text


class _ScoreProgress(ProgressDisplay):
    """A bar on a terminal, with the loss so far and the time left."""

    def __init__(self, console: "Console | None") -> None:
        from rich.progress import TextColumn

        super().__init__(TextColumn("loss {task.fields[loss]}"), console=console)
        self._task = self._bar.add_task("", total=None, loss="-")

    def update(self, total: "Score", expected: float | None) -> None:
        if total.tokens:
            loss = f"{total.loss:.3f}"
            self._bar.update(self._task, completed=total.bytes, total=expected, loss=loss)


class TokenJoiner:
    """Turns tokens into text; joins tokens that share a character, and adds up their bits."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._bits = 0.0

    def add(self, part: "Surprises") -> Iterator[tuple[str, float]]:
        for token, nats in zip(part.ids.tolist(), part.nats.tolist(), strict=True):
            self._bits += nats / math.log(2)
            text = self._decoder.decode(self._tokenizer.token_bytes(token))
            if text:
                yield text, self._bits
                self._bits = 0.0


class TokenLines:
    """Prints tokens with their bits as they come; on a terminal line by line, above the bar."""

    def __init__(self, out: "Console") -> None:
        from rich.text import Text

        self._out, self._line, self._token = out, Text(), ""
        self._by_lines = sys.stdout.isatty()
        self._waiting: list[tuple[str, float]] = []  # until a token is predicted

    def add(self, token: str, bits: float, any_predicted: bool = True) -> None:
        self._waiting.append((token, bits))
        if any_predicted:
            for one in self._waiting:
                self._show(*one)
            self._waiting.clear()

    def _show(self, token: str, bits: float) -> None:
        self._token = token
        visible = "".join(_visible(character) for character in token)
        style = ""
        if self._out.color_system is not None:
            style = _shade(bits)
        else:
            mark = f"⟨{NONE if math.isnan(bits) else f'{bits:.1f}'}⟩"
            head = visible.removesuffix("\n")
            visible = f"{head}{mark}{visible[len(head) :]}"
            if not self._by_lines:
                sys.stdout.write(visible)
                return
        self._line.append(visible, style)
        if not self._by_lines:
            self._flush()
        elif "\n" in visible or len(self._line) > LONG_LINE:
            while "\n" in self._line.plain:
                end = self._line.plain.index("\n")
                self._out.print(self._line[:end], soft_wrap=True)
                self._line = self._line[end + 1 :]
            if len(self._line) > LONG_LINE:  # below it is a bar: it must end
                self._out.print(self._line, soft_wrap=True)
                self._line = self._line[:0]

    def _flush(self) -> None:
        self._out.print(self._line, end="", soft_wrap=True)
        self._line = self._line[:0]

    def end(self) -> None:
        self._flush()
        print("" if self._token.endswith("\n") else "\n", flush=True)


class JsonTokens:
    """Prints one JSON object, its tokens as they come: it needs no memory for them."""

    def __init__(self) -> None:
        self._start = '{"surprises": ['
        self._waiting: list[str] = []

    def add(self, token: str, bits: float, any_predicted: bool = True) -> None:
        bits_or_none = None if math.isnan(bits) else bits
        self._waiting.append(json.dumps({"token": token, "bits": bits_or_none}))
        if any_predicted:
            sys.stdout.write(self._start + ", ".join(self._waiting))
            self._start, self._waiting = ", ", []

    def end(self, figures: str) -> str:
        """Return the end of the object, with the figures, themselves an object."""
        return f"], {figures[1:]}"


def _visible(character: str) -> str:
    """Mark a line end with ↵; show other characters that do not print by their codes."""
    if character == "\n":
        return "↵\n"
    return character if character.isprintable() else repr(character)[1:-1]


def _shade(bits: float) -> str:
    """Return a style from black on pale yellow to white on red; none below one bit."""
    if math.isnan(bits) or bits < 1:
        return ""
    strength = min(bits / FULL, 1)
    ends = ((255, 190), (245, 20), (200, 30))
    red, green, blue = (round(pale + (full - pale) * strength) for pale, full in ends)
    return f"{'white' if strength > 0.7 else 'black'} on rgb({red},{green},{blue})"


# The figures of a text, in the order they are printed, and their formats.
FIGURES = {
    "loss": "{:.4f} nats/token",
    "perplexity": "{:.2f}",
    "bits_per_byte": "{:.4f}",
    "tokens": "{:,}",
    "bytes": "{:,}",
}


def _print_table(total: "Score") -> None:
    for name, form in FIGURES.items():
        print(f"{name.replace('_', ' '):<14} {form.format(getattr(total, name))}")
