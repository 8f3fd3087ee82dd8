"""The ladder: what its rungs are, what they are fed, what comes of it."""

import json
import math
from dataclasses import replace

import matplotlib.font_manager
import pytest
import torch
from rich.console import Console

from glasshead.checkpoint import load
from glasshead.errors import ConfigError, InputError
from glasshead.lab import ladder
from glasshead.lab.examples.published import CHARACTERS, VOCABULARY
from glasshead.lab.ladder import Climb, LadderText, Point, climb, read_text, summaries
from glasshead.lab.ladder_figure import (
    ADDS,
    TEXTS,
    as_json,
    draw,
    label_font,
    tables,
)
from glasshead.lab.rungs import RUNGS, parse_rungs
from glasshead.model.gpt import GPT
from glasshead.observe.fonts import chinese_font
from tests.lab.boxfont import make_font

# CLAIMS: parameters of the original's rungs at a vocabulary of 6148.
PARAMETERS = [
    399_620, 399_876, 402_948, 402_948, 404_004, 412_260, 412_260, 437_316, 437_764, 437_764,
    15_466_756, 15_466_756,
]  # fmt: skip


@pytest.fixture
def text(tmp_path):
    """A small text with something to learn, of 29 characters."""
    path = tmp_path / "small.txt"
    path.write_text("".join(chr(0x4E00 + n**3 % 29) for n in range(4001)), encoding="utf-8")
    return read_text(str(path))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(ladder, "FINAL_BATCHES", 5)
    monkeypatch.setattr(ladder, "CURVE_BATCHES", 2)


# --- rungs ---


@pytest.mark.parametrize(("number", "parameters"), list(enumerate(PARAMETERS, 1)))
def test_each_rung_has_the_parameters_of_the_original(number, parameters):
    with torch.device("meta"):
        model = GPT(RUNGS[number].config(vocab_size=6148))
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_the_settings_of_training_are_the_original_s():
    for number in range(1, 11):
        rung = RUNGS[number]
        assert (rung.batch_size, rung.model["max_len"], rung.lr, rung.steps) == (32, 8, 1e-2, 2000)
    for number in (11, 12):
        assert (RUNGS[number].batch_size, RUNGS[number].lr) == (64, 3e-4)
        assert RUNGS[number].model["max_len"] == 256
        assert RUNGS[number].large


def test_each_rung_is_the_one_below_and_what_it_adds():
    for number in range(2, 13):
        assert RUNGS[number].model == {**RUNGS[number - 1].model, **RUNGS[number].adds}


@pytest.mark.parametrize(
    ("given", "numbers"),
    [("1", [1]), ("1,3-7", [1, 3, 4, 5, 6, 7]), (" 12 , 2 - 3,3", [2, 3, 12]), ("5-5", [5])],
)
def test_rungs_are_numbers_and_spans(given, numbers):
    assert parse_rungs(given) == numbers


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "'' in --rungs '' is not a rung"),
        ("1,,2", "'' in --rungs '1,,2' is not a rung"),
        ("one", "'one' in --rungs 'one' is not a rung"),
        ("3-", "'3-' in --rungs '3-' is not a rung"),
        ("-3", "'-3' in --rungs '-3' is not a rung"),
        ("1-2-3", "'1-2-3' in"),
        ("1.5", "'1.5' in"),
        ("²", "'²' in"),
        ("0", "there is no rung 0"),
        ("9-13", "there is no rung 13"),
        ("9" * 5000, "is not a rung"),
        ("7-3", "the span 7-3 runs backwards"),
    ],
)
def test_rungs_that_cannot_be_read(given, message):
    with pytest.raises(InputError) as caught:
        parse_rungs(given)
    assert message in str(caught.value)
    assert caught.value.hint


# --- training ---


