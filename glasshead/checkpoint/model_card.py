"""The model card of an exported run: the model, its data and its results."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glasshead.checkpoint.run import read_metrics
from glasshead.checkpoint.run_folder import RunFolder
from glasshead.model.pretrained import HoldingFamily

__all__ = ["model_card"]


def model_card(run: RunFolder, name: str, family: HoldingFamily[Any], n_params: int) -> str:
    config = run.config
    head = ["---", "library_name: transformers", "tags:", "- glasshead"]
    tag = {"gpt": "text-generation", "transformer": "translation"}.get(config.kind)
    if tag:
        head.append(f"pipeline_tag: {tag}")
    parts = [
        "\n".join([*head, "---"]),
        f"# {name}",
        f"A `{family.architecture}` of {n_params:,} parameters, exported by Glasshead.",
        "## Data\n\n" + _describe_data(config.data),
        "## Results\n\n" + _describe_results(read_metrics(run.path)),
        "## Settings of the model\n\n" + _table(config.model),
    ]
    if config.train:
        parts.append("## Settings of the training\n\n" + _table(config.train))
    return "\n\n".join(parts) + "\n"


def _describe_data(data: Mapping[str, Any]) -> str:
    lines = []
    if imported := data.get("imported"):
        verb = "began as" if "from" in data else "are"
        lines.append(f"The parameters {verb} those of `{Path(imported['from']).name}`.")
    if origin := data.get("from"):
        lines.append(f"Training went on from the run `{Path(origin).name}`.")
    # Names only: the folders are private.
    files = [Path(file).name for file in data.get("sources", [])]
    if files:
        lines.append("Trained on " + ", ".join(f"`{file}`" for file in files) + ".")
    if digest := data.get("fingerprint"):
        lines.append(f"Fingerprint of the data: `{digest}`.")
    return "\n".join(lines) or "Nothing is known of it."


def _describe_results(metrics: list[dict[str, Any]]) -> str:
    """Return a table of the best and the last evaluation."""
    evaluations = [row for row in metrics if isinstance(row.get("val_loss"), float)]
    if not evaluations:
        return "It was not evaluated here."
    best = min(evaluations, key=lambda row: row["val_loss"])
    names = [name for name, value in best.items() if isinstance(value, int | float)]
    rows = [best] if best is evaluations[-1] else [best, evaluations[-1]]
    lines = [f"| | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for title, row in zip(("best (these parameters)", "last"), rows, strict=False):
        cells = " | ".join(_number(row.get(name)) for name in names)
        lines.append(f"| {title} | {cells} |")
    return "\n".join(lines)


def _number(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _table(settings: Mapping[str, Any]) -> str:
    rows = [f"| {name} | {json.dumps(value)} |" for name, value in settings.items()]
    return "\n".join(["| setting | value |", "|---|---|", *rows])
