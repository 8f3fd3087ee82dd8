"""`glasshead score --pairs`, as it is typed."""

import json
import re

import pytest
import sacrebleu

from glasshead.text.tokenizer import CharTokenizer
from tests.cli.test_cli import is_a_mistake
from tests.generation.runs import make_run
from tests.generation.translators import make_translator, small_bpe

GERMAN = ["Ein Hund rennt.", "Zwei Hunde rennen.", "Die Katze schläft.", "Es schneit."]
FAST = ("--beam", "2", "--max-tokens", "7")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    tokenizer = small_bpe(" ".join(GERMAN) * 3)
    return make_translator(tmp_path_factory.mktemp("runs") / "de-en", tokenizer)


@pytest.fixture
def files(cli, run, tmp_path):
    """Sources, and targets that are what the model says, with a few words changed."""
    source, target = tmp_path / "test.de", tmp_path / "test.en"
    source.write_text("".join(f"{line}\n" for line in GERMAN), encoding="utf-8")
    said = cli("translate", run, "\n".join(GERMAN), *FAST).out.splitlines()
    said = [f"The {line} and Then some" for line in said]
    target.write_text("".join(f"{line}\n" for line in said), encoding="utf-8")
    return source, target


def test_the_figures_are_those_of_sacrebleu_for_what_translate_says(cli, run, files, tmp_path):
    out = tmp_path / "said.en"
    code, printed, err = cli("score", run, "--pairs", *files, "--out", out, *FAST)
    said = out.read_text(encoding="utf-8").splitlines()
    wanted = [files[1].read_text(encoding="utf-8").splitlines()]
    assert code == 0
    assert said == cli("translate", run, "\n".join(GERMAN), *FAST).out.splitlines()
    version = sacrebleu.__version__
    bleu = sacrebleu.corpus_bleu(said, wanted).score
    low = sacrebleu.corpus_bleu(said, wanted, lowercase=True).score
    chrf = sacrebleu.corpus_chrf(said, wanted).score
    assert printed == (
        f"BLEU             {bleu:6.2f}  "
        f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}\n"
        f"BLEU lowercased  {low:6.2f}  "
        f"nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:{version}\n"
        f"chrF             {chrf:6.2f}  nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|"
        f"version:{version}\n"
        "sentences             4\n"
    )
    assert re.search(r"^4 sentences, \d+ tokens, [\d.]+ tokens/s$", err, re.MULTILINE)


def test_two_files_one_table_and_any_order_of_words_score_the_same(cli, run, files, tmp_path):
    source, target = files
    expected = cli("score", run, "--pairs", source, target, *FAST).out
    assert cli("score", "--pairs", source, target, run, *FAST).out == expected
    assert cli("score", *FAST, "--pairs", source, target, "--device", "cpu", run).out == expected
    rows = zip(GERMAN, target.read_text(encoding="utf-8").splitlines(), strict=True)
    table = tmp_path / "test.tsv"
    table.write_text("".join(f"{de}\t{en}\n" for de, en in rows), encoding="utf-8")
    assert cli("score", run, "--pairs", table, *FAST).out == expected
    assert cli("score", run, *FAST, "--pairs", table).out == expected


def test_json_is_one_object(cli, run, files):
    code, out, _ = cli("score", run, "--pairs", *files, "--json", *FAST)
    figures = json.loads(out)
    assert code == 0
    assert figures["sentences"] == 4
    assert [one["name"] for one in figures["measures"]] == ["BLEU", "BLEU lowercased", "chrF"]
    table = cli("score", run, "--pairs", *files, *FAST).out.splitlines()
    for one, line in zip(figures["measures"], table, strict=False):
        assert line == f"{one['name']:<16} {one['score']:6.2f}  {one['signature']}"


def test_chinese_is_compared_by_characters(cli, run, tmp_path):
    table = tmp_path / "zh.tsv"
    table.write_text("Ein Hund\t一只狗。\nEs schneit\t下雪了。\n", encoding="utf-8")
    assert "|tok:zh|" in cli("score", run, "--pairs", table, *FAST).out


