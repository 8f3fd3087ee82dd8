"""What no comparison of numbers shows: dropout, gradients, empty rows, overflow, half precision."""

import copy
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from glasshead.lab.check.calling import Caller, CallError, in_double
from glasshead.lab.check.cases import inputs
from glasshead.lab.check.checking import Examination
from glasshead.lab.check.comparing import reference
from glasshead.lab.check.layouts import TensorLayout
from glasshead.lab.check.pipeline import Case
from glasshead.lab.check.roles import role_of
from glasshead.lab.check.states import (
    Remark,
    equal_bits,
    plain_case,
    rotation_remarks,
    state_remarks,
)  # fmt: skip
from glasshead.lab.check.target import CheckTarget, make_target

__all__ = ["remarks"]


def remarks(found: Examination) -> Iterator[Remark]:
    """Yield what is wrong or unstable beside the numbers."""
    case = plain_case(found)
    for test in (
        _inputs,
        state_remarks,
        rotation_remarks,
        _batch,
        _dropout,
        _gradient,
        _overflow,
        _empty_row,
        _half,
        _loops,
        _weights,
    ):
        try:
            yield from test(found, case)
        except CallError:
            continue


# Inputs


def _inputs(found: Examination, case: Case) -> Iterator[Remark]:
    """Find out whether a call changes the tensors that it is given."""
    if found.caller.stepwise:
        return
    masked = next((each for each, _ in found.seen if each.name.startswith("mask")), case)
    arguments = found.caller.arguments(masked)
    before = copy.deepcopy(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _call(found.caller, arguments)
    changed = [
        name
        for name, value in arguments.items()
        if hasattr(value, "shape") and not equal_bits(np.asarray(value), np.asarray(before[name]))
    ]
    if changed:
        yield Remark("input-changed", True, {"of": ", ".join(changed)})


# Dropout

P = 0.5
RUNS = 300


def _dropout(found: Examination, case: Case) -> Iterator[Remark]:
    caller = found.caller
    call = [each for each in found.target.parameters if each.role == "dropout"]
    if found.target.owner is None:
        for each in call:
            if isinstance(each.default, float) and each.default > 0:
                extra = {each.name: each.default}
                if not equal_bits(caller(case, **extra).out, caller(case, **extra).out):
                    yield Remark("dropout-at-inference", True, {"p": each.default})
        return
    dropping = _with_dropout(found.target)
    if dropping is None or caller.framework != "torch":
        return
    quiet = caller.having(target=in_double(dropping, caller.dtype))
    modes = {e.name: e for e in found.target.parameters if e.role in ("training", "deterministic")}
    usual = {name: each.default for name, each in modes.items() if not each.required}
    training = {name: each.role == "training" for name, each in modes.items()}
    if not equal_bits(quiet(case, **usual).out, quiet(case, **usual).out):
        yield Remark("dropout-at-inference", True, {"p": P})
        return
    loud = in_double(dropping, caller.dtype)
    loud.owner.train()
    random = quiet.having(target=loud)
    if equal_bits(random(case, **training).out, random(case, **training).out):
        if found.target.remake is not None:  # else its layer may have another use
            yield Remark("dropout-missing", True, {"p": P})
        return
    if not found.compared:  # other layers may drop as well
        return
    still = quiet(case).out
    if not np.isfinite(random(case, **training).out).all():  # 0 * -inf
        yield Remark("dropout-on-scores", True, {"p": P})
        return
    drawn = np.stack([random(case, **training).out for _ in range(RUNS)])
    spread = drawn.std(0) / RUNS**0.5 + 1e-9
    # Dropped weights are made up for by 1 / (1 - p): on average nothing changes.
    off = np.abs(drawn.mean(0) - still) / spread
    if np.median(off) > 3.0:
        yield Remark("dropout-on-scores", True, {"p": P})


def _with_dropout(target: CheckTarget) -> CheckTarget | None:
    """Return the target constructed with dropout, or with its layers of dropout turned up."""
    if target.remake is not None:
        changes = {n: P for n in _constructor_names(target) if role_of(n, False) == "dropout"}
        if changes:
            try:
                made = target.remake({**target.made_with, **changes})
                return replace(make_target(made, {}, target.name), made_with=target.made_with)
            except Exception:  # the constructor takes no such value
                return None
        return None
    if not hasattr(target.owner, "modules"):
        return None
    owner, any_layer = copy.deepcopy(target.owner), False
    for module in owner.modules():
        if type(module).__name__.startswith("Dropout"):
            module.p, any_layer = P, True
    return replace(target, owner=owner, function=owner) if any_layer else None


def _constructor_names(target: CheckTarget) -> list[str]:
    import inspect

    config = target.made_with.get("config") or target.made_with.get("cfg")
    if config is not None:
        return []
    return list(inspect.signature(type(target.owner)).parameters)


# Batches


def _batch(found: Examination, case: Case) -> Iterator[Remark]:
    """Give a target that was called with one sequence a batch whose sizes are all equal."""
    if found.mistake is not None or found.caller.layout.axes not in ("TD", "TC"):
        return
    layout = TensorLayout("B" + found.caller.layout.axes)
    n = case.q.shape[-1] if found.caller.layout.axes == "TC" else 4
    one = case.k is case.q
    cube = inputs(layout, "cube", n, None if one else n, batch=n, width=n)
    caller = found.caller.having(layout=layout)
    answer = caller(cube)  # an error says enough
    work = reference(cube, found.reading)
    if answer.out.shape == work.context.shape and not np.allclose(answer.out, work.context):
        yield Remark("keys-reversed", False, {})


# Gradients


def _gradient(found: Examination, case: Case) -> Iterator[Remark]:
    """Compare the gradient with how the result really changes."""
    caller = found.caller
    if caller.framework != "torch" or caller.dtype != "float64" or caller.stepwise:
        return
    import torch

    arguments = caller.arguments(case)
    tensors = {
        name: value.requires_grad_()
        for name, value in arguments.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        and role_of(name, True) != "mask"
    }  # fmt: skip
    names = [name for name in tensors if name not in caller.matrices]
    if not names:
        return
    # What is made for generating needs no gradient.
    inference = bool(re.search(r"@torch\.(no_grad|inference_mode)|cache", found.target.source))
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = _first_tensor(_call(caller, arguments))
        if out is None or not torch.isfinite(out).all():
            return
        pull = torch.randn_like(out)
        if not out.requires_grad:
            yield Remark("gradient-detached", not inference, {"of": ", ".join(names)})
            return
        grads = torch.autograd.grad((out * pull).sum(), list(tensors.values()), allow_unused=True)
    wrong = []
    for (name, value), grad in zip(tensors.items(), grads, strict=True):
        if name not in names:
            continue
        push = torch.randn_like(value)
        told = 0.0 if grad is None else float((grad * push).sum().detach())
        gaps = []
        # The first for 16 bits or float32 inside, the last for kinks.
        coarse = "low-precision" in found.notes
        for h in (0.3, 0.1, 0.03) if coarse else (1e-3, 1e-6):
            moved = []
            for sign in (1, -1):
                changed = {**arguments, name: (value + sign * h * push).detach()}
                with torch.no_grad():
                    moved.append(_first_tensor(_call(caller, changed)))
            real = float(((moved[0] - moved[1]) * pull).sum().detach() / (2 * h))
            gaps.append(abs(real - told) / (1 + abs(real)))
        if min(gaps) > (0.3 if coarse else 1e-2):
            wrong.append(name)
    if wrong:
        yield Remark("gradient-detached", not inference, {"of": ", ".join(wrong)})


def _call(caller: Caller, arguments: dict[str, Any]) -> Any:
    try:
        return caller.target.function(**arguments)
    except Exception as error:  # the target's own, of any kind
        raise CallError(f"{type(error).__name__}: {error}", error) from error


def _first_tensor(raw: Any) -> Any:
    import torch

    if isinstance(raw, torch.Tensor):
        return raw
    if not isinstance(raw, (tuple, list)):
        raw = (raw if hasattr(raw, "values") else vars(raw)).values()
    return next((item for item in raw if isinstance(item, torch.Tensor)), None)


# Empty rows, large scores, half precision


def _empty_row(found: Examination, case: Case) -> Iterator[Remark]:
    masked = next((c for c, _ in found.seen if c.name.startswith("mask") and not c.causal), None)
    if masked is None or found.mistake is not None:
        return
    if masked.allowed is not None:
        allowed = masked.allowed.copy()
        allowed[:, 1] = False
        masked = replace(masked, allowed=allowed)
    elif masked.keys is not None:
        keys = masked.keys.copy()
        keys[0] = False
        masked = replace(masked, keys=keys)
    if not np.isfinite(found.caller(masked).out).all():
        yield Remark("nan-empty-row", False, {})


def _overflow(found: Examination, case: Case) -> Iterator[Remark]:
    large = replace(case, q=case.q * 40.0, k=case.k * 40.0)
    if case.k is case.q:
        x = case.q * 200.0
        large = replace(case, q=x, k=x, v=x)
    if not np.isfinite(found.caller(large).out).all():
        yield Remark("softmax-overflow", False, {})


def _half(found: Examination, case: Case) -> Iterator[Remark]:
    if found.caller.framework != "torch" or found.mistake is not None or not found.compared:
        return
    masked = next((c for c, _ in found.seen if c.name.startswith("mask")), case)
    for dtype in ("float16", "bfloat16"):
        caller = found.caller.having(target=in_double(found.target, dtype), dtype=dtype)
        try:
            answer = caller(masked)
        except CallError as error:
            if "overflow" in str(error):
                yield Remark("half-fill", False, {"dtype": dtype})
            continue
        work = reference(masked, found.reading)
        if answer.out.shape != work.context.shape:
            continue
        sure = np.isfinite(work.context)
        if work.unsure is not None and work.unsure.any():
            continue
        error_size = np.abs(answer.out - work.context)[sure].max()
        room = {"float16": 0.02, "bfloat16": 0.12}[dtype] * (1 + np.abs(work.context).max())
        if not error_size < room:
            yield Remark("half-inexact", False, {"dtype": dtype, "error": float(error_size)})


def _loops(found: Examination, case: Case) -> Iterator[Remark]:
    """Count calls: a loop in Python over positions makes more of them for longer texts."""
    if found.caller.stepwise:
        return
    one = case.k is case.q
    width = case.q.shape[-1]
    counts = []
    for T in (6, 24):
        longer = inputs(found.caller.layout, "plain", T, None if one else T, width=width)
        longer = replace(longer, causal=case.causal)
        counts.append(_calls(lambda c=longer: found.caller(c)))  # type: ignore[misc]
    if counts[1] > counts[0] + 4 * 18:
        yield Remark("slow-loop", False, {"calls": counts[0], "more": counts[1]})


def _calls(function: Callable[[], Any]) -> int:
    count = 0

    def see(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    function()
    sys.setprofile(see)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def _weights(found: Examination, case: Case) -> Iterator[Remark]:
    """Compare the weights that are returned beside the context."""
    if found.mistake is not None or not found.compared:
        return
    for each, answer in found.seen:
        if answer.weights is None:
            continue
        work = reference(each, found.reading)
        if work.unsure is not None and work.unsure.any():
            continue
        want = [work.weights, work.weights.mean(1), work.weights[:, 0], work.weights[0],
                work.weights[0, 0]]  # fmt: skip
        if not any(
            answer.weights.shape == w.shape
            and np.allclose(answer.weights, w, atol=max(found.reading.tolerance * 10, 1e-7))
            for w in want
        ):
            yield Remark("weights-returned", False, {"case": each.name})
            return
