"""The page's own engine, in JavaScript, against torch: settings of models, and tokenizers."""

import json
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path

import pytest
import torch

from glasshead.checkpoint import Run, RunConfig
from glasshead.checkpoint.run_folder import RunFolder
from glasshead.errors import InputError
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.transformer import Reader, Transformer, TransformerConfig
from glasshead.observe.words import as_token, characters, visible, words
from glasshead.page.entries import describe
from glasshead.page.packing import pack_run, packed_size, rounding_cost
from glasshead.text.bpe import BPETokenizer, split_gpt2_words, split_words
from glasshead.text.tokenizer import ByteTokenizer, CharTokenizer, Tokenizer, WordTokenizer

from .engine import engine

LETTERS = "abcdefg 小猫它在"
ROOT = Path(__file__).parents[2]
SETTINGS = [
    {"positions": "learned", "feed_forward": "gelu", "bias": True, "qkv_bias": True},
    {"positions": "rotary", "norm": "rms", "feed_forward": "swiglu", "n_kv_heads": 1,
     "qk_norm": True, "tied": True, "head_bias": False, "rope_scaling": "yarn:4,32,1,64"},
    {"positions": "alibi", "feed_forward": "relu2", "window": 5, "softcap": 3.0,
     "norm_place": "post"},
    {"positions": "sinusoidal", "feed_forward": "gelu-tanh", "d_head": 6, "logit_softcap": 2.0},
    {"positions": "none", "feed_forward": "linear-relu", "project": False, "norm_place": "none",
     "residual": False},
    {"positions": "sinusoidal-split", "feed_forward": "silu", "n_layers": 1},
    {"positions": "rotary", "feed_forward": "none", "n_layers": 0},
]  # fmt: skip


