"""`glasshead train`: train a model on your text, or to translate."""

from pathlib import Path
from typing import Annotated, Any

import typer

from glasshead.cli.flags import with_flags
from glasshead.cli.folders import confirm_folders
from glasshead.cli.terminal import Decompressed, argument, drop_none, option, set_decompressed

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
        argument("TEXT...", "Files, folders, patterns; .gz, .xz, .jsonl; - for stdin."),
    ] = None,
    pairs: Annotated[
        list[str] | None,
        option(
            "--pairs",
            "SRC TGT",
            "Learn to translate from two files, line by line, or a .tsv; may be repeated.",
        ),
    ] = None,
    val: Annotated[
        list[str] | None,
        option("--val", "SRC TGT", "Pairs to validate on, instead of some of --pairs."),
    ] = None,
    task: Annotated[
        str | None,
        option(
            "--task",
            "NAME",
            "text, pairs; without files: refer (what pronouns stand for), world (translate "
            "stories) [default: text or pairs, by the files]",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        option(
            "--preset",
            "NAME",
            "nano, tiny, small, llama, gpt2; for pairs: pairs, pairs-tiny, marian; for refer: "
            "reader; for world: translator [default: the first]",
        ),
    ] = None,
    show: Annotated[bool, option("--show", None, "Print all settings and exit.")] = False,
    out: Annotated[
        Path | None, option("--out", "RUN", "The folder to create [default: runs/TEXT-PRESET]")
    ] = None,
    resume: Annotated[
        Path | None, option("--resume", "RUN", "Continue a run exactly where it stopped.")
    ] = None,
    from_: Annotated[
        Path | None, option("--from", "RUN", "Start a new run with the model of this one.")
    ] = None,
    cache: Annotated[
        Path | None,
        option("--cache", "DIR", "Folder for tokenised texts [default: ~/.cache/glasshead]"),
    ] = None,
    decompressed: Decompressed = None,
    **flags: Any,
) -> None:
    """Train a model on your text, or to translate.

    The result is a run: a folder with the model, its tokenizer and the metrics of the training. Its
    path is printed at the end. Settings that are not given come from the preset; `--show` prints
    them.

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

    To train on several GPUs, with the same losses: torchrun --standalone --nproc-per-node 8 -m
    glasshead train my.txt; --parallel chooses how they share the model.

    Ctrl-C and SIGTERM save the run and end; --resume continues it as if it had never stopped. To
    use it: glasshead generate RUN "Once upon", or glasshead serve RUN.
    """
    from glasshead.api.train import TrainRequest, run_training
    from glasshead.checkpoint.processes import join_processes
    from glasshead.errors import ConfigError
    from glasshead.training.presets import find_preset
    from glasshead.training.progress import new_listener
    from glasshead.training.start import describe_settings

    set_decompressed(decompressed)
    if texts and pairs:
        raise ConfigError(
            f"TEXT {' '.join(texts)} and --pairs {' '.join(pairs)} exclude each other",
            hint="leave one of them out",
        )
    task_of_files = "pairs" if pairs else "text" if texts else None
    if task and task_of_files and task != task_of_files:
        raise ConfigError(
            f"--task {task} cannot be trained on {task_of_files} {' '.join(pairs or texts or [])}",
            hint="leave one of them out",
        )
    settings, known = drop_none(flags), task_of_files or task
    request = TrainRequest(
        texts or pairs or [], val or [], known, preset, out, resume, from_, cache, settings
    )
    if show:
        chosen = find_preset(request.preset_name, request.dataset.name)
        print(describe_settings(request.dataset, chosen, settings))
        return
    with join_processes() as processes:
        if processes.first:
            request.check()
            confirm_folders(request.sources)
        path, outcome = run_training(request, new_listener(), processes)
    if processes.first:
        print(path)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)
