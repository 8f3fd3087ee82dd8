"""Marian's translators, and their words."""

import json
import struct

import pytest
import torch

from glasshead.checkpoint import import_model, load
from glasshead.errors import InputError
from glasshead.generation.beam import greedy
from glasshead.generation.translation_rows import SpecialTokens
from glasshead.text.marian_tokenizer import read_sentencepieces
from glasshead.text.tokenizer import tokenizer_from_json

hf = pytest.importorskip("transformers", reason="needs transformers")

SOURCE = {"▁ein": -3.0, "▁Hund": -4.0, "▁": -2.5, "e": -5.0, "in": -4.5, "H": -6.0, "nd": -5.5,
          "u": -6.0, "n": -5.0, "d": -5.0, ".": -4.0, "r": -5.0, "en": -4.2, "t": -4.9}  # fmt: skip
TARGET = {"▁a": -3.0, "▁dog": -4.0, "s": -4.5, "▁runs": -5.0, "x": -6.0, "▁": -3.5, ".": -4.0,
          "▁lost": -5.0}  # fmt: skip
# One piece of the target, ▁lost, has no number.
TOKENS = ["</s>", "<unk>", *SOURCE, "▁a", "▁dog", "s", "▁runs", "x", ">>fra<<", "<pad>"]
PAD = len(TOKENS) - 1


def spm(scores):
    """A sentencepiece model's file: fields of a protocol buffer, written out."""

    def field(number, data):
        return bytes([number << 3 | 2, len(data)]) + data

    def piece(text, score, kind):
        return field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18"
                     + bytes([kind]))  # fmt: skip

    specials = piece("<unk>", 0.0, 2) + piece("<s>", 0.0, 3) + piece("</s>", 0.0, 3)
    return specials + b"".join(piece(*item, 1) for item in scores.items())


@pytest.fixture(scope="module", params=[{}, {"activation_function": "relu", "encoder_layers": 1,
                                             "scale_embedding": False}])  # fmt: skip
def theirs(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("marian") / "theirs"
    config = hf.MarianConfig(
        **{
            "vocab_size": len(TOKENS), "d_model": 20, "encoder_layers": 2, "decoder_layers": 3,
            "encoder_attention_heads": 5, "decoder_attention_heads": 5, "encoder_ffn_dim": 31,
            "decoder_ffn_dim": 31, "max_position_embeddings": 97, "pad_token_id": PAD,
            "decoder_start_token_id": PAD, "eos_token_id": 0, "forced_eos_token_id": None,
            "scale_embedding": True, "activation_function": "swish", **request.param,
        }
    )  # fmt: skip
    torch.manual_seed(0)
    model = hf.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "positions" not in name:  # those are computed
                parameter.add_(0.2 * torch.randn_like(parameter))
        model.final_logits_bias.normal_()
    model.save_pretrained(path)
    (path / "source.spm").write_bytes(spm(SOURCE))
    (path / "target.spm").write_bytes(spm(TARGET))
    (path / "vocab.json").write_text(json.dumps({t: n for n, t in enumerate(TOKENS)}))
    return model, path


@pytest.fixture(scope="module")
def loaded(theirs, tmp_path_factory):
    run = tmp_path_factory.mktemp("run") / "run"
    import_model(theirs[1], run)
    return load(run)


def sources():
    return [[2, 3, 4, 0], [2, 9, 10, 11, 12, 0], [7, 0]]


@torch.no_grad()
def test_an_imported_translator_gives_the_same_logits(theirs, loaded):
    width = max(map(len, sources()))
    ids = torch.tensor([[*row, *[PAD] * (width - len(row))] for row in sources()])
    target = torch.randint(2, PAD, (3, 61))
    target[:, 0] = PAD
    found = theirs[0](ids, attention_mask=(ids != PAD).long(), decoder_input_ids=target)
    torch.testing.assert_close(loaded.model(ids, target), found.logits, rtol=0, atol=1e-4)


def test_an_imported_translator_writes_the_same(theirs, loaded):
    marks = SpecialTokens.of(loaded.tokenizer, loaded.model)
    assert (marks.bos, marks.eos) == (PAD, 0)
    model = theirs[0]
    plain = hf.GenerationConfig(
        max_new_tokens=50, num_beams=1, do_sample=False, decoder_start_token_id=PAD,
        pad_token_id=PAD, eos_token_id=0, bad_words_ids=[[n] for n in marks.never],
    )  # fmt: skip
    for source in sources():
        ids = torch.tensor([source])
        said = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=plain)
        expected = said[0, 1:51].tolist()
        expected = expected[: expected.index(0)] if 0 in expected else expected
        [found] = greedy(loaded.model, [source], marks)
        assert list(found.ids)[:50] == expected


