"""Drive `observing` through every family of the installed transformers library.

    python -m tools.coverage --tests CHECKOUT -o coverage.json [FAMILY ...]
    python -m tools.coverage --write coverage.json          # docs/coverage.md and .zh.md

CHECKOUT is a checkout of the transformers library, whose tests build tiny models. Each family runs
in a process of its own, with limits on time and memory; families that are in the output already are
left out. Each model reads a text alone and a padded batch, and writes with a cache and left
padding, and with beams. Its recorded weights are compared with every softmax that its eager
attention computes (`tools/softmax_oracle.py`), and the bits of its output with those of the model
alone.
"""

import argparse
import contextlib
import copy
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glasshead.errors import GlassheadError
from glasshead.observe.recording import observing
from glasshead.observe.trace import Trace
from tools.coverage_cases import Case, add_tests, families, open_cases
from tools.softmax_oracle import Seen, watch_softmax

CLOSE = 1e-5
MIXES = (".attn_hc", ".ffn_hc")  # of residual streams: softmax and product, but no attention
NEW = 5  # tokens that are written
SECONDS, BYTES = 240, 6 * 2**30  # of one family

Result = dict[str, Any]


def check_forward(case: Case, pad: bool) -> Result:
    """Record one forward of a test class, and compare."""
    try:
        model, inputs = case.build(generates=False)
        if pad and not pad_right(inputs):
            return {"status": "none", "why": "reads no padded text"}

        def run(model: nn.Module) -> Any:
            _seed()
            return model(**copy.deepcopy(inputs))

        return compare(model, run)
    except _CannotRun as error:
        return {"status": "unbuilt", "why": str(error)}


def check_generate(case: Case, **how: Any) -> Result:
    """Record what a model writes for a batch with left padding, and compare."""
    if not case.generates:
        return {"status": "none", "why": "writes no text"}
    try:
        try:
            model, inputs = case.build(generates=True)
        except Exception as error:
            raise _CannotRun(error) from error
        pad_left(inputs)
        how = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False} | how

        def run(model: nn.Module) -> Any:
            _seed()
            return model.generate(**copy.deepcopy(inputs), **how)

        return compare(model, run, beams="num_beams" in how)
    except _CannotRun as error:
        return {"status": "unbuilt", "why": str(error)}