def test_all_rungs_of_a_seed_see_the_same_batches(text, monkeypatch):
    seen = []
    loss_of = ladder.next_token_loss

    def watched(model, ids, targets):
        if torch.is_grad_enabled():
            seen.append((ids.clone(), targets.clone()))
        return loss_of(model, ids, targets)

    monkeypatch.setattr(ladder, "next_token_loss", watched)
    list(climb([1, 4, 10], text, seeds=2, steps=3))
    runs = [seen[n : n + 3] for n in range(0, len(seen), 3)]  # rung by rung, seed by seed
    assert len(runs) == 6
    for seed in (0, 1):
        for other in runs[seed::2]:
            for (ids, targets), (same_ids, same_targets) in zip(runs[seed], other, strict=True):
                assert torch.equal(ids, same_ids)
                assert torch.equal(targets, same_targets)
    assert not torch.equal(runs[0][0][0], runs[1][0][0])


def test_losses_fall_and_are_those_of_the_trained_model(text):
    for one in climb([1, 7, 10], text, steps=60):
        assert one.steps == 60
        assert [point.step for point in one.curve] == list(range(3, 61, 3))
        assert one.curve[-1].train < one.curve[0].train - 0.5
        assert one.curve[-1].val < one.curve[0].val - 0.5
        assert one.val == pytest.approx(one.curve[-1].val, abs=0.5)
        assert one.train < math.log(29)
        assert one.best_val <= one.val
        assert one.tokens_per_s > 0


def test_a_seed_gives_the_same_numbers_again_and_another_gives_others(text):
    def numbers(seeds=1):
        return [replace(one, tokens_per_s=0.0) for one in climb([10], text, seeds=seeds, steps=5)]

    torch.manual_seed(123)
    first = numbers()
    torch.rand(7)
    assert numbers() == first
    two = numbers(seeds=2)
    assert two[0] == first[0]
    assert two[1].val != two[0].val


def test_what_a_rung_does_does_not_depend_on_those_before_it(text):
    alone = next(climb([4], text, steps=5))
    *_, after = climb([1, 2, 4], text, steps=5)
    assert replace(after, tokens_per_s=0.0) == replace(alone, tokens_per_s=0.0)


def test_the_process_is_left_as_it_was(text):
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    list(climb([10], text, steps=2))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    tiny = torch.tensor([1e-39])
    assert (tiny / 2).item() > 0


def test_dropout_is_off_when_a_rung_is_measured(text):
    model = GPT(RUNGS[10].config(29))
    batches = ladder.TextBatches(
        text.corpus.validation, batch_size=32, block=8, seed=0
    ).evenly_spaced(3)
    assert ladder._evaluate(model, batches) == ladder._evaluate(model, batches)
    assert model.training


def shrink(monkeypatch, number):
    size = {"d_model": 12, "n_heads": 2, "n_layers": 1, "max_len": 11}
    small = replace(RUNGS[number], model={**RUNGS[number].model, **size})
    monkeypatch.setitem(RUNGS, number, small)


def test_a_large_rung_is_trained_wherever_it_is_told_how_long(text, monkeypatch):
    shrink(monkeypatch, 11)
    (one,) = climb([11], text, steps=40)
    assert one.curve[-1].train < one.curve[0].train
    assert one.val < one.curve[0].val


def test_the_last_rung_leaves_a_run_that_can_be_loaded(text, monkeypatch, tmp_path):
    shrink(monkeypatch, 12)
    steps = []
    (one,) = climb(
        [12],
        text,
        steps=4,
        folder=tmp_path,
        progress=lambda rung, seed, step, n: steps.append(step),
    )
    assert steps == [1, 2, 3, 4]
    assert [point.step for point in one.curve] == [1, 2, 3, 4]
    assert one.tokens_per_s > 0
    run = tmp_path / "rung-12-seed-0"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {line["step"] for line in lines if "loss" in line} == {1, 2, 3, 4}
    assert load(run).tokenizer.vocab_size == 29
    next(climb([12], text, steps=1, folder=tmp_path))
    assert (tmp_path / "rung-12-seed-0-2").is_dir()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("number", [11, 12])
