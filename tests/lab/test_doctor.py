"""What the doctor finds, and what it makes of it."""

import io
import os
import sys
import tomllib
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import matplotlib.font_manager
import pytest
import torch
from packaging.requirements import Requirement
from rich.console import Console

from glasshead.attention.backends import BACKENDS
from glasshead.attention.functional import attend
from glasshead.attention.mask import Mask
from glasshead.lab.doctor import DeviceReport, Problem, Torch, _numbers, examine, packages
from glasshead.lab.doctor_tables import tables
from glasshead.lab.kernels import CALLS, DTYPES, Choice
from glasshead.observe.fonts import chinese_font, has_glyphs
from tests.lab.boxfont import make_font

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def found():
    return examine()


def printed(findings, lang="en", width=80):
    console = Console(width=width, file=io.StringIO())
    for part in tables(findings, lang):
        console.print(part)
    return console.file.getvalue()


# --- the machine ---


def test_the_facts_are_those_of_this_process(found):
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.python_fits
    assert found.torch == Torch(torch.__version__, found.torch.build)
    assert found.cpu.threads == torch.get_num_threads()
    assert 1 <= found.cpu.cores <= os.cpu_count()
    assert found.devices[0].device == "cpu"
    assert found.cuda == torch.cuda.is_available()
    assert not found.broken


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="reads /proc/cpuinfo")
def test_a_limit_of_the_environment_is_shown_and_not_tried_against(found, monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    cpu = examine().cpu
    assert cpu.isa_limit == "AVX2"
    assert cpu.amx == ("limited" if "amx_tile" in Path("/proc/cpuinfo").read_text() else "absent")


# --- kernels ---


def test_every_call_gets_a_kernel_in_every_dtype(found):
    on_cpu = [c for c in found.kernels if c.device == "cpu"]
    assert {(c.call, c.dtype) for c in on_cpu} == {(c, d) for c in CALLS for d in DTYPES}
    assert len(on_cpu) == len(CALLS) * len(DTYPES)
    assert all(c.backend in BACKENDS and c.error is None for c in on_cpu)
    assert all((c.kernel is not None) == (c.backend == "sdpa") for c in on_cpu)


def test_the_cpu_takes_flash_where_it_can_and_the_formula_where_it_must(found):
    taken = {(c.call, c.dtype): (c.backend, c.kernel) for c in found.kernels if c.device == "cpu"}
    assert taken["training", "float32"] == ("sdpa", "flash")
    assert taken["padded", "bfloat16"] == ("sdpa", "flash")
    assert taken["softcap", "float32"] == ("explicit", None)
    assert taken["dropout", "float64"] == ("explicit", None)
    assert taken["decode", "float32"] == ("sdpa", "flash")
    assert taken["decode", "float16"] == ("sdpa", "flash")


def test_the_choice_shown_is_the_one_that_attention_makes(found, monkeypatch):
    """Each backend counts its calls while attend() serves a call like the doctor's."""
    ran = []
    for name, backend in BACKENDS.items():
        monkeypatch.setattr(
            backend, "run", lambda call, n=name, run=backend.run: (ran.append(n), run(call))[1]
        )
    q, kv = torch.ones(1, 2, 1, 8, dtype=torch.bfloat16), torch.ones(1, 2, 5, 8).bfloat16()
    attend(q, kv, kv, Mask(causal=True))
    shown = [c.backend for c in found.kernels if (c.call, c.dtype) == ("decode", "bfloat16")]
    assert shown[:1] == ran


# --- packages ---


def test_the_packages_are_those_of_the_project_file():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {(None, Requirement(r).name) for r in project["dependencies"]} | {
        (extra, Requirement(r).name)
        for extra, some in project["optional-dependencies"].items()
        for r in some
        if not r.startswith("glasshead[")
    }
    shown = packages(metadata.requires("glasshead"))
    assert wanted <= {(p.extra, p.name.replace("-", "_")) for p in shown} | {
        (p.extra, p.name) for p in shown
    }


def test_a_package_is_there_or_too_old_or_missing():
    ours = packages(
        ["numpy>=2.0", "numpy>=999.1; extra == 'new'", "no-such-thing[x]>=1; extra == 'hf'"]
    )
    assert [(p.name, p.extra, p.fits) for p in ours] == [
        ("numpy", None, True),
        ("numpy", "new", False),
        ("no-such-thing", "hf", False),
    ]
    assert ours[1].version == metadata.version("numpy")
    assert ours[2].version is None


def test_a_needed_package_that_cannot_be_imported_says_why(tmp_path, monkeypatch):
    info = tmp_path / "brokenthing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brokenthing\nVersion: 1.0\n")
    (tmp_path / "brokenthing.py").write_text("raise ValueError('size changed\\nmore')")
    monkeypatch.syspath_prepend(tmp_path)
    (package,) = packages(["brokenthing>=1"])
    assert (package.fits, package.error) == (True, "size changed")


@pytest.mark.parametrize(
    ("older", "newer"), [("2.9", "2.11"), ("2.11", "2.11.1"), ("4.9rc1", "5.0"), ("", "0")]
)
def test_versions_compare_as_numbers(older, newer):
    assert _numbers(older) < _numbers(newer)
    assert _numbers(newer + "+cu130") == _numbers(newer)


