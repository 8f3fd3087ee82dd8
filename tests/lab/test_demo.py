"""What the demo measures, on attention made by hand; how it treats folders; its words."""

import contextlib
import json
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from glasshead.errors import ConfigError, InputError
from glasshead.lab.alignments import error_rates, least_error, measure_translator
from glasshead.lab.demo import MODELS, move_into_place, open_workspace
from glasshead.lab.demo_tables import label_word, truths
from glasshead.lab.demo_training import TrainingJob, train_all
from glasshead.lab.line_breaks import wrap_text
from glasshead.lab.referents import (
    HeadFigures,
    Truth,
    both_endings,
    head_figures,
    measure_reader,
    rows_of,
)
from glasshead.model.transformer import Reader, Transformer, TransformerConfig
from glasshead.text.tinyworld import World
from glasshead.text.tinyworld.tokens import world_tokenizer

STORIES = [World(3).story("test", index) for index in range(13)]


def truth(referents, nouns, width=5):
    table = torch.zeros(len(nouns), width, dtype=torch.bool)
    for row, places in zip(table, nouns, strict=True):
        row[places] = True
    return Truth(torch.zeros(len(nouns), dtype=torch.int64), torch.tensor(referents), table)


def test_shares_and_weights_of_heads_by_hand():
    known = truth(referents=[1, 3], nouns=[[1, 3], [0, 1, 3]])
    rows = torch.zeros(2, 1, 3, 5)  # stories, layers, heads, words
    rows[0, 0] = torch.tensor([[0, 0.6, 0, 0.4, 0], [0.9, 0.06, 0, 0.04, 0], [0, 0.2, 0, 0.8, 0]])
    rows[1, 0] = torch.tensor([[0, 0, 0, 1.0, 0], [0.9, 0, 0, 0.1, 0], [0, 0.2, 0, 0.8, 0]])
    found = head_figures(rows, known)
    assert found.share.tolist() == [[1.0, 0.5, 0.5]]  # 0.9 of head 1 is on no noun of story 0
    torch.testing.assert_close(found.weight, torch.tensor([[0.8, 0.08, 0.5]], dtype=torch.double))
    assert found.best == (0, 0)
    assert known.chance == pytest.approx((1 / 2 + 1 / 3) / 2)


def test_of_heads_that_find_as_often_the_best_looks_hardest():
    known = truth(referents=[1], nouns=[[1, 3]])
    rows = torch.tensor([[[[0, 0.4, 0.5, 0.1, 0]], [[0, 0.7, 0.2, 0.1, 0]]]])
    assert head_figures(rows, known).best == (1, 0)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=9))
def test_the_row_of_a_place_is_taken_from_every_layer(places):
    maps = [torch.randn(len(places), 2, 7, 5) for _ in range(3)]
    rows = rows_of(maps, torch.tensor(places))
    for story, where in enumerate(places):
        for layer in range(3):
            assert torch.equal(rows[story, layer], maps[layer][story, :, where])


def test_the_truth_of_stories_is_that_of_their_last_pronoun():
    known = Truth.of(STORIES, "zh")
    for row, story in enumerate(STORIES):
        words = story.tokens["zh"]
        assert words[known.pronouns[row]] in "它他她"
        assert words[known.referents[row]] == story.referent.zh
        assert known.nouns[row, known.referents[row]]


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_both_nouns_of_a_story_are_hidden_at_the_same_places(lang):
    pairs = both_endings(STORIES)
    known = Truth.of(pairs, lang)
    referents, pronouns = known.referents.view(-1, 2), known.pronouns.view(-1, 2)
    others = referents.flip(1)
    assert len(referents) == len(STORIES)
    assert (referents != others).all()
    assert known.nouns[torch.arange(len(pairs)), others.flatten()].all()
    assert (pronouns.diff(dim=1).abs() <= 1).all()  # an ending may be one word longer


