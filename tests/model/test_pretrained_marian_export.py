"""Our translators as Marians: the same logits and the same translations, or a reason why not."""

import json
from dataclasses import asdict

import pytest
import torch

from glasshead.checkpoint import RunConfig, RunFolder, export_model, import_model, load
from glasshead.errors import ConfigError, GlassheadError
from glasshead.generation.beam import SearchConfig, greedy, search
from glasshead.generation.translate import Translator
from glasshead.generation.translation_rows import SpecialTokens
from glasshead.model.transformer import Encoder, Transformer, TransformerConfig
from glasshead.text.tokenizer import BPETokenizer, CharTokenizer, WordTokenizer

hf = pytest.importorskip("transformers", reason="needs transformers")

from tests.model.foreign import same_bytes  # noqa: E402

SPECIALS = ("<pad>", "<bos>", "<eos>")
TEXT = "Ein Hund rennt durch den Schnee. 小猫饿了，它在睡。 A dog runs through the snow."
BPE = BPETokenizer.train([TEXT] * 3, 300, SPECIALS)
FITTING = {"positions": "sinusoidal-split", "norm_place": "post"}
CASES = {
    "plain": {},
    "deeper": {"n_decoder_layers": 3, "feed_forward": "silu", "head_bias": True},
    "no biases": {"bias": False, "qkv_bias": False, "feed_forward": "gelu"},
    "as it is": {"scaled": False, "feed_forward": "gelu-tanh", "n_kv_heads": 5, "d_head": 4},
}


def make(path, tokenizer=BPE, data=None, **fields):
    torch.manual_seed(1)
    settings = {"max_len": 61, "n_layers": 2, "n_heads": 5, "d_model": 20, "d_ff": 31, **FITTING}
    pad = tokenizer.specials["<pad>"]
    config = TransformerConfig(tokenizer.vocab_size, pad=pad, **(settings | fields))
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    about = RunConfig("transformer", asdict(config), {}, data or {})
    RunFolder.create(path, about, tokenizer, model)
    return path


def theirs(path):
    model = hf.AutoModelForSeq2SeqLM.from_pretrained(path).eval()
    return model, hf.AutoTokenizer.from_pretrained(path)


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_a_translator_computes_and_writes_the_same_there(case, tmp_path):
    run = make(tmp_path / "run", **CASES[case])
    made = export_model(run, tmp_path / "out")
    assert made.architecture == "MarianMTModel"
    loaded = load(run)
    model, tokenizer = theirs(tmp_path / "out")
    lines = ["Ein Hund rennt.", "小猫", "den Schnee the dog 小 snow"]
    batch = tokenizer(lines, padding=True, return_tensors="pt")
    assert sorted(batch) == ["attention_mask", "input_ids"]
    sources = [loaded.tokenizer.encode_ids(line).tolist() for line in lines]
    marks = SpecialTokens.of(loaded.tokenizer, loaded.model)
    target = torch.randint(10, 290, (3, 47))
    target[:, 0] = marks.bos
    logits = model(**batch, decoder_input_ids=target).logits
    torch.testing.assert_close(loaded.model(batch["input_ids"], target), logits, rtol=0, atol=1e-4)
    for source in sources:
        [found] = greedy(loaded.model, [source], marks, SearchConfig(max_tokens=50))
        ids = torch.tensor([source])
        # What a bare `generate` does, as the folder has it, but for the length.
        said = model.generate(ids, attention_mask=torch.ones_like(ids), max_length=51)[0].tolist()
        assert said[0] == marks.bos
        assert [n for n in said[1:] if n != marks.eos] == list(found.ids)


def test_it_comes_back_the_same(tmp_path):
    run = make(tmp_path / "run", dropout=0.0)
    export_model(run, tmp_path / "out")
    import_model(tmp_path / "out", tmp_path / "again")
    export_model(tmp_path / "again", tmp_path / "out2")
    files = [tmp_path / name / "model.safetensors" for name in ("out", "out2")]
    assert same_bytes(*files)
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        first, second = ((tmp_path / at / name).read_text() for at in ("out", "out2"))
        assert json.loads(first) == json.loads(second), name
    one, two = load(run), load(tmp_path / "again")
    assert two.model.config.pad == one.model.config.pad
    for text in ("Ein Hund", "小猫 snow"):
        said = [Translator(m.model, m.tokenizer)([text])[0].best for m in (one, two)]
        assert said[0].text == said[1].text
        assert said[0].score == pytest.approx(said[1].score, abs=1e-5)


