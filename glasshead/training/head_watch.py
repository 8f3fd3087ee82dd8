"""Watch every head while a model trains: `glasshead train --watch-heads N`.

Every N steps the model reads two windows of the held-out text and two sequences of repeated random
tokens, on its usual kernels, and a line of `heads.jsonl` gets the scores of roles, entropy, mean
distance and the largest score of every head. Nothing that the training depends on changes: no
gradients, no dropout, and the state of the random numbers is put back, so that the run ends with
the same bits as one that is not watched.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glasshead.errors import ConfigError, GlassheadError
from glasshead.model.gpt import GPT
from glasshead.training.progress import ProgressListener
from glasshead.training.run_log import RunLog
from glasshead.training.task import Progress, Task

if TYPE_CHECKING:
    from glasshead.observe.statistics import HeadStatistics

__all__ = ["HeadWatch", "measure_heads", "repeated_tokens"]

ROWS = 2  # sequences of the text, and as many of repeats
LONGEST = 256  # tokens of each
PERIODS = (0.29, 0.37)  # of repeats, as shares of their length
ON_REPEATS = ("duplicate", "induction")  # roles whose score is that on repeated random tokens
RUNAWAY = 100.0  # scores from which on a softmax has hardly a gradient left


class HeadWatch:
    """Measures all heads of a task's model, and writes what they do."""

    def __init__(self, every: int, task: Task, log: RunLog, listener: ProgressListener) -> None:
        text = task.watched_ids()
        if text is None or not isinstance(task.model, GPT):
            raise ConfigError(
                "--watch-heads is for language models that train on text",
                hint="leave it out; glasshead heads names the heads of a trained run",
            )
        self.every, self.log, self.listener = every, log, listener
        text = text[:ROWS, : min(text.shape[1], LONGEST)].cpu()
        repeats = repeated_tokens(len(text), text.shape[1], task.model.config.vocab_size)
        self.ids = torch.cat([text, repeats])
        self._warned = RUNAWAY / 2

    def due(self, step: int) -> bool:
        return step % self.every == 0

    def measure(self, task: Task | None, progress: Progress) -> None:
        """Write a line for this step; say so, and go on, if the heads cannot be measured.

        Without a task another process does. Amid steps that are not finite nothing is written.
        """
        if task is None or progress.bad:
            return
        model, step, training = task.model, progress.step, task.model.training
        assert isinstance(model, GPT)
        model.eval()
        try:
            scores = measure_heads(model, self.ids)
        except GlassheadError as error:
            self.listener.say(f"step {step}: the heads could not be measured: {error}")
            return
        finally:
            model.train(training)
        self.log.write_heads(step, scores)
        self._warn(step, scores["largest_score"])

    def _warn(self, step: int, largest: Tensor) -> None:
        """Say when scores run away, and again each time they have doubled."""
        top = largest.nan_to_num(0, 0, 0)
        value = top.max().item()
        if value < 2 * self._warned:
            return
        self._warned = value
        layer, head = divmod(int(top.argmax()), top.shape[1])
        self.listener.say(
            f"step {step}: the largest score of head {layer}:{head} is {value:.0f}, and heads "
            "whose scores run away stop learning; a lower --lr and --muon-lr or --qk-norm helps"
        )


@torch.no_grad()
def measure_heads(model: GPT, ids: Tensor) -> dict[str, Tensor]:
    """Return each number of all heads, (L, H); half of the rows are text, the others repeats."""
    from glasshead.observe.recording import observing  # brings torch's compiler: a second

    device = model.embedding.weight.device
    devices = [device] if device.type == "cuda" else []
    ids = ids.to(device)
    plain = torch.autocast(device.type, enabled=False)
    watched = observing(model, keep="statistics", ids=ids, top_k=1, overview=1)
    with torch.random.fork_rng(devices), plain, watched as trace:
        model.features(ids)
    rows = [_numbers(trace.statistics(layer)) for layer in trace.layer_traces]
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _numbers(found: "HeadStatistics") -> dict[str, Tensor]:
    """Return the numbers of one layer's heads, (H,) each."""
    from glasshead.roles.scores import role_scores

    half = found.lags.shape[0] // 2
    means = found.means()
    numbers = role_scores(found) | {
        "entropy": means["entropy"],
        "distance": means["mean_distance"],
    }
    made = {
        name: (x[half:] if name in ON_REPEATS else x[:half]).double().mean(0).cpu()
        for name, x in numbers.items()
    }
    return made | {"largest_score": found.largest_score.double().amax(0).cpu()}


def repeated_tokens(rows: int, n: int, vocab_size: int) -> Tensor:
    """Return sequences of random tokens that are repeated, (rows, n), always the same.

    >>> found = repeated_tokens(2, 31, 997)
    >>> found[0, :8].tolist() == found[0, 8:16].tolist(), found.shape
    (True, torch.Size([2, 31]))
    """
    generator = torch.Generator().manual_seed(0)
    made = []
    for row in range(rows):
        period = max(2, int(n * PERIODS[row % len(PERIODS)]))
        tokens = torch.randint(vocab_size, (period,), generator=generator)
        made.append(tokens.repeat(math.ceil(n / period))[:n])
    return torch.stack(made)