def make_run(folder: Path, kind: str, model: torch.nn.Module, tokenizer: Tokenizer) -> Run:
    """A run with random parameters that differ from their defaults everywhere."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    config = RunConfig(kind, asdict(model.config), {}, {})  # type: ignore[arg-type]
    RunFolder.create(folder, config, tokenizer, model)
    return Run(model.eval(), tokenizer, config, folder, 0)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: one["positions"])
@pytest.mark.parametrize("plain", [False, True], ids=["wasm", "plain"])
def test_gpt_logits_are_those_of_torch(tmp_path: Path, settings: dict, plain: bool) -> None:
    tokenizer = CharTokenizer.train(LETTERS)
    config = {"vocab_size": tokenizer.vocab_size, "max_len": 97, "n_layers": 2, "n_heads": 2,
              "d_model": 22 if settings["positions"] == "learned" else 20}  # fmt: skip
    if settings["positions"] == "rotary":
        config["d_model"] = 24
    run = make_run(tmp_path / "run", "gpt", GPT(GPTConfig(**{**config, **settings})), tokenizer)
    ids = [random.Random(5).randrange(tokenizer.vocab_size) for _ in range(89)]
    with engine(run, tmp_path, "float32", *(["--plain"] if plain else [])) as ask:
        for some in (ids[:1], ids[:7], ids):
            with torch.no_grad():
                expected = run.model(torch.tensor([some]))[0, -1]
            torch.testing.assert_close(
                torch.tensor(ask("logits", some)), expected, rtol=2e-5, atol=2e-5
            )


def test_generating_with_a_cache_gives_what_reading_anew_gives(tmp_path: Path) -> None:
    tokenizer = CharTokenizer.train(LETTERS)
    config = GPTConfig(tokenizer.vocab_size, max_len=31, n_layers=2, n_heads=2, d_model=24,
                       positions="rotary")  # fmt: skip
    run = make_run(tmp_path / "run", "gpt", GPT(config), tokenizer)
    ids = tokenizer.encode_ids("小猫 abc").tolist()
    with engine(run, tmp_path) as ask:
        body = {"ids": ids, "max_tokens": 20, "temperature": 0}
        written = [data for event, data in ask("POST", "/api/write", body)["events"]]
        for step in written[:-1]:
            with torch.no_grad():
                logits = run.model(torch.tensor([ids]))[0, -1]
            assert step["id"] == int(logits.argmax())
            assert step["logprob"] == pytest.approx(float(logits.log_softmax(-1).max()), abs=1e-4)
            ids.append(step["id"])
    assert written[-1] == {"finish": "length", "text": ""}


def test_drawn_tokens_obey_top_k_and_the_seed(tmp_path: Path) -> None:
    tokenizer = CharTokenizer.train(LETTERS)
    config = GPTConfig(tokenizer.vocab_size, max_len=31, n_layers=1, n_heads=2, d_model=24)
    run = make_run(tmp_path / "run", "gpt", GPT(config), tokenizer)
    with engine(run, tmp_path) as ask:

        def draw(**how: object) -> list[int]:
            body = {"ids": [1, 2], "max_tokens": 40, "temperature": 5, **how}
            return [data["id"] for event, data in ask("POST", "/api/write", body)["events"][:-1]]

        first = [draw(top_k=2, max_tokens=1, seed=seed)[0] for seed in range(30)]
        with torch.no_grad():
            best = run.model(torch.tensor([[1, 2]]))[0, -1].topk(2).indices.tolist()
        assert {*first} == {*best}
        assert draw(seed=7) == draw(seed=7) != draw(seed=8)
        assert draw(top_k=1) == draw(temperature=0) == draw(top_p=1e-9) == draw(min_p=1)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "alibi"])
def test_translator_and_reader_predict_what_torch_does(tmp_path: Path, positions: str) -> None:
    tokenizer = CharTokenizer.train(LETTERS, ["<pad>", "<bos>", "<eos>"])
    config = TransformerConfig(
        tokenizer.vocab_size, max_len=53, n_layers=2, n_heads=2, d_model=24, positions=positions,
        pad=tokenizer.specials["<pad>"], norm_place="post" if positions == "learned" else "pre",
        shared=positions != "rotary", embed_norm=positions == "alibi", n_decoder_layers=1,
    )  # fmt: skip
    from glasshead.page.predictions import Cut, predict

    text = "小猫它在 abc"
    edge = {"layer": 1, "head": 1, "query": 2, "query_stop": 4, "key": 0, "key_stop": 2}
    cut = Cut(edges=((1, 1, slice(2, 4), slice(0, 2)),))
    for kind, model in (("reader", Reader(config)), ("transformer", Transformer(config))):
        run = make_run(tmp_path / kind, kind, model, tokenizer)
        with engine(run, tmp_path) as ask:
            for body, how in (({}, Cut()), ({"heads": [[0, 1]]}, Cut(heads=((0, 1),))),
                              ({"edges": [edge]}, cut)):  # fmt: skip
                found = ask("POST", "/api/ablate", {"text": text, "at": 0, **body})["body"]
                expected = predict(run, text, how, 0)
                for mine, theirs in zip(found.pop("words"), expected.pop("words"), strict=True):
                    assert mine == pytest.approx(theirs, abs=2e-5)
                assert found == expected


# -- rounding --


def test_rounded_parameters_are_those_whose_cost_is_measured(tmp_path: Path) -> None:
    tokenizer = ByteTokenizer()
    config = GPTConfig(256, max_len=64, n_layers=2, n_heads=2, d_model=24)
    run = make_run(tmp_path / "run", "gpt", GPT(config), tokenizer)
    from glasshead.page.packing import _rounded  # what the cost is measured with

    for precision in ("float16", "int8"):
        rounded = GPT(config).eval()
        rounded.load_state_dict(run.model.state_dict())
        with torch.no_grad():
            for tensor in rounded.parameters():
                tensor.copy_(_rounded(tensor, precision))
            expected = rounded(torch.tensor([[1, 2, 3]]))[0, -1]
        with engine(run, tmp_path, precision) as ask:
            torch.testing.assert_close(
                torch.tensor(ask("logits", [1, 2, 3])), expected, rtol=1e-5, atol=1e-5
            )
        entry = describe("run", run.path)
        data = pack_run(run, entry, precision).data
        assert len(data) == pytest.approx(packed_size(run, precision), abs=200)
    costs = [rounding_cost(run, precision) for precision in ("float32", "float16", "int8")]
    assert costs[0] == 0
    assert 0 < costs[1] < costs[2]  # type: ignore[operator]


# -- tokenizers and words --

TEXTS = [
    "It's the cat's mat, isn't it? 12345 times — naïve café.",
    "  two  spaces\n\n\tand a tab \r\n小猫昨天在公园里追逐蝴蝶，它饿坏了。",
    "ｈａｌｆ　full ﾊﾝｶｸ カタカナ ひらがな 한국어 עברית हिन्दी 👩‍👩‍👧 e\u0301 \u3000x \x85 \ufeff.",
]


@pytest.mark.parametrize("cut", [split_words, split_gpt2_words])
def test_bpe_ids_are_those_of_the_library(tmp_path: Path, cut: object) -> None:
    tokenizer = BPETokenizer.train(TEXTS * 3, 400, ["<eos>"], cut=cut)  # type: ignore[arg-type]
    config = GPTConfig(tokenizer.vocab_size, max_len=8, n_layers=0, d_model=8, positions="none")
    run = make_run(tmp_path / "run", "gpt", GPT(config), tokenizer)
    draw = random.Random(1)
    letters = "".join(TEXTS) + "'\u2003\u0303〆ー々①Ⅷ٣"
    some = ["".join(draw.choices(letters, k=40)) for _ in range(200)]
    with engine(run, tmp_path) as ask:
        for text in [*TEXTS, *some, "<eos>"]:
            ids = tokenizer.encode_ids(text).tolist()
            assert ask("tokens", text) == ids, text
            assert ask("decode", ids) == text


def test_other_tokenizers_and_their_errors(tmp_path: Path) -> None:
    tokenizers: list[Tokenizer] = [
        CharTokenizer.train(LETTERS), ByteTokenizer(["<eos>"]),
        WordTokenizer(["ab", "abc", "cd", "小猫", "猫", "小"], ["<pad>"]),
    ]  # fmt: skip
    for number, tokenizer in enumerate(tokenizers):
        config = GPTConfig(tokenizer.vocab_size, max_len=8, n_layers=0, d_model=8)
        run = make_run(tmp_path / str(number), "gpt", GPT(config), tokenizer)
        with engine(run, tmp_path) as ask:
            for text in ("abcd小猫", "小猫", "猫", "它xyz"):
                try:
                    expected = tokenizer.encode_ids(text).tolist()
                except InputError:
                    assert "error" in ask("tokens", text)
                else:
                    assert ask("tokens", text) == expected


def test_words_are_those_of_observe(tmp_path: Path) -> None:
    config = GPTConfig(256, max_len=8, n_layers=0, d_model=8)
    run = make_run(tmp_path / "run", "gpt", GPT(config), ByteTokenizer())
    draw = random.Random(2)
    with engine(run, tmp_path) as ask:
        for _ in range(150):
            data = "".join(draw.choices("".join(TEXTS) + "'’ \n", k=12)).encode()
            if draw.random() < 0.3:
                data = bytes(draw.choices([*data, 0xE7, 0x8C, 0xF0, 0x80, 0xC0, 0xFF], k=14))
            cuts = sorted(draw.sample(range(len(data) + 1), 5))
            pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
            tokens = [as_token(piece) for piece in pieces]
            sent = [one if isinstance(one, str) else list(one) for one in tokens]
            expected = [
                [[visible(w.text), w.start, w.stop] for w in how(tokens)]
                for how in (words, characters)
            ]
            assert ask("words", sent) == expected, tokens


# -- what it says --

ENGINE = ROOT / "glasshead/page/web/engine"
QUOTED = re.compile(r'(?:InputError\(\s*|hint[:=] |hint = |told = )(`[^`]*`|"[^"]*")')
VALUE = re.compile(r"\$\{(?:[^{}]|\{[^}]*\})*\}")


def templates() -> Iterator[str]:
    """The engine's messages and hints, with {0}, {1} … for their values."""
    for file in ENGINE.glob("*.js"):
        for found in QUOTED.finditer(file.read_text(encoding="utf-8")):
            text = found[1][1:-1]
            if text and not text.startswith("no tokenizer"):  # that cannot happen
                numbers = count()
                yield VALUE.sub(lambda _, numbers=numbers: f"{{{next(numbers)}}}", text)