def test_small_letters_are_read_there_too(tmp_path):
    run = make(tmp_path / "run", data={"pairs": {"lowercase": True}})
    export_model(run, tmp_path / "out")
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = load(run).tokenizer.encode_ids("ein hund über den schnee").tolist()
    assert tokenizer("Ein HUND Über den Schnee")["input_ids"] == ids
    assert tokenizer.decode(ids) == "ein hund über den schnee"
    again = load(tmp_path / "out")
    assert again.tokenizer.prompt_ids("Ein HUND Über den Schnee") == ids


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"norm_place": "pre"}, ["norm_place=pre (not post)"]),
        (
            {"positions": "sinusoidal", "feed_forward": "swiglu", "tied": False, "shared": False},
            ["positions=sinusoidal (not sinusoidal-split)", "feed_forward=swiglu", "tied=false",
             "shared=false"],
        ),
        ({"norm": "rms", "qk_norm": True, "softcap": 9.0}, ["norm=rms", "qk_norm=true", "softcap"]),
        ({"n_kv_heads": 1, "d_head": 6, "norm_eps": 1e-6}, ["n_kv_heads=1", "d_head", "norm_eps"]),
    ],
)  # fmt: skip
def test_what_stands_in_the_way_of_a_marian_is_listed(fields, named, tmp_path):
    with pytest.raises(ConfigError) as found:
        export_model(make(tmp_path / "run", **fields), tmp_path / "out")
    assert "marian" in str(found.value)
    for name in named:
        assert name in str(found.value)
    assert "--preset marian" in found.value.hint
    assert not (tmp_path / "out").exists()


def test_words_that_no_tokenizer_there_can_cut_are_refused(tmp_path):
    run = make(tmp_path / "run", WordTokenizer(["a", "b"], SPECIALS))
    with pytest.raises(GlassheadError, match="word"):
        export_model(run, tmp_path / "out")


def test_an_encoder_that_is_no_bert_is_refused(tmp_path):
    config = TransformerConfig(vocab_size=307, d_model=24, n_layers=1)
    about = RunConfig("encoder", asdict(config), {}, {})
    RunFolder.create(tmp_path / "run", about, CharTokenizer.train("abc"), Encoder(config))
    with pytest.raises(GlassheadError, match="bert: "):
        export_model(tmp_path / "run", tmp_path / "out")


NUMBERS = dict(zip("0123456789", "null eins zwei drei vier fünf sechs sieben acht neun".split(), strict=True))  # noqa: E501, SIM905  # fmt: skip


def test_a_translator_trained_here_translates_the_same_there(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    codes = [f"{n:02}" for n in range(100)] * 5
    (tmp_path / "a.txt").write_text("".join(" ".join(code) + "\n" for code in codes))
    lines = (" ".join(NUMBERS[digit] for digit in code) + "\n" for code in codes)
    (tmp_path / "b.txt").write_text("".join(lines))
    flags = "--preset marian --steps 80 --d-model 32 --n-layers 1 --eval-every 80 --val-share 0.2 "
    flags += "--vocab-size 300 --out run"
    assert cli("train", "--pairs", "a.txt", "b.txt", *flags.split()).code == 0
    done = cli("export", "run", "-o", "out")
    assert done.code == 0, done.err
    assert done.err.startswith("MarianMTModel, ")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "pipeline_tag: translation" in card
    loaded, (model, tokenizer) = load("run"), theirs(tmp_path / "out")
    marks = SpecialTokens.of(loaded.tokenizer, loaded.model)
    right = 0
    for code in ("7 3", "0 4", "9 8", "6 1"):
        ids = tokenizer(code, return_tensors="pt")
        source = ids["input_ids"][0].tolist()
        assert source == loaded.tokenizer.prompt_ids(code)
        [one] = greedy(loaded.model, [source], marks)
        [[best]] = search(loaded.model, [source], marks, SearchConfig(beam=4, alpha=0.0))
        for found, how in ((one, {}), (best, {"num_beams": 4, "length_penalty": 0.0})):
            said = model.generate(**ids, **how, early_stopping="never" if how else False)
            assert tokenizer.decode(said[0], skip_special_tokens=True) == loaded.tokenizer.decode(
                found.ids
            )
        right += loaded.tokenizer.decode(one.ids).strip() == " ".join(
            NUMBERS[digit] for digit in code.split()
        )
    assert right >= 3  # it has learned something to compare