def test_what_a_trained_translator_shows_no_better_is_said():
    def demo(trained, untrained):
        def heads(share):
            return HeadFigures(torch.tensor([[share]]), torch.tensor([[share]]))

        def translator(reading, writing):
            return SimpleNamespace(
                pronouns=1.0,
                reading=heads(reading),
                reading_best=(0, 0),
                writing=heads(writing),
                writing_best=(0, 0),
            )

        reader = SimpleNamespace(share=1.0, cut_best=0.1, cut_all=0.9, cut_other=0.2)
        return SimpleNamespace(
            reader=reader,
            translator=translator(*trained),
            translator_untrained=translator(*untrained),
        )

    def said(trained, untrained):
        return truths(demo(trained, untrained))[1]["en"]

    assert "no more than that" not in said((0.5, 0.8), (0.4, 0.3))
    assert "while reading 它, the trained one shows no more" in said((0.378, 0.8), (0.39, 0.3))
    assert "while writing the pronoun, the trained one shows" in said((0.5, 0.2), (0.4, 0.3))
    assert "37.8% (while reading" in said((0.378, 0.8), (0.39, 0.3))


def test_alignment_error_rates_by_hand():
    # Two sentences; layer 0 has two heads. A = 3 + 2 links, S = 3 + 2.
    looked = [torch.tensor([[[0, 1, 2], [0, 0, 0]]]), torch.tensor([[[1, 1], [3, 0]]])]
    sure = [frozenset({(0, 0), (1, 1), (1, 2)}), frozenset({(3, 0), (0, 1)})]
    expected = torch.tensor([[1 - 2 * 2 / 10, 1 - 2 * 3 / 10]], dtype=torch.double)
    torch.testing.assert_close(error_rates(looked, sure), expected)


@given(st.integers(0, 10**6))
def test_no_head_does_better_than_the_least_error_and_one_that_follows_the_truth_reaches_it(seed):
    story = World(seed).story("test", 0)
    links = story.alignment("zh", "de")
    n = len(story.tokens["de"])
    follows = [min((i for i, j in links if j == word), default=0) for word in range(n)]
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randint(0, len(story.tokens["zh"]), (n,), generator=generator).tolist()
    rates = error_rates([torch.tensor([[follows, draws]])], [links])[0]
    least = least_error([n], [links])
    assert rates[0].item() == pytest.approx(least)
    assert rates[1].item() >= least - 1e-9


def test_untrained_models_are_measured_too():
    reads, writes = world_tokenizer("zh"), world_tokenizer("zh", "de")
    shape = {"n_layers": 1, "n_heads": 2, "d_model": 14, "d_ff": 13}
    reader = Reader(TransformerConfig(reads.vocab_size, **shape)).eval()
    found = measure_reader(reader, reads, "zh", STORIES[:5], STORIES[5:])
    assert found.stories == 8
    assert 0 <= found.accuracy <= 1
    assert found.heads.share.shape == (1, 2)
    assert 0.2 < found.chance < 0.5
    model = Transformer(TransformerConfig(writes.vocab_size, **shape)).eval()
    wrote = measure_translator(model, writes, ("zh", "de"), STORIES[:5], STORIES[5:])
    assert wrote.exact == 0
    assert wrote.errors.shape == wrote.reading.share.shape == wrote.writing.weight.shape == (1, 2)
    assert 0 < wrote.least < wrote.error <= 1


def test_the_best_head_is_chosen_on_other_stories_than_it_is_measured_on():
    torch.manual_seed(1)
    tokenizer, langs = world_tokenizer("zh", "de"), ("zh", "de")
    shape = {"n_layers": 2, "n_heads": 7, "d_model": 14, "d_ff": 13}
    model = Transformer(TransformerConfig(tokenizer.vocab_size, **shape)).eval()
    seen, unseen = STORIES[:2], STORIES[2:5]
    found = measure_translator(model, tokenizer, langs, seen, unseen)
    on_seen = measure_translator(model, tokenizer, langs, unseen, seen).errors
    assert found.errors.argmin() != on_seen.argmin()  # or the next line could not fail
    assert found.best == divmod(int(on_seen.argmin()), 7)


