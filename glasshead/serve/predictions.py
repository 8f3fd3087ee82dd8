"""How likely a model finds the tokens of a given text."""

from collections.abc import Callable, Sequence

import torch

from glasshead.generation.sampling import not_finite_error
from glasshead.generation.step import eval_mode
from glasshead.serve.engine import Token
from glasshead.serve.library import ServedModel
from glasshead.serve.writer import model_and_tokenizer
from glasshead.text.tokenizer import StreamDecoder

__all__ = ["next_log_probs", "prompt_tokens"]

LOGITS = 1 << 22  # the most logits in memory at once


def next_log_probs(
    served: ServedModel, ids: Sequence[int], k: int, check: Callable[[], None]
) -> list[tuple[float, list[tuple[int, float]]]]:
    """Return, for each position, the log-probability of the next id, and the k likeliest ids.

    The first number of the last position means nothing. `check` is called between parts of the
    work, and may raise.
    """
    model, tokenizer = model_and_tokenizer(served)
    device = model.embedding.weight.device
    known = min(tokenizer.vocab_size, model.config.vocab_size)
    found: list[tuple[float, list[tuple[int, float]]]] = []
    with served.lock, eval_mode(list(model.modules())):
        x = model.features(torch.tensor([ids], device=device))[0]  # (T, C)
        nexts = torch.tensor([*ids[1:], 0], device=device)
        rows = max(1, LOGITS // model.config.vocab_size)
        for some, wanted in zip(x.split(rows), nexts.split(rows), strict=True):
            check()
            log_probs = model.logits(some).float().log_softmax(-1)  # (rows, V)
            if not log_probs.amax(-1).isfinite().all():
                raise not_finite_error()
            own = log_probs.gather(-1, wanted[:, None])[:, 0].tolist()
            top = log_probs[:, :known].topk(min(k, known))
            for value, *pairs in zip(own, top.indices.tolist(), top.values.tolist(), strict=True):
                found.append((value, list(zip(*pairs, strict=True))))
    return found


def prompt_tokens(
    served: ServedModel, ids: Sequence[int], k: int, check: Callable[[], None]
) -> list[Token]:
    """Return the tokens of a prompt with their log-probabilities; the first has None."""
    tokenizer = model_and_tokenizer(served)[1]
    decoder, special = StreamDecoder(tokenizer), frozenset(tokenizer.specials.values())
    tokens = [Token(id, "" if id in special else decoder.push(id), None) for id in ids]
    tokens[-1].text += decoder.flush()
    scores = next_log_probs(served, ids, k, check)
    for token, (own, likely) in zip(tokens[1:], scores, strict=False):
        token.logprob = own
        token.alternatives = tuple((i, "", p) for i, p in likely)
    return tokens
