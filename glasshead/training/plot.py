"""Draw loss.png: the training loss, raw and smoothed, and the validation loss."""

import io
from pathlib import Path

from glasshead.checkpoint.run import read_metrics
from glasshead.files.writing import atomic_write

__all__ = ["draw_losses", "smooth"]


def smooth(values: list[float], share: float = 0.05) -> list[float]:
    """Return the exponential mean over about `share` of the values, without bias to the first.

    >>> smooth([3.0, 3.0, 3.0])
    [3.0, 3.0, 3.0]
    """
    keep = 1 - 1 / max(1.0, share * len(values))
    total, weight, out = 0.0, 0.0, []
    for value in values:
        total, weight = keep * total + value, keep * weight + 1
        out.append(total / weight)
    return out


def draw_losses(folder: Path) -> None:
    """Draw loss.png from the metrics.jsonl of a run's folder."""
    from matplotlib.figure import Figure  # without pyplot: no window, no global state
    from matplotlib.ticker import MaxNLocator

    lines = read_metrics(folder)
    training = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    validation = [(line["step"], line["val_loss"]) for line in lines if "val_loss" in line]
    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    if training:
        steps, losses = (list(column) for column in zip(*training, strict=True))
        axes.plot(steps, losses, color="#4c72b0", alpha=0.25, linewidth=0.8)
        axes.plot(steps, smooth(losses), color="#4c72b0", linewidth=1.6, label="training")
    if validation:
        steps, losses = (list(column) for column in zip(*validation, strict=True))
        best = min(range(len(losses)), key=losses.__getitem__)
        axes.plot(steps, losses, color="#dd8452", linewidth=1.8, label="validation")
        axes.plot(steps[best], losses[best], "o", color="#dd8452", markersize=5)
        axes.annotate(
            f"{losses[best]:.4f}",
            (steps[best], losses[best]),
            textcoords="offset points",
            xytext=(0, 9),
            ha="right" if best > len(losses) / 2 else "left",
            color="#b8602f",
        )
    values = [loss for _, loss in training + validation]
    if values and max(values) > 8 * min(values) > 0:
        axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats a token)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)
    if values:
        axes.legend(frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    with atomic_write(folder / "loss.png") as file:
        file.write(picture.getvalue())