def finished(work, says):
    for part in MODELS:
        (work / part).mkdir()
        (work / part / "config.json").write_text(says)
    (work / "report.html").write_text(says)
    (work / "demo.json").write_text(json.dumps({"glasshead": "demo"}))


def test_a_new_demo_takes_the_place_of_an_earlier_one_and_of_nothing_else(tmp_path):
    out = tmp_path / "runs" / "demo"
    for says in ("first", "second"):
        with open_workspace(out) as work:
            finished(work, says)
            move_into_place(work, out)
        (out / "mine").mkdir(exist_ok=True)
        assert (out / "reader" / "config.json").read_text() == says
        assert (out / "report.html").read_text() == says
    names = sorted(entry.name for entry in out.iterdir())
    assert names == ["demo.json", "mine", "reader", "reader-en", "report.html", "translator"]
    assert [entry.name for entry in out.parent.iterdir()] == ["demo"]


def test_a_demo_that_breaks_off_leaves_the_earlier_one(tmp_path):
    out = tmp_path / "demo"
    with open_workspace(out) as work:
        finished(work, "first")
        move_into_place(work, out)
    with contextlib.suppress(KeyboardInterrupt), open_workspace(out) as work:
        (work / "reader").mkdir()
        raise KeyboardInterrupt
    assert (out / "report.html").read_text() == "first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["demo"]


def test_of_two_demos_to_one_folder_the_second_is_refused(tmp_path):
    pytest.importorskip("fcntl")
    out = tmp_path / "demo"
    with open_workspace(out) as work:
        finished(work, "first")
        with pytest.raises(InputError, match="another demo is running"), open_workspace(out):
            pass
        move_into_place(work, out)
    assert (out / "report.html").read_text() == "first"


def test_what_a_killed_demo_left_is_cleared_away(tmp_path):
    left = tmp_path / ".demo.new"
    (left / "reader").mkdir(parents=True)
    (left / "lock").touch()
    with open_workspace(tmp_path / "demo") as work:
        assert [entry.name for entry in work.iterdir()] == ["lock"]
    assert not left.exists()


@pytest.mark.parametrize("mark", [None, "{}", "[]", "no JSON", '{"glasshead": "run"}'])
def test_a_folder_that_is_no_demo_is_left_alone(tmp_path, mark):
    (tmp_path / "reader").mkdir()
    if mark is not None:
        (tmp_path / "demo.json").write_text(mark)
    with pytest.raises(InputError, match="is not an earlier demo"), open_workspace(tmp_path):
        pass
    assert (tmp_path / "reader").is_dir()


def test_an_error_in_a_training_process_is_raised_here(tmp_path):
    job = TrainingJob("reader", "refer", "reader", tmp_path / "run", {"steps": 5, "lr": -1.0})
    with pytest.raises(ConfigError, match=r"lr \(-1.0\) must be at least 0"):
        train_all([job], lambda *message: None)


@given(st.text(alphabet="它饿了，。“”（） abc,7%", max_size=60), st.integers(8, 30))
def test_wrapping_keeps_all_but_spaces_and_no_line_is_too_wide(text, width):
    lines = wrap_text(Text(text), width).plain.split("\n")
    assert "".join("".join(lines).split()) == "".join(text.split())
    for line in lines:
        # A word, or marks, wider than a line stay whole.
        assert cell_len(line) <= width or len(line.split()) <= 1


def test_a_word_that_occurs_twice_has_its_number():
    tokens = World.seed_story().tokens["zh"]
    assert [label_word(tokens, place) for place in (2, 4, 26)] == ["小猫", "它#1", "它#2"]
