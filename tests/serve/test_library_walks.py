"""How often the served folder is walked."""

import shutil

import pytest

from glasshead.errors import NotFoundError
from glasshead.serve.library import Library

from .test_library import new_run


def test_the_folder_is_walked_only_for_a_name_that_is_not_known(tmp_path, monkeypatch):
    walks, walk = [], Library._walk

    def counting(library, folder, depth):
        walks.append(folder)
        return walk(library, folder, depth)

    monkeypatch.setattr(Library, "_walk", counting)
    new_run(tmp_path / "first")
    library = Library(tmp_path)
    first = library.open("first")
    assert len(walks) == 1
    assert library.open("first") is first
    assert len(walks) == 1
    new_run(tmp_path / "second")
    library.open("second")
    assert len(walks) == 2
    shutil.rmtree(tmp_path / "first")
    with pytest.raises(NotFoundError, match="no model 'first'"):
        library.open("first")
