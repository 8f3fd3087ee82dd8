"""The check of a device against the CPU, with a CPU that has faults as the device."""

import dataclasses
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from glasshead import machine
from glasshead.attention import Mask
from glasshead.attention.backends import SDPA
from glasshead.lab.device_check import find_fault
from glasshead.observe import recording

CPU = torch.device("cpu")
run, silu = SDPA.run, F.silu


def test_a_device_without_faults_passes() -> None:
    assert find_fault(CPU) is None


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return 1.02 * gradient


def not_contiguous(self: Any, call: Any) -> Any:
    """Read the values as if they were contiguous."""
    v = call.v
    v = v if v.is_contiguous() else v.transpose(1, 2).reshape(v.shape)
    return run(self, dataclasses.replace(call, v=v))


def no_mask(self: Any, call: Any) -> Any:
    return run(self, dataclasses.replace(call, mask=Mask()))


def second_best(self: Any, *args: Any, **how: Any) -> Any:
    return self.topk(2, -1).indices[..., 1]


def no_float64(*_: Any, **__: Any) -> Any:
    raise TypeError("Cannot convert a tensor to float64")


FAULTS: list[tuple[str, object, str, Callable[..., Any]]] = [
    ("attention", SDPA, "run", not_contiguous),
    ("attention", SDPA, "run", no_mask),
    ("gradients", F, "silu", lambda x, **_: WrongGradient.apply(silu(x))),
    ("generation", torch.Tensor, "argmax", second_best),
    ("recording", recording.Trace, "statistics", no_float64),
]


@pytest.mark.parametrize(("part", "where", "name", "broken"), FAULTS, ids=lambda x: str(x)[:9])
def test_a_fault_is_found_and_named(part: str, where: object, name: str, broken: Any) -> None:
    @contextmanager
    def faulty() -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(where, name, broken)
            yield

    found = find_fault(CPU, faulty)
    assert found is not None
    assert found.startswith(f"{part}: "), found


def test_auto_picks_mps_only_after_the_check(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(machine, "_SAID", [])
    machine.mps_fault.cache_clear()
    assert machine.pick_device("auto").type == "cpu"  # here the process of the check has no mps
    said = capsys.readouterr().err
    assert "mps is not used" in said
    assert "attention: " in said
    assert machine.pick_device("auto").type == "cpu"
    assert capsys.readouterr().err == ""  # said once
    assert machine.pick_device("mps").type == "mps"  # by name it is not questioned
    machine.mps_fault.cache_clear()
    [known] = tmp_path.glob("glasshead/mps.json")
    known.write_text(known.read_text().replace(machine.mps_fault(), ""))
    machine.mps_fault.cache_clear()
    assert machine.pick_device("auto").type == "mps"
    machine.mps_fault.cache_clear()
