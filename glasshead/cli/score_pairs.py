"""`glasshead score --pairs`: how well a model translates."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glasshead.cli.terminal import say, write_errors

if TYPE_CHECKING:
    from glasshead.checkpoint import Run
    from glasshead.generation.translate import Translation
    from glasshead.text.pairs import Pair
    from glasshead.text.sources import Report

__all__ = ["score_pairs"]


def score_pairs(
    run: Path,
    files: Sequence[str],
    settings: dict[str, Any],
    device: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Translate the sources of pairs, compare with the targets, and print the scores."""
    from glasshead.errors import InputError
    from glasshead.generation.beam import SearchConfig
    from glasshead.generation.opening import open_translator
    from glasshead.generation.score_pairs import measures
    from glasshead.generation.translate import Translator
    from glasshead.machine import pick_device
    from glasshead.text.sources import Report

    config = SearchConfig(**settings)
    if out is not None and not out.parent.is_dir():
        raise InputError(f"there is no folder {out.parent}", hint=f"mkdir -p {out.parent}")
    if out is not None and out.is_dir():
        raise InputError(
            f"--out {out} is a folder", hint=f"name a file, such as {out / 'said.txt'}"
        )
    loaded, model = open_translator(run, pick_device(device))
    report = Report()
    pairs = _read_pairs(files, loaded, report)
    say(*report.summary())
    lowercase = loaded.config.lowercase
    translator = Translator(model, loaded.tokenizer, config, lowercase=lowercase)
    start = time.perf_counter()
    found = translator([pair.source for pair in pairs])
    seconds = time.perf_counter() - start
    said = [" ".join(one.best.text.splitlines()) for one in found]
    if out is not None:
        _write_translations(out, pairs, said, report)
    scores = measures(said, [pair.target for pair in pairs])
    _say_speed(found, seconds)
    if as_json:
        figures = [{"name": m.name, "score": m.score, "signature": m.signature} for m in scores]
        print(json.dumps({"measures": figures, "sentences": len(pairs)}))
        return
    for measure in scores:
        print(f"{measure.name:<16} {measure.score:6.2f}  {measure.signature}")
    print(f"{'sentences':<16} {len(pairs):>6,}")


def _read_pairs(files: Sequence[str], loaded: "Run", report: "Report") -> "list[Pair]":
    """Read the pairs of two files, or of the columns of a .tsv that the run was trained on."""
    from glasshead.errors import InputError
    from glasshead.text.pairs import read_pairs

    if len(files) > 2:
        raise InputError(
            f"--pairs names {len(files)} files, but takes one or two",
            hint="try --pairs SRC TGT, or --pairs FILE.tsv",
        )
    columns = str(loaded.config.data.get("pairs", {}).get("columns", "1,2"))
    first, second = (int(column) - 1 for column in columns.split(","))
    target = files[1] if len(files) == 2 else None
    return read_pairs(files[0], target, columns=(first, second), report=report)


def _write_translations(out: Path, pairs: "list[Pair]", said: list[str], report: "Report") -> None:
    """Write the translation of line N to line N; a line that was skipped stays empty."""
    skipped = (place.line or 0 for place in report.skipped)
    lines = [""] * max([pair.line for pair in pairs] + [*skipped])
    for pair, text in zip(pairs, said, strict=True):
        lines[pair.line - 1] = text
    with write_errors(out):
        out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _say_speed(found: "list[Translation]", seconds: float) -> None:
    tokens = sum(one.best.tokens for one in found)
    cut = sum(not one.best.ended for one in found)
    in_parts = sum(len(one.reading.parts) > 1 for one in found)
    if in_parts:
        say(f"{in_parts} sources were longer than max_len: translated in parts")
    if cut:
        say(f"{cut} translations were cut at the maximum length")
    say(f"{len(found):,} sentences, {tokens:,} tokens, {tokens / seconds:.1f} tokens/s")
