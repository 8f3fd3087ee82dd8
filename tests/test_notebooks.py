"""The notebooks: those stored are made of the scripts beside them, which run from top to bottom."""

import pytest

pytestmark = pytest.mark.deep

pytest.importorskip("jupytext", reason="needs jupytext")
pytest.importorskip("nbclient", reason="needs nbclient")
pytest.importorskip("ipykernel", reason="needs ipykernel")

from docs._build import notebooks  # noqa: E402


@pytest.mark.parametrize("script", notebooks.scripts(), ids=lambda script: script.stem)
def test_a_notebook_is_current_and_runs(script, monkeypatch):
    assert notebooks.is_current(script), "run: python -m docs._build.notebooks"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    made = notebooks.execute(script)
    outputs = [one for cell in made.cells for one in cell.get("outputs", ())]
    pictures = [one for one in outputs if "image/png" in one.get("data", {})]
    assert pictures
    code = [cell for cell in made.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in code)  # each shows something


def test_a_changed_script_is_noticed(tmp_path):
    script = notebooks.scripts()[0]
    for suffix in (".py", ".ipynb"):
        copy = tmp_path / script.with_suffix(suffix).name
        copy.write_text(script.with_suffix(suffix).read_text(encoding="utf-8"), encoding="utf-8")
    copy = tmp_path / script.name
    assert notebooks.is_current(copy)
    copy.write_text(copy.read_text(encoding="utf-8") + "\n# %%\n1 + 1\n", encoding="utf-8")
    assert not notebooks.is_current(copy)


def test_both_languages_stand_in_every_text():
    for script in notebooks.scripts():
        for cell in notebooks.to_notebook(script).cells:
            if cell.cell_type == "markdown":
                assert any("\u4e00" <= letter <= "\u9fff" for letter in cell.source), cell.source
                assert any(letter.isascii() and letter.isalpha() for letter in cell.source)
