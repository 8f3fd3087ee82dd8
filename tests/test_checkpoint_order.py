"""Which checkpoints of a run are there after each save, whoever wrote them."""

import itertools

import pytest

from glasshead.files.tensors import TensorFile
from tests.test_checkpoint import state_of
from tests.training.cases import new_run


class Folders:
    """Stands for the processes that write a checkpoint in parts: one file, at once."""

    def save(self, tensors, progress, folder, rename):
        folder.mkdir()
        (folder / "step").write_text(str(progress["step"]))
        rename()


def step_of(state):
    if state.is_dir():
        return int((state / "step").read_text())
    return int(TensorFile(state).metadata["step"])


@pytest.mark.parametrize(
    "kinds", list(itertools.product(("file", "folder"), repeat=4)), ids="-".join
)
@pytest.mark.parametrize("kept", [True, False])
def test_whoever_wrote_them_the_last_two_states_are_the_last_two(tmp_path, kinds, kept):
    """One process writes a file and several write a folder; a run may go from one to the other."""
    run = new_run(tmp_path / "run")
    for step, kind in enumerate(kinds):
        rotate = kept or step < 3  # the last is written over the one before it
        if kind == "file":
            run.save_state(state_of(step), rotate)
        else:
            run.save_shards(state_of(step), Folders(), rotate)
        before = step - (1 if rotate else 2)
        there = [step_of(state) for state in run.states if state.exists()]
        assert there == [n for n in (step, before) if n >= 0]
        assert len([*(run.path / "state").iterdir()]) == len(there)
