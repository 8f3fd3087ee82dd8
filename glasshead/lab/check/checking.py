"""Check one target: find out how it is called, compare it with the reference, name its mistake."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from glasshead.lab.check.calling import CallAnswer, Caller, CallError, NotCallable
from glasshead.lab.check.cases import inputs, key_mask, make_cases, pair_mask
from glasshead.lab.check.comparing import Seen, TargetReading, explain, find_deviation, fits
from glasshead.lab.check.conventions import (
    causal_hint,
    flatten_matrices,
    mask_kinds,
    possible_callers,
    stated_mask,
    stored_width,
)  # fmt: skip
from glasshead.lab.check.layouts import DENSE_FORMS, KEY_FORMS, Encoding
from glasshead.lab.check.memory import can_reset, reads_by_token
from glasshead.lab.check.mistakes import Mistake
from glasshead.lab.check.pipeline import Case, Projections
from glasshead.lab.check.projections import (
    Named,
    extra_names,
    head_counts,
    named_arrays,
    readings,
)  # fmt: skip
from glasshead.lab.check.roles import by_role, declared_polarity, stated_polarity
from glasshead.lab.check.target import SIZES, CheckTarget
from glasshead.lab.check.variants import CONVENTIONS, defaults_of, feature_readings

__all__ = ["Examination", "examine"]

# Some compute softmax in float32 whatever they are given.
LEARNED = ("sinks", "relative")
TOLERANCE = {"float64": 3e-6, "float32": 3e-5}
NEAR = 0.005  # weights or scores in bfloat16, which keeps three digits


@dataclass(eq=False)
class Examination:
    """What was found out about a target."""

    target: CheckTarget
    caller: Caller
    reading: TargetReading
    seen: list[Seen] = field(default_factory=list)
    mistake: Mistake | None = None  # with an empty name: wrong, but the mistake is not known
    notes: list[str] = field(default_factory=list)
    masks: dict[str, str] = field(default_factory=dict)  # parameter -> what True means
    skipped: dict[str, str] = field(default_factory=dict)  # case -> why
    compared: bool = True  # False: there are parts that the reference does not have


def examine(target: CheckTarget, given: Mapping[str, Any], causal: bool | None) -> Examination:
    """Compare a target with the reference; raise InputError if it cannot be called.

    Args:
        given: values for parameters of the call.
        causal: whether it should hide the future; None to find out.
    """
    examiners = [_Examiner(*each, causal) for each in _callers(target, given)]
    if not examiners[0].repeats():  # no comparison means anything
        return examiners[0].unexamined()
    right = [each for each in examiners if each.right]
    found: Examination | None = None
    for deep in (False, True):
        for each in (right or examiners)[: 1 if deep else 4]:
            result = each.run(deep)
            whole = not any(name.startswith("mask '") for name in result.skipped)
            if result.mistake is None and whole:
                return result
            if result.mistake is not None and result.mistake.name and not right:
                return result
            if found is None or _says_more(result, found):
                found = result
        if found is not None and (found.mistake is None or found.mistake.name):
            break
    assert found is not None
    if found.mistake is not None and not found.mistake.name and found.compared:
        near = replace(found.reading, tolerance=NEAR)
        if find_deviation(found.seen, near) is None:  # right, but for its rounding
            return replace(found, mistake=None, notes=["low-precision"])
    return found


def _says_more(result: Examination, found: Examination) -> bool:
    """Say whether a result is named, and the other one is not, or saw no mask."""
    if result.mistake is None or not result.mistake.name:
        return result.mistake is None and found.mistake is not None and not found.mistake.name
    if found.mistake is not None:
        return not found.mistake.name
    return bool(result.masks)


def _callers(
    target: CheckTarget, given: Mapping[str, Any]
) -> Iterator[tuple[Caller, Case, CallAnswer]]:
    """Yield each way to call the target that gives an answer of a plausible shape."""
    problems: list[CallError] = []
    works = 0
    roles = by_role(target.parameters)
    one = "q" not in roles
    ways = list(possible_callers(target, given))
    steps = [c.having(stepwise=True) for c in ways] if one and reads_by_token(target) else []
    # What can be reset is read token by token first; what takes no more than one token, last.
    for caller in [*steps, *ways] if can_reset(target) else [*ways, *steps]:
        if works and caller.stepwise:
            continue
        width = stored_width(caller.target)
        case = inputs(caller.layout, "plain", 5, None if one else 5, width=width)
        try:
            answer = caller(case)
        except CallError as error:
            problems.append(error)
            continue
        works += 1
        yield caller, case, answer
        if caller.stepwise:
            return
    if not works:
        raise NotCallable(target, problems)


class _Examiner:
    """Examine one way of calling a target."""

    def __init__(
        self, caller: Caller, plain: Case, answer: CallAnswer, causal: bool | None
    ) -> None:
        self.caller, self.target, self.plain = caller, caller.target, plain
        self.first: Seen = (plain, answer)
        self.causal = causal
        self.roles = by_role(self.target.parameters)
        self.skipped: dict[str, str] = {}
        self.masks: dict[str, str] = {}
        self.notes: list[str] = []
        self.hint = causal_hint(self.target) if causal is None else causal
        self.hint = self.hint or caller.stepwise
        self.plain_model = True
        self.ways = self._readings()
        self.right = [reading for reading in self.ways if fits(self.first, reading)]

    def repeats(self) -> bool:
        """Say whether a second call gives the same result."""
        try:
            again = self.caller(self.plain).out
        except CallError:
            return True
        return np.array_equal(again, self.first[1].out, equal_nan=True)

    def unexamined(self) -> Examination:
        return self._done([self.first], self.ways[0], None)

    def run(self, deep: bool) -> Examination:
        """Find a reading that fits; else the mistake that explains all cases.

        Args:
            deep: whether to look for two mistakes at once.
        """
        self.deep, ways = deep, self.ways
        if self.right:
            seen = self._collect()
            whole = (each for each in self.right if find_deviation(seen, each) is None)
            return self._with_reading(next(whole, self.right[0]))
        seen = self._collect()
        best: Examination | None = None
        for masked in self._masked(seen, ways, None):
            if not self.plain_model:  # no list of steps can be this one
                best = self._done(masked, ways[0], Mistake("", {}))
                break
            found = explain(masked, ways, deep)
            if found is not None:
                return self._done(masked, found[1], found[0])
            best = best or self._done(masked, ways[0], Mistake("", {}))
        assert best is not None
        best.compared = self.plain_model
        return best

    def _with_reading(self, reading: TargetReading) -> Examination:
        seen = self._collect()
        wrong = find_deviation(seen, reading)
        if wrong is not None:
            found = explain(seen, [reading], self.deep)
            if found is not None:
                return self._done(seen, found[1], found[0])
            return self._done(seen, reading, Mistake("", {}))
        if not reading.flag and not reading.causal and self.hint:
            return self._done(seen, replace(reading, causal=True), CAUSAL_MISSING)
        fallback: Examination | None = None
        for masked in self._masked(seen, [reading], reading):
            if _is_right(masked, reading):
                return self._done(masked, reading.padded_queries_free(), None)
            found = explain(masked, [reading], self.deep)
            if found is not None:
                if fallback is None or not (fallback.mistake and fallback.mistake.name):
                    fallback = self._done(masked, found[1], found[0])
                break
            fallback = fallback or self._done(masked, reading, Mistake("", {}))
        assert fallback is not None
        return fallback

    def _done(
        self, seen: list[Seen], reading: TargetReading, mistake: Mistake | None
    ) -> Examination:
        return Examination(self.target, self.caller, reading, seen, mistake, self.notes,
                           dict(self.masks), self.skipped)  # fmt: skip

    def _readings(self) -> list[TargetReading]:
        """Return the ways to understand the target, the most likely first."""
        flag = "causal" in self.roles
        tolerance = TOLERANCE[self.caller.dtype]
        wants = [self.causal] if self.causal is not None else [self.hint, not self.hint]
        params = self._projections()
        out = []
        one_memory = "memory" in self.roles and not {"k", "v"} & self.roles.keys()
        target = self.target
        learned = tuple(r for r in LEARNED if r in self.roles and self.roles[r].required)
        made_with = {**target.built_with, **defaults_of(target.parameters)}
        for features, options in feature_readings(target.whole_text, self.first[0], made_with):
            for steps in CONVENTIONS:
                for each in params:
                    for causal in [False] if flag else wants:
                        both = {**steps, **features}
                        rest = (bool(causal), flag, tolerance, options, one_memory, learned)
                        out.append(TargetReading(each, both, *rest))
        return out

    def _projections(self) -> list[Projections]:
        heads = self.plain.q.ndim == 4
        if heads:
            return [Projections()]
        width = self.plain.q.shape[-1]
        if self.target.owner is not None:
            arrays = named_arrays(self.target.owner)
            counts = head_counts(self.target.owner, self.target.made_with)
            if not counts and not re.search(r"head", self.target.whole_text, re.I):
                counts = {"heads": 1}
        else:
            arrays = [Named(n, a) for n, a in flatten_matrices(self.caller.matrices)]
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
        if "longer" in self.skipped:
            # One query is then accepted only because a size of 1 fits to any other.
            seen = [each for each in seen if each[0].name != "one query"]
        if "x" in self.roles and "memory" in self.roles:
            own = inputs(self.caller.layout, "self", 5, None, width=width)
            try:
                seen.append((own, self.caller(own)))
            except CallError as error:
                self.skipped["self"] = str(error)
        return seen or [self.first]

    def _masked(
        self, seen: list[Seen], ways: Sequence[TargetReading], right: TargetReading | None
    ) -> Iterator[list[Seen]]:
        """Yield what was seen together with masked cases, for each way to give the mask.

        With a right reading, a way under which the target is right comes first, unless it is
        against what the target says about its mask.
        """
        dense = [e for e in self.target.parameters if e.role == "mask" and not _of_keys(e.name)]
        keys = [
            e for e in self.target.parameters if e.role in ("mask", "lengths") and _of_keys(e.name)
        ]
        named = stated_mask(dense[0].name, self.target.documentation) if dense else ""
        if dense and not keys and named in KEY_FORMS:
            dense, keys = [], dense
        if not dense and not keys:
            yield seen
            return
        if not self.plain_model and right is None:
            yield seen
            return
        of_keys = keys or (dense if named not in DENSE_FORMS else [])
        jobs = [(e, DENSE_FORMS) for e in dense[:1]] + [(e, KEY_FORMS) for e in of_keys[:1]]
        tried: list[list[tuple[str, Encoding, list[Seen]]]] = []
        for each, forms in jobs:
            stated = stated_mask(each.name, self.target.documentation)
            options = list(self._encodings(each.name, [stated] if stated in forms else []))
            options = options or list(self._encodings(each.name, forms))
            declared = declared_polarity(each.name, self.target.documentation)
            if declared:
                agreeing = [o for o in options if o[1].polarity == declared]
                added = [o for o in options if o[1].polarity == "add"]
                # What only a name suggests is not held against a mask that is rightly added:
                # one that would also be right if True meant hidden is not added.
                guessed = not stated_polarity(each.name, self.target.documentation)
                if guessed and right is not None:
                    fits = [o for o in options if _is_right(o[2], right)]
                    if all(o[1].polarity in (declared, "add") for o in fits):
                        agreeing += [o for o in fits if o in added]
                options = agreeing or added or options
            if right is not None:
                good = [o for o in options if _is_right(o[2], right)]
                options = good or options
            if options:
                tried.append(options)
                self.masks[each.name] = options[0][1].polarity
            else:
                self.skipped[f"mask '{each.name}'"] = "no kind of mask was accepted"
        if not tried:
            yield seen
            return
        ways_to_give = max(len(options) for options in tried)
        for n in range(min(ways_to_give, 1) if self.deep else ways_to_give):
            chosen = [options[min(n, len(options) - 1)] for options in tried]
            for name, encoding, _ in chosen:
                self.masks[name] = encoding.polarity
            self.caller = self.caller.having(encodings=tuple(c[:2] for c in chosen))
            yield seen + [one for c in chosen for one in c[2]]

    def _encodings(
        self, name: str, forms: Sequence[str]
    ) -> Iterator[tuple[str, Encoding, list[Seen]]]:
        one = "q" not in self.roles and "memory" not in self.roles
        width = self.plain.q.shape[-1]
        declared = declared_polarity(name, self.target.documentation)
        for form in forms:
            if form == "N" and "len" not in name:
                continue
            for kind in mask_kinds(declared) if form != "N" else ["keep"]:
                encoding = Encoding(form, kind)
                caller = self.caller.having(encodings=((name, encoding),))
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


def _is_right(seen: Sequence[Seen], reading: TargetReading) -> bool:
    own = all(case.k is case.q for case, _ in seen if case.keys is not None)
    free = reading.padded_queries_free() if own else reading
    return find_deviation(seen, free) is None


CAUSAL_MISSING = Mistake("causal-missing", {}, "causal")


def _of_keys(name: str) -> bool:
    return bool(re.search(r"pad|key|valid|len|src|memory|is_?real|is_?token|context", name.lower()))