def test_a_rung_that_needs_a_gpu_says_so_before_anything_is_trained(text, number):
    long = replace(text, corpus=replace(text.corpus, validation=text.corpus.training))
    with pytest.raises(ConfigError, match=f"rung {number} needs a GPU"):
        next(climb([1, number], long))


def test_a_text_too_short_is_told_before_anything_is_trained(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("ab" * 40)
    with pytest.raises(InputError, match="last tenth of the text has 8 characters, but rung 3"):
        next(climb([3], read_text(str(path)), steps=1))
    path.write_text("ab" * 45)
    assert next(climb([3], read_text(str(path)), steps=1)).parameters > 0


def test_the_generated_text_is_chinese_and_the_same_every_time(monkeypatch):
    monkeypatch.setattr(ladder, "STORIES", 50)
    text = read_text(None)
    assert text.about["name"] == "tinyworld"
    assert "它" in text.tokenizer.characters
    assert read_text(None).corpus.fingerprint == text.corpus.fingerprint


def test_the_ci_that_is_built_in_is_small_and_knows_the_prompts(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    data = read_text("ci")
    assert ladder.CI.stat().st_size <= 300_000
    assert set("春江往事") <= set(data.tokenizer.characters)
    assert data.about["characters"] > 100_000
    (tmp_path / "ci").write_text("a file of that name comes first" * 9)
    assert read_text("ci").about["characters"] == 9 * 31


def test_the_bigram_table_learns_the_original_s_text(data):
    text = read_text(str(data / "text" / "ci.txt.xz"))
    assert text.about == {
        "name": str(data / "text" / "ci.txt.xz"),
        "characters": 2_063_344,
        "vocabulary": 6148,
    }
    (one,) = climb([1], text, steps=100)
    assert one.parameters == 399_620
    assert one.curve[0].train > 8
    assert one.curve[-1].train < 6.6
    assert one.val < 6.6


# --- what is shown ---


def climbs(*numbers, seeds=1, worse=()):
    """Made-up results, in which each rung is a little better than the one below."""
    for number in numbers:
        for seed in range(seeds):
            end = 5 - number / 10 + seed / 100 + 2 * (number in worse)
            curve = tuple(Point(n, end + 3 / n, end + 4 / n) for n in range(1, 21))
            yield Climb(number, seed, 20, 1000 * number, end, end + 0.1, 12_345.6, curve)


def printed(rows, text, lang="en", width=80):
    console = Console(width=width)
    with console.capture() as capture:
        for part in tables(rows, text, lang):
            console.print(part)
    return capture.get()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_published_losses_stand_beside_ours_on_the_documents_text_only(monkeypatch, lang):
    rows, text = summaries(list(climbs(*range(1, 13)))), read_text(None)
    assert "5.186 / 5.343" not in printed(rows, text, lang, 200)
    about = {"name": "ci.txt", "characters": CHARACTERS, "vocabulary": VOCABULARY}
    monkeypatch.setattr(LadderText, "about", about)
    out = printed(rows, text, lang, 200)
    losses = "5.186/5.343 5.193/5.351 5.201/5.365 5.176/5.358 5.346/5.517 6.243/6.262"
    losses += " 5.168/5.266 5.138/5.246 5.121/5.221 5.059/5.237 3.978 3.978"
    for row, pair in zip(rows, losses.split(), strict=True):
        (line,) = (line for line in out.splitlines() if line.split()[:1] == [str(row.rung)])
        assert pair.replace("/", " / ") in line
        assert "2000" in line if row.rung <= 10 else "4700" in line
        assert f"{row.val:.3f}" in line


def test_a_summary_is_the_mean_and_the_spread_over_seeds():
    (row,) = summaries(list(climbs(3, seeds=3)))
    assert row.train == pytest.approx(4.71)
    assert row.train_sd == pytest.approx(0.01)
    assert row.val == pytest.approx(4.81)
    assert row.best_val == pytest.approx(4.81)
    assert summaries(list(climbs(3)))[0].val_sd is None


def test_the_table_has_each_rung_with_its_numbers(text):
    out = printed(summaries(list(climbs(2, 10, seeds=2))), text)
    assert "learned positions" in out
    assert "4.805 ±0.007" in out
    assert "4.905 ±0.007" in out
    assert "12,346" in out
    assert "20,000" not in out
    assert "10,000" in out
    assert "±" not in printed(summaries(list(climbs(2))), text)


def test_a_rung_that_falls_behind_is_pointed_out(text):
    out = printed(summaries(list(climbs(5, 6, 7, worse=[6]))), text)
    assert out.count("worse") == 1
    assert "Rung 6 came out 1.90 worse than rung 5." in out
    assert "第 6 级比第 5 级差了 1.90" in printed(
        summaries(list(climbs(5, 6, worse=[6]))), text, "zh"
    )


def test_each_rung_is_described_in_both_languages():
    assert [len(words) for words in ADDS.values()] == [len(RUNGS)] * 2


def test_the_json_holds_everything(text):
    data = json.loads(json.dumps(as_json(summaries(list(climbs(1, 11, seeds=2))), text)))
    assert data["text"]["vocabulary"] == 29
    first, last = data["rungs"]
    assert (first["rung"], first["parameters"], first["train"]) == (1, 1000, pytest.approx(4.905))
    assert last["model"]["d_model"] == 384
    assert (last["adds"], last["adds_zh"]) == (ADDS["en"][10], ADDS["zh"][10])
    assert [run["seed"] for run in last["climbs"]] == [0, 1]
    assert last["climbs"][1]["curve"][-1] == {
        "step": 20,
        "train": pytest.approx(4.06),
        "val": pytest.approx(4.11),
    }


def is_png(picture):
    return picture.startswith(b"\x89PNG") and len(picture) > 10_000


@pytest.mark.parametrize(("numbers", "seeds"), [([1], 1), ([4], 3), (range(1, 13), 2)])
def test_the_picture_is_drawn_for_any_number_of_rungs(numbers, seeds):
    assert is_png(draw(summaries(list(climbs(*numbers, seeds=seeds, worse=[6])))))


def test_a_rung_without_a_curve_or_with_a_loss_that_is_not_a_number_is_no_trouble():
    rows = list(climbs(1, 2, 3))
    rows[1] = replace(rows[1], train=math.nan, val=math.nan)
    rows[2] = replace(rows[2], curve=rows[2].curve[:1])
    assert is_png(draw(summaries(rows)))


def test_chinese_labels_are_drawn_where_there_is_a_font_and_english_where_not(
    tmp_path, monkeypatch
):
    rows = summaries(list(climbs(1, 2)))
    manager = matplotlib.font_manager.fontManager
    monkeypatch.setattr(manager, "ttflist", [e for e in manager.ttflist if "DejaVu" in e.name])
    monkeypatch.setattr(matplotlib.font_manager, "findSystemFonts", list)
    try:
        chinese_font.cache_clear()
        assert label_font() is None
        assert draw(rows, "zh") == draw(rows, "en")
        characters = "".join([*(words.zh for words in TEXTS.values()), "它她"])
        path = make_font(tmp_path / "Boxes.ttf", {c: 500 + ord(c) % 400 for c in characters})
        monkeypatch.setattr(matplotlib.font_manager, "findSystemFonts", lambda: [path])
        chinese_font.cache_clear()
        assert label_font() == "Boxes"
        # A missing glyph would be a warning, and a warning is an error.
        assert draw(rows, "zh") != draw(rows, "en")
    finally:
        chinese_font.cache_clear()


def test_the_last_validation_loss_is_that_of_the_curve(text):
    [found] = climb([1], text, steps=3)
    assert found.val == found.curve[-1].val
    assert found.val != found.train
