"""What a user names is recognised once, and opened for what it is to do."""

import pytest
import torch

from glasshead.checkpoint import export_model, kind_of, load
from glasshead.errors import InputError
from glasshead.generation.int8 import Int8Linear
from glasshead.generation.opening import open_gpt, open_inspectable, open_translator
from tests.generation.runs import make_run
from tests.generation.translators import make_translator, small_bpe
from tests.model.test_pretrained_export import FITTING, TOKENIZERS, make

CPU = torch.device("cpu")
BYTES = TOKENIZERS["byte"]


def test_each_kind_is_told_by_name_and_config(tmp_path):
    run = make(tmp_path / "run", BYTES, **FITTING["llama"][0])
    export_model(run, tmp_path / "folder")
    assert kind_of(run) == "run"
    assert kind_of(tmp_path / "folder") == "transformers"
    assert kind_of("some/model.gguf") == "gguf"
    assert kind_of("some/book.glass") == "glass"
    assert kind_of(tmp_path / "nothing") == "run"  # whose reader says that it is not there


@pytest.mark.parametrize("name", ["folder", "model.gguf"])
def test_what_was_exported_opens_as_the_same_model(name, tmp_path):
    if name.endswith("gguf"):
        pytest.importorskip("gguf", reason="needs gguf")
    run = make(tmp_path / "run", BYTES, **FITTING["llama"][0])
    export_model(run, tmp_path / name)
    loaded, model = open_gpt(tmp_path / name, CPU)
    ids = torch.randint(BYTES.vocab_size, (2, 17))
    torch.testing.assert_close(model(ids), load(run).model(ids), rtol=0, atol=1e-5)
    assert list(loaded.tokenizer.encode_ids("abc")) == list(BYTES.encode_ids("abc"))
    assert open_inspectable(tmp_path / name).record("abcab").tokens is not None


def test_a_model_that_does_not_fit_says_what_does(tmp_path):
    gpt = make_run(tmp_path / "gpt", BYTES)
    translator = make_translator(tmp_path / "de-en", small_bpe("ein hund a dog " * 5))
    with pytest.raises(InputError, match="does not translate") as error:
        open_translator(gpt, CPU)
    assert "glasshead generate" in error.value.hint
    with pytest.raises(InputError, match="does not continue texts") as error:
        open_gpt(translator, CPU)
    assert "glasshead translate" in error.value.hint


def test_a_model_opens_in_the_precision_asked_for(tmp_path):
    run = make_run(tmp_path / "run", BYTES)
    for precision, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        _, model = open_gpt(run, CPU, precision)
        assert {p.dtype for p in model.parameters()} == {dtype}
    _, model = open_gpt(run, CPU, "int8")
    assert any(isinstance(module, Int8Linear) for module in model.modules())
