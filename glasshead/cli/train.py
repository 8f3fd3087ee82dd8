"""`glasshead train`: a model of your own text, or of your own translations."""

from pathlib import Path
from typing import Annotated, Any

import typer

from glasshead.cli.flags import with_flags

__all__ = ["train"]


@with_flags(
    without={"pad"},  # the tokenizer decides
    Text=("training/language.py", "TextConfig"),
    Pairs=("training/parallel_corpus.py", "PairConfig"),
    Stories_to_read=("training/pronouns.py", "PronounConfig"),
    Stories_to_translate=("training/world_pairs.py", "WorldConfig"),
    Training=("training/config.py", "TrainConfig"),
    Model=("model/gpt.py", "GPTConfig"),
    Encoder_and_decoder=("model/transformer.py", "TransformerConfig"),
)
def train(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT...", help="Files, folders, patterns; .gz, .xz, .jsonl; - for stdin."
        ),
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "--pairs",
            metavar="SRC TGT",
            help="Learn to translate: two files, line by line, or a .tsv; may be repeated.",
        ),
    ] = None,
    val: Annotated[
        list[str] | None,
        typer.Option(
            "--val", metavar="SRC TGT", help="Pairs to validate on, instead of some of --pairs."
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            metavar="NAME",
            help="text, pairs, refer (what pronouns stand for) or world (translate "
            "stories), which need no files [default: by what is named]",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            help="nano, tiny, small, llama, gpt2; for pairs: pairs, pairs-tiny, marian; for refer: "
            "reader; for world: translator [default: the first]",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the preset and do nothing.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="RUN", help="The folder to make [default: runs/TEXT-PRESET]"),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Go on with a run, exactly.")
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", metavar="RUN", help="A new run that begins with its parameters."),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="DIR",
            help="Where tokenised texts are kept [default: ~/.cache/glasshead]",
        ),
    ] = None,
    **flags: Any,
) -> None:
    """Train a model on your text, or to translate.

    A run comes out: a folder with the model, its tokenizer and how it went, whose name is printed
    at the end. What is not given comes from the preset; `--show` prints that.

    \b
    Examples:
      glasshead train my.txt
      glasshead train books/ --preset tiny --minutes 20 --out runs/books
      glasshead train --resume runs/books
      glasshead train mine.txt --from runs/books --steps 500
      glasshead train --pairs my.de my.en --val val.de val.en --stop-on bleu
      glasshead train --pairs my.tsv --languages zh,en --lowercase
      glasshead train --task refer
      glasshead train --preset small --show

    Several GPUs train one model by `torchrun --standalone --nproc-per-node 8 -m glasshead train
    my.txt`, with the same losses; --parallel says how they share it.

    Ctrl-C, or SIGTERM, saves and ends; --resume goes on as if nothing had happened. Then:
    glasshead generate RUN "Once upon", or glasshead serve RUN.
    """
    from glasshead.api.train import TrainRequest, run_training
    from glasshead.checkpoint.processes import join_processes
    from glasshead.errors import ConfigError
    from glasshead.training.presets import find_preset
    from glasshead.training.progress import new_listener
    from glasshead.training.start import describe_settings

    if texts and pairs:
        raise ConfigError(
            f"TEXT {' '.join(texts)} and --pairs {' '.join(pairs)} cannot go together",
            hint="a run is trained on one or the other",
        )
    named = "pairs" if pairs else "text" if texts else None
    if task and named and task != named:
        raise ConfigError(
            f"--task {task} and {named} {' '.join(pairs or texts or [])} cannot go together",
            hint="leave one of them out",
        )
    settings = {name: value for name, value in flags.items() if value is not None}
    request = TrainRequest(
        texts or pairs or [], val or [], named or task, preset, out, resume, from_, cache, settings
    )
    if show:
        chosen = find_preset(request.preset_name, request.dataset.name)
        print(describe_settings(request.dataset, chosen, settings))
        return
    with join_processes() as processes:
        path, outcome = run_training(request, new_listener(), processes)
    if processes.first:
        print(path)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)
