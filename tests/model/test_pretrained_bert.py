"""Encoders of the BERT family."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from glasshead.checkpoint import export_model, import_model, load

hf = pytest.importorskip("transformers", reason="needs transformers")

from tests.model import foreign  # noqa: E402
from tests.observe import folders  # noqa: E402

SIZE = {"num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 67}
CASES = {
    "plain": (hf.BertModel, {"hidden_size": 24, "intermediate_size": 29}),
    "with a head": (hf.BertForMaskedLM, {"hidden_size": 24, "intermediate_size": 29}),
    "tanh": (
        hf.BertModel,
        {"hidden_size": 33, "intermediate_size": 31, "hidden_act": "gelu_new",
         "type_vocab_size": 5, "layer_norm_eps": 1e-3},
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def theirs(request, tmp_path):
    """A model of theirs and its folder, which has a tokenizer of wordpieces."""
    kind, settings = CASES[request.param]
    folders.bert(tmp_path / "theirs")
    config = hf.BertConfig(vocab_size=71, **SIZE, **settings)
    torch.manual_seed(0)
    model = foreign.shaken(kind(config))
    model.save_pretrained(tmp_path / "theirs")
    return model, tmp_path / "theirs"


@torch.no_grad()
def test_an_imported_encoder_gives_the_same_vectors(theirs, tmp_path):
    model, path = theirs
    said = []
    import_model(path, tmp_path / "run", say=said.append)
    assert len(said) == 1
    assert said[0].startswith("left out: ")
    loaded = load(tmp_path / "run")
    ids = torch.randint(4, 71, (3, 61))
    ids[1, 50:] = 0  # padding
    bare = getattr(model, "bert", model)
    expected = bare(ids, attention_mask=(ids != 0).long()).last_hidden_state
    kept = ids != 0
    torch.testing.assert_close(loaded.model(ids)[kept], expected[kept], rtol=0, atol=1e-4)


def test_export_and_import_give_back_the_same_tensors(theirs, tmp_path):
    _, path = theirs
    import_model(path, tmp_path / "run")
    assert export_model(tmp_path / "run", tmp_path / "out").architecture == "BertModel"
    before = load_file(path / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    own = {n if n.startswith("bert.") else f"bert.{n}": t for n, t in before.items()}
    for name, tensor in after.items():
        assert torch.equal(tensor, own[name])
    left = own.keys() - after.keys()
    assert all("pooler" in name or "cls." in name for name in left)
    import_model(tmp_path / "out", tmp_path / "again")
    files = [tmp_path / part / "model.safetensors" for part in ("run", "again")]
    assert foreign.same_bytes(*files)


@torch.no_grad()
def test_an_exported_encoder_and_its_tokenizer_load_there(theirs, tmp_path):
    model, path = theirs
    import_model(path, tmp_path / "run")
    export_model(tmp_path / "run", tmp_path / "out")
    again = hf.AutoModel.from_pretrained(tmp_path / "out").eval()
    ids = torch.randint(4, 71, (2, 17))
    expected = getattr(model, "bert", model)(ids).last_hidden_state
    assert torch.equal(again(ids).last_hidden_state, expected)
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "out")
    ours = load(tmp_path / "run").tokenizer
    assert tokenizer(folders.TEXT)["input_ids"] == ours.prompt_ids(folders.TEXT)


def test_norms_are_found_under_their_old_names(theirs, tmp_path):
    _, path = theirs
    import_model(path, tmp_path / "run")
    file = path / "model.safetensors"
    old = {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        : t for n, t in load_file(file).items()
    }  # fmt: skip
    save_file({**old, "embeddings.position_ids": torch.arange(67)[None]}, file)
    import_model(path, tmp_path / "old")
    files = [tmp_path / part / "model.safetensors" for part in ("run", "old")]
    assert foreign.same_bytes(*files)


def test_wordpieces_say_that_they_do_not_give_back_every_text(tmp_path):
    folders.bert(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "run")
    tokenizer = load(tmp_path / "run").tokenizer
    assert not tokenizer.exact
    text = "The  CAT's [SEP] 小猫"
    encoded = tokenizer.encode(text)
    assert tokenizer.specials["[SEP]"] not in encoded.ids
    whole = text.encode()
    shown = [whole[start:end].decode().lower() for start, end in encoded.offsets.tolist()]
    assert shown[:2] == ["the", "cat"]
    assert shown[-2:] == ["小", "猫"]
    assert tokenizer.prompt_ids(text) == [
        tokenizer.specials["[CLS]"], *encoded.ids.tolist(), tokenizer.specials["[SEP]"]
    ]  # fmt: skip
    assert tokenizer.decode(tokenizer.prompt_ids("the cat sat")) == "the cat sat"