def test_words_are_cut_where_they_are_most_probable(loaded):
    def cut(text):
        return [TOKENS[n] for n in loaded.tokenizer.prompt_ids(text)]

    assert cut("ein Hund.") == ["▁ein", "▁Hund", ".", "</s>"]
    assert cut("  ein   Hund ") == ["▁ein", "▁Hund", "</s>"]
    assert cut("einen") == ["▁ein", "en", "</s>"]
    assert cut("ein ß") == ["▁ein", "▁", "<unk>", "</s>"]
    assert cut(">>fra<< ein") == [">>fra<<", "▁ein", "</s>"]
    assert cut("")[-1:] == ["</s>"]
    assert "</s>" not in cut("ein </s>")[:-1]  # typed, it is text
    # The target's words are not the source's, but a character that is in both is itself.
    assert "▁dog" not in cut("dog dog")
    assert cut("x") == ["▁", "x", "</s>"]


def test_a_target_is_cut_by_its_own_pieces(loaded):
    def cut(text):
        return [TOKENS[n] for n in loaded.tokenizer.target_ids(text)]

    assert cut("a dogs runs.") == ["▁a", "▁dog", "s", "▁runs", "."]
    assert cut("a lost dog") == ["▁a", "<unk>", "▁dog"]
    assert cut("Hund") == ["▁", "<unk>"]  # no piece of the target, and unknown as a whole
    assert cut("in") == ["▁", "in"]  # unknown to the pieces, but the vocabulary has it
    assert loaded.tokenizer.vocab_size == len(TOKENS)


def test_the_tokenizer_is_the_same_when_it_was_saved(loaded):
    again = tokenizer_from_json(loaded.tokenizer.to_json())
    assert again.to_json() == loaded.tokenizer.to_json()
    assert again.kind == "marian"
    for text in ("ein Hund.", "a lost dog", ">>fra<< ein"):
        assert again.prompt_ids(text) == loaded.tokenizer.prompt_ids(text)
        assert again.target_ids(text).tolist() == loaded.tokenizer.target_ids(text).tolist()


@pytest.mark.parametrize(
    "changes", [{"source": "!"}, {"target": None}, {"vocabulary": 7}, {"vocabulary": {"a": 0}}]
)
def test_a_damaged_tokenizer_of_a_run_is_refused(loaded, changes):
    data = {**json.loads(loaded.tokenizer.to_json()), **changes}
    with pytest.raises(InputError):
        tokenizer_from_json(json.dumps(data))


def test_a_translation_is_spelled_by_the_target(loaded):
    ids = [TOKENS.index(token) for token in ("▁a", "▁dog", "s", "▁runs", ".", "</s>")]
    assert loaded.tokenizer.decode(ids) == "a dogs runs."


@pytest.mark.parametrize("cut", [1, 5, 30, -3])
def test_a_damaged_sentencepiece_file_is_refused(cut):
    data = spm(SOURCE)[:cut]
    with pytest.raises(InputError, match=r"x\.spm"):
        read_sentencepieces(data + b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "x.spm")


@pytest.mark.parametrize(
    ("vocabulary", "named"),
    [
        ({"</s>": 0, "<unk>": 1}, "<pad>"),
        ({"</s>": 0, "<unk>": 1, "<pad>": 4_000_000_000}, "ids"),
        ({"</s>": 0, "<unk>": 1, "<pad>": "2"}, "ids"),
    ],
)
def test_a_damaged_vocabulary_is_refused(theirs, tmp_path, vocabulary, named):
    _, path = theirs
    for file in path.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    with pytest.raises(InputError, match=named):
        import_model(tmp_path, tmp_path / "run")


def test_halves_that_differ_are_refused(theirs, tmp_path):
    _, path = theirs
    for file in path.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for name, value in (("decoder_ffn_dim", 37), ("decoder_start_token_id", 3)):
        config = json.loads((path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, name: value}))
        with pytest.raises(InputError, match=name):
            import_model(tmp_path, tmp_path / "run")


def test_the_sinusoids_of_the_two_kinds_are_the_same_waves():
    from glasshead.attention.position import SinusoidalPositions, SplitSinusoidalPositions

    x, positions = torch.zeros(1, 7, 10), torch.arange(7)
    plain = SinusoidalPositions(10).embed(x, positions)
    split = SplitSinusoidalPositions(10).embed(x, positions)
    assert torch.equal(split, torch.cat((plain[..., 0::2], plain[..., 1::2]), -1))