def test_every_message_has_chinese_and_the_servers_where_it_has_the_same() -> None:
    pair = r'^  "([^"]+)":\s+"([^"]+)",$'
    table = (ENGINE / "messages_zh.js").read_text(encoding="utf-8")
    chinese = dict(re.findall(pair, table, re.MULTILINE))
    assert {*templates()} == {*chinese}
    server = json.loads((ROOT / "glasshead/messages_zh.json").read_text(encoding="utf-8"))
    assert {k: v for k, v in chinese.items() if server.get(k, v) != v} == {}
    for english, translated in chinese.items():
        holes = re.findall(r"\{\d\}", english)
        assert sorted(re.findall(r"\{\d\}", translated)) == sorted(holes)


def test_a_chinese_page_gets_chinese_messages(tmp_path: Path) -> None:
    tokenizer = CharTokenizer.train(LETTERS)
    config = GPTConfig(tokenizer.vocab_size, max_len=8, n_layers=1, n_heads=2, d_model=24)
    run = make_run(tmp_path / "run", "gpt", GPT(config), tokenizer)
    with engine(run, tmp_path) as ask:

        def told(path: str, body: object, lang: str) -> tuple[str, str]:
            error = ask("POST", path, body, lang)["body"]["error"]
            return error["message"], error["hint"]

        unknown = {"text": "狗 (.*)", "tokens": True}
        assert told("/api/look", unknown, "zh") == (
            "训练文本里没有字符“狗”（U+72D7）", "把它删去"
        )  # fmt: skip
        assert told("/api/look", unknown, "en")[0].startswith("character '狗' (U+72D7) was not")
        assert told("/api/look", {"text": ""}, "zh") == ("文本是空的", "给一段文本来看")
        assert told("/api/translate", {"text": "a"}, "zh") == ("run 不是翻译器", "选一个翻译器")


def test_the_kernel_is_what_its_source_gives() -> None:
    node = shutil.which("node")
    if node is None or not (ROOT / "node_modules" / "wabt").is_dir():
        pytest.skip("needs Node and `npm ci`")
    done = subprocess.run([node, "tools/assemble.mjs", "--check"], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
