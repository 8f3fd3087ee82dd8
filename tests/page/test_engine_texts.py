"""What the page's own engine writes and translates, against the functions of the commands."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from glasshead.checkpoint import load
from glasshead.checkpoint.run_folder import RunFolder
from glasshead.generation.beam import SearchConfig, search
from glasshead.generation.decode import generate
from glasshead.generation.sampling import GREEDY, SamplingConfig, probabilities
from glasshead.generation.translation_rows import SpecialTokens
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.transformer import Transformer, TransformerConfig
from glasshead.observe.recording import observing
from glasshead.text.tokenizer import CharTokenizer

from .engine import engine
from .test_engine import LETTERS, ROOT, make_run


def test_a_text_longer_than_the_context_is_read_from_where_the_context_begins(
    tmp_path: Path,
) -> None:
    """As `generate` reads it, and with the numbers that tokens have in the whole text."""
    tokenizer = CharTokenizer.train(LETTERS)
    config = GPTConfig(tokenizer.vocab_size, max_len=17, n_layers=2, n_heads=2, d_model=24)
    run = make_run(tmp_path / "run", "gpt", GPT(config), tokenizer)
    ids = [random.Random(7).randrange(tokenizer.vocab_size) for _ in range(41)]
    with engine(run, tmp_path) as ask:
        for at in (5, 17, 18, 37, 41):
            start = max(0, at - 17)
            with observing(run.model, keep="tensors") as trace, torch.no_grad():
                run.model(torch.tensor([ids[start:at]]))
            told = ask("POST", "/api/write/look", {"ids": ids, "at": at})["body"]
            assert (told["from"], told["at"], len(told["layers"])) == (start, at, 2)
            for layer in told["layers"]:
                rows = trace.weights(layer["index"])[0, :, -1]  # (H, S)
                for head, row in zip(layer["heads"], rows, strict=True):
                    expected = {start + key: weight for key, weight in enumerate(row.tolist())}
                    assert dict(head) == pytest.approx(expected, abs=1e-5)
        found = ask("POST", "/api/write/read", {"ids": ids})["body"]
        assert found["from"] == 41 - 17
        with torch.no_grad():
            logs = run.model(torch.tensor([ids[-17:]]))[0].log_softmax(-1)
        assert ["logprob" in token for token in found["tokens"]] == [False] * 25 + [True] * 16
        for token, row, own in zip(found["tokens"][25:], logs, ids[25:], strict=False):
            assert token["logprob"] == pytest.approx(float(row[own]), abs=1e-4)
        written = [
            data["id"]
            for _, data in ask("POST", "/api/write", {"ids": ids, "max_tokens": 29,
                                                      "temperature": 0})["events"][:-1]
        ]  # fmt: skip
    assert written == [step[0] for step in generate(run.model, [ids], GREEDY, max_tokens=29)]


# What the page calls each setting, and probabilities of cases that arrive as JSON.
SAMPLING = """
import { readFileSync } from "node:fs";
import { probabilities } from %s;
const cases = JSON.parse(readFileSync(0, "utf8"));
const found = cases.map(([x, how, seen]) => probabilities(Float32Array.from(x), how, seen));
console.log(JSON.stringify(found.map((one) => [...one])));
"""


def test_probabilities_are_those_of_the_command() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node")
    draw, V, cases, expected = random.Random(11), 23, [], []
    for _ in range(300):
        logits = [draw.gauss(0, 3) for _ in range(V)]
        seen = draw.choices(range(V), k=draw.choice([0, 1, 5, 40]))  # some occur many times
        how = {
            "temperature": draw.choice([0.3, 1.0, 1.7]),
            "top_k": draw.choice([None, 1, 3, 19, 99]),
            "top_p": draw.choice([1.0, 0.2, 0.9]),
            "min_p": draw.choice([0.0, 0.05, 0.6]),
            "repetition_penalty": draw.choice([1.0, 1.3, 0.7]),
        }
        known = torch.zeros(1, V, dtype=torch.bool)
        known[0, seen] = True
        one = probabilities(torch.tensor([logits]), SamplingConfig(**how), known)
        cases.append((logits, how, seen))
        expected.append(one[0])
    module = (ROOT / "glasshead/page/web/engine/sampling.js").as_uri()
    done = subprocess.run(
        [node, "--input-type=module", "-e", SAMPLING % json.dumps(module)],
        input=json.dumps(cases), capture_output=True, text=True, encoding="utf-8", check=True,
    )  # fmt: skip
    found = torch.tensor(json.loads(done.stdout))
    torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_translations_are_those_of_beam_search(tmp_path: Path, positions: str) -> None:
    tokenizer = CharTokenizer.train(LETTERS, ["<pad>", "<bos>", "<eos>"])
    config = TransformerConfig(
        tokenizer.vocab_size, max_len=23, n_layers=1, n_heads=2, d_model=24, positions=positions,
        pad=tokenizer.specials["<pad>"], head_bias=True,
    )  # fmt: skip
    run = make_run(tmp_path / "run", "transformer", Transformer(config), tokenizer)
    seen = set()
    for change in (1.5, -9.0):  # with a likely end, and with none
        with torch.no_grad():
            run.model.head.bias[tokenizer.specials["<eos>"]] += change
        RunFolder.create(tmp_path / f"{change}", run.config, tokenizer, run.model)
        one = load(tmp_path / f"{change}")
        special = SpecialTokens.of(tokenizer, one.model)
        with engine(one, tmp_path) as ask:
            for text in ("小猫 ab", "它"):
                for beam, alpha, n in ((1, 0.6, 1), (3, 0.0, 2), (4, 1.7, 4)):
                    ids = tokenizer.encode_ids(text).tolist()
                    best = search(one.model, [ids], special, SearchConfig(beam, alpha),
                                  1 if n == 1 else beam)[0]  # fmt: skip
                    # Of those that read the same, the best.
                    distinct = {tokenizer.decode(h.ids).strip(): h for h in reversed(best)}
                    expected = [h for h in best if h in distinct.values()][:n]
                    body = {"text": text, "beam": beam, "alpha": alpha, "n_best": n}
                    [part] = ask("POST", "/api/translate", body)["body"]["parts"]
                    found = part["candidates"]
                    assert [each["target"] for each in found] == [list(h.ids) for h in expected]
                    for mine, theirs in zip(found, expected, strict=True):
                        assert mine["ended"] == theirs.ended
                        assert mine["log_prob"] == pytest.approx(theirs.log_prob, abs=1e-4)
                        assert mine["score"] == pytest.approx(theirs.score, abs=1e-4)
                        seen.add(theirs.ended)
    assert seen == {True, False}
