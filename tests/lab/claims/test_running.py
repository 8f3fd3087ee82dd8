"""Claims are run, kept, and run again when they must be."""

import json
from dataclasses import replace

import pytest
import torch

from glasshead.lab.claims import running, store
from glasshead.lab.claims.running import ClaimsPlan, measure_claims, suffices
from glasshead.lab.claims.store import read_result
from tests.lab.claims.cases import make_result


def results(numbers, plan, **more):
    return {one.number: (one, is_new) for one, is_new in measure_claims(numbers, plan, **more)}


def test_a_run_leaves_numbers_and_two_pictures(tmp_path):
    reported = []
    plan = ClaimsPlan(tmp_path / "new" / "folder", quick=True, seeds=2)
    found = results([4, 13], plan, progress=lambda *message: reported.append(message))
    assert list(found) == [4, 13]
    assert all(is_new for _, is_new in found.values())
    names = {path.name for path in plan.folder.iterdir()}
    assert names == {f"{n}.{end}" for n in ("04", "13") for end in ("json", "en.png", "zh.png")}
    kept = json.loads((plan.folder / "04.json").read_text())
    assert kept["seeds"] == [11, 12]
    assert kept["quick"] is True
    assert set(kept["versions"]) == {"glasshead", "python", "torch", "numpy"}
    assert kept["machine"]["threads"] == 1
    done = [part for number, part, _ in reported if number == 4]
    assert done == sorted(done)
    assert done[-1] == 1


def test_what_is_known_is_not_run_again_unless_asked(tmp_path):
    plan = ClaimsPlan(tmp_path, quick=True)
    first, _ = results([4], plan)[4]
    assert results([4], plan)[4] == (first, False)
    assert results([4], replace(plan, again=True))[4][1]


def test_a_claim_whose_code_has_changed_is_run_again(tmp_path, monkeypatch):
    plan = ClaimsPlan(tmp_path, quick=True)
    results([4], plan)
    monkeypatch.setattr(store, "code_hash", lambda number: "other")
    assert results([4], plan)[4][1]


@pytest.mark.parametrize(
    ("kept_quick", "wanted_quick", "seeds", "good"),
    [
        (True, True, 2, True),
        (True, False, 2, False),  # a full run says more
        (False, True, 2, True),
        (False, False, 2, True),
        (True, True, 3, False),  # more seeds than were kept
        (True, True, None, False),
    ],
)
def test_a_stored_result_serves_when_it_says_as_much(
    tmp_path, kept_quick, wanted_quick, seeds, good
):
    plan = ClaimsPlan(tmp_path, quick=wanted_quick, seeds=seeds)
    assert suffices(make_result(4, quick=kept_quick), plan) is good


@pytest.mark.deep
def test_processes_side_by_side_find_the_same(tmp_path):
    alone = results([3, 4, 13], ClaimsPlan(tmp_path / "a", quick=True))
    beside = results([3, 4, 13], ClaimsPlan(tmp_path / "b", quick=True, jobs=2))
    assert set(beside) == {3, 4, 13}
    for number, (one, _) in alone.items():
        assert beside[number][0].evidence == one.evidence
        assert beside[number][0].finding == one.finding


def test_a_claim_that_breaks_says_so_in_the_end_and_leaves_the_others(tmp_path):
    # A folder has the name of the file that it would write.
    (tmp_path / ".13.json.new").mkdir()
    with pytest.raises(RuntimeError, match="claim 13 could not be measured"):
        list(measure_claims([4, 13], ClaimsPlan(tmp_path, quick=True, jobs=2)))
    assert read_result(tmp_path, 4) is not None
    assert read_result(tmp_path, 13) is None


def test_timed_claims_come_last_and_alone(tmp_path, monkeypatch):
    order = []

    def note(number, plan, progress, threads):
        order.append((number, threads))
        return make_result(4)

    monkeypatch.setattr(running, "measure_claim", note)
    list(measure_claims([3, 8, 13, 14], ClaimsPlan(tmp_path, jobs=1)))
    assert order == [(3, 1), (13, 1), (8, torch.get_num_threads()), (14, torch.get_num_threads())]


def test_a_run_leaves_torch_as_it_was(tmp_path):
    torch.manual_seed(5)
    before = torch.get_num_threads(), torch.rand(1).item()
    torch.manual_seed(5)
    results([4], ClaimsPlan(tmp_path, quick=True))
    assert (torch.get_num_threads(), torch.rand(1).item()) == before
