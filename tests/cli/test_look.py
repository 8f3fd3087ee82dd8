"""`glasshead look`, as it is typed: models of ours, models of transformers, and files."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch

from glasshead.generation.opening import open_inspectable
from glasshead.observe.view import View
from glasshead.text.tokenizer import BPETokenizer, CharTokenizer
from tests.cli.test_cli import is_a_mistake
from tests.generation.runs import make_run
from tests.generation.translators import make_translator, small_bpe
from tests.observe import folders

TEXT = "小猫饿了，它在睡。它是小猫。"
ENGLISH = folders.TEXT


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    tokenizer = CharTokenizer.train(TEXT)
    path = tmp_path_factory.mktemp("runs") / "cat"
    return make_run(path, tokenizer, max_len=64, n_layers=3, n_heads=2)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    text = "ein hund rennt durch den schnee. a dog runs through the snow." * 3
    return make_translator(tmp_path_factory.mktemp("runs") / "dog", small_bpe(text, 60))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("theirs")
    return {name: make(folder / name) for name, make in folders.MAKERS.items()}


# -- ours --


def test_the_summary_names_heads_and_says_how_to_go_on(cli, run):
    code, out, err = cli("look", run, TEXT)
    assert (code, err) == (0, "")
    assert "3 layers of attention, 6 heads in all; 14 tokens" in out
    for role in ("previous token", "first token (sink)", "induction", "sharpest"):
        assert re.search(rf"^{re.escape(role)} +[012]:[01] +\d\.\d{{3}}", out, re.M), role
    going_on = [line.strip() for line in out.splitlines() if line.startswith("  glasshead look")]
    assert len(going_on) == 3
    assert "--layer" in going_on[0]
    assert f"look {run} {TEXT} --from" in going_on[1].replace("'", "")


def test_the_summary_in_chinese(cli, run, monkeypatch):
    by_flag = cli("look", run, TEXT, "--lang", "zh").out
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert cli("look", run, TEXT).out == by_flag
    assert "注意力 3 层，共 6 个头；14 个词元" in by_flag
    assert "最集中" in by_flag


def test_json_has_the_statistics_of_every_head(cli, run):
    found = json.loads(cli("look", run, TEXT, "--json").out)
    seen = open_inspectable(run).record(TEXT)
    assert [layer["module"] for layer in found["layers"]] == [one.name for one in seen.layers]
    for n, layer in enumerate(found["layers"]):
        for name, values in layer["statistics"].items():
            assert values == pytest.approx(seen.statistics(n).means()[name][0].tolist())
    assert {"role", "layer", "head", "value", "uniform"} == found["telling"][0].keys()


def test_json_of_a_head_is_its_map(cli, run):
    [found] = json.loads(cli("look", run, TEXT, "--layer", "2", "--head", "1", "--json").out)[
        "maps"
    ]
    assert (found["layer"], found["head"]) == ("2", 1)
    assert found["rows"] == found["cols"] == list(TEXT)
    expected = open_inspectable(run).record(TEXT).weights(2)[0, 1]
    torch.testing.assert_close(torch.tensor(found["weights"]), expected)


def test_where_a_word_looks_ranked(cli, run):
    first, last = (
        json.loads(cli("look", run, TEXT, "--from", word, "--top", "4", "--json").out)["looks"]
        for word in ("它#1", "它")
    )
    assert len(first) == len(last) == 4
    view = View(open_inspectable(run).record(TEXT))
    for looks, at in ((first, 5), (last, 9)):
        weights = [one["weight"] for one in looks]
        assert weights == sorted(weights, reverse=True)
        for one in looks:
            row = view.head((int(one["layer"]), one["head"])).values[at]
            assert one["weight"] == pytest.approx(float(row[one["place"]]))
            assert one["word"] == TEXT[one["place"]]
    out = cli("look", run, TEXT, "--from", "它", "--top", "4").out
    assert [line.split()[0] for line in out.splitlines()[3:]] == [
        f"{one['layer']}:{one['head']}" for one in last
    ]


def test_a_query_is_shown_with_what_stands_around_it(cli, run):
    out = cli("look", run, TEXT, "--query", "9", "--layer", "1", "--head", "0", "--top", "3").out
    lines = out.splitlines()
    assert lines[0] == "what token 9 looks at: 小猫饿了，它在睡。[它]是小猫。"
    row = open_inspectable(run).record(TEXT).row(1, 0, 9)
    for line, (weight, place) in zip(lines[2:], zip(*row.topk(3), strict=True), strict=True):
        assert line.split()[0] == f"{weight:.3f}"
        assert line.split()[2] == str(int(place))
        assert f"[{TEXT[place]}]" in line


@pytest.mark.parametrize("suffix", ["svg", "html", "PNG"])
@pytest.mark.parametrize(
    "options",
    [(), ("--layer", "1"), ("--layer", "1", "--head", "0"), ("--from", "它"), ("--query", "3"),
     ("--statistic", "entropy"), ("--layer", "0", "--head", "1", "--from", "睡")],
)  # fmt: skip
def test_pictures_are_written(cli, run, tmp_path, suffix, options):
    path = tmp_path / f"picture.{suffix}"
    code, out, err = cli("look", run, TEXT, *options, "-o", path)
    if "no installed font" in err:
        pytest.skip("no font with Chinese characters")
    assert (code, out, err) == (0, "", f"wrote {path}\n")
    start = path.read_bytes()[:15]
    assert start.startswith({"svg": b"<svg", "html": b"<!doctype html>", "PNG": b"\x89PNG"}[suffix])


def test_bytes_are_joined_to_words_unless_tokens_are_wanted(cli, tmp_path):
    run = make_run(tmp_path / "bpe", BPETokenizer.train(TEXT, vocab_size=256), max_len=64)
    words = json.loads(cli("look", run, TEXT, "--layer", "0", "--head", "0", "--json").out)
    tokens = json.loads(
        cli("look", run, TEXT, "--layer", "0", "--head", "0", "--json", "--tokens").out
    )
    assert words["maps"][0]["rows"] == list(TEXT)
    assert tokens["maps"][0]["rows"][:3] == ["⟨E5⟩", "⟨B0⟩", "⟨8F⟩"]


def test_a_translator_shows_encoder_decoder_and_cross(cli, translator):
    found = json.loads(cli("look", translator, "ein hund rennt", "--json").out)
    assert [layer["layer"] for layer in found["layers"]][::3] == [
        "encoder.0",
        "decoder.1",
        "cross.1",
    ]
    assert "translation" in found["about"]
    arguments = ("look", translator, "ein hund rennt", "--layer", "cross.1", "--head", "2")
    [cross] = json.loads(cli(*arguments, "--json").out)["maps"]
    assert cross["cols"] == ["ein", "hund", "rennt"]
    for row in cross["weights"]:
        assert sum(row) == pytest.approx(1, abs=1e-5)
    assert "along the top those of the source" in cli(*arguments).out


# -- a folder of transformers --


@pytest.mark.parametrize("name", folders.MAKERS)
def test_models_of_transformers_show_their_own_weights(cli, theirs, name):
    """Against the eager attention of the library."""
    found = json.loads(cli("look", theirs[name], ENGLISH, "--json").out)
    layer = found["layers"][-1]["layer"]
    arguments = ("look", theirs[name], ENGLISH, "--layer", layer, "--head", "2", "--tokens")
    [shown] = json.loads(cli(*arguments, "--json").out)["maps"]
    expected = folders.eager(theirs[name], ENGLISH, head=2)
    torch.testing.assert_close(torch.tensor(shown["weights"]), expected, rtol=0, atol=1e-5)
    [merged] = json.loads(cli(*arguments[:-1], "--json").out)["maps"]
    assert [w for w in ("cat", "it's", "happy", ".", "小") if w in merged["cols"]] == [
        "cat", "it's", "happy", ".", "小",
    ]  # fmt: skip


def test_from_a_word_of_several_tokens(cli, theirs):
    looks = json.loads(cli("look", theirs["gpt2"], ENGLISH, "--from", "happy", "--json").out)[
        "looks"
    ]
    assert looks
    assert {one["word"] for one in looks} <= {"The", "quick", "cat", "sat", "on", "the", "mat", ";",
                                              "it's", "happy"}  # fmt: skip


def test_without_transformers_the_extra_is_named(cli, theirs, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    code, out, err = cli("look", theirs["gpt2"], ENGLISH)
    assert (code, out) == (2, "")
    assert "is not installed" in err
    assert 'hint: in the clone of Glasshead: pip install -e ".[hf]" -c constraints.txt' in err


def test_a_folder_that_is_not_complete(cli, theirs, tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((theirs["gpt2"] / name).read_bytes())
    assert f"{tmp_path} cannot be opened" in is_a_mistake(cli("look", tmp_path, ENGLISH))[0]
    # A pickle beside it is not touched.
    (tmp_path / "pytorch_model.bin").write_bytes(b"not looked at")
    assert f"{tmp_path} cannot be opened" in is_a_mistake(cli("look", tmp_path, ENGLISH))[0]


def test_a_text_too_long_for_their_model(cli, theirs):
    outcome = cli("look", theirs["bert"], ENGLISH * 9)
    assert "but bert was made for 64" in is_a_mistake(outcome)[0]


# -- mistakes --


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (("--layer", "7"), "there is no layer '7'", "choose one of: 0, 1, 2"),
        (("--layer", "1", "--head", "5"), "layer 1 has no head 5", "its heads are 0 to 1"),
        (("--head", "1"), "--head 1 of which layer?", "add --layer L"),
        (
            ("--from", "狗"),
            "'狗' is not in the text",
            "小 猫 饿 了 ， 它 在 睡 。 是",
        ),
        (("--from", "猫#5"), "'猫' has no occurrence number 5", "it occurs 2 times"),
        (("--statistic", "entorpy"), "there is no statistic 'entorpy'", "did you mean 'entropy'?"),
        (("--query", "14"), "there is no token 14", "the text has 14, counted from 0"),
        (("-o", "x.jpg"), "the picture x.jpg ends in '.jpg'", "did you mean '.png'?"),
        (("-o", "x"), "the picture x has no suffix", "name it picture.png"),
        (("-o", "no/such/x.svg"), "cannot write no/such/x.svg", "is there such a folder?"),
        (("--ratio", "--log"), "--ratio and --log cannot be used together", "logarithmic"),
        (("--from", "它", "--query", "1"), "--from and --query cannot go together", "ask for one"),
        (("--top", "0", "--from", "它"), "--top (0) must be at least 1", "try --top 10"),
    ],
)
def test_mistakes_are_one_line_and_a_hint(cli, run, options, message, hint):
    outcome = cli("look", run, TEXT, *options)
    told, helped = is_a_mistake(outcome)
    assert message in told
    assert hint in helped


@pytest.mark.parametrize(
    ("lang", "told"),
    [("en", "note: 小猫 is a file, but its name was"), ("zh", "注意：小猫 是一个文件，但这里把")],
)
def test_a_text_that_names_a_file_is_read_as_it_stands_with_a_note(
    cli, run, tmp_path, monkeypatch, stdin, lang, told
):
    monkeypatch.chdir(tmp_path)
    without = cli("look", run, "小猫", "--lang", lang)
    assert (without.code, without.err) == (0, "")
    Path("小猫").write_text(TEXT, encoding="utf-8")
    noted = cli("look", run, "小猫", "--lang", lang)
    assert (noted.code, noted.out) == (0, without.out)
    [line] = noted.err.splitlines()
    assert line.replace("'", "").startswith(told)
    assert line.endswith(f"glasshead look {run} - < '小猫'")
    stdin(TEXT.encode())
    assert f"{len(TEXT)} tokens" in cli("look", run, "-").out


def test_texts_that_cannot_be_looked_at(cli, run, tmp_path):
    assert "there is no text to look at" in is_a_mistake(cli("look", run, ""))[0]
    assert (
        "the text has 70 tokens, but cat was made for 64"
        in is_a_mistake(cli("look", run, TEXT * 5))[0]
    )
    assert "64 tokens" in cli("look", run, TEXT * 5, "--max-tokens", "64").out
    assert "character '狗'" in is_a_mistake(cli("look", run, "狗"))[0]
    assert "does not exist" in is_a_mistake(cli("look", tmp_path / "gone", TEXT))[0]
    open_inspectable(run).record(TEXT).save(tmp_path / "x.glass")
    assert "already holds" in is_a_mistake(cli("look", tmp_path / "x.glass", TEXT))[0]
    (tmp_path / "x.txt").write_text(TEXT)
    assert "is a file, not a run" in is_a_mistake(cli("look", tmp_path / "x.txt", TEXT))[0]
    (tmp_path / "bad.glass").write_bytes(b"nothing")
    assert "is damaged or not a .glass file" in is_a_mistake(cli("look", tmp_path / "bad.glass"))[0]


# -- the page --


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_the_page_of_a_transformers_model_has_its_heads_and_no_predictions(
    cli, theirs, tmp_path, name
):
    path = tmp_path / "x.html"
    assert cli("look", theirs[name], ENGLISH, "-o", path).code == 0
    data = json.loads(re.search('id="embedded">(.*)</script>\n', path.read_text("utf-8"))[1])
    [entry] = data["answers"]["GET /api/models"]["json"]["models"]
    assert (entry["id"], entry["kind"]) == (name, "transformers")
    maps = [key for key in data["answers"] if "/weights?" in key and "ratio=false" in key]
    assert len(maps) == 2 * entry["n_layers"] * entry["n_heads"]
    assert not [key for key in data["answers"] if "ablate" in key]
