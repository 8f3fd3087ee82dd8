"""The logit lens: what the model would answer if the blocks after this one were left out."""

from dataclasses import dataclass

import torch
from torch import Tensor

from glasshead.causes.direct_path import DirectPath, output_layer
from glasshead.causes.question import Question, token_text
from glasshead.roles.subject import Subject

__all__ = ["LensRow", "logit_lens"]


@dataclass(frozen=True)
class LensRow:
    """What the residual stream before a block says, through the last norm and the output layer."""

    before: int  # the block; the number of blocks for what the model says in the end
    top: str  # the most probable token
    top_probability: float
    probability: float  # of the answer
    rank: int  # of the answer, from 1
    logit: float  # of the answer, minus that of `against`


@torch.no_grad()
def logit_lens(subject: Subject, question: Question, path: DirectPath) -> list[LensRow]:
    """Return a row for each block, and one for the model's own answer."""
    head, rows = output_layer(subject), []
    sign = torch.tensor([1.0, -1.0], dtype=torch.double)[: len(question.wanted)]
    for n, state in enumerate(path.states):
        x = state[None, None]
        for norm in path.last_norms:
            x = norm(x)
        raw: Tensor = head(x)[0, 0].double().cpu()
        logits = subject.finish_logits(raw)
        p = logits.softmax(-1)
        best = int(p.argmax())
        rows.append(
            LensRow(
                n, token_text(subject, best), p[best].item(), p[question.answer].item(),
                int((logits > logits[question.answer]).sum()) + 1,
                (raw[list(question.wanted)] @ sign).item(),
            )
        )  # fmt: skip
    return rows
