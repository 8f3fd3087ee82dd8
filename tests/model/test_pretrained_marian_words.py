"""An imported Marian whose words are cut by real sentencepiece models, there and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glasshead.checkpoint import export_model, import_model, load
from glasshead.errors import InputError
from glasshead.generation.beam import SearchConfig, greedy, search
from glasshead.generation.translation_rows import SpecialTokens

hf = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("sentencepiece", reason="needs sentencepiece")

from tests.model import marians  # noqa: E402
from tests.model.foreign import same_bytes  # noqa: E402

# Their tokenizer wants sacremoses, for a normalisation that it does not use.
pytestmark = pytest.mark.filterwarnings("ignore:Recommended")
WORDS = " ".join(marians.GERMAN + marians.ENGLISH).split()
TEXTS = st.one_of(
    st.lists(st.sampled_from([*WORDS, ">>eng<<", "ß", "xyz"]), max_size=7).map(" ".join),
    st.text(alphabet="EinHudretaxyzßäö ½①ﬁＨ\t.<>()小猫▁é", max_size=17),
)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Theirs, the run that it becomes, and what it is exported to."""
    path = tmp_path_factory.mktemp("marian")
    marians.build(path / "theirs")
    import_model(path / "theirs", path / "run")
    export_model(path / "run", path / "out")
    return path


@pytest.fixture(scope="module")
def both(places):
    """Their tokenizer, of what was exported, and ours."""
    return hf.AutoTokenizer.from_pretrained(places / "out"), load(places / "run").tokenizer


@given(text=TEXTS)
def test_both_languages_are_cut_as_sentencepiece_cuts_them(both, text):
    theirs, ours = both
    if text.startswith(">>") and "<<" in text and not text.startswith(">>eng<<"):
        text = " " + text  # to them a language that there is not, to us a text
    # A language is told at the start; further back it is text to them.
    text = text[:7] + text[7:].replace(">>eng<<", "")
    text = text if text.startswith(">>eng<<") else text.replace(">>eng<<", "")
    assert ours.prompt_ids(text) == theirs(text)["input_ids"]
    assert ours.target_ids(text).tolist() == theirs(text_target=text)["input_ids"][:-1]


def test_pieces_are_spelled_as_their_library_does(both):
    theirs, ours = both
    for line in marians.ENGLISH:
        ids = ours.target_ids(line).tolist()
        plain = theirs.decode(ids, skip_special_tokens=True)
        assert ours.decode(ids) == plain
        assert len(plain) > 20


def test_everything_comes_back_as_it_was(places):
    assert same_bytes(places / "theirs/model.safetensors", places / "out/model.safetensors")
    for name in ("source.spm", "target.spm"):
        assert (places / "theirs" / name).read_bytes() == (places / "out" / name).read_bytes()
    for name in ("vocab.json", "generation_config.json", "config.json"):
        before, after = (json.loads((places / at / name).read_text()) for at in ("theirs", "out"))
        ours = {"dropout", "torch_dtype", "transformers_version", "_from_model_config"}
        assert {n: v for n, v in before.items() if n in after and n not in ours} == {
            n: v for n, v in after.items() if n in before and n not in ours
        }


@pytest.mark.parametrize("beam", [1, 5])
def test_it_translates_the_same_everywhere(places, both, beam):
    theirs, exported = (
        hf.MarianMTModel.from_pretrained(places / at).eval() for at in ("theirs", "out")
    )
    loaded = load(places / "run")
    marks = SpecialTokens.of(loaded.tokenizer, loaded.model)
    config = SearchConfig(beam=beam, alpha=0.0, max_tokens=40)
    # Of bare probabilities, until nothing better can come, and without <unk>: as ours.
    same = {"length_penalty": 0.0, "early_stopping": "never"} if beam > 1 else {}
    same |= {"bad_words_ids": [[n] for n in marks.never], "forced_eos_token_id": None}
    ended = []
    for line in marians.GERMAN[::2]:
        batch = both[0](line, return_tensors="pt")
        usual = [one.generate(**batch, num_beams=beam)[0].tolist() for one in (theirs, exported)]
        assert usual[0] == usual[1]
        said = exported.generate(**batch, num_beams=beam, max_length=41, **same)[0].tolist()
        source = loaded.tokenizer.prompt_ids(line)
        if beam == 1:
            [own] = greedy(loaded.model, [source], marks, config)
        else:
            [[own]] = search(loaded.model, [source], marks, config)
        assert [marks.bos, *own.ids, *[marks.eos] * own.ended] == said
        ended.append(own.ended)
    assert any(ended) or beam == 1  # drawn parameters go on and on


def test_a_tokenizer_that_lacks_the_targets_pieces_is_refused(places, tmp_path):
    for file in (places / "theirs").iterdir():
        if file.name != "target.spm":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(InputError, match=r"target\.spm"):
        import_model(tmp_path, tmp_path / "run")
