"""A GPT-2 of 124M parameters behind HTTP: tokens a second as the OpenAI client gets them.

    python -m bench.serve_openai [--quick] [--device cuda] [--json FILE]

Starts `glasshead serve` on a run made for it. Clients are threads of the `openai` package in
several processes: one client alone, then 64 at once, whole answers and streamed ones. Lengths
differ, so that texts join and leave all the time. Every answer is compared with the ids that
`generate` gives for the same prompt without a server, alone.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.serve import free_port

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SHAPE = {"vocab_size": 50257, "max_len": 1024, "n_layers": 12, "n_heads": 12, "d_model": 768}
TINY = {"vocab_size": 509, "max_len": 256, "n_layers": 2, "n_heads": 2, "d_model": 64}
MODEL = "gpt"


def words(count: int) -> list[str]:
    """Words of four letters, so that a text has one reading."""
    letters = product(LETTERS, repeat=4)
    return ["".join(next(letters)) for _ in range(count)]


def make_run(path: Path, quick: bool) -> None:
    import torch

    from glasshead.checkpoint import RunConfig, RunFolder
    from glasshead.model.gpt import GPT, GPTConfig
    from glasshead.text.word_tokenizer import WordTokenizer

    torch.manual_seed(1)
    shape: dict[str, Any] = TINY if quick else SHAPE
    config = GPTConfig(**shape, feed_forward="gelu-tanh", qkv_bias=True, tied=True, head_bias=False)
    about = RunConfig(kind="gpt", model=asdict(config), train={}, data={})
    model = GPT(config) if quick else GPT(config).bfloat16()
    RunFolder.create(path, about, WordTokenizer(words(config.vocab_size)), model)


def requests(clients: int, each: int, tokens: tuple[int, int]) -> list[list[tuple[list[int], int]]]:
    """For each client, prompts and how many tokens to continue them by."""
    draw = random.Random(1)
    return [
        [
            ([draw.randrange(500) for _ in range(draw.randint(5, 32))], draw.randint(*tokens))
            for _ in range(each)
        ]
        for _ in range(clients)
    ]


def ask_all(
    port: int, asked: Sequence[Sequence[tuple[list[int], int]]], stream: bool
) -> list[list[str]]:
    """Run in a process of its own: a thread for each client, one request after the other."""
    from openai import OpenAI

    api = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", timeout=600)

    def ask(prompt: list[int], length: int) -> str:
        reply: Any = api.completions.create(
            model=MODEL, prompt=prompt, max_tokens=length, temperature=0, stream=stream
        )
        if stream:
            return "".join(part.choices[0].text for part in reply)
        return str(reply.choices[0].text)

    with ThreadPoolExecutor(len(asked)) as pool:
        return list(pool.map(lambda mine: [ask(*one) for one in mine], asked))


def measure(
    port: int, clients: int, each: int, tokens: tuple[int, int], stream: bool, processes: int
) -> tuple[float, list[tuple[list[int], int, str]]]:
    """Return tokens a second over all clients, and each request with its answer."""
    asked = requests(clients, each, tokens)
    shares = [asked[n::processes] for n in range(min(processes, clients))]
    context = get_context("spawn")
    with ProcessPoolExecutor(len(shares), mp_context=context) as pool:
        warm = [pool.submit(ask_all, port, [[([1], 2)]], False) for _ in shares]
        for one in warm:
            one.result()
        start = time.perf_counter()
        answers = list(pool.map(ask_all, [port] * len(shares), shares, [stream] * len(shares)))
        took = time.perf_counter() - start
    found = [
        (prompt, length, answer)
        for share, said in zip(shares, answers, strict=True)
        for mine, texts in zip(share, said, strict=True)
        for (prompt, length), answer in zip(mine, texts, strict=True)
    ]
    return sum(len(answer) // 4 for _, _, answer in found) / took, found


def same_ids(run: Path, device: str, asked: list[tuple[list[int], int, str]]) -> str:
    """Compare some answers with `generate` of the same prompt alone."""
    import glasshead
    from glasshead.generation.decode import generate
    from glasshead.generation.sampling import GREEDY

    opened = glasshead.load(run)
    model: Any = opened.model.to(device)
    same, equal, some = 0, [], asked[:: max(1, len(asked) // 64)]
    for prompt, length, answer in some:
        steps = generate(model, [prompt], GREEDY, max_tokens=length)
        text = opened.tokenizer.decode([step[0] for step in steps])
        if text == answer:
            same += 1
        else:
            differ = (a != b for a, b in zip(text, answer, strict=False))
            equal.append(next((n for n, other in enumerate(differ) if other), 0) // 4)
    note = f"; of the others the first {statistics.median(equal):.0f} (median)" if equal else ""
    return f"{same} of {len(some)} answers have the ids of `generate` alone{note}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / MODEL
        make_run(run, args.quick)
        port = free_port()
        command = [sys.executable, "-m", "glasshead", "serve", str(run), "--port", str(port)]
        command += ["--no-open", "--batch", "64", "--waiting", "128", "--device", args.device]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(port, server)
            long = (20, 40) if args.quick else (400, 600)
            short = (10, 30) if args.quick else (128, 384)
            plans = [
                ("1 client", 1, 2 if args.quick else 5, long, False),
                ("1 client, streamed", 1, 2 if args.quick else 5, long, True),
                ("64 clients", 64, 2 if args.quick else 12, short, False),
                ("64 clients, streamed", 64, 1 if args.quick else 4, short, True),
            ]
            answers: list[tuple[list[int], int, str]] = []
            for name, clients, each, tokens, stream in plans:
                for attempt in ("the first time", "again"):
                    speed, answered = measure(port, clients, each, tokens, stream, args.processes)
                    found[f"{name}, {attempt}"] = round(speed)
                    print(f"{name:24}{attempt:16}{speed:10,.0f} tokens/s", flush=True)
                answers += answered
        finally:
            server.terminate()
            server.wait(60)
        found["ids"] = same_ids(run, args.device, answers)
        print(found["ids"])
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server listens."""
    import socket

    for _ in range(1200):
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        if server.poll() is not None:
            raise SystemExit(f"glasshead serve ended with code {server.returncode}")
        time.sleep(0.1)
    raise SystemExit("glasshead serve does not listen")


if __name__ == "__main__":
    main()
