"""An imported Marian, used as any run: translated with, scored, trained further, exported."""

import json
import math

import pytest

import glasshead
from glasshead.text.batches import PairBatches

hf = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("sentencepiece", reason="needs sentencepiece")

from tests.model import marians  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Recommended")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    path = tmp_path_factory.mktemp("marian") / "theirs"
    marians.build(path)
    return path


def test_it_is_used_as_any_run(cli, theirs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.de").write_text("\n".join(marians.GERMAN * 3) + "\n")
    (tmp_path / "a.en").write_text("\n".join(marians.ENGLISH * 3) + "\n")
    assert cli("import", theirs, "-o", "base").code == 0
    pairs = ("--pairs", "a.de", "a.en")
    before = bleu(cli, "base", pairs)
    flags = "--val a.de a.en --steps 60 --lr 1e-2 --max-tokens 512 --eval-every 60 --out tuned"
    done = cli("train", *pairs, "--from", "base", *flags.split())
    assert done.code == 0, done.err
    assert bleu(cli, "tuned", pairs) > max(before + 20, 50)  # it has read them in both languages
    said = cli("translate", "tuned", marians.GERMAN[0], "--align")
    assert said.code == 0, said.err
    assert marians.ENGLISH[0].split()[0] in said.out
    assert cli("export", "tuned", "-o", "out").code == 0
    model = hf.MarianMTModel.from_pretrained(tmp_path / "out").eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "out")
    batch = tokenizer(marians.GERMAN[0], return_tensors="pt")
    their = tokenizer.decode(model.generate(**batch, num_beams=1)[0], skip_special_tokens=True)
    assert their == cli("translate", "tuned", marians.GERMAN[0], "--beam", "1").out.strip()


def bleu(cli, run, pairs):
    done = cli("score", run, *pairs, "--json", "--beam", "1")
    assert done.code == 0, done.err
    return json.loads(done.out)["measures"][0]["score"]


def test_training_computes_the_loss_that_their_library_does(theirs, tmp_path, monkeypatch):
    """A source ends with </s>, a target is cut by its own pieces and begins with padding."""
    from glasshead.text.pairs import Pair
    from glasshead.training.parallel_corpus import PairConfig, ParallelCorpus
    from glasshead.training.translation import TranslationTask

    loaded = glasshead.load(theirs)
    lines = zip(marians.GERMAN, marians.ENGLISH, strict=True)
    pairs = [Pair(source, target, n) for n, (source, target) in enumerate(lines, 1)]
    task = TranslationTask(
        loaded.model, loaded.tokenizer, ParallelCorpus(pairs, pairs), PairConfig(), seed=0
    )
    assert isinstance(task._batches, PairBatches)
    found = task.loss(task.batch(0)).item()
    model = hf.MarianMTModel.from_pretrained(theirs).eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(theirs)
    batch = tokenizer(
        marians.GERMAN, text_target=marians.ENGLISH, padding=True, return_tensors="pt"
    )
    pad = tokenizer.pad_token_id
    batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    batch["labels"][batch["labels"] == pad] = -100
    assert math.isclose(found, model(**batch).loss.item(), rel_tol=1e-5)
