"""`glasshead why`: why a model gives an answer, in numbers."""

from typing import Annotated

from glasshead.cli.terminal import (
    AsJson,
    Device,
    Lang,
    argument,
    console,
    language,
    option,
    print_json,
    read_text,
)

__all__ = ["why"]


def why(
    model: Annotated[
        str, argument("MODEL", "A run, a folder with a transformers model, or a GGUF file.")
    ],
    text: Annotated[str, argument("TEXT", "What the model reads; - for stdin.")],
    answer: Annotated[
        str | None, option("--answer", "WORD", "Explain this answer [default: the model's]")
    ] = None,
    against: Annotated[
        str | None, option("--against", "WORD", "Compare it with this one: differences of logits.")
    ] = None,
    at: Annotated[
        str | None, option("--at", "TOKEN", "Explain what it says here, or N [default: the end]")
    ] = None,
    patch: Annotated[
        str | None,
        option("--patch", "TEXT2", "Put parts of this run into the run on TEXT2, as long as TEXT."),
    ] = None,
    smallest: Annotated[
        bool, option("--smallest", None, "Find a set of edges that keeps the answer.")
    ] = False,
    top: Annotated[int, option("--top", "K", "How many of each are shown.")] = 10,
    lang: Lang = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Say why a model gives an answer: what each head adds.

    \b
    Examples:
      glasshead why runs/poems "春江潮水连海"
      glasshead why runs/poems "春江潮水连海" --answer 平 --against 上 --json
      glasshead why runs/poems "春江潮水连海" --smallest

    The logit is a sum of what the embedding, each head, each feed-forward and biases wrote, with
    the scales of norms held fixed; a head's part is the sum over the tokens that it looks at.
    """
    from glasshead.api.heads import open_subject
    from glasshead.causes.explain import explain
    from glasshead.errors import ConfigError
    from glasshead.machine import pick_device

    if top < 1:
        raise ConfigError(f"--top ({top}) must be at least 1", hint="try --top 10")
    subject = open_subject(model, device=pick_device(device))
    found = explain(
        subject, read_text(text), answer=answer, against=against, at=at, patch=patch,
        smallest=smallest, top=top,
    )  # fmt: skip
    if as_json:
        print_json(found.as_json(top))
        return
    from rich.table import Table

    from glasshead.causes.tables import why_lines

    screen = console()
    for line in why_lines(found, language(lang), top):
        screen.print(line, soft_wrap=not isinstance(line, Table))
