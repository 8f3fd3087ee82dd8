"""`glasshead.translate`: what a run was trained on decides how it reads."""

import glasshead
from tests.generation.translators import make_translator, small_bpe


def test_a_run_of_small_letters_reads_small_letters(tmp_path):
    words = small_bpe("ein hund a dog EIN HUND " * 5)
    small = make_translator(tmp_path / "small", words, {"pairs": {"lowercase": True}})
    both = make_translator(tmp_path / "both", words)
    texts = ["ein hund", "EIN HUND"]
    low, high = glasshead.translate(both, texts, beam=2)
    assert low != high
    assert glasshead.translate(small, texts, beam=2) == [low, low]
