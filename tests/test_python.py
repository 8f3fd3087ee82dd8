"""What stands at the top of the package, and the page that `help(glasshead)` shows."""

import inspect
import pydoc
import subprocess
import sys
import textwrap
import typing
from pathlib import Path

import pytest
import torch

import glasshead
from glasshead.errors import GlassheadError, InputError
from glasshead.generation.sampling import GREEDY
from glasshead.generation.stream import stream
from glasshead.generation.translate import Translator
from glasshead.text.tokenizer import ByteTokenizer, CharTokenizer
from tests.generation.runs import make_run
from tests.generation.translators import SPECIALS, make_translator

CLASSES = {
    *("Edge", "GPT", "GPTConfig", "GlassheadError", "Mask", "MultiHeadAttention"),
    *("Run", "Trace", "Transformer", "TransformerConfig"),
}
FUNCTIONS = sorted({*glasshead.__all__} - {"__version__", "complete"})
ROOT = Path(glasshead.__file__).parents[1]
POEM = "春江潮水连海平，海上明月共潮生。"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the runs that the page speaks of."""
    path = tmp_path_factory.mktemp("place")
    (path / "runs").mkdir()
    make_run(path / "runs/poems", CharTokenizer.train(POEM), max_len=29)
    (path / "poems.txt").write_text(f"{POEM}\n" * 60, encoding="utf-8")
    make_translator(path / "runs/de-en", ByteTokenizer(SPECIALS))
    return path


def examples() -> list[str]:
    """The parts of the page that are code."""
    paragraphs = (glasshead.__doc__ or "").split("\n\n")
    return [textwrap.dedent(part) for part in paragraphs if part.startswith("    ")]


def test_the_page_is_true(place, monkeypatch, capsys):
    pytest.importorskip("transformers", reason="needs transformers")
    pytest.importorskip("anywidget", reason="needs anywidget")
    from tests.model import foreign

    foreign.folder(place / "models/gpt2", "gpt2")
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    known = {}
    for code in examples():
        code = code.replace('out="runs/poems"', 'out="runs/poem"')  # "runs/poems" is smaller
        exec(compile(code, "help(glasshead)", "exec"), known)
    assert isinstance(known["run"].model, torch.nn.Module)
    assert known["trace"].weights(layer=0).shape == (1, 4, 4, 4)
    out = capsys.readouterr().out
    assert "runs/peoms does not exist" in out
    assert "did you mean 'runs/poems'" in out.lower()


def test_the_page_speaks_of_every_name():
    code = "\n".join(examples())
    for name in [*FUNCTIONS, "GlassheadError"]:
        assert f"glasshead.{name}" in code
    for name in CLASSES - {"Edge", "Run", "Trace"}:
        assert name in (glasshead.__doc__ or "")


def test_help_shows_the_page_and_what_each_function_takes():
    page = pydoc.plain(pydoc.render_doc(glasshead))
    assert "see what every head attends to" in page
    for name in FUNCTIONS:
        assert f"\n    {name}(" in page, name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_types_and_says_what_it_does(name):
    function = getattr(glasshead, name)
    assert len(inspect.getdoc(function) or "") > 60
    plain = inspect.unwrap(function)
    hints = typing.get_type_hints(plain)
    assert hints.keys() == {*inspect.signature(plain).parameters, "return"}


@pytest.mark.parametrize("name", [*FUNCTIONS, *sorted(CLASSES)])
def test_every_name_has_an_example(name):
    """`test_architecture.py` runs them."""
    assert ">>> " in (inspect.getdoc(getattr(glasshead, name)) or "")


def test_complete_is_generate_by_its_earlier_name():
    assert glasshead.complete is glasshead.generate


def test_names_are_listed_and_fetched_only_when_asked_for():
    code = (
        "import sys, glasshead; names = dir(glasshead); "
        "assert {*glasshead.__all__, 'GPT', 'GlassheadError'} <= {*names}, names; "
        "assert not [name for name in names if name[0] == '_' != name[1]], names; "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules; "
        "from glasshead import *; assert load is glasshead.load; assert 'torch' in sys.modules; "
        "import glasshead.api.train; assert callable(glasshead.translate)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_types_are_for_those_who_import_it_too():
    assert (ROOT / "glasshead" / "py.typed").is_file()


def test_a_name_that_there_is_not_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'lode'"):
        glasshead.lode  # noqa: B018
    assert not hasattr(glasshead, "__wrapped__")


def test_a_completion_is_what_the_stream_writes(place):
    loaded = glasshead.load(place / "runs/poems")
    ids = [loaded.tokenizer.encode_ids("春江").tolist()]
    pieces = stream(loaded.model, loaded.tokenizer, ids, GREEDY, max_tokens=17)
    text = "".join(piece.text for piece in pieces)
    assert glasshead.generate(loaded, "春江", max_tokens=17, temperature=0) == text
    assert glasshead.generate(place / "runs/poems", "春江", max_tokens=17, temperature=0) == text
    stop = text[5]
    expected = text[: text.index(stop)]
    for given in (stop, [stop]):
        some = glasshead.generate(loaded, "春江", max_tokens=17, temperature=0, stop=given)
        assert some == expected
    one, two = (glasshead.generate(loaded, "", max_tokens=29, seed=7) for _ in range(2))
    assert one == two
    drawn = {glasshead.generate(loaded, "春", max_tokens=29) for _ in range(5)}
    assert len(drawn) > 1


def test_a_translation_is_what_the_translator_writes(place):
    loaded = glasshead.load(place / "runs/de-en")
    texts = ["Ein Hund", "", "rennt."]
    said = [one.best.text for one in Translator(loaded.model, loaded.tokenizer)(texts)]
    assert glasshead.translate(loaded, texts) == said
    assert glasshead.translate(place / "runs/de-en", "Ein Hund") == said[0]


def test_looking_at_what_is_loaded_is_looking_at_the_run(place):
    for name, text in (("poems", "春江潮水"), ("de-en", "Ein Hund")):
        path = place / "runs" / name
        one, two = glasshead.look(path, text), glasshead.look(glasshead.load(path), text)
        assert torch.equal(one.weights(1), two.weights(1))
        assert one.about == two.about


def test_a_run_of_another_kind_is_named_with_what_fits(place):
    with pytest.raises(InputError, match="which does not translate") as found:
        glasshead.translate(place / "runs/poems", "Ein")
    assert "glasshead.generate" in found.value.hint
    with pytest.raises(GlassheadError, match="does not continue texts") as found:
        glasshead.generate(place / "runs/de-en", "Ein")
    assert "glasshead.translate" in found.value.hint
    with pytest.raises(GlassheadError, match="max_tokens"):
        glasshead.generate(place / "runs/poems", "春", max_tokens=0)
