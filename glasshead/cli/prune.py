"""`glasshead prune`: remove the heads that a model needs least."""

from pathlib import Path
from typing import Annotated

from glasshead.cli.terminal import AsJson, Device, argument, console, option, print_json, say

__all__ = ["prune"]


def prune(
    run: Annotated[str, argument("RUN", "A run, a transformers folder, or a GGUF file.")],
    texts: Annotated[list[str], argument("TEXT...", "Files to measure on.")],
    share: Annotated[
        float, option("--share", "S", "Share of the heads that is removed with --out.")
    ] = 0.2,
    tokens: Annotated[int, option("--tokens", "N", "Tokens of a window of the text.")] = 128,
    windows: Annotated[int, option("--windows", "N", "Windows that are read, at most.")] = 32,
    out: Annotated[
        Path | None, option("--out", "RUN", "Write a run without these heads.", "-o")
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Remove the heads that a model needs least.

    \b
    Examples:
      glasshead prune runs/poems my.txt
      glasshead prune runs/poems my.txt --share 0.3 -o runs/pruned
      glasshead export runs/pruned -o models/pruned

    Importance is how much the loss changes when a head is scaled down, on every other window of
    the text; the loss is that on the windows between. A removed head outputs nothing: the model
    keeps its shape, so that it runs and exports as before.
    """
    from glasshead.api.heads import save_pruned
    from glasshead.checkpoint import load
    from glasshead.machine import pick_device
    from glasshead.roles.pruning import measure_pruning
    from glasshead.roles.subject import subject_of_run
    from glasshead.text.corpus import read_documents

    opened = load(run)
    model = opened.model.to(pick_device(device))
    subject = subject_of_run(opened.path.name, model, opened.tokenizer)
    documents = [document.text for document in read_documents(texts)]
    limit = windows * tokens * 16  # characters: more than these windows hold
    shares = sorted({0.05, 0.1, 0.2, 0.3, 0.4, 0.5, share})
    steps = measure_pruning(subject, ["\n".join(documents)[:limit]], shares, tokens, windows)
    if as_json:
        print_json([
            {"share": one.share, "loss": one.loss, "heads": [list(head) for head in one.heads]}
            for one in steps
        ])  # fmt: skip
    else:
        screen = console()
        screen.print(f"{'removed':>8} {'heads':>6} {'loss':>8} {'rise':>8}")
        for one in steps:
            rise = one.loss - steps[0].loss
            screen.print(f"{one.share:>8.0%} {len(one.heads):>6} {one.loss:>8.4f} {rise:>+8.4f}")
    if out is not None:
        chosen = next(one for one in steps if one.share == share)
        save_pruned(opened, chosen.heads, out)
        say(f"wrote {out}")