class _CannotRun(Exception):
    """The model does not run here without being observed."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(" ".join(f"{type(error).__name__}: {error}".split())[:160])


@torch.no_grad()
def compare(model: nn.Module, run: Callable[[nn.Module], Any], beams: bool = False) -> Result:
    """Run a model alone and observed; compare outputs, and weights with its eager attention's."""
    try:
        before, again = tensors_of(run(model)), tensors_of(run(model))
    except Exception as error:
        raise _CannotRun(error) from error
    if not same(before, again):
        return {"status": "unbuilt", "why": "its output differs from run to run"}
    references = []
    for kernel in ("eager", None):  # its own
        oracle = copy.deepcopy(model)
        if kernel is not None:
            with contextlib.suppress(Exception):
                oracle.set_attn_implementation(kernel)
        with watch_softmax(oracle) as seen:
            try:
                run(oracle)
            except Exception as error:
                raise _CannotRun(error) from error
        references.append(list(seen))
    seen = references[0]
    if not seen:
        return {"status": "none", "why": "it has no softmax attention"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with observing(model) as trace:
                during = tensors_of(run(model))
    except GlassheadError as error:
        return {"status": "refused", "why": str(error)}
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        return {"status": "wrong", "why": " ".join(why.split())[:300]}
    if not same(before, during):
        return {"status": "wrong", "why": "its output changed while it was observed"}
    found = judge(trace, seen, beams)
    if found["status"] == "wrong" and len(seen) == len(references[1]):
        # Eager attention of some models is another than that of the kernel they run on.
        own = judge(trace, references[1], beams)
        if own["status"] != "wrong":
            return own | {"note": f"its eager attention differs: {found['why']}"}
    return found


def judge(trace: Trace, seen: list[Seen], beams: bool) -> Result:
    """Compare a trace with what the eager attention computed."""
    theirs: dict[str, list[Seen]] = defaultdict(list)
    # Nor are expectations over bins, which the model itself computes of its logits.
    seen = [one for one in seen if one.module and not one.module.endswith(MIXES)]
    for one in seen:
        theirs[one.module].append(one)
    ours: dict[str, list[int]] = defaultdict(list)
    for index, stored in trace.layer_traces.items():
        ours[stored.layer.name.split(" (call ")[0]].append(index)
    missing = [name for name in theirs if not covers(ours, name)]
    silent = [name for name in missing if not covers(dict.fromkeys(trace.unseen), name)]
    found: Result = {"layers": len(trace.layer_traces), "unseen": list(trace.unseen)[:4]}
    worst, compared = 0.0, 0
    for name, indices in ours.items():
        parts = theirs.get(name) or [
            x for at, some in theirs.items() if at.startswith(f"{name}.") for x in some
        ]
        records = [x.weights for x in parts if x.weights is not None]
        if not records or beams:
            continue
        off = distance(trace, indices, records)
        if off is None:
            found.setdefault("not compared", name)
            continue
        worst, compared = max(worst, off), compared + 1
        # Scores in the hundreds are rounded by more: eager attention's too.
        top = max(float(trace.layer_traces[i].lse.nan_to_num(0, 0, 0).abs().max()) for i in indices)
        if not off <= max(CLOSE, top * torch.finfo(torch.float32).eps):
            return found | {"status": "wrong", "why": f"{name} is off by {off:.3g}"}
    if beams:
        sums = [rows_sum(trace, i) for i in trace.layer_traces]
        worst, compared = max(sums, default=0), len(sums)
        if not worst <= CLOSE:
            return found | {"status": "wrong", "why": f"rows sum to 1 +- {worst:.3g}"}
    found |= {"off": worst, "compared": compared}
    if silent:
        return found | {"status": "silent", "why": f"{silent[0]} ran unnoticed ({len(silent)})"}
    # What is named although it has no map (deformable attention) is not left out.
    left = [name for name in trace.unseen if covers(theirs, name)]
    if left:
        return found | {"status": "partial", "why": f"{len(left)}: {left[0]}"}
    if not compared:
        return found | {"status": "wrong", "why": "nothing could be compared"}
    return found | {"status": "right", "why": ""}


def covers(names: Any, name: str) -> bool:
    """Whether a module, or one that it is a part of or has as a part, is among these names."""
    return any(name == n or name.startswith(f"{n}.") or n.startswith(f"{name}.") for n in names)


def distance(trace: Trace, indices: list[int], records: list[Tensor]) -> float | None:
    """Return how far the maps of one module are from its softmaxes, taken in their order."""
    rows = dict.fromkeys(indices, 0)
    worst = 0.0
    for number, record in enumerate(records):
        index = indices[number % len(indices)]
        B, H, T, S = trace.shape(index)
        record = record.reshape(-1, *record.shape[-2:])
        if 0 < rows[index] < record.shape[1]:  # without a cache the whole text is read again
            record = record[:, rows[index] :]
        n = record.shape[1]
        if record.shape[0] != B * H or rows[index] + n > T:
            return None
        row = slice(rows[index], rows[index] + n)
        rows[index] += n
        maps = [trace.tile(index, h, row, batch=b) for b in range(B) for h in range(H)]
        ours = torch.stack(maps)
        where = trace.layer(index)
        # The keys of a call end at its last row, or are the same for all.
        stop = S if where.kind == "cross" or T == n or row.stop > S else row.stop + S - T
        m = min(record.shape[2], stop)
        spare = record.shape[2] - m  # static caches have empty places, sinks a column of their own
        parts = [record[..., :m], record[..., spare:]] if spare else [record]
        total = ours.sum(-1, keepdim=True)
        padding = total == 0
        if record.shape[2] == m and index in trace.about.get("sinks", ()) and _sums_to_1(record):
            ours = ours / total.clamp(min=1e-30)  # sinks that take their part after the softmax
        off = min(
            float((ours[..., stop - m : stop] - part).masked_fill(padding, 0).abs().max())
            for part in parts
        )
        worst = max(worst, off)
    return worst


def _sums_to_1(record: Tensor) -> bool:
    return bool(((record.sum(-1) - 1).abs() < CLOSE).all())


def rows_sum(trace: Trace, index: int) -> float:
    """Return how far the sums of a layer's rows are from 1; padding has sum 0."""
    total = trace.weights(index).sum(-1)
    off = torch.where(total == 0, 0, (total - 1).abs())
    sinks = index in trace.about.get("sinks", ())
    return float((total - 1).clamp(min=0).max() if sinks else off.max())


def tensors_of(out: Any) -> list[Tensor]:
    """Return the tensors of a model's output."""
    if isinstance(out, Tensor):
        return [out]
    if isinstance(out, dict):
        out = list(out.values())
    return [t for x in out for t in tensors_of(x)] if isinstance(out, list | tuple) else []


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(
        x.shape == y.shape and torch.equal(x.nan_to_num(), y.nan_to_num())
        for x, y in zip(a, b, strict=True)
    )


def pad_right(inputs: dict[str, Any]) -> bool:
    """Mark the last tokens of all texts but the first as padding; return whether there are any."""
    ids = inputs.get("input_ids")
    if not isinstance(ids, Tensor) or ids.dim() != 2 or len(ids) < 2 or ids.shape[1] < 4:
        return False
    if set(inputs) - {"input_ids", "attention_mask", "token_type_ids", "decoder_input_ids",
                      "decoder_attention_mask", "use_cache"}:  # fmt: skip
        return False
    mask = torch.ones_like(ids)
    mask[1:, -2:] = 0
    inputs["attention_mask"] = mask
    return True


def pad_left(inputs: dict[str, Any]) -> None:
    """Mark the first tokens of all texts but the first as padding, where only text is read."""
    ids = inputs.get("input_ids")
    if isinstance(ids, Tensor) and ids.dim() == 2 and set(inputs) <= {
        "input_ids", "attention_mask", "token_type_ids"
    }:  # fmt: skip
        mask = torch.ones_like(ids)
        mask[1:, :2] = 0
        inputs["attention_mask"] = mask


def _seed() -> None:
    torch.manual_seed(5)


def check_family(tests: Path, family: str) -> Result:
    """Return what each test class of a family gives in each check."""
    found: Result = {}
    try:
        cases = list(open_cases(tests, family))
    except Exception as error:
        return {"": {"forward": {"status": "unbuilt", "why": str(_CannotRun(error))}}}
    if not cases:
        return {"": {"forward": {"status": "unbuilt", "why": "no test of the library builds it"}}}
    for case in cases:
        checks: dict[str, Callable[[], Result]] = {
            "forward": lambda case=case: check_forward(case, pad=False),
            "padded": lambda case=case: check_forward(case, pad=True),
            "generate": lambda case=case: check_generate(case),
            "beams": lambda case=case: check_generate(case, num_beams=3),
        }
        one: Result = {}
        for name, check in checks.items():
            try:
                one[name] = check()
            except Exception as error:
                one[name] = {"status": "unbuilt", "why": str(_CannotRun(error))}
        found[case.name] = one
    return found


def in_a_process(tests: Path, family: str) -> Result:
    """Check a family in a fork of this process, so that neither time nor memory run out."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        try:
            result = check_family(tests, family)
        except BaseException as error:
            result = {"": {"forward": {"status": "unbuilt", "why": str(_CannotRun(error))}}}
        with os.fdopen(write, "w") as file:
            json.dump(result, file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    _, status = os.waitpid(pid, 0)
    if text:
        return json.loads(text)
    name = signal.Signals(status & 127).name if status & 127 else f"exit {status}"
    return {"": {"forward": {"status": "unbuilt", "why": f"its process ended: {name}"}}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("coverage.json"))
    parser.add_argument("--write", type=Path)
    parser.add_argument("--again", action="store_true", help="also what is not right in --out")
    parser.add_argument("families", nargs="*")
    given = parser.parse_args()
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if given.write:
        from tools.coverage_page import write_pages

        write_pages(json.loads(given.write.read_text()))
        return
    known = json.loads(given.out.read_text()) if given.out.exists() else {"families": {}}
    known["versions"] = {"transformers": transformers.__version__, "torch": torch.__version__}
    done = known["families"]
    add_tests(given.tests)
    for family in given.families or families():
        bad = family in done and any(
            check["status"] not in ("right", "none")
            for case in done[family].values()
            for check in case.values()
        )
        if family in done and not given.families and not (given.again and bad):
            continue
        began = time.time()
        done[family] = in_a_process(given.tests, family)
        for case, checks in done[family].items():
            told = ", ".join(f"{k} {v['status']}" for k, v in checks.items())
            print(f"{family:24} {case:32} {told}  ({time.time() - began:.0f} s)", flush=True)
            if given.families:
                print(json.dumps(checks, indent=1))
        given.out.write_text(json.dumps(known, indent=1))


if __name__ == "__main__":
    sys.exit(main())
