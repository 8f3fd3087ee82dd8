"""Kernels besides sdpa and eager attention; masks, texts and folders that once were refused."""

import pytest
import torch

from glasshead.observe.recording import observing
from glasshead.observe.transformers_folder import TransformersFolder
from tests.observe import folders
from tests.observe.test_transformers import build, eager, furthest, inputs

tr = pytest.importorskip("transformers")
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: E402


def flash(module, query, key, value, mask=None, scaling=None, sliding_window=None, **options):
    """What flash attention computes, by its documentation; the kernel itself needs a GPU."""
    B, H, T, D = query.shape
    S, group = key.shape[2], H // key.shape[1]
    scores = query @ key.repeat_interleave(group, 1).mT * (scaling or D**-0.5)
    i, j = torch.arange(T)[:, None] + S - T, torch.arange(S)
    seen = j <= i if module.is_causal else torch.ones(T, S, dtype=torch.bool)
    if sliding_window is not None:
        seen = seen & (j > i - sliding_window)
    real = torch.ones(B, S).bool() if mask is None else mask.bool()
    weights = scores.masked_fill(~(seen & real[:, None, None]), -torch.inf).softmax(-1).nan_to_num()
    context = weights @ value.repeat_interleave(group, 1)
    if T == S:
        context = context * real[:, None, :, None]  # padding is taken out and put back as 0
    return context.transpose(1, 2), None


@pytest.mark.parametrize("padding", [None, "left", "right"])
@pytest.mark.parametrize("name", ["llama", "mistral"])
@torch.no_grad()
def test_flash_attention_has_rules_of_its_own(name, padding, monkeypatch):
    model = build(name)
    given = inputs(model, padding)
    expected = eager(model, **given)
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "flash_attention_2", flash)
    model.config._attn_implementation_internal = "flash_attention_2"
    with observing(model) as trace:
        model(**given)
    assert furthest(trace, expected, given["attention_mask"]) < 1e-5
    mask = trace.layer_traces[0].calls[0].mask
    assert mask.dense is None


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # transformers compiles the mask
@torch.no_grad()
def test_flex_attention_is_recorded():
    model = build("llama")
    given = inputs(model, "left")
    expected = eager(model, **given)
    model.set_attn_implementation("flex_attention")
    before = model(**given).logits
    with observing(model) as trace:
        assert torch.equal(model(**given).logits, before)
    assert furthest(trace, expected, given["attention_mask"]) < 1e-5


@torch.no_grad()
def test_a_long_text_that_repeats_itself_is_not_taken_for_another_attention():
    model = build("t5")
    ids = torch.full((1, 503), 7)
    ids[0, ::5] = 9
    with observing(model) as trace:
        model(input_ids=ids, decoder_input_ids=ids[:, :7])
    expected = eager(model, input_ids=ids, decoder_input_ids=ids[:, :7])
    assert furthest(trace, expected, torch.ones(1, 503)) < 1e-5


def test_look_reads_models_that_have_no_fused_attention(tmp_path):
    path = folders.gpt2(tmp_path / "gpt2")
    tokenizer = tr.AutoTokenizer.from_pretrained(path)
    config = tr.GPTJConfig(
        vocab_size=len(tokenizer), n_positions=64, n_embd=24, n_layer=2, n_head=3, rotary_dim=4,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    other = tmp_path / "gptj"
    tr.GPTJForCausalLM(config).save_pretrained(other)
    tokenizer.save_pretrained(other)
    trace = TransformersFolder(other, torch.device("cpu")).record("The quick cat.")
    assert len(trace.layer_traces) == 2
    assert (trace.weights(1).sum(-1) - 1).abs().max() < 1e-5


def test_look_translates_with_the_beams_that_the_model_asks_for(tmp_path):
    path = folders.t5(tmp_path / "t5")
    settings = tr.GenerationConfig.from_pretrained(path)
    settings.num_beams = 3
    settings.save_pretrained(path)
    folder = TransformersFolder(path, torch.device("cpu"))
    ids = torch.tensor([folder.tokenizer(folders.TEXT)["input_ids"]])
    model = tr.AutoModelForSeq2SeqLM.from_pretrained(path).eval()
    said = model.generate(ids, max_new_tokens=256, do_sample=False)
    trace = folder.record(folders.TEXT)
    assert trace.about["translation"] == folder.tokenizer.decode(said[0], skip_special_tokens=True)
    assert trace.shape(trace.layers[-1].index)[2] == said.shape[1] - 1
