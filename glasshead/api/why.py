"""Say why a model gives an answer, in numbers: `glasshead.why`."""

from pathlib import Path
from typing import Any

from torch import nn

from glasshead.api.heads import open_subject
from glasshead.causes.explain import Explained, explain
from glasshead.checkpoint import Run

__all__ = ["why"]


def why(
    model: str | Path | Run | nn.Module,
    text: str,
    *,
    answer: str | None = None,
    against: str | None = None,
    at: int | str | None = None,
    patch: str | None = None,
    smallest: bool = False,
    top: int = 10,
    tokenizer: Any = None,
) -> Explained:
    """Split the logit of an answer into what every part of the model adds to it.

    >>> import glasshead
    >>> poem = "海上明月共潮生。\\n" * 30
    >>> run = glasshead.train(poem, steps=30, n_layers=2, d_model=16, max_len=8, quiet=True)
    >>> found = glasshead.why(run, "海上", answer="明")
    >>> found.answer, len(found.lens)  # before each of two blocks, and in the end
    ('明', 3)
    >>> abs(found.attribution.error) < 1e-4  # embedding + heads + feed-forwards + biases - logit
    True

    Args:
        model: what `load` or `train` returned, the path of a run, of a GGUF file or of a
            transformers folder; or a model of that library, with its `tokenizer`.
        text: what the model reads.
        answer: what it should say next, by its first token; what it says when None.
        against: another answer, with which it is compared.
        at: the row of the text that is explained, as a number or a token; the last one when None.
        patch: a second text of as many tokens: heads, positions and edges of the run on the text
            are put into the run on this one.
        smallest: also find a set of edges that keeps the answer, none of which can be left out.
        top: how many edges are named.
        tokenizer: of a model of the transformers library.

    Returns:
        `.attribution` has `.heads` (L, H), `.edges`, `.feed_forwards` and what they add up to;
        `.lens` a row for each block, `.patched` and `.smallest` what was asked for.
    """
    return explain(
        open_subject(model, tokenizer), text, answer=answer, against=against, at=at, patch=patch,
        smallest=smallest, top=top,
    )  # fmt: skip
