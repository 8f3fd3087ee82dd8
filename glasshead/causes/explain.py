"""Explain an answer: all numbers at once, for `glasshead.why` and `glasshead why`."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from glasshead.causes.attribution import Attribution, attribute
from glasshead.causes.lens import LensRow, logit_lens
from glasshead.causes.patching import Patched, PatchEffect, estimate_error, patch_texts
from glasshead.causes.question import Question, make_question, token_text
from glasshead.causes.smallest import EdgeSet, smallest_edges
from glasshead.roles.subject import Subject

__all__ = ["Explained", "explain"]


@dataclass(eq=False)
class Explained:
    """Why a model gives an answer.

    `attribution` has what each part adds to the logit, `lens` what the model would answer after
    each block, `patched` the effects of parts of one text put into the run on another, `smallest`
    edges that suffice; the last two are None unless they were asked for.
    """

    name: str
    question: Question
    answer: str  # the token
    against: str | None
    attribution: Attribution
    lens: list[LensRow]
    patched: Patched | None = None
    smallest: EdgeSet | None = None

    def __repr__(self) -> str:
        part = self.attribution
        (layer, head), adds = part.strongest(1)[0]
        shown = self.answer if self.against is None else f"{self.answer} - {self.against}"
        return f"{shown}: logit {part.logit:.3f}, of which head {layer}:{head} adds {adds:+.3f}"

    def as_json(self, top: int = 10) -> dict[str, Any]:
        """Return everything as an object of JSON; of heads and effects the `top` largest."""
        part, tokens = self.attribution, self.question.tokens
        found: dict[str, Any] = {
            "model": self.name,
            "tokens": list(tokens),
            "at": self.question.at,
            "answer": self.answer,
            "against": self.against,
            "logit": part.logit,
            "sum": part.total,
            "embedding": part.embedding,
            "biases": part.biases,
            "others": part.feed_forwards,
            "heads": [
                {"layer": head[0], "head": head[1], "adds": adds}
                for head, adds in part.strongest(top)
            ],
            "edges": [
                {**asdict(one), "query_token": tokens[one.query], "key_token": tokens[one.key]}
                for one in part.edges
            ],
            "lens": [asdict(row) for row in self.lens],
        }
        if self.patched is not None:
            found["patch"] = {
                "before": self.patched.before,
                "after": self.patched.after,
                **{
                    kind: [_effect(one) for one in effects[:top]]
                    for kind, effects in self.patched.kinds().items()
                },
                "largest_error_of_estimates": {
                    kind: estimate_error(effects)[0]
                    for kind, effects in self.patched.kinds().items()
                },
            }
        if self.smallest is not None:
            found["smallest"] = {
                "edges": [list(edge) for edge in self.smallest.edges],
                "keeps": self.smallest.keeps,
                "probability": self.smallest.probability,
                "of": self.smallest.of,
                "runs": self.smallest.runs,
            }
        return found


def _effect(one: PatchEffect) -> dict[str, Any]:
    return {"place": list(one.place), "estimate": one.estimate, "exact": one.exact}


def explain(
    subject: Subject,
    text: str,
    *,
    answer: str | None = None,
    against: str | None = None,
    at: int | str | None = None,
    patch: str | None = None,
    smallest: bool = False,
    top: int = 10,
) -> Explained:
    """Explain the answer to a text.

    Args:
        answer, against, at: as in `question.make_question`.
        patch: a second text with as many tokens, into whose run parts of the text's are put. Its
            answer is `against` if that is None.
        smallest: also look for a set of edges that keeps the answer.
        top: how many edges are kept, and how many effects are measured at least.
    """
    question = make_question(subject, text, answer, against, at)
    patched = None
    if patch is not None:
        other = make_question(subject, patch)
        if other.ids.shape == question.ids.shape:  # else patch_texts says so
            other = make_question(subject, patch, at=question.at)
        if question.against is None and other.answer != question.answer:
            question = replace(question, against=other.answer)
        patched = patch_texts(subject, question, other, top)
    attribution, path = attribute(subject, question, top)
    found = smallest_edges(subject, question) if smallest else None
    names = [token_text(subject, token) for token in question.wanted]
    return Explained(
        subject.name, question, names[0], names[1] if len(names) > 1 else None, attribution,
        logit_lens(subject, question, path), patched, found,
    )  # fmt: skip