def test_the_columns_are_those_that_the_run_was_trained_on(cli, tmp_path):
    run = make_translator(
        tmp_path / "run", small_bpe(" ".join(GERMAN)), {"pairs": {"columns": "3,1"}}
    )
    table = tmp_path / "some.tsv"
    table.write_text("A dog\tx\tEin Hund\n", encoding="utf-8")
    out = tmp_path / "said"
    _, _, err = cli("score", run, "--pairs", table, "--out", out, *FAST)
    assert "3 columns: 3 and 1 are used" in err
    assert out.read_text() == cli("translate", run, "Ein Hund", *FAST).out


def test_lines_without_a_pair_are_told_and_keep_their_place(cli, run, tmp_path):
    table, out = tmp_path / "gaps.tsv", tmp_path / "said"
    table.write_text("\tnothing\nEin Hund\tA dog\n\n Es schneit\tIt snows\n", encoding="utf-8")
    code, printed, err = cli("score", run, "--pairs", table, "--out", out, *FAST)
    assert code == 0
    assert "sentences             2" in printed
    assert "empty source" in err
    lines = out.read_text(encoding="utf-8").split("\n")
    assert len(lines) == 5
    assert (lines[0], lines[2], lines[4]) == ("", "", "")
    table.write_text("Ein Hund\tA dog\nEs schneit\t\n\t\n", encoding="utf-8")
    cli("score", run, "--pairs", table, "--out", out, *FAST)
    assert out.read_text(encoding="utf-8").count("\n") == 3


def test_a_translator_is_not_scored_on_a_text_nor_a_language_model_on_pairs(
    cli, run, files, tmp_path
):
    first, hint = is_a_mistake(cli("score", run, files[0]))
    assert "de-en is a translator, which is scored on --pairs" in first
    assert "--pairs SRC TGT" in hint
    gpt = make_run(tmp_path / "poems", CharTokenizer.train("ab"))
    first, hint = is_a_mistake(cli("score", gpt, "--pairs", *files))
    assert "poems is a GPT, which does not translate" in first
    assert "glasshead score" in hint


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--pairs", "{de}", "{en}", "--tokens"], "--tokens works only without --pairs"),
        (["--pairs", "{de}", "{en}", "--stride", "3"], "--stride works only without --pairs"),
        (["--pairs", "{de}", "{en}", "{en}"], "cannot go together"),
        (["--pairs", "{de}", "{en}", "--pairs", "{en}"], "--pairs names 3 files"),
        (["--pairs", "{de}"], "has 1 columns"),
        (["--pairs", "{de}", "{dir}/none.en"], "no file or folder"),
        (["--pairs", "{de}", "{short}"], "has 4 lines but"),
        (["--pairs", "{de}", "{en}", "--out", "{dir}/none/said"], "there is no folder"),
        (["--pairs", "{de}", "{en}", "--out", "{dir}"], "is a folder"),
        (["--pairs", "{de}", "{en}", "--beam", "0"], "beam (0)"),
        (["--pairs"], "option '--pairs' requires an argument"),
        ([], "is a translator, which is scored on --pairs"),
    ],
)
def test_mistakes_are_one_line_and_a_hint(cli, run, files, tmp_path, args, message):
    (tmp_path / "short").write_text("one\n")
    names = {"de": files[0], "en": files[1], "dir": tmp_path, "short": tmp_path / "short"}
    outcome = cli("score", run, *(arg.format(**names) for arg in args))
    assert is_a_mistake(outcome)
    assert message in outcome.err


def test_settings_of_a_search_are_not_for_texts(cli, tmp_path):
    gpt = make_run(tmp_path / "poems", CharTokenizer.train("ab"))
    text = tmp_path / "text"
    text.write_text("abab")
    for args, message in (
        (["--beam", "3"], "--beam works only with --pairs"),
        (["--max-tokens", "3"], "--max-tokens works only with --pairs"),
        (["--out", "x"], "--out works only with --pairs"),
    ):
        outcome = cli("score", gpt, text, *args)
        assert is_a_mistake(outcome)
        assert message in outcome.err
    first, _ = is_a_mistake(cli("score", gpt))
    assert first == "FILE is missing: there is no text to score"