# --- what is wrong, and the command that mends it ---


def lacking(found, **changes):
    return replace(found, packages=(), chinese_font="Noto Sans CJK SC", kernels=(), **changes)


def test_only_what_is_needed_breaks(found):
    lacks = packages(["no-such-thing>=1; extra == 'hf'", "nor-this>=2; extra == 'hf'"])
    optional = replace(
        lacking(found, compiler=None, triton=None, devices=(DeviceReport("cuda:0", "GPU", 2**30),)),
        packages=tuple(lacks),
        chinese_font=None,
    )
    assert not optional.broken
    assert {p.kind for p in optional.problems} == {"extra", "triton", "compiler", "font"}
    (extra,) = (p for p in optional.problems if p.kind == "extra")
    assert (extra.about, extra.command) == (
        "no-such-thing, nor-this",
        'pip install -e ".[hf]" -c constraints.txt',
    )


@pytest.mark.parametrize(
    "change",
    [
        {"python_fits": False},
        {"torch": Torch(error="no libcudart")},
        {"packages": tuple(packages(["torch>=999"]))},
        {"packages": tuple(packages(["no-such-thing>=1"]))},
        {"kernels": (Choice("cuda:0", "float32", "training", "sdpa", error="no image"),)},
    ],
)
def test_what_is_needed_and_wrong_is_broken(found, change):
    assert not lacking(found).broken
    broken = replace(lacking(found), **change)
    assert broken.broken
    assert len([p for p in broken.problems if p.needed]) == 1


def test_one_failure_of_a_device_is_told_once(found):
    kernels = tuple(Choice("cuda:0", d, c, "sdpa", error="no image") for d in DTYPES for c in CALLS)
    assert replace(lacking(found), kernels=kernels).problems == [
        Problem("kernel", f"cuda:0 ({', '.join(DTYPES)}): no image", True, None)
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="the commands of Linux")
def test_every_kind_of_problem_has_words_and_a_command_in_both_languages(found):
    wrong = replace(
        found,
        python_fits=False,
        torch=Torch(error="E1"),
        devices=(DeviceReport("cuda:0", "GPU", None),),
        kernels=tuple(Choice("cuda:0", d, c, error="E2") for d in DTYPES for c in CALLS),
        triton=None,
        compiler=None,
        chinese_font=None,
        packages=tuple(packages(["torch>=999", "no-such>=1; extra == 'unheard-of'"])),
    )
    wrong = [wrong, replace(wrong, compiler="/usr/bin/c++", python_headers=False)]
    for lang in ("en", "zh"):
        text = "".join(printed(w, lang, 200) for w in wrong)
        commands = {p.command for w in wrong for p in w.problems if p.command}
        assert len(commands) == 7
        for command in commands:
            assert f"    {command}\n" in text
        assert "E1" in text
        assert "E2" in text


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_kernel_table_fits_eighty_cells(found, lang):
    gpu = tuple(
        Choice("cuda:0", d, c, "sdpa", "efficient" if d == "float32" else "cudnn")
        for d in DTYPES
        for c in CALLS
    )
    lines = printed(replace(found, kernels=gpu), lang).splitlines()
    rows = [line for line in lines if "sdpa:cudnn" in line]
    assert len(rows) == len(CALLS)
    assert all(row.count("sdpa:") == 4 for row in rows)


# --- fonts ---


def test_a_font_has_a_character_or_it_has_not(tmp_path):
    font = make_font(tmp_path / "Boxes.ttf", {"它": 900, "她": 800, "猫": 700})
    assert has_glyphs(font, "")
    assert has_glyphs(font, "猫它")
    assert not has_glyphs(font, "狗")
    assert not has_glyphs(make_font(tmp_path / "Latin.ttf", {"a": 500, "她": 500}), "")


def test_a_font_of_placeholders_does_not_count():
    last_resort = [e for e in matplotlib.font_manager.fontManager.ttflist if "Last" in e.name]
    assert not any(has_glyphs(entry.fname, "") for entry in last_resort)


def test_a_file_that_is_no_font_has_nothing(tmp_path):
    (tmp_path / "bad.ttf").write_bytes(b"not a font")
    assert not has_glyphs(str(tmp_path / "bad.ttf"), "")
    assert not has_glyphs(str(tmp_path / "gone.ttf"), "")


def test_a_font_installed_since_matplotlib_first_looked_is_found(tmp_path, monkeypatch):
    manager = matplotlib.font_manager.fontManager
    monkeypatch.setattr(manager, "ttflist", [e for e in manager.ttflist if "DejaVu" in e.name])
    path = make_font(tmp_path / "Newly Installed.ttf", {"它": 900, "她": 800})
    monkeypatch.setattr(matplotlib.font_manager, "findSystemFonts", lambda: [path])
    chinese_font.cache_clear()
    try:
        assert chinese_font() == "Newly Installed"
        assert "Newly Installed" in {entry.name for entry in manager.ttflist}
        assert chinese_font("猫") is None
    finally:
        chinese_font.cache_clear()
