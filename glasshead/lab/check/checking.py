"""Check one target: find out how it is called, compare it with the reference, name its mistake."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from glasshead.errors import InputError
from glasshead.lab.check.calling import (
    DENSE_FORMS, HEADS, KEY_FORMS, KINDS, WIDTHS,
    Answer, Caller, CallError, Encoding, Layout, frameworks, in_double,
)  # fmt: skip
from glasshead.lab.check.cases import inputs, key_mask, make_cases, pair_mask
from glasshead.lab.check.comparing import Reading, Seen, explain, find_deviation, fits
from glasshead.lab.check.mistakes import Mistake
from glasshead.lab.check.pipeline import Case, Projections
from glasshead.lab.check.projections import (
    Named, extra_names, head_counts, matrix_role, named_arrays, readings,
)  # fmt: skip
from glasshead.lab.check.roles import by_role, declared_polarity
from glasshead.lab.check.target import SIZES, Target
from glasshead.lab.check.variants import CONVENTIONS, feature_readings

__all__ = ["Examination", "examine"]

TOLERANCE = {"float64": 1e-8, "float32": 3e-5}


@dataclass(eq=False)
class Examination:
    """What was found out about a target."""

    target: Target
    caller: Caller
    reading: Reading
    seen: list[Seen] = field(default_factory=list)
    mistake: Mistake | None = None  # with an empty name: wrong, but the mistake is not known
    notes: list[str] = field(default_factory=list)
    masks: dict[str, str] = field(default_factory=dict)  # parameter -> what True means
    skipped: dict[str, str] = field(default_factory=dict)  # case -> why
    compared: bool = True  # False: there are parts that the reference does not have


def examine(target: Target, given: Mapping[str, Any], causal: bool | None) -> Examination:
    """Compare a target with the reference; raise InputError if it cannot be called.

    Args:
        given: values for parameters of the call.
        causal: whether it should hide the future; None to find out.
    """
    examiners = [_Examiner(*each, causal) for each in _callers(target, given)]
    right = [each for each in examiners if each.right]
    found: Examination | None = None
    for deep in (False, True):
        for each in (right or examiners)[: 1 if deep else 4]:
            result = each.run(deep)
            if result.mistake is None or (result.mistake.name and not right):
                return result
            if found is None or (result.mistake.name and not (found.mistake and found.mistake.name)):
                found = result
        if found is not None and found.mistake is not None and found.mistake.name:
            break
    assert found is not None
    return found


def _callers(target: Target, given: Mapping[str, Any]) -> Iterator[tuple[Caller, Case, Answer]]:
    """Yield each way to call the target that gives an answer of a plausible shape."""
    problems: list[CallError] = []
    works = 0
    roles = by_role(target.parameters)
    for caller in _possible_callers(target, given):
        one = "q" not in roles
        width = _stored_width(caller.target)
        case = inputs(caller.layout, "plain", 5, None if one else 5, width=width)
        try:
            answer = caller(case)
        except CallError as error:
            problems.append(error)
            continue
        works += 1
        yield caller, case, answer
    if not works:
        raise NotCallable(target, problems)


class NotCallable(InputError):
    """The target gave no answer to any way of calling it."""

    def __init__(self, target: Target, problems: Sequence[CallError]) -> None:
        self.problems = problems
        # A missing parameter says more than what a wrong shape led to.
        first = min(problems, key=lambda e: e.cause is not None, default=None)
        super().__init__(
            f"{target.name} cannot be called with small tensors: {first}",
            hint="give what is missing with --with name=value, or check a function around it",
        )


def _stored_width(target: Target) -> int | None:
    """Return the width that the parameters of an object have been made for."""
    if target.owner is None or target.made_with:
        return None
    for each in named_arrays(target.owner):
        if matrix_role(each.name) in ("q", "k", "v", "qkv") and each.array.ndim == 2:
            return each.array.shape[1] if each.linear else each.array.shape[0]
    return None


def _possible_callers(target: Target, given: Mapping[str, Any]) -> Iterator[Caller]:
    roles = by_role(target.parameters)
    width_form = target.owner is not None and bool(named_arrays(target.owner))
    width_form = width_form or bool({"heads", "matrix", "params"} & roles.keys()) or "x" in roles
    layouts = WIDTHS if width_form else HEADS
    if (stated := _stated_layout(target)) and stated in {layout.axes for layout in layouts}:
        layouts = [layout for layout in layouts if layout.axes == stated]
    if width_form and getattr(target.owner, "batch_first", None) is False:
        layouts = [Layout("TBC")]
    matrices = _made_matrices(target)
    masks = [each for each in target.parameters if each.role == "mask" and each.required]
    for framework in frameworks(target):
        for dtype in ("float64", "float32"):
            changed = in_double(target, dtype) if framework == "torch" else target
            for layout in layouts:
                caller = Caller(changed, framework, layout, dtype, {}, matrices, given)
                if not masks:
                    yield caller
                    continue
                yield caller  # None may do for a mask without a default
                for form in DENSE_FORMS[:3] + KEY_FORMS[:2]:
                    for kind in _kinds(declared_polarity(masks[0].name, target.text)):
                        yield caller.having(encodings={masks[0].name: Encoding(form, kind)})


_LETTERS = {
    "B": r"b|batch|batch_?size|n|bs|bsz|nb",
    "H": r"h|heads?|n_?heads?|num_?heads?|nh|hq|h_?kv",
    "T": r"t|s|l|seq|seq_?len|len|length|time|tokens?|n_?tokens|seq_?len_?[qk]|l_?[qk]|t_?[qk]|sequence|steps?|n",
    "D": r"d|d_?k|d_?v|dim|head_?dim|e|d_?head|hd|features?|dh|head_?size",
    "C": r"c|d_?model|embed_?dim|n_?embd|emb|embedding|width|hidden(_size)?|channels?",
}  # fmt: skip


def _stated_layout(target: Target) -> str:
    """Return the layout that the documentation or a comment states for the inputs, or ""."""
    for found in re.finditer(r"[(\[]((?:\s*[A-Za-z_]+\s*,){1,3}\s*[A-Za-z_]+\s*)[)\]]", _prose(target)):
        names = [name.strip().lower() for name in found[1].split(",")]
        letters = ""
        for name in names:
            fitting = [c for c, rule in _LETTERS.items() if re.fullmatch(rule, name) and c not in letters]
            letters += fitting[0] if fitting else "?"
        if letters in {"BHTD", "BTHD", "TBHD", "BTC", "TBC"}:
            return letters
        if letters in ("BTD", "TBD", "TD", "TC", "HTD"):
            return letters
    return ""


def _prose(target: Target) -> str:
    """Return the documentation, and the comments of the lines of the signature."""
    import inspect

    function = target.function if target.owner is None else type(target.owner)
    head = target.source.partition(":\n")[0]
    return f"{inspect.getdoc(function) or ''}\n{head}"


def _kinds(declared: str) -> list[str]:
    kinds = list(KINDS)
    if declared:
        kinds.sort(key=lambda kind: kind.rpartition("-")[2] != declared)
    return kinds


def _made_matrices(target: Target) -> dict[str, Any]:
    """Return matrices for a function that takes its parameters as arguments."""
    rng = np.random.default_rng(5)
    C = SIZES["width"]

    def make(name: str) -> Any:
        role = matrix_role(name)
        columns = C * max(len(role), 1) if role in ("qkv", "kv") else C
        if re.match(r"b(?![a-z]*w)|.*bias", name.lower()):
            return rng.normal(0, 0.5, columns)
        return rng.normal(0, C**-0.5, (C, columns))

    out: dict[str, Any] = {}
    for each in target.parameters:
        if each.role in ("matrix", "vector"):
            out[each.name] = make(each.name)
        elif each.role == "params":
            keys = _keys_of(target.source, each.name)
            if isinstance(keys, int):
                out[each.name] = tuple(make("qkvo"[n]) for n in range(keys))
            elif keys:
                out[each.name] = {key: make(key) for key in keys}
    return out


def _keys_of(source: str, name: str) -> list[str] | int:
    """Return the keys with which a dict is read in a source, or into how many names it is unpacked."""
    import textwrap

    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return []
    keys: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=found), slice=ast.Constant(value=str(key))) if found == name:
                keys.append(key)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id=found)) if found == name:
                return len(names)
    return list(dict.fromkeys(keys))


class _Examiner:
    """Examine one way of calling a target."""

    def __init__(self, caller: Caller, plain: Case, answer: Answer, causal: bool | None) -> None:
        self.caller, self.target, self.plain = caller, caller.target, plain
        self.first: Seen = (plain, answer)
        self.causal = causal
        self.roles = by_role(self.target.parameters)
        self.skipped: dict[str, str] = {}
        self.masks: dict[str, str] = {}
        self.notes: list[str] = []
        self.hint = causal_hint(self.target) if causal is None else causal
        self.plain_model = True
        self.ways = self._readings()
        self.right = [reading for reading in self.ways if fits(self.first, reading)]

    def run(self, deep: bool) -> Examination:
        """Find a reading that fits; else the mistake that explains all cases.

        Args:
            deep: whether to look for two mistakes at once.
        """
        self.deep, ways = deep, self.ways
        if self.right:
            return self._with_reading(self.right[0])
        seen = self._collect()
        best: Examination | None = None
        for masked in self._masked(seen, ways, None):
            found = explain(masked, ways, deep)
            if found is not None:
                return self._done(masked, found[1], found[0])
            best = best or self._done(masked, ways[0], Mistake("", {}))
        assert best is not None
        best.compared = self.plain_model
        return best

    def _with_reading(self, reading: Reading) -> Examination:
        seen = self._collect()
        wrong = find_deviation(seen, reading)
        if wrong is not None:
            found = explain(seen, [reading], self.deep)
            if found is not None:
                return self._done(seen, *reversed(found))
            return self._done(seen, reading, Mistake("", {}))
        if not reading.flag and not reading.causal and self.hint:
            return self._done(seen, replace(reading, causal=True), CAUSAL_MISSING)
        fallback: Examination | None = None
        for masked in self._masked(seen, [reading], reading):
            if find_deviation(masked, reading) is None:
                return self._done(masked, reading, None)
            found = explain(masked, [reading], self.deep)
            if found is not None:
                if fallback is None or not (fallback.mistake and fallback.mistake.name):
                    fallback = self._done(masked, *reversed(found))
                break
            fallback = fallback or self._done(masked, reading, Mistake("", {}))
        assert fallback is not None
        return fallback

    def _done(self, seen: list[Seen], reading: Reading, mistake: Mistake | None) -> Examination:
        return Examination(self.target, self.caller, reading, seen, mistake, self.notes,
                           dict(self.masks), self.skipped)  # fmt: skip

    def _readings(self) -> list[Reading]:
        """Return the ways to understand the target, the most likely first."""
        flag = "causal" in self.roles
        tolerance = TOLERANCE[self.caller.dtype]
        wants = [self.causal] if self.causal is not None else [self.hint, not self.hint]
        params = self._projections()
        out = []
        for features in feature_readings(self.target.text, self.first[0]):
            for steps in CONVENTIONS:
                for each in params:
                    for causal in [False] if flag else wants:
                        both = {**steps, **features}
                        out.append(Reading(each, both, bool(causal), flag, tolerance))
        return out

    def _projections(self) -> list[Projections]:
        heads = self.plain.q.ndim == 4
        if heads:
            return [Projections()]
        width = self.plain.q.shape[-1]
        if self.target.owner is not None:
            arrays = named_arrays(self.target.owner)
            counts = head_counts(self.target.owner, self.target.made_with)
        else:
            arrays = [Named(n, a) for n, a in _flat(self.caller.matrices)]
            counts = {}
            if "heads" in self.roles:
                counts["heads"] = SIZES["heads"]
            if not arrays:
                n = counts.get("heads", 1)
                kv = SIZES["kv_heads"] if "kv_heads" in self.roles else n
                return [Projections(n, kv)]
            counts.setdefault("heads", 1)
        self.plain_model = not extra_names(arrays)
        return readings(arrays, width, counts) or [Projections(counts.get("heads", 1))]

    def _collect(self) -> list[Seen]:
        one = "q" not in self.roles and "memory" not in self.roles
        options = [r for r in ("window", "softcap", "slopes") if r in self.roles]
        width = self.plain.q.shape[-1]
        flag = "causal" in self.roles
        seen = []
        for case in make_cases(self.caller.layout, one, flag, options, width):
            if case.name == "plain":
                case = self.plain if one else case
            try:
                seen.append((case, self.caller(case)))
            except CallError as error:
                self.skipped[case.name] = str(error)
        if "x" in self.roles and "memory" in self.roles:
            own = inputs(self.caller.layout, "self", 5, None, width=width)
            try:
                seen.append((own, self.caller(own)))
            except CallError as error:
                self.skipped["self"] = str(error)
        return seen or [self.first]

    def _masked(
        self, seen: list[Seen], ways: Sequence[Reading], right: Reading | None
    ) -> Iterator[list[Seen]]:
        """Yield what was seen together with masked cases, for each way to give the mask.

        With a right reading, a way under which the target is right comes first, unless it is
        against what the target says about its mask.
        """
        dense = [e for e in self.target.parameters if e.role == "mask" and not _of_keys(e.name)]
        keys = [e for e in self.target.parameters if e.role in ("mask", "lengths") and _of_keys(e.name)]
        if not dense and not keys:
            yield seen
            return
        if not self.plain_model and right is None:
            yield seen
            return
        jobs = [(e, DENSE_FORMS) for e in dense[:1]] + [(e, KEY_FORMS) for e in (keys or dense)[:1]]
        tried: list[list[tuple[str, Encoding, list[Seen]]]] = []
        for each, forms in jobs:
            options = list(self._encodings(each.name, forms))
            declared = declared_polarity(each.name, self.target.text)
            if declared:
                stated = [o for o in options if o[1].polarity in (declared, "add")]
                options = stated or options
            if right is not None:
                good = [o for o in options if find_deviation(o[2], right) is None]
                options = good or options
            if options:
                tried.append(options)
                self.masks[each.name] = options[0][1].polarity
            else:
                self.skipped[f"mask '{each.name}'"] = "no kind of mask was accepted"
        if not tried:
            yield seen
            return
        for n in range(max(len(options) for options in tried)):
            chosen = [options[min(n, len(options) - 1)] for options in tried]
            for name, encoding, _ in chosen:
                self.masks[name] = encoding.polarity
            self.caller = self.caller.having(encodings={c[0]: c[1] for c in chosen})
            yield seen + [one for c in chosen for one in c[2]]

    def _encodings(
        self, name: str, forms: Sequence[str]
    ) -> Iterator[tuple[str, Encoding, list[Seen]]]:
        one = "q" not in self.roles and "memory" not in self.roles
        width = self.plain.q.shape[-1]
        declared = declared_polarity(name, self.target.text)
        for form in forms:
            if form == "N" and "len" not in name:
                continue
            for kind in _kinds(declared) if form != "N" else ["keep"]:
                encoding = Encoding(form, kind)
                caller = self.caller.having(encodings={name: encoding})
                seen: list[Seen] = []
                for case in self._mask_cases(form, one, width, name):
                    try:
                        seen.append((case, caller(case)))
                    except CallError:
                        if not seen:
                            break
                if seen:
                    yield name, encoding, seen

    def _mask_cases(self, form: str, one: bool, width: int, name: str) -> Iterator[Case]:
        layout, flag = self.caller.layout, "causal" in self.roles
        for T, S in ((5, 5), (5, 7)):
            if one and T != S:
                continue
            label = f"mask {T}x{S}"
            case = inputs(layout, label, T, None if one else S, width=width, mask_of=name)
            B = case.sizes[0]
            if form in KEY_FORMS:
                case = replace(case, keys=key_mask(B if "B" in form or form == "N" else 1, S))
                if case.keys is not None and case.keys.shape[0] != B:
                    case = replace(case, keys=np.repeat(case.keys, B, axis=0))
            else:
                allowed = pair_mask(B if "B" in form else 1, T, S)
                case = replace(case, allowed=np.broadcast_to(allowed, (B, T, S)))
            yield case
            if flag and "causal" not in self.skipped:
                yield replace(case, name=label + " causal", causal=True)


CAUSAL_MISSING = Mistake("causal-missing", {}, "causal")


def _of_keys(name: str) -> bool:
    return bool(re.search(r"pad|key|valid|len|src|memory|is_?real|context", name.lower()))


def _flat(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _flat(value, key)
    elif isinstance(tree, tuple):
        for n, value in enumerate(tree):
            yield from _flat(value, "qkvo"[n])
    else:
        yield name, tree


def causal_hint(target: Target) -> bool:
    """Say whether the target itself says that it hides the future, with or without doing it."""
    for name in ("causal", "is_causal", "masked"):
        if getattr(target.owner, name, None) is False:
            return False
    if re.search(r"causal", target.name, re.I):
        return True
    first = _prose(target).strip().partition("\n")[0]
    if re.search(r"causal|autoregressive|future", first, re.I):
        return True
    return _always_calls(target.source, ("tril", "triu"))


def _always_calls(source: str, names: Sequence[str]) -> bool:
    """Say whether a source calls one of the functions outside of any condition."""
    import textwrap

    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return False

    def visit(node: ast.AST) -> bool:
        if isinstance(node, (ast.If, ast.IfExp)):
            return False
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in names:
                return True
        return any(visit(child) for child in ast.iter_child_nodes(node))

    return visit(tree)
