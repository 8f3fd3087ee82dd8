"""Translation: tokens written a second by a translator of OPUS-MT's shape, drawn at random.

Sentences of 8 to 40 tokens, each translated into 32: <eos> is kept from coming, so that all do the
same work. Beside transformers' Marian with the same parameters and Joey NMT, greedily and with a
beam of 5.
"""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from bench.machine import matrix_peak
from bench.peers import missing_package, to_transformers
from bench.table import Row, Settings
from bench.timing import time_in_turns
from glasshead.generation.beam import SearchConfig, greedy, search
from glasshead.generation.translation_rows import SpecialTokens
from glasshead.model.transformer import Transformer, TransformerConfig

__all__ = ["rows"]

PAD, EOS, FIRST = 0, 1, 2
OPUS = {"vocab_size": 16000, "max_len": 128, "n_layers": 6, "n_heads": 8, "d_model": 512}
TINY = {"vocab_size": 64, "max_len": 64, "n_layers": 1, "n_heads": 2, "d_model": 16}
MARIAN, JOEY = "transformers Marian", "Joey NMT"
Texts = list[list[int]]


def translator(shape: dict[str, Any], device: str) -> Transformer:
    torch.manual_seed(1)
    config = TransformerConfig(
        **shape, positions="sinusoidal-split", norm_place="post", feed_forward="silu",
        head_bias=True, starts_with_pad=True, dropout=0.0, pad=PAD,
    )  # fmt: skip
    model = Transformer(config).to(device).eval()
    with torch.no_grad():
        model.head.bias[[PAD, EOS]] = -100.0  # never written
    return model


def our_run(model: Transformer, texts: Texts, beam: int, tokens: int) -> Callable[[], Texts]:
    marks = SpecialTokens(bos=PAD, eos=EOS, never=())
    config = SearchConfig(beam=beam, alpha=1.0, max_tokens=tokens)

    def run() -> Texts:
        if beam == 1:
            found = greedy(model, texts, marks, config)
        else:
            found = [best for [best] in search(model, texts, marks, config)]
        return [list(one.ids) for one in found]

    return run


def their_run(model: Any, texts: Texts, beam: int, tokens: int) -> Callable[[], Texts]:
    longest = max(map(len, texts))
    padded = [text + [PAD] * (longest - len(text)) for text in texts]
    ids = torch.tensor(padded, device=model.device)

    def run() -> Texts:
        out = model.generate(
            ids, attention_mask=(ids != PAD).long(), num_beams=beam, do_sample=False,
            max_new_tokens=tokens, early_stopping=False,
        )  # fmt: skip
        return out[:, 1:].tolist()  # the first is where a translation starts

    return run


def joeys(shape: dict[str, int], texts: Texts) -> tuple[Any, Any]:
    """Return Joey NMT's model of the same shape, and the texts as a batch."""
    from joeynmt.batch import Batch
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    unk, pad, bos, eos = range(4)
    marks = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None,
        unk_id=unk, pad_id=pad, bos_id=bos, eos_id=eos, lang_tags=[],
    )  # fmt: skip
    words = Vocabulary([str(n) for n in range(shape["vocab_size"] - 4)], marks)
    side = {
        "type": "transformer", "num_layers": shape["n_layers"], "num_heads": shape["n_heads"],
        "embeddings": {"embedding_dim": shape["d_model"], "scale": True}, "dropout": 0.0,
        "hidden_size": shape["d_model"], "ff_size": 4 * shape["d_model"], "layer_norm": "post",
    }  # fmt: skip
    model = build_model(
        {"encoder": side, "decoder": side, "tied_embeddings": True, "tied_softmax": True,
         "initializer": "xavier_uniform", "embed_initializer": "xavier_uniform"},
        words, words,
    ).eval()  # fmt: skip
    longest = max(map(len, texts))
    known = [[max(n, eos + 1) for n in text] + [pad] * (longest - len(text)) for text in texts]
    batch = Batch(
        torch.tensor(known), torch.tensor([len(text) for text in texts]), None, None, None,
        torch.arange(len(texts)), torch.device("cpu"), pad, eos, is_train=False,
    )  # fmt: skip
    return model, batch


def joeys_run(model: Any, batch: Any, beam: int, tokens: int) -> Callable[[], Texts]:
    from joeynmt.search import search as search_theirs

    def run() -> Texts:
        found, _, _ = search_theirs(
            model, batch, max_output_length=tokens, beam_size=beam, beam_alpha=1.0,
            min_output_length=tokens, generate_unk=False,
        )  # fmt: skip
        return found.tolist()

    return run


def rows(settings: Settings) -> list[Row]:
    shape, n, tokens = (TINY, 3, 4) if settings.quick else (OPUS, 32, 32)
    draw = random.Random(1)
    ids = range(FIRST, shape["vocab_size"])
    texts = [draw.choices(ids, k=draw.randint(8, 40)) for _ in range(n)]
    model, theirs = translator(shape, settings.device), None
    left_out = {MARIAN: missing_package("transformers"), JOEY: missing_package("joeynmt")}
    if settings.on_gpu:
        left_out[JOEY] = left_out[JOEY] or "compared on CPUs only: left out"
    if not left_out[MARIAN]:
        marks = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": PAD}
        theirs = to_transformers(model, **marks, forced_eos_token_id=None)
    joey = None if left_out[JOEY] else joeys(shape, texts)
    peak = matrix_peak(settings.device, "float32", settings.quick)
    found = []
    for beam in (1, 5):
        runs = {"ours": our_run(model, texts, beam, tokens)}
        if theirs is not None:
            runs[MARIAN] = their_run(theirs, texts, beam, tokens)
        if joey is not None:
            runs[JOEY] = joeys_run(*joey, beam, tokens)
        said = {name: run() for name, run in runs.items()}
        seconds = time_in_turns(runs, min(settings.repeats, 5), settings.device)
        speed = {name: n * tokens / taken for name, taken in seconds.items()}
        limit = peak / (beam * 2 * decoder_size(model))
        what = f"{n} sentences, {'greedy' if beam == 1 else f'beam {beam}'}, float32"
        for peer, reason in left_out.items():
            note = reason or alike(said["ours"], said[peer])
            if peer == JOEY and not reason:
                note = "of the same shape, with parameters of its own"
            row = Row(what, peer, "tokens/s", speed["ours"], speed.get(peer), limit, note)
            found.append(row)
    return found


def decoder_size(model: Transformer) -> int:
    """Return how many parameters each generated token is multiplied with."""
    return sum(p.numel() for p in model.decoder.parameters()) + model.head.bias.numel()


def alike(ours: Texts, theirs: Texts) -> str:
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    return f"{same} of {len(ours)} translations are the same"


if __name__ == "__main__":
    from bench.__main__ import main

    main("translate")
