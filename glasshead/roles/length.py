"""Scores of heads over long texts, for the price of the forward: memory grows with T, never T x T.

    with observing(model, keep="statistics", ids=ids) as trace:
        model.features(ids)
    retrieval_scores(trace, rows, keys)     (L, H) as published: is the strongest key the token
                                            that is given?
    received_scores(trace)                  (L, H, S) all the weight that each key got, as H2O's

`windowed_scores` are what methods score keys by that look at the last queries only, and
`window_errors` how far that is from the truth.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from glasshead.errors import InputError
from glasshead.observe.trace import Trace

__all__ = ["overlap", "received_scores", "retrieval_scores", "window_errors", "windowed_scores"]


def retrieval_scores(
    trace: Trace, rows: Sequence[int], needle: range, ids: Tensor, answers: Sequence[int]
) -> Tensor:
    """Return the retrieval score of each head, (L, H).

    That of Wu et al. 2024, "Retrieval Head Mechanistically Explains Long-Context Factuality": of
    the distinct tokens of the needle, the share that the head copies. A head copies a token when
    the model gives it while the head's strongest key, in the needle, is that token.

    Args:
        trace: recorded while the model read the prompt and its answer.
        rows: the position that predicted each token of the answer.
        needle: the positions of the needle.
        ids: (T,) what the model read.
        answers: the token that was given at each of `rows`.
    """
    if len(rows) != len(answers):
        raise InputError(
            f"there are {len(rows)} rows and {len(answers)} answers", hint="one answer for each row"
        )
    wanted = set(ids[needle.start : needle.stop].tolist())
    found = []
    for layer in trace.layer_traces:
        strongest = trace.statistics(layer).top_keys[0, :, list(rows), 0]  # (H, rows)
        copied = [set[int]() for _ in strongest]
        for head, keys in zip(copied, strongest.tolist(), strict=True):
            for key, answer in zip(keys, answers, strict=True):
                if key in needle and int(ids[key]) == answer:
                    head.add(answer)
        found.append([len(head & wanted) / max(1, len(wanted)) for head in copied])
    return torch.tensor(found)


def received_scores(trace: Trace, batch: int = 0) -> Tensor:
    """Return all the weight that each key got, (L, H, S)."""
    tables = [trace.statistics(layer).received_total[batch].cpu() for layer in trace.layer_traces]
    return torch.stack(tables)


def windowed_scores(trace: Trace, window: int, batch: int = 0) -> Tensor:
    """Return the weight that each key got from the last `window` queries, (L, H, S).

    SnapKV scores keys by it, and H2O where it looks at a window.
    """
    if window < 1:
        raise InputError(f"window ({window}) must be at least 1", hint="try window=32")
    found = []
    for layer in trace.layer_traces:
        _, H, T, _ = trace.shape(layer)
        rows = slice(max(0, T - window), T)
        found.append(
            torch.stack([trace.tile(layer, h, rows, batch=batch).sum(0) for h in range(H)])
        )
    return torch.stack(found)


def overlap(scores: Tensor, truth: Tensor, keep: int) -> Tensor:
    """Return the share of the `keep` best keys by `truth` that are among those by `scores`, (L, H).

    >>> overlap(torch.tensor([[[3.0, 2.0, 1.0]]]), torch.tensor([[[3.0, 1.0, 2.0]]]), keep=2)
    tensor([[0.5000]])
    """
    chosen, best = (
        torch.zeros_like(x, dtype=torch.bool).scatter_(-1, x.topk(keep).indices, True)
        for x in (scores, truth)
    )
    return (chosen & best).sum(-1) / keep


def window_errors(trace: Trace, window: int, share: float = 0.1) -> dict[str, Tensor]:
    """Return how far the scores of a window are from those of all queries, (L, H) each.

    "overlap": of the `share` of keys with most weight, how many the window finds; "lost": the share
    of all weight that lies on keys which the window would drop and the truth keep. Keys inside of
    the window are kept by both and do not count.
    """
    truth, seen = received_scores(trace), windowed_scores(trace, window)
    before = truth.shape[-1] - window
    if before < 2:
        raise InputError(
            f"a window of {window} leaves no keys of {truth.shape[-1]}", hint="use a longer text"
        )
    truth, seen = truth[..., :before], seen[..., :before]
    keep = max(1, int(share * before))
    kept = truth.gather(-1, seen.topk(keep).indices).sum(-1)
    best = truth.topk(keep).values.sum(-1)
    total = truth.sum(-1).clamp(min=1e-9)
    return {"overlap": overlap(seen, truth, keep), "lost": (best - kept) / total}
