"""Does the model need the heads that were named? Mean ablation tests it.

Where a head looks does not show that anything depends on it. So the heads of a role are replaced by
their mean output over a reference text, all at once, and the loss on the role's probe is compared
with the loss without as many other heads of the same layers, drawn several times.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from glasshead.observe.ablation import ablating, head_means
from glasshead.roles.measure import interval
from glasshead.roles.probes import Probe
from glasshead.roles.subject import Subject

__all__ = ["Head", "Proof", "Prover", "Scope"]

Head = tuple[int, int]  # layer and head
MOST = 0.125  # share of all heads that are removed at a time: the strongest of a role
FEW = 4  # heads that may be removed of any model
LEAST_RISE = 0.01  # of the loss, as a share of it: a smaller one does not count as needed


@dataclass(frozen=True)
class Proof:
    """What removing the heads of a role does, and what removing others does."""

    heads: tuple[Head, ...]  # those that were removed: the strongest of the role
    probe: str
    measure: str  # "loss" in nats for each token, or "drift" of the features (1 - cosine)
    before: float
    rise: float  # of the loss without the heads
    low: float  # ends of the 95 % interval of the rise beyond that of the others, over sequences
    high: float
    others: tuple[float, ...]  # rises without as many other heads
    drawn: tuple[tuple[Head, ...], ...]  # the other heads of each draw

    @property
    def needed(self) -> bool:
        """Whether the rise exceeds that of each draw, beyond the chance of these sequences."""
        enough = max(LEAST_RISE * self.before, 1e-3)
        return bool(self.others) and self.rise > max(enough, *self.others) and self.low > 0


@dataclass(frozen=True)
class Scope:
    """How thoroughly names are proved."""

    draws: int = 5  # of other heads
    seed: int = 0


class Prover:
    """Removes heads of one model and measures what it loses on each probe."""

    def __init__(self, subject: Subject, probes: Mapping[str, Probe], scope: Scope) -> None:
        self.subject, self.probes, self.scope = subject, probes, scope
        self.means = head_means(subject.model, lambda: subject.output(probes["text"].ids))
        self.sizes = {layer: len(mean) for layer, mean in self.means.items()}
        self._intact: dict[str, Tensor] = {}

    @property
    def count(self) -> int:
        return sum(self.sizes.values())

    def prove(self, probe: str, heads: Sequence[Head]) -> Proof:
        """Remove the heads of a role, the strongest given first, and as many others."""
        pool = {(layer, h) for layer, n in self.sizes.items() for h in range(n)} - set(heads)
        most = min(max(FEW, int(MOST * self.count)), len(pool) or len(heads))
        removed = tuple(heads[:most])
        random = Random(f"{self.scope.seed} {probe} {removed}")
        draws = [_matched(removed, pool, random) for _ in range(self.scope.draws)]
        before = self.losses(probe)
        rise = self.losses(probe, removed) - before
        rises = [self.losses(probe, drawn) - before for drawn in draws if drawn]
        beyond = rise - torch.stack(rises).mean(0) if rises else rise
        low, high = interval(beyond)
        return Proof(
            removed, probe, self.measure_of(probe), before.mean().item(), rise.mean().item(),
            low.item(), high.item(), tuple(one.mean().item() for one in rises),
            tuple(drawn for drawn in draws if drawn),
        )  # fmt: skip

    def measure_of(self, probe: str) -> str:
        told = self.probes[probe].name == "story"
        return "loss" if self.subject.predicts or told else "drift"

    @torch.no_grad()
    def losses(self, name: str, without: Sequence[Head] = ()) -> Tensor:
        """Return the loss of each sequence of a probe without some heads, (B,)."""
        if not without and name in self._intact:
            return self._intact[name]
        probe, model = self.probes[name], self.subject.model
        removed = ablating(model, heads=without, mode="mean", means=self.means)
        with removed if without else nullcontext():
            found = self._losses(probe)
        if not without:
            self._intact[name] = found
        return found

    def _losses(self, probe: Probe) -> Tensor:
        rows = probe.rows
        if self.subject.predicts or probe.name == "story":
            each = torch.zeros(rows.shape, dtype=torch.double, device=rows.device)
            each[rows] = self._token_losses(probe)
        else:
            features = F.normalize(self.subject.output(probe.ids).double(), dim=-1)
            key = f"{probe.name} features"
            intact = self._intact.setdefault(key, features)
            each = (1 - (features * intact).sum(-1)) * rows
        return (each.sum(-1) / rows.sum(-1).clamp(min=1)).cpu()

    def _token_losses(self, probe: Probe) -> Tensor:
        logits = self.subject.logits(probe.ids, probe.rows)
        return F.cross_entropy(logits.float(), probe.answers[probe.rows], reduction="none").double()


def _matched(heads: Sequence[Head], pool: set[Head], random: Random) -> tuple[Head, ...]:
    """Draw as many heads of the same layers; of the nearest layers where these have too few."""
    left, drawn = sorted(pool), list[Head]()
    for layer, _ in heads:
        if not left:
            break
        near = min(abs(one[0] - layer) for one in left)
        pick = random.choice([one for one in left if abs(one[0] - layer) == near])
        left.remove(pick)
        drawn.append(pick)
    return tuple(drawn)
