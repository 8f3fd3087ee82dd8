"""What a model predicts, for the page."""

from glasshead.checkpoint import load
from glasshead.page.predictions import NOTHING, predict
from tests.generation.translators import make_translator, small_bpe


def test_a_run_of_small_letters_reads_small_letters(tmp_path):
    words = small_bpe("ein hund a dog EIN HUND " * 5)
    small = make_translator(tmp_path / "small", words, {"pairs": {"lowercase": True}})
    both = make_translator(tmp_path / "both", words)
    of_small, of_both = (
        [predict(load(path), text, NOTHING, None) for text in ("ein hund", "EIN HUND")]
        for path in (small, both)
    )
    assert of_small[0] == of_small[1]
    assert of_both[0]["translation"] != of_both[1]["translation"]
