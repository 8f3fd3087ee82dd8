"""The reader's task: batches, the loss at pronouns alone, and runs of it."""

import pytest
import torch

from glasshead.checkpoint import load
from glasshead.errors import ConfigError
from glasshead.model.transformer import Reader, TransformerConfig
from glasshead.text.tinyworld import World
from glasshead.text.tinyworld.tokens import world_tokenizer
from glasshead.training.config import TrainConfig
from glasshead.training.presets import find_preset
from glasshead.training.progress import ProgressListener
from glasshead.training.pronouns import (
    NOWHERE,
    PronounConfig,
    PronounDataset,
    predict_referents,
    story_batch,
)
from glasshead.training.start import Context, resume_run, start_run
from glasshead.training.world_pairs import WorldConfig, WorldDataset

TOKENIZER = world_tokenizer("zh")
STORIES = [World(5).story("train", index) for index in range(23)]


@pytest.fixture
def model():
    torch.manual_seed(7)
    config = TransformerConfig(
        TOKENIZER.vocab_size, n_layers=2, n_heads=2, d_model=22, d_ff=13, dropout=0.0
    )
    return Reader(config).eval()


@pytest.fixture
def context(tmp_path):
    return Context(tmp_path / "cache", ProgressListener())


@pytest.fixture
def task(model, context):
    config = PronounConfig(stories=29, val_stories=11, world=5)
    return PronounDataset({}, config, context).task(model, TrainConfig(batch_size=7, seed=3))


@pytest.mark.parametrize("lang", ["zh", "en", "de"])
def test_answers_stand_at_the_pronouns_and_name_their_words(lang):
    tokenizer = world_tokenizer(lang)
    batch = story_batch(STORIES, tokenizer, lang)
    for story, ids, answers in zip(STORIES, batch.ids, batch.answers, strict=True):
        assert tokenizer.decode(ids[ids != 0]) == story.text(lang)
        found = {
            place: tokenizer.decode([answers[place]]).strip()
            for place in (answers != NOWHERE).nonzero().flatten().tolist()
        }
        wanted = {pronoun.index: pronoun.word for pronoun in story.pronouns[lang]}
        assert {at: word.lower() for at, word in found.items()} == {
            at: word.lower() for at, word in wanted.items()
        }


def test_the_loss_is_the_mean_surprise_at_pronouns_alone(task, model):
    batch = task.batch(4)
    probs = model(batch.ids).log_softmax(-1)
    surprises = [
        -probs[row, place, batch.answers[row, place]]
        for row in range(7)
        for place in range(batch.ids.shape[1])
        if batch.answers[row, place] >= 0
    ]
    assert len(surprises) >= 7
    torch.testing.assert_close(task.loss(batch), torch.stack(surprises).mean())


def test_a_batch_depends_on_its_number_alone_and_is_no_wider_than_it_must(task):
    first, other, again = task.batch(6), task.batch(5), task.batch(6)
    assert torch.equal(first.ids, again.ids)
    assert torch.equal(first.answers, again.answers)
    assert not torch.equal(first.ids[:, :5], other.ids[:, :5])
    assert first.ids.shape[1] == first.lengths.max()
    assert task.tokens(first) == (first.ids != 0).sum()


def test_what_validates_is_not_trained_on_and_never_of_the_split_for_tests(context):
    config = PronounConfig(stories=31, val_stories=17, world=5)
    stories = PronounDataset({}, config, context).stories
    told = [World(5).story("train", index) for index in range(48)]
    assert torch.equal(stories.training.ids, story_batch(told[:31], TOKENIZER, "zh").ids)
    assert torch.equal(stories.validation.ids, story_batch(told[31:], TOKENIZER, "zh").ids)


def test_other_stories_have_another_fingerprint(context):
    prints = {
        PronounDataset({}, PronounConfig(stories=n, world=world), context).fingerprint
        for n, world in ((5, 1), (5, 2), (6, 1))
    }
    assert len(prints) == 3


def test_one_word_is_named_for_each_pronoun(model):
    said = predict_referents(model, STORIES, TOKENIZER, "zh")
    assert [len(words) for words in said] == [len(s.pronouns["zh"]) for s in STORIES]


def test_the_sample_shows_an_answer_behind_each_pronoun_of_the_document(task):
    assert task.sample().count("它(→") == 2


def test_a_reader_learns_and_goes_on_where_it_stopped(tmp_path, context):
    flags = {"steps": 40, "stories": 300, "val_stories": 50, "tensorboard": False, "eval_every": 40}
    preset = find_preset("reader", "refer")
    path = tmp_path / "run"
    trainer = start_run(PronounDataset, {}, preset, {**flags, "device": "cpu"}, path, context)
    before = trainer.task.evaluate()["val_loss"]
    assert trainer.train().progress.best["val_loss"] < before - 1.5
    run = load(path)
    assert isinstance(run.model, Reader)
    assert run.tokenizer.vocab_size == TOKENIZER.vocab_size
    assert resume_run(path, {}, {"steps": 42}, context).train().progress.step == 42
    with pytest.raises(ConfigError, match="--stories 7 differs from the run's 300"):
        resume_run(path, {}, {"stories": 7}, context)


def test_a_translator_of_the_world_is_a_run_like_any_other(tmp_path, context):
    flags = {"steps": 2, "stories": 40, "val_stories": 9, "langs": "en,zh", "tensorboard": False}
    preset = find_preset("translator", "world")
    trainer = start_run(WorldDataset, {}, preset, flags, tmp_path / "run", context)
    trainer.train()
    run = load(tmp_path / "run")
    story = World(0).story("train", 3)
    assert run.tokenizer.decode(run.tokenizer.encode_ids(story.text("en"))) == story.text("en")
    assert resume_run(tmp_path / "run", {}, {"steps": 3}, context).train().progress.step == 3


@pytest.mark.parametrize(
    ("config", "settings", "error"),
    [
        (PronounConfig, {"lang": "fr"}, "no language 'fr'"),
        (PronounConfig, {"stories": 0}, r"stories \(0\) must be at least 1"),
        (WorldConfig, {"langs": "zh,fr"}, "no language 'fr'"),
        (WorldConfig, {"langs": "zh"}, r"langs \(zh\) must be two"),
        (WorldConfig, {"val_stories": 0}, r"val_stories \(0\) must be at least 1"),
        (WorldConfig, {"label_smoothing": 1.0}, "label_smoothing"),
    ],
)
def test_wrong_settings_are_named(config, settings, error):
    with pytest.raises(ConfigError, match=error):
        config(**settings)
