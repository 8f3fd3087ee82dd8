"""Name what every head of a model does: measured, compared with controls, and proved.

found = name_heads(subject, texts)
found.heads("induction")          [(3, 1), ...], the strongest first
found.proofs["induction"]         what the model loses without them, and without others
found.of((3, 1))                  all roles of one head
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glasshead.errors import ConfigError, did_you_mean
from glasshead.observe.trace import Trace
from glasshead.roles.catalogue import ROLES
from glasshead.roles.measure import Measured, measure, record_probe
from glasshead.roles.probes import Probe, ProbeSizes, make_probes
from glasshead.roles.proof import Head, Proof, Prover, Scope
from glasshead.roles.subject import Subject

__all__ = ["HeadRole", "HeadRoles", "Progress", "name_heads"]

Progress = Callable[[float, str], object]  # part done, and the role that is being proved


@dataclass(frozen=True)
class HeadRole:
    """A role of one head."""

    role: str
    score: float
    low: float  # ends of its 95 % interval over sequences
    high: float
    controls: dict[str, float]  # what heads without the role get: uniform, place, shuffled
    needed: bool | None  # whether the proof holds; None if there was none
    lag: int | None = None  # of role "lag": the distance


class HeadRoles:
    """What `name_heads` found."""

    def __init__(
        self,
        subject: Subject,
        measured: Measured,
        proofs: dict[str, Proof],
        probes: dict[str, Probe],
    ) -> None:
        self.name, self._subject = subject.name, subject
        self.measured, self.proofs, self.probes = measured, proofs, probes
        self.shape: tuple[int, int] = tuple(measured.lags.shape)  # type: ignore[assignment]

    def __repr__(self) -> str:
        named = {role: len(self.heads(role)) for role in self.measured.roles}
        shown = ", ".join(f"{role} {n}" for role, n in named.items() if n)
        return f"Heads of {self.name}: {shown or 'none stands out'}"

    def heads(self, role: str, needed: bool | None = None) -> list[Head]:
        """Return the heads that are named for a role, strongest first.

        With `needed`, only if the role's proof holds, or only if it fails.
        """
        if role not in self.measured.roles:
            raise ConfigError(
                f"'{role}' was not measured", hint=did_you_mean(role, self.measured.roles)
            )
        proof = self.proofs.get(role)
        if needed is not None and (proof is None or proof.needed is not needed):
            return []
        if ROLES[role].common and (proof is None or not proof.needed):
            return []
        return _ranked(self.measured, role)

    def of(self, head: Head) -> list[HeadRole]:
        """Return the roles of a head, the best proved and strongest first."""
        found = [self.role(role, head) for role in self.measured.roles if head in self.heads(role)]
        return sorted(found, key=lambda one: (not one.needed, -one.score))

    def role(self, role: str, head: Head) -> HeadRole:
        """Return a head's figures in a role, whether it is named for it or not."""
        if role not in self.measured.roles:
            raise ConfigError(
                f"'{role}' was not measured", hint=did_you_mean(role, self.measured.roles)
            )
        one, proof = self.measured.roles[role], self.proofs.get(role)
        at = self.measured.layers.index(head[0]), head[1]
        return HeadRole(
            role, one.score[at].item(), one.low[at].item(), one.high[at].item(),
            {name: control[at].item() for name, control in one.controls.items()},
            None if proof is None else proof.needed,
            int(self.measured.lags[at]) if role == "lag" else None,
        )  # fmt: skip

    @torch.no_grad()
    def trace(self, probe: str) -> Trace:
        """Record the attention on a probe again, for pictures and further questions."""
        return record_probe(self._subject, self.probes[probe])

    def table(self, role: str) -> Tensor:
        """Return the scores of all heads in a role, (L, H)."""
        return self.measured.roles[role].score


def name_heads(
    subject: Subject,
    texts: Sequence[str] = (),
    *,
    roles: Sequence[str] | None = None,
    probes: ProbeSizes | None = None,
    scope: Scope | None = None,
    progress: Progress | None = None,
) -> HeadRoles:
    """Name the heads of a model, and prove each name.

    Args:
        subject: a model and its tokenizer.
        texts: what sinks, neighbours and separators are measured on; stories when empty.
        roles: the roles to prove; all when None.
        probes: how much is read.
        scope: how thoroughly names are proved; `draws=0` proves nothing.
        progress: called with the part done and a role.
    """
    for role in roles or ():
        if role not in ROLES:
            raise ConfigError(f"unknown role '{role}'", hint=did_you_mean(role, ROLES))
    scope = scope or Scope()
    report = progress or (lambda done, what: None)
    report(0.0, "probes")
    made = make_probes(subject, texts, probes or ProbeSizes())
    measured = measure(subject, made)
    wanted = [r for r in measured.roles if roles is None or r in roles]
    proofs: dict[str, Proof] = {}
    if scope.draws:
        with torch.no_grad():
            prover = Prover(subject, made, scope)
        for n, role in enumerate(wanted):
            report(0.2 + 0.8 * n / len(wanted), role)
            heads = _ranked(measured, role)
            if heads:
                on = [probe for probe in ROLES[role].proved_on if probe in made] or ["story"]
                tried = (prover.prove(probe, heads) for probe in on)
                first = next(tried)
                proofs[role] = next((p for p in (first, *tried) if p.needed), first)
    report(1.0, "")
    return HeadRoles(subject, measured, proofs, made)


def _ranked(measured: Measured, role: str) -> list[Head]:
    one = measured.roles[role]
    order = one.score.flatten().argsort(descending=True).tolist()
    H = one.score.shape[1]
    return [(measured.layers[i // H], i % H) for i in order if one.named.flatten()[i]]
