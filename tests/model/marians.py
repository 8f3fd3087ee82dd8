"""A folder with a tiny Marian of the transformers library and real sentencepiece models."""

import json
from pathlib import Path

import sentencepiece
import torch
import transformers as hf

GERMAN = [
    "Ein Hund rennt durch den Schnee.",
    "Zwei Hunde rennen über die Wiese.",
    "Die Katze schläft auf dem Sofa (½).",
    "Ein Mann liest eine Zeitung im Park.",
    "Kinder spielen am Strand mit einem Ball.",
    "Die Frau trägt einen roten Hut.",
]
ENGLISH = [
    "A dog runs through the snow.",
    "Two dogs run across the meadow.",
    "The cat sleeps on the sofa (½).",
    "A man reads a newspaper in the park.",
    "Children play on the beach with a ball.",
    "The woman wears a red hat.",
]


def pieces(path: Path, lines: list[str]) -> list[str]:
    """Train a sentencepiece model; its pieces."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 20),
        model_prefix=str(path.with_suffix("")),
        vocab_size=97,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path.with_suffix(".model").rename(path)
    path.with_suffix(".vocab").unlink()
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [model.id_to_piece(n) for n in range(3, len(model))]


def build(path: Path, lose: int = 3) -> hf.MarianMTModel:
    """Parameters are drawn, words are real. Some pieces have no number, as it is at OPUS-MT."""
    path.mkdir()
    source = pieces(path / "source.spm", GERMAN)
    target = pieces(path / "target.spm", ENGLISH)
    both = dict.fromkeys([*source[:-lose], ">>eng<<", *target[:-lose]])
    tokens = ["</s>", "<unk>", *both, "<pad>"]
    (path / "vocab.json").write_text(json.dumps({token: n for n, token in enumerate(tokens)}))
    languages = {"source_lang": "de", "target_lang": "en"}
    about = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": False, **languages}
    (path / "tokenizer_config.json").write_text(json.dumps(about))
    pad = len(tokens) - 1
    config = hf.MarianConfig(
        vocab_size=len(tokens), d_model=20, encoder_layers=2, decoder_layers=3,
        encoder_attention_heads=5, decoder_attention_heads=5, encoder_ffn_dim=31,
        decoder_ffn_dim=31, max_position_embeddings=97, activation_function="swish",
        scale_embedding=True, pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0,
        bos_token_id=0, forced_eos_token_id=0, static_position_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = hf.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "positions" not in name:  # those are computed
                parameter.add_(0.2 * torch.randn_like(parameter))
        model.final_logits_bias.normal_()
        model.final_logits_bias[:, 0] += 4  # translations end
    model.generation_config.update(
        num_beams=4, max_length=61, bad_words_ids=[[pad]], forced_eos_token_id=0
    )
    model.save_pretrained(path)
    return model
