"""The tables that `glasshead heads` prints: roles, controls and proofs."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from glasshead.observe.wording import Language
from glasshead.roles.naming import HeadRole, HeadRoles
from glasshead.roles.proof import Head, Proof
from glasshead.roles.wording import ABOUT, NAMES, SENTENCES, TEXTS, describe_lag

__all__ = [
    "borderless", "head_lines", "name_of", "proof_sentence", "range_of", "role_lines", "role_title",
    "sentence", "verdict_of",
]  # fmt: skip

SHOWN = 5  # heads of a role
ORDER = ("uniform", "place", "shuffled")


def role_lines(found: HeadRoles, lang: Language) -> Iterator[RenderableType]:
    """Two tables: which heads have which role, and what the model loses without them."""
    words = TEXTS[lang]
    L, H = found.shape
    yield Text(f"{found.name}: {words['size'].format(layers=L, heads=H)}")
    yield ""
    yield Text(words["roles"], style="bold")
    named = [role for role in found.measured.roles if found.heads(role)]
    looks = [role for role in named if verdict_of(found, role) == "looks"]
    if not named:
        yield Text(words["none"])
    else:
        roles = [r for r in named if r not in looks] + looks
        yield _roles(found, roles, lang)
        yield ""
        for role in roles:
            yield Text(f"  {NAMES[lang][role]}: {ABOUT[lang][role]}", style="dim")
    proved = [role for role in named if role in found.proofs]
    if proved:
        yield ""
        yield Text(words["proofs"], style="bold")
        yield Text(words[found.proofs[proved[0]].measure], style="dim")
        yield _proofs(found, proved, lang)


def head_lines(found: HeadRoles, head: Head, lang: Language) -> Iterator[RenderableType]:
    """All roles of one head, a sentence and a proof each."""
    words = TEXTS[lang]
    title = words["card"].format(layer=head[0], head=head[1])
    yield Text(f"{found.name} · {title}", style="bold")
    roles = found.of(head)
    if not roles:
        yield Text(words["no role"])
    for one in roles:
        yield ""
        yield Text(f"{role_title(one, lang)}: {sentence(one, lang)}")
        controls = [f"{words[n]} {one.controls[n]:.2f}" for n in ORDER if n in one.controls]
        yield Text(f"  [{one.low:.2f}, {one.high:.2f}]  {words['controls']}: {', '.join(controls)}",
                   style="dim")  # fmt: skip
        yield Text(f"  {proof_sentence(found, one.role, lang)}")


def _roles(found: HeadRoles, roles: Sequence[str], lang: Language) -> Table:
    words = TEXTS[lang]
    table = borderless(
        words["role"], words["heads"], words["strongest"], words["score"], words["controls"],
        right=(1,),
    )  # fmt: skip
    for role in roles:
        heads = found.heads(role)
        best = found.role(role, heads[0])
        pale = "" if verdict_of(found, role) != "looks" else "dim"
        table.add_row(
            Text(role_title(best, lang), pale), str(len(heads)), _names(heads),
            f"{best.score:.2f} [{best.low:.2f}, {best.high:.2f}]", _highest(best, lang),
        )  # fmt: skip
    return table


def _highest(one: HeadRole, lang: Language) -> str:
    """The control that scores highest."""
    name = max(one.controls, key=lambda n: one.controls[n], default=None)
    return "–" if name is None else f"{one.controls[name]:.2f} {TEXTS[lang][name]}"


def _proofs(found: HeadRoles, roles: Sequence[str], lang: Language) -> Table:
    words = TEXTS[lang]
    table = borderless(
        words["role"], words["removed"], words["probe"], words["before"], words["rise"],
        words["others"], "", right=(1, 3, 4),
    )  # fmt: skip
    for role in roles:
        proof = found.proofs[role]
        verdict = verdict_of(found, role)
        table.add_row(
            NAMES[lang][role], str(len(proof.heads)),
            words[proof.probe], "–" if proof.measure == "drift" else f"{proof.before:.3f}",
            f"{proof.rise:+.3f}", range_of(proof),
            Text(words[verdict], "bold green" if verdict == "needed" else "dim"),
        )  # fmt: skip
    return table


def borderless(*names: str, right: Sequence[int] = ()) -> Table:
    """Make a table without lines; columns of numbers are aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for n, name in enumerate(names):
        table.add_column(name, justify="right" if n in right else "left")
    return table


def range_of(proof: Proof) -> str:
    """Return what removing others cost, from the least to the most of the draws."""
    if not proof.others:
        return "–"
    low, high = min(proof.others), max(proof.others)
    return f"{low:+.3f} … {high:+.3f}"


def role_title(one: HeadRole, lang: Language) -> str:
    """Return the name of a role, with the distance if it has one."""
    name = NAMES[lang][one.role]
    return name if one.lag is None else f"{name} ({describe_lag(one.lag, lang)})"


def _names(heads: Sequence[Head]) -> str:
    shown = "  ".join(name_of(head) for head in heads[:SHOWN])
    return shown + (f"  +{len(heads) - SHOWN}" if len(heads) > SHOWN else "")


def name_of(head: Head) -> str:
    return f"{head[0]}:{head[1]}"


def verdict_of(found: HeadRoles, role: str) -> str:
    """Return "needed", "looks" or "not proved"."""
    proof = found.proofs.get(role)
    return "not proved" if proof is None else "needed" if proof.needed else "looks"


def sentence(one: HeadRole, lang: Language) -> str:
    """Say what a head does, with its figure."""
    lag = describe_lag(one.lag, lang) if one.lag is not None else ""
    return SENTENCES[lang][one.role].format(x=f"{one.score:.0%}", lag=lag)


def proof_sentence(found: HeadRoles, role: str, lang: Language) -> str:
    """Say what removing the heads of a role does."""
    words, proof = TEXTS[lang], found.proofs.get(role)
    if proof is None:
        return words["unproved"]
    names = [name_of(head) for head in proof.heads[:SHOWN]]
    if len(proof.heads) > SHOWN:
        names.append(f"+{len(proof.heads) - SHOWN}")
    verdict = words["needed" if proof.needed else "looks"]
    return words["proof"].format(
        heads=" ".join(names), measure=words[proof.measure], probe=words[proof.probe],
        rise=f"{proof.rise:.3f}", others=range_of(proof), verdict=verdict,
    )  # fmt: skip
